"""Audits a run from a user's options: checks of what is released, and bounds on epsilon."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Unpack

import jax
import numpy as np

from silodp.auditing.bounds import (
    Attack,
    choose_attack,
    choosing,
    epsilon_bound,
    largest_bound,
    noise_bound,
    separation,
    trials_for,
)
from silodp.auditing.canary import Worlds, make_worlds
from silodp.auditing.checks import FALSE_ALARM, Check
from silodp.auditing.curve import Curve
from silodp.auditing.direct import direct_checks
from silodp.auditing.many_canaries import Bound, bounds_of, guess_canaries
from silodp.auditing.message_attack import (
    attack_messages,
    guess_message_canaries,
    make_message_worlds,
)
from silodp.auditing.scores import in_units_of_noise, statistics
from silodp.auditing.trials import run_trials
from silodp.auditing.watch import STRATEGIES, STRATEGY, Adversary, watched
from silodp.base.errors import SilodpError, meant
from silodp.base.notebook_progress import usual_reporter
from silodp.base.progress import Reporter
from silodp.config.options import RunRequest
from silodp.config.run_arguments import RunArguments
from silodp.data.federation import Federation, Records
from silodp.engines.devices import prepare_jax
from silodp.engines.job import Job, Setting
from silodp.models.model import Model
from silodp.models.subjects import blocks_of
from silodp.privacy.mechanisms.randomness import new_secret
from silodp.privacy.plan import SiloPlan
from silodp.runs.prepare import Data, Prepared, prepare
from silodp.runs.requests import requests_of
from silodp.runs.run import job_of

# About half a minute's work at most where data are small; a ConvNet takes what it takes.
FEWEST_TRIALS, MOST_TRIALS, HEAVY_TRIALS = 1000, 20_000, 400
# Seconds of all trials; of a round of one by itself; and of a row or random number in a step, which
# in a release is drawn on the host.
_SECONDS, _OF_ROUND, _OF_ROW, _OF_RELEASED_ROW = 30.0, 1.5e-4, 2e-8, 2.2e-7
# Bounds that share what may go wrong: two by the attack, and those by many canaries.
_BOUNDS = 6
_SEEDS = 100_000  # that probes may use
_TIMED = 5  # runs of messages by which their time is known


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
      data: name of the data.
      method: the method that was trained.
      silo: the silo that was attacked.
      unit: what epsilon protects: a "record" or a "subject".
      relation: in which the two worlds are neighbours.
      claimed_epsilon: epsilon of the silo's plan.
      delta: delta of the silo's plan.
      lower_bound: epsilon (at the claim's delta) is at least this, whatever the silo really does.
      curve_bound: epsilon is at least this, if the silo does what is planned but for its noise. It
        holds what was measured against the plan's delta at every epsilon, and so sees more.
      bounds: all that were found; the two above are the largest of each kind.
      confidence: the confidence that all bounds hold.
      largest_bound: what a perfect attack would have proven with as many trials.
      checks: the checks of what is released, with their p-values.
      false_alarm: the chance that any check of an honest run fails.
      passed: whether all bounds are at or below the claim, and all checks pass.
      entropy: where the noise came from: "os" (as in a release) or "seed" (as in an experiment).
      trials: in each world; a third choose the attack, the others judge it.
      attack: the statistic that gives the lower bound.
      curve_attack: the statistic that gives the curve bound.
      threshold: from which on it says that the canary is there.
      sign: -1 if the statistic falls with the canary.
      hit_rate: how often it is right with the canary, among those that judge.
      false_alarm_rate: how often it is wrong without.
      canary_norm: norm of the canary's features.
      noise_multiplier: noise multiplier of the silo's plan.
      rounds: number of rounds of a run, and
      round_name: what one of them is called: "round" or "message".
      silos: number of silos that took part.
      proven: whether accounting proves the claim for what the run does.
      warnings: what limits the audit.
      seconds: the time that it took.
      present: the statistic in the trials that judge, with the canary.
      absent: the same without.

    Examples:
      >>> from dataclasses import fields
      >>> [field.name for field in fields(silodp.Audit) if field.name.endswith("bound")]
      ['lower_bound', 'curve_bound', 'largest_bound']
    """

    data: str
    method: str
    silo: str
    unit: str
    relation: str
    claimed_epsilon: float
    delta: float
    lower_bound: float
    curve_bound: float
    bounds: tuple[Bound, ...]
    confidence: float
    largest_bound: float
    checks: tuple[Check, ...]
    false_alarm: float
    passed: bool
    entropy: str
    trials: int
    attack: str
    curve_attack: str
    threshold: float
    sign: int
    hit_rate: float
    false_alarm_rate: float
    canary_norm: float
    noise_multiplier: float
    rounds: int
    round_name: str
    silos: tuple[str, ...]
    proven: bool
    warnings: tuple[str, ...]
    seconds: float
    present: np.ndarray
    absent: np.ndarray

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if not check.passed)

    def as_json(self) -> dict[str, Any]:
        """All but the single trials."""
        content = asdict(self)
        del content["present"], content["absent"]
        return content


