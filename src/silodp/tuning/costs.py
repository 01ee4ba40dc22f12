"""What tuning costs beside a run with given hyperparameters, and beside a naive grid search."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from dp_accounting import DpEvent
from dp_accounting.dp_event import SelfComposedDpEvent

from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.calibration import CalibrationRequest, calibrate_many
from silodp.privacy.plan import SiloPlan
from silodp.runs.planning import by_budget
from silodp.runs.prepare import Prepared, plans_of


def costs_of(prepared: Prepared, records: np.ndarray, points: int) -> list[dict[str, Any]]:
    """Of each budget, for its silo of median size: noise at equal epsilon, epsilon at equal noise.

    Args:
      prepared: of the tuned run.
      records: of each silo, those that scores come from included: no other run sets any apart.
      points: of the grid.
    """
    budgets = by_budget(prepared.plans[0]).values()
    return [_costs(prepared, own[len(own) // 2], records, points) for own in budgets]


def naive_noise(
    plans: Sequence[SiloPlan],
    points: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[float]:
    """Of plans for one run, the noise with which a run at every point costs no more than one."""
    requests = [
        CalibrationRequest(
            partial(_at_all_points, plan, points),
            plan.epsilon,
            _delta_of_all(plan, points),
            label=f"Silo {plan.silo!r}",
            relation=plan.relation,
        )
        for plan in plans
    ]
    return [found.noise_multiplier for found in calibrate_many(requests, progress=progress)]


def _delta_of_all(plan: SiloPlan, points: int) -> float:
    """What is left of delta for so many runs, each of which sets some aside."""
    return plan.delta - points * (plan.delta - plan.delta_for_queries)


def _at_all_points(plan: SiloPlan, points: int, noise: float) -> DpEvent:
    """Naive search: every point is a run, and the server sees all of them."""
    return SelfComposedDpEvent(replace(plan, noise_multiplier=noise).event, points)


def _costs(prepared: Prepared, tuned: SiloPlan, records: np.ndarray, points: int) -> dict[str, Any]:
    place = [plan.silo for plan in prepared.plans[0]].index(tuned.silo)
    spec = prepared.specs[0]
    policy = spec.policies[place]
    (untuned,) = plans_of(
        spec,
        [tuned.silo],
        [int(records[place])],
        [policy],
        spec.method,
        spec.model.heavy,
    )
    noise, relation = untuned.noise_multiplier, untuned.relation
    naive = _at_all_points(untuned, points, noise)
    at_equal_noise = replace(tuned, noise_multiplier=noise)
    return {
        "silo": tuned.silo,
        "records": untuned.public_count,
        "epsilon": policy.epsilon,
        "delta": policy.delta,
        "points": points,
        "accountant": {"untuned": untuned.accountant, "tuned": tuned.accountant},
        "noise": {
            "untuned": noise,
            "tuned": tuned.noise_multiplier,
            "naive": naive_noise([untuned], points)[0],
        },
        "epsilon_at_untuned_noise": {
            "untuned": untuned.epsilon,
            "tuned": epsilon_of(at_equal_noise.event, tuned.delta_for_queries, relation=relation),
            "naive": epsilon_of(naive, _delta_of_all(untuned, points), relation=relation),
        },
    }
