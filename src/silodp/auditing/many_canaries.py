"""Many canaries in one run, each along an axis of its own, and what guessing them proves.

A run of the probe (see `probes`) is one of the plan: its records, rate, steps, rounds, passes and
noise. Some of the records are canaries, each on a parameter of its own, and in or out by a coin
(under replace-one: itself or its opposite). What the adversary sees of each is its parameter, in
every pass; the score is the likelihood ratio of both worlds.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from silodp.auditing import betting, one_run
from silodp.auditing.bounds import choosing
from silodp.auditing.curve import Curve
from silodp.auditing.probes import linear_job, read_sums, regression_silos
from silodp.auditing.scores import likelihood_ratio
from silodp.data.federation import Federation
from silodp.engines.job import Job
from silodp.privacy.plan import SiloPlan

_LONG = 1000.0
_FEWEST_RUNS, _MOST_RUNS = 100, 3000
_CANARIES = 32
_WORK = 1e9  # multiplications of all runs
# The points of the plan's curve that are bet against.
_POINTS = 12
# Whoever looks for the best point bets against a plan with so much more noise.
_MORE_NOISE = 1.25


class Guessed(NamedTuple):
    """Scores of canaries [runs, canaries], and which of them were in."""

    scores: np.ndarray
    inside: np.ndarray


@dataclass(frozen=True)
class Bound:
    """A lower bound on epsilon.

    Attributes:
      name: how it was found.
      epsilon: the bound.
      by_curve: whether it takes for granted that the silo does what is planned but for its noise.
    """

    name: str
    epsilon: float
    by_curve: bool = False


def guess_canaries(job: Job, plan: SiloPlan, seeds: range, most_runs: int) -> Guessed:
    """Runs with canaries whose coins are drawn anew in each."""
    passes, rounds = job.schedule.train, job.rounds
    rows = plan.total_steps * plan.batch_capacity + plan.true_count
    canaries = min(plan.true_count, _CANARIES)
    runs = int(np.clip(_WORK / (rows * canaries), _FEWEST_RUNS, _MOST_RUNS))
    runs = min(runs, most_runs)
    # Coins of the audit's own: they are no part of what is audited.
    inside = np.random.default_rng(seeds[0]).random((runs, canaries)) < 0.5
    out = -1.0 if plan.relation == "replace-one" else 0.0
    x = np.zeros((plan.true_count, canaries), np.float32)
    x[np.arange(canaries), np.arange(canaries)] = _LONG

    def world(own: np.ndarray) -> Federation:
        y = np.zeros(plan.true_count)
        y[:canaries] = -_LONG * np.where(own, 1.0, out)
        return regression_silos([(plan.silo, x, y)])

    federations = [world(own) for own in inside]
    probe = linear_job(job, canaries)
    sums = read_sums(probe, federations, [plan], seeds[:runs], rounds, passes, (1.0,) * rounds)
    # In units of the noise of one step; [runs, canaries, passes of the run].
    readings = np.moveaxis(sums[:, 0, :, :, :canaries], -1, 1).reshape(runs, canaries, -1)
    readings = np.nan_to_num(readings / plan.noise_multiplier, nan=1e9, posinf=1e9, neginf=-1e9)
    scores = likelihood_ratio(readings.reshape(runs * canaries, -1), plan)
    return Guessed(scores.reshape(runs, canaries), inside)


def bounds_of(guessed: Guessed, plan: SiloPlan, curve: Curve, confidence: float) -> list[Bound]:
    """Four lower bounds, each of which holds with that confidence."""
    few = choosing(len(guessed.scores))
    tried, judging = (
        Guessed(*(a[part] for a in guessed)) for part in (slice(few), slice(few, None))
    )
    return [
        _bet(tried, judging, plan, confidence),
        _bet_on_curve(tried, judging, curve, confidence),
        *_one_run(tried, judging, plan, curve, confidence),
    ]


def _bet(tried: Guessed, judging: Guessed, plan: SiloPlan, confidence: float) -> Bound:
    def worth(flags: betting.Flags) -> float:
        return betting.epsilon_bound(flags, plan.delta, confidence)

    rule, _ = betting.choose_rule(*tried, worth)
    return Bound("many canaries", worth(rule.flags(*judging)))


def _bet_on_curve(tried: Guessed, judging: Guessed, curve: Curve, confidence: float) -> Bound:
    points = curve.epsilons[:: max(1, len(curve.epsilons) // _POINTS)]
    deltas = np.interp(points, *curve.deltas(_MORE_NOISE))
    chosen = []
    for epsilon, delta in zip(points.tolist(), deltas.tolist(), strict=True):

        def worth(flags: betting.Flags, epsilon=epsilon, delta=delta) -> float:
            return betting.won(flags, epsilon, delta)

        rule, value = betting.choose_rule(*tried, worth)
        chosen.append((value, epsilon, rule))
    _, epsilon, rule = max(chosen, key=lambda one: one[0])
    most = betting.noise_bound(
        rule.flags(*judging),
        epsilon,
        confidence,
        lambda multiple: float(np.interp(epsilon, *curve.deltas(multiple))),
    )
    return Bound("many canaries, by the curve", curve.epsilon(most), by_curve=True)


def _one_run(
    tried: Guessed, judging: Guessed, plan: SiloPlan, curve: Curve, confidence: float
) -> list[Bound]:
    """All runs as one, by the theorems for a single run."""
    tried, judging = (Guessed(*(a.ravel() for a in one)) for one in (tried, judging))

    def worth(canaries: int, guesses: int, right: int) -> float:
        return one_run.epsilon_bound(canaries, guesses, right, plan.delta, confidence)

    part = one_run.best_part(*tried, worth)
    found = (len(judging.scores), *one_run.right_guesses(*judging, part))
    most = one_run.noise_bound(*found, confidence, curve.deltas)
    return [
        Bound("canaries of one run", worth(*found)),
        Bound("canaries of one run, by the curve", curve.epsilon(most), by_curve=True),
    ]