def audit(
    *,
    silo: str | None = None,
    trials: int | None = None,
    confidence: float = 0.95,
    canary_norm: float | None = None,
    others: int = 1,
    federation: Data | None = None,
    custom_model: Model | None = None,
    reporter: Reporter | None = None,
    **options: Unpack[RunArguments],
) -> Audit:
    """Checks what one silo releases in a run with these options, and attacks it.

    Args:
      silo: to attack; by default the one with fewest records, where one record weighs most.
      trials: runs in each of the two worlds; by default about what half a minute allows.
      confidence: the confidence that the lower bounds hold.
      canary_norm: norm of the canary's features; by default one that suits the task.
      others: silos that take part besides. What a silo spends does not depend on the others, and a
        run takes the longer the more there are.
      federation: records of the caller's own, as for `silodp.run`.
      custom_model: a model of the caller's own, likewise.
      reporter: what shows progress.
      **options: see `RunRequest`.

    Examples:
      An audit of an experiment (`entropy="seed"`), with as few trials as a demonstration takes:

      >>> found = silodp.audit(
      ...     data="synthetic", silos=2, method="local", epsilon=3, rounds=1,
      ...     batch_size=1000, small_silos="full-batch", entropy="seed", trials=50,
      ... )
      >>> found.passed, found.lower_bound <= found.claimed_epsilon
      (True, True)
    """
    started = time.perf_counter()
    reporter = reporter or usual_reporter()
    # As a release is made, unless an experiment is to be audited.
    requests = requests_of(
        {**options, "entropy": options.get("entropy") or "os"},
        own_data=federation is not None,
        own_model=custom_model is not None,
    )
    _check(requests, trials, confidence, canary_norm, others)
    prepared = prepare(requests, federation, custom_model, reporter)
    prepared, place = _with_few(prepared, silo, others)
    plan = prepared.plans[0][place]
    if not plan.private:
        raise SilodpError(
            f"Silo {plan.silo!r}: its epsilon is infinite, so that nothing is claimed: give "
            "--epsilon a number."
        )

    prepare_jax()
    spec = prepared.specs[0]
    entropy = spec.entropy
    job = replace(job_of(prepared), secret=new_secret(entropy))
    in_messages = job.method.in_messages
    if trials is None:
        usual = _usual_message_trials if in_messages else _usual_trials
        trials = usual(prepared, job, place)
    first, used = spec.request.first_seed, 2 * trials
    reporter.stage("checking the claim")
    checks = direct_checks(
        job,
        prepared.federations[0],
        prepared.plans[0],
        place,
        range(first + used, first + used + _SEEDS),
        reporter.stage,
    )
    each = 1 - (1 - confidence) / _BOUNDS
    curve = Curve(plan)
    reporter.stage("training with many canaries")
    guess = guess_message_canaries if in_messages else guess_canaries
    guessed = guess(job, plan, range(first + used, first + used + _SEEDS), used)
    attacked = _attacked_messages if in_messages else _attacked
    worlds, present, absent = attacked(prepared, job, place, trials, canary_norm, reporter)
    reporter.stage("choosing the attack")
    at_delta = partial(epsilon_bound, delta=plan.delta)
    point = _judged(present, absent, trials, at_delta, each)
    by_curve = _judged(present, absent, trials, separation, each)
    bounds = (
        Bound("attack", float(at_delta(*point[1:], confidence=each))),
        Bound(
            "attack, by the curve",
            curve.epsilon(noise_bound(*by_curve[1:], each, curve.deltas)),
            by_curve=True,
        ),
        *bounds_of(guessed, plan, curve, each),
    )
    return Audit(
        data=worlds.present.name,
        method=spec.request.method,
        silo=plan.silo,
        unit=plan.unit,
        relation=plan.relation,
        claimed_epsilon=plan.epsilon,
        delta=plan.delta,
        lower_bound=max(bound.epsilon for bound in bounds if not bound.by_curve),
        curve_bound=max(bound.epsilon for bound in bounds if bound.by_curve),
        bounds=bounds,
        confidence=confidence,
        largest_bound=largest_bound(trials, plan.delta, each),
        checks=checks,
        false_alarm=FALSE_ALARM,
        passed=all(check.passed for check in checks)
        and all(bound.epsilon <= plan.epsilon for bound in bounds),
        entropy=entropy,
        trials=trials,
        attack=point.attack.statistic,
        curve_attack=by_curve.attack.statistic,
        threshold=point.attack.threshold,
        sign=point.attack.sign,
        hit_rate=point.hits / point.trials,
        false_alarm_rate=point.false_alarms / point.trials,
        canary_norm=float(np.linalg.norm(worlds.canary.x[0])),
        noise_multiplier=plan.noise_multiplier,
        rounds=plan.schedule.rounds,
        round_name="message" if in_messages else "round",
        silos=worlds.present.names,
        proven=plan.release and not plan.unproven,
        warnings=_warnings(plan, trials, each),
        seconds=time.perf_counter() - started,
        present=present[point.attack.statistic][choosing(trials) :],
        absent=absent[point.attack.statistic][choosing(trials) :],
    )


