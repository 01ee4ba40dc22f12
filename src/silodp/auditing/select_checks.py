"""Are private selections made with the odds that are paid for?

The probe's records let two candidate models differ in their score by a known amount: so many of the
records have the largest loss under the second, and none under the first. With the sensitivity of
`selection` and its epsilon, the odds follow in closed form:

- exponential mechanism: the worse one wins with odds of exp(-epsilon gap / (2 sensitivity));
- permute-and-flip: with a chance of exp(-epsilon gap / (2 sensitivity)) / 2.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from silodp.auditing.checks import Check, of_count, strangest
from silodp.auditing.probes import linear_job, plans_of, regression_silos
from silodp.engines.job import Job, Setting
from silodp.engines.layout import group_silos
from silodp.engines.simulation import Simulation
from silodp.methods import MethodEntry
from silodp.methods.base import Method
from silodp.privacy.mechanisms.queries import Queries, Schedule
from silodp.privacy.plan import SiloPlan
from silodp.privacy.session import free_rounds

_ROUNDS, _TRIALS = 100, 64
# What epsilon times the gap is to be, in units of twice the sensitivity, where records suffice.
_GAP = 1.5
# A weight with which the loss of any record of feature 1 is the largest that counts.
_BAD = 1e6


def check_selections(
    job: Job, plans: Sequence[SiloPlan], place: int, seeds: Sequence[int]
) -> list[Check]:
    """Checks of the choices of the silo at that place; arguments as for `check_noise`."""
    worse = [_worse(plan) for plan in plans]
    federation = regression_silos(
        [
            (
                plan.silo,
                (np.arange(plan.true_count) < bad)[:, None].astype(float),
                np.zeros(plan.true_count),
            )
            for plan, bad in zip(plans, worse, strict=True)
        ]
    )
    probe = replace(
        linear_job(job, 1),
        method=_choosing(),
        fixed={},
        rounds=_ROUNDS,
        weights=np.full(len(plans), 1 / len(plans)),
        select_score="loss",
    )
    seeds = seeds[:_TRIALS]
    setting = Setting(1.0, plans_of(probe, plans), {})
    simulation = Simulation(probe, seeds, [federation] * len(seeds), [setting])
    state, _ = simulation.advance(
        simulation.initial_state(), free_rounds(0, _ROUNDS), evaluate=False
    )
    groups = group_silos(setting.plans, probe.release)
    order = np.argsort(np.concatenate([group.members for group in groups]))
    by_group = [np.asarray(group[1])[:, :, 0] for group in state.silos]
    chosen = np.concatenate(by_group, axis=1)[: len(seeds), order]
    rates = [
        _chance(job, plan, _exponent(plan, bad)) for plan, bad in zip(plans, worse, strict=True)
    ]
    own, rate = chosen[:, place], rates[place]
    checks = [
        Check(
            "a selection has the odds of its epsilon",
            f"the worse of two wins in {own.mean():.4g} of {own.size}",
            f"{rate:.4g}",
            float(of_count(int(own.sum()), own.size, rate)),
        ),
        _both("rounds", own.T, rate),
        _both("trials", own, rate),
    ]
    for number, plan in enumerate(plans):
        if number != place:
            common = int(np.sum(own * chosen[:, number]))
            checks.append(
                Check(
                    f"selections of another silo ({plan.silo}) are independent",
                    f"the worse wins in both in {common / own.size:.4g}",
                    f"{rate * rates[number]:.4g}",
                    float(of_count(common, own.size, rate * rates[number])),
                )
            )
    return checks


def _worse(plan: SiloPlan) -> int:
    """How many records have another loss under the second candidate."""
    count = _GAP * 2 * plan.public_count / (plan.select_epsilon * max(1, plan.public_count - 1))
    return int(np.clip(round(count), 1, plan.true_count))


def _exponent(plan: SiloPlan, bad: int) -> float:
    """epsilon times the gap of scores over twice their sensitivity."""
    n = plan.public_count
    sensitivity = 1 / n if plan.relation == "replace-one" else 1 / (n - 1)
    return plan.select_epsilon * (bad / n) / (2 * sensitivity)


def _chance(job: Job, plan: SiloPlan, exponent: float) -> float:
    """The probability that the worse of two is chosen."""
    if job.select_mechanism == "exponential":
        return 1 / (1 + math.exp(exponent))
    return math.exp(-exponent) / 2


def _both(what: str, chosen: np.ndarray, rate: float) -> Check:
    """Whether any two rows [n, choices] have more (or less) in common than by chance."""
    both = (chosen @ chosen.T)[np.triu_indices(len(chosen), 1)]
    worst, p = strangest(of_count(both, chosen.shape[1], rate**2))
    return Check(
        f"selections of different {what} are independent",
        f"the worse wins in both in {both[worst] / chosen.shape[1]:.4g} of {chosen.shape[1]}",
        f"{rate**2:.4g}",
        p,
    )


def _choosing() -> MethodEntry:
    """A method that chooses between a good and a bad model in every round."""

    def build(rounds: int) -> Method:
        def local(silo, _, queries: Queries):
            number, chosen = silo
            candidates = jnp.array([[0.0, 0.0], [_BAD, 0.0]], jnp.float32)
            choice = queries.select(candidates, jnp.int32(0)).astype(jnp.int32)
            return (number + 1, chosen.at[number].set(choice)), ()

        return Method(
            schedule=lambda rounds: Schedule(rounds, train=1, select_rounds=rounds),
            init=lambda start: ((), (jnp.int32(0), jnp.zeros(rounds, jnp.int32))),
            broadcast=lambda server: server,
            local=local,
            merge=lambda server, messages, weights: server,
            personal=lambda silo, _: jnp.zeros(2),
        )

    return MethodEntry("chooses between two models", "1 selection a round", build)
