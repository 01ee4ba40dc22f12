"""Plans in numbers for people: each silo's queries, their cost by accountant, epsilon by round."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from dp_accounting import DpEvent

from silodp.base.errors import SilodpError
from silodp.config.choices import Accountant, Relation
from silodp.privacy.accounting.accountant import epsilon_of, supporting
from silodp.privacy.accounting.events import to_json
from silodp.privacy.mechanisms.queries import PREPARATION
from silodp.privacy.plan import SiloPlan
from silodp.runs.prepare import Prepared

# Rounds at which a curve is worked out.
_POINTS = 12


def describe_plans(
    prepared: Prepared,
    number: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """One row per silo; "noise_multiplier_rdp" is the noise by the paper's accountant."""
    plans = prepared.plans[number]
    by_rdp = _noise_by_rdp(prepared, number)
    rows = []
    for done, (plan, rdp_noise) in enumerate(zip(plans, by_rdp, strict=True), start=1):
        rows.append(_row(plan, rdp_noise))
        if progress is not None:
            progress(done, len(plans))
    return rows


def _row(plan: SiloPlan, rdp_noise: float | None) -> dict[str, Any]:
    return {
        **plan.statement(),
        "records": plan.public_count,
        "batch": plan.expected_batch,
        "epsilon_by_accountant": _by_accountant(plan),
        "noise_multiplier_rdp": rdp_noise,
        "queries": _queries(plan),
    }


def _by_accountant(plan: SiloPlan) -> dict[str, float | None]:
    """The epsilon of the plan by each accountant; None if it does not know every query."""
    if not plan.private:
        return {"pld": float("inf"), "rdp": float("inf")}
    known = supporting(plan.event, plan.relation)

    def charged(name: Accountant) -> float | None:
        if name == plan.accountant:  # worked out when the noise was calibrated
            return plan.epsilon
        if name not in known:
            return None
        return _epsilon(_EventKey(plan.event), plan.delta_for_queries, plan.relation, name)

    return {"pld": charged("pld"), "rdp": charged("rdp")}


def _queries(plan: SiloPlan) -> list[dict[str, Any]]:
    """Each kind of query alone: its epsilon at the plan's delta, and its share of their sum."""
    queries = plan.queries()
    if not plan.private:
        return [{"query": name, "epsilon": float("inf"), "share": None} for name in queries]
    if len(queries) == 1:
        alone = dict.fromkeys(queries, plan.epsilon)
    else:
        alone = {
            name: _epsilon(_EventKey(event), plan.delta_for_queries, plan.relation)
            for name, event in queries.items()
        }
    total = sum(alone.values())
    return [
        {"query": name, "epsilon": epsilon, "share": epsilon / total if total else None}
        for name, epsilon in alone.items()
    ]


def _noise_by_rdp(prepared: Prepared, number: int) -> list[float | None]:
    """The noise multipliers by RDP, the paper's accountant; None where it has none."""
    if not all(plan.private for plan in prepared.plans[number]):
        return [None] * len(prepared.plans[number])
    try:
        return [plan.noise_multiplier for plan in prepared.replanned(number, "rdp")]
    except SilodpError:
        return [None] * len(prepared.plans[number])


def spending_curve(plan: SiloPlan) -> tuple[list[int], list[float]]:
    """Rounds, and the epsilon spent by the end of each."""
    rounds = plan.schedule.rounds
    points = sorted({round(rounds * (i / _POINTS) ** 1.5) for i in range(_POINTS + 1)})
    events = [plan.event if r == rounds else plan.event_of(PREPARATION, r) for r in points]
    spent = [_epsilon(_EventKey(e), plan.delta_for_queries, plan.relation) for e in events]
    return points, spent


def by_budget(plans: Sequence[SiloPlan]) -> dict[str, list[SiloPlan]]:
    """Private plans grouped by epsilon, smallest first; within a budget by record count."""
    private = sorted((plan for plan in plans if plan.private), key=lambda plan: plan.epsilon)
    # Calibration ends a little below the budget: budgets that differ by less are the same.
    return {
        budget: sorted(group, key=lambda plan: plan.public_count)
        for budget, group in itertools.groupby(private, lambda plan: f"{plan.epsilon:.3g}")
    }


class _EventKey:
    """An event as a dictionary key, so that silos of one size are priced only once."""

    def __init__(self, event: DpEvent):
        self.event, self._text = event, repr(to_json(event))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _EventKey) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


@functools.lru_cache(maxsize=4096)
def _epsilon(
    key: _EventKey, delta: float, relation: Relation, accountant: Accountant = "best"
) -> float:
    return epsilon_of(key.event, delta, accountant, relation)