Scores = dict[str, np.ndarray]


def _attacked(
    prepared: Prepared, job: Job, place: int, trials: int, norm: float | None, reporter: Reporter
) -> tuple[Worlds, Scores, Scores]:
    """The two worlds, and by name each statistic of the trials in each."""
    spec = prepared.specs[0]
    lr, plans, plan = spec.lr, spec.plans, spec.plans[place]
    worlds = make_worlds(prepared.federations[0], place, plan, job.model, plan.clip, lr, norm)
    adversary = Adversary(
        job, plan, lr, _units(job, worlds.canary), _units(job, worlds.others), worlds.starts
    )
    job = replace(job, method=watched(job.method, adversary))
    options = spec.method.traced_values(spec.values)

    def scores(world: Federation, own: SiloPlan, done: int) -> Scores:
        changed = (*plans[:place], own, *plans[place + 1 :])
        settings = [
            Setting(lr, changed, options | {STRATEGY: number}, spec.own_values)
            for number in adversary.strategies
        ]
        # No seed is used twice: the worlds must not share their noise.
        start = spec.request.first_seed + done
        seeds = range(start, start + trials)

        def progress(part: float) -> None:
            reporter.trained(done + int(part * trials), 2 * trials, math.nan)

        readings = run_trials(job, world, settings, seeds, progress)
        readings = in_units_of_noise(readings, plans, lr)
        return {
            f"{STRATEGIES[strategy]}: {name}": values
            for number, strategy in enumerate(adversary.strategies)
            for name, values in statistics(readings[:, :, number], plan, place, names).items()
        }

    names = worlds.present.names
    reporter.stage("training with the canary")
    present = scores(worlds.present, worlds.present_plan, 0)
    reporter.stage("training without the canary")
    return worlds, present, scores(worlds.absent, worlds.absent_plan, trials)


def _attacked_messages(
    prepared: Prepared, job: Job, place: int, trials: int, norm: float | None, reporter: Reporter
) -> tuple[Worlds, Scores, Scores]:
    """`_attacked` for a method of messages."""
    spec = prepared.specs[0]
    worlds = make_message_worlds(prepared.federations[0], place, spec.plans[place], norm)
    reporter.stage("asking with the canary and without")

    def progress(done: int) -> None:
        reporter.trained(done, 2 * trials, math.nan)

    seed = spec.request.first_seed
    return worlds, *attack_messages(job, worlds, spec.plans, place, trials, seed, progress)


class _Judged(NamedTuple):
    """An attack that some trials chose, and how the others judge it."""

    attack: Attack
    hits: int
    false_alarms: int
    trials: int


def _judged(
    present: Scores,
    absent: Scores,
    trials: int,
    worth: Callable[..., np.ndarray],
    confidence: float,
) -> _Judged:
    few = choosing(trials)

    def first(scores: Scores) -> Scores:
        return {name: values[:few] for name, values in scores.items()}

    attack = choose_attack(first(present), first(absent), worth, confidence)
    hits, false_alarms = (attack.alarms(s[attack.statistic][few:]) for s in (present, absent))
    return _Judged(attack, hits, false_alarms, trials - few)


