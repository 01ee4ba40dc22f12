"""A plan in numbers that people compare: what each silo is asked, under which accountant it costs
what, and how epsilon grows over the rounds."""

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
    """One row a silo. "noise_multiplier_rdp" is what the paper's accountant would have needed."""
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
    """What each accountant charges for the plan; None where it does not know every query."""
    if not plan.private:
        return {"pld": float("inf"), "rdp": float("inf")}
    known = supporting(plan.event, plan.relation)

    def charged(name: Accountant) -> float | None:
        if name == plan.accountant:  # worked out when the noise was calibrated
            return plan.epsilon
        if name not in known:
            return None
        return _epsilon(_Same(plan.event), plan.delta_for_queries, plan.relation, name)

    return {"pld": charged("pld"), "rdp": charged("rdp")}


def _queries(plan: SiloPlan) -> list[dict[str, Any]]:
    """Each kind of query by itself: its epsilon at the plan's delta, and its part in their sum."""
    queries = plan.queries()
    if not plan.private:
        return [{"query": name, "epsilon": float("inf"), "share": None} for name in queries]
    if len(queries) == 1:
        alone = dict.fromkeys(queries, plan.epsilon)
    else:
        alone = {
            name: _epsilon(_Same(event), plan.delta_for_queries, plan.relation)
            for name, event in queries.items()
        }
    total = sum(alone.values())
    return [
        {"query": name, "epsilon": epsilon, "share": epsilon / total if total else None}
        for name, epsilon in alone.items()
    ]


def _noise_by_rdp(prepared: Prepared, number: int) -> list[float | None]:
    """The noise that RDP, the paper's accountant, would ask for; None where it cannot say."""
    if not all(plan.private for plan in prepared.plans[number]):
        return [None] * len(prepared.plans[number])
    try:
        return [plan.noise_multiplier for plan in prepared.replanned(number, "rdp")]
    except SilodpError:
        return [None] * len(prepared.plans[number])


def spending_curve(plan: SiloPlan) -> tuple[list[int], list[float]]:
    """Rounds, and the epsilon that is spent by the end of each."""
    rounds = plan.schedule.rounds
    points = sorted({round(rounds * (i / _POINTS) ** 1.5) for i in range(_POINTS + 1)})
    events = [plan.event if r == rounds else plan.event_of(PREPARATION, r) for r in points]
    spent = [_epsilon(_Same(e), plan.delta_for_queries, plan.relation) for e in events]
    return points, spent


def by_budget(plans: Sequence[SiloPlan]) -> dict[str, list[SiloPlan]]:
    """Private plans by their budget, least first; silos with one budget spend alike."""
    private = sorted((plan for plan in plans if plan.private), key=lambda plan: plan.epsilon)
    # Calibration ends a little below the budget: budgets that differ by less are the same.
    return {
        budget: sorted(same, key=lambda plan: plan.public_count)
        for budget, same in itertools.groupby(private, lambda plan: f"{plan.epsilon:.3g}")
    }


class _Same:
    """An event as a key: equal if it says the same. Silos of one size need be priced only once."""

    def __init__(self, event: DpEvent):
        self.event, self._text = event, repr(to_json(event))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


@functools.lru_cache(maxsize=4096)
def _epsilon(
    same: _Same, delta: float, relation: Relation, accountant: Accountant = "best"
) -> float:
    return epsilon_of(same.event, delta, accountant, relation)
