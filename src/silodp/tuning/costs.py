"""Costs of tuning beside a run with given hyperparameters, and beside a naive grid search."""

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
    """Noise at equal epsilon and epsilon at equal noise, for the median silo of each budget.

    Args:
      prepared: the tuned run.
      records: [silos], counts with the score records: no other run sets any apart.
      points: the number of points of the grid.
    """
    budgets = by_budget(prepared.plans[0]).values()
    return [_costs(prepared, own[len(own) // 2], records, points) for own in budgets]


def naive_noise(
    plans: Sequence[SiloPlan],
    points: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[float]:
    """Noise with which a run at every point together costs no more than the plan of one run."""
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
    """The delta left for the queries of `points` runs, each of which reserves a part."""
    return plan.delta - points * (plan.delta - plan.delta_for_queries)


def _at_all_points(plan: SiloPlan, points: int, noise: float) -> DpEvent:
    """The event of a naive search: a run per point, and the server sees all of them."""
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