def _usual_message_trials(prepared: Prepared, job: Job, place: int) -> int:
    """`_usual_trials` for a method of messages: by how long a few of them take."""
    plans, federation = prepared.specs[0].plans, prepared.federations[0]
    worlds = make_message_worlds(federation, place, plans[place], None)
    started = time.perf_counter()
    attack_messages(job, worlds, plans, place, _TIMED, 0, lambda _: None)
    seconds = (time.perf_counter() - started) / _TIMED
    return int(np.clip(_SECONDS / seconds, FEWEST_TRIALS, MOST_TRIALS))


def _usual_trials(prepared: Prepared, job: Job, _: int) -> int:
    """The number of trials that half a minute allows; a fixed one for heavy models."""
    if prepared.specs[0].model.heavy:
        return HEAVY_TRIALS
    rows = sum(p.total_steps * (p.batch_capacity + 4 * job.parameters) for p in prepared.plans[0])
    of_row = _OF_RELEASED_ROW if job.release else _OF_ROW
    seconds = _OF_ROUND * job.rounds + of_row * rows
    return int(np.clip(_SECONDS / seconds, FEWEST_TRIALS, MOST_TRIALS))


def _units(job: Job, records: Records) -> tuple[Any, Any]:
    """Records as rows that the model is trained on, prepared for it."""
    rows: tuple[Any, Any] = blocks_of(records) if job.subjects else (records.x, records.y)
    return jax.jit(job.unit_model.prepare)(rows[0]), rows[1]


def _with_few(prepared: Prepared, silo: str | None, others: int) -> tuple[Prepared, int]:
    """The audited silo and the first few others; and where it then is."""
    federation = prepared.federations[0]
    names = federation.names
    if silo is not None and silo not in names:
        raise SilodpError(f"--silo is {silo!r}, but no silo is called so: {meant(silo, names)}")
    place = int(np.argmin(federation.public_counts)) if silo is None else names.index(silo)
    company = [number for number in range(len(names)) if number != place][:others]
    kept = sorted([place, *company])
    few = replace(federation, silos=tuple(federation.silos[number] for number in kept)).decoded()
    spec = prepared.specs[0]
    spec = replace(
        spec,
        policies=tuple(spec.policies[number] for number in kept),
        plans=tuple(spec.plans[number] for number in kept),
        own_values={
            option: tuple(values[number] for number in kept)
            for option, values in spec.own_values.items()
        },
    )
    prepared = prepared._replace(federations=[few], specs=[spec])
    return prepared, kept.index(place)


def _check(
    requests: Sequence[RunRequest],
    trials: int | None,
    confidence: float,
    canary_norm: float | None,
    others: int,
) -> None:
    """Refuses what cannot be audited."""
    if len(requests) > 1:
        raise SilodpError("An audit is of one setting: give single numbers, no lists.")
    if trials is not None and trials < 20:
        raise SilodpError(f"--trials is {trials}: give at least 20 (thousands, to prove much).")
    if not 0 < confidence < 1:
        raise SilodpError(f"--confidence is {confidence}: give a number between 0 and 1.")
    if canary_norm is not None and not 0 < canary_norm < 1e6:
        raise SilodpError(f"--canary-norm is {canary_norm}: give a number between 0 and 1e6.")
    if others < 0:
        raise SilodpError(f"--others is {others}: give a whole number of at least 0.")
    one = requests[0]
    for flag, given, why in (
        ("--ledger", one.ledger, "an audit releases no model and charges nothing"),
        ("--engine debug", one.engine == "debug", "it is far too slow for thousands of runs"),
        ("--seeds", one.seeds > 1, "--trials says how many runs there are"),
        ("--statistics-share", one.statistics_share, "only training is attacked"),
    ):
        if given:
            raise SilodpError(f"{flag}: {why}: leave it out of an audit.")


def _warnings(plan: SiloPlan, trials: int, confidence: float) -> tuple[str, ...]:
    """What limits an audit of this plan."""
    most = largest_bound(trials, plan.delta, confidence)
    if most > plan.epsilon:
        return ()
    enough = trials_for(plan.epsilon, plan.delta, confidence)
    return (
        f"{trials} trials can prove an epsilon of {most:.3g} at most, below the claim of "
        f"{plan.epsilon:.3g}: give --trials {enough} or more",
    )
