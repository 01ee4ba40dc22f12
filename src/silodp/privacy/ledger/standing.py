"""What a silo has spent, and what is left of its lifetime."""

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from silodp.privacy.ledger import lifetime
from silodp.privacy.ledger.account import Account, Promise, Run, account_of
from silodp.privacy.ledger.admission import planned_epsilon
from silodp.privacy.ledger.costs import ROUNDING, Cost, read_event
from silodp.privacy.ledger.storage import Ledger, read_ledger
from silodp.privacy.ledger.words import QUESTION


def spent_epsilon(account: Account) -> float:
    """Epsilon of all that was charged, at the lifetime delta; true however runs were chosen.

    The least of three bounds, each of which fails with a chance of at most delta: the odometer's;
    the lifetime's, where it is kept; and, of a ledger with a single run, that of its plan. The
    first two go by the lifetime that was fixed before anything was charged: one that was set since
    may have been chosen after seeing what was released.
    """
    if not account.spent or not account.promises:
        return 0.0
    promise = account.promises[-1]
    fixed, allowance = account.fixed or promise, promise.allowance
    overflow = math.fsum(cost.overflow for cost in account.spent)
    events = [read_event(cost.event) for cost in account.spent]
    bounds = [lifetime.odometer(events, overflow, promise.lifetime, fixed.lifetime)]
    if fixed.allowance.delta <= allowance.delta and keeps(account, fixed):
        bounds.append(fixed.allowance.epsilon)
    if (only := _only_run(account)) is not None:
        bounds.append(planned_epsilon(only.whole, allowance))
    return min(bounds)


def keeps(account: Account, promise: Promise) -> bool:
    """Whether what was charged keeps the promise: by the filter, or as the plan of a single run."""
    filtered, spent = promise.lifetime, account.spent
    if lifetime.fits([c.taken(filtered) for c in spent], [c.overflow for c in spent], filtered):
        return True
    only = _only_run(account)
    return only is not None and (
        planned_epsilon(only.whole, promise.allowance) <= promise.allowance.epsilon
    )


def _only_run(account: Account) -> Run | None:
    """The run that was charged, if it is the only one."""
    runs = [run for run in account.runs.values() if run.blocks]
    return runs[0] if len(runs) == 1 else None


def left_of(account: Account) -> float:
    """What is left of the latest promise's budget, for what is not yet reserved."""
    promise = account.promises[-1]
    if account.given_to(promise) is not None:
        return 0.0
    budgets = [
        1 - math.fsum(c.taken(p.lifetime) for c in account.counted) / p.lifetime.budget
        for p in account.promises
    ]
    return max(0.0, min(budgets)) * promise.lifetime.budget


def remaining(directory: Path, silo: str) -> dict[str, Any]:
    """What the silo has spent and what is left, in plain values: see `standing`.

    Examples:
      >>> from pathlib import Path
      >>> result = silodp.run(
      ...     data="synthetic", silos=2, method="local", epsilon=1, rounds=2,
      ...     lifetime_epsilon=4, ledger="ledgers",
      ... )
      >>> left = silodp.remaining(Path("ledgers"), result.per_silo[0]["silo"])
      >>> left["runs"], left["spent_epsilon"] <= 1, left["left_share"] > 0.5
      (1, True, True)
    """
    return standing(read_ledger(directory, silo))


def standing(ledger: Ledger) -> dict[str, Any]:
    """What was spent, is reserved and is left of the lifetime.

    Shares are of what the filter allows, and add up: spent_share + reserved_share + left_share = 1
    (but for a lifetime that was given to one run alone, whose share may be above 1).
    `given_back_share` was reserved once, never charged, and is left again. `spent_epsilon` is the
    epsilon of all that was charged (see `spent_epsilon`), and `remaining_epsilon` the largest
    epsilon (at the lifetime delta) of ONE further release by the Gaussian mechanism that still
    fits; epsilons do not add up. `changed` says whether the lifetime was set after something had
    been charged under another. `same_again` says what a further run like the latest would take.
    """
    account = account_of(ledger)
    amounts: dict[str, Any] = {
        "silo": ledger.silo,
        "relation": ledger.relation,
        "unit": ledger.unit,
        "format": account.format,
        "entries": len(ledger.entries),
        "head": ledger.head,
        "runs": sum(run.live for run in account.runs.values()),
        "open_runs": [name for name, run in account.runs.items() if run.closed is None],
        "lifetime_epsilon": None,
        "lifetime_delta": None,
        "filter": None,
        "spent_epsilon": spent_epsilon(account),
        "remaining_epsilon": None,
        "spent_share": 0.0,
        "reserved_share": 0.0,
        "given_back_share": 0.0,
        "left_share": None,
        "given_to": None,
        "changed": False,
        "same_again": None,
        "broken": [],
    }
    if not account.promises:
        return amounts
    promise = account.promises[-1]
    filtered = promise.lifetime

    def share(costs: Iterable[Cost]) -> float:
        return math.fsum(cost.taken(filtered) for cost in costs) / filtered.budget

    runs = account.runs.values()
    spent = share(account.spent)
    left = left_of(account)
    # A first run may have the lifetime alone, by its own plan (see `admits`).
    further = promise.allowance.epsilon
    if any(run.live for run in runs):
        further = lifetime.epsilon_of_left(left, filtered)
    amounts |= {
        "lifetime_epsilon": promise.allowance.epsilon,
        "lifetime_delta": promise.allowance.delta,
        "filter": {"kind": filtered.kind, "order": filtered.order},
        "spent_share": spent,
        "reserved_share": max(0.0, share(account.counted) - spent),
        "given_back_share": math.fsum(_given_back(run, share) for run in runs if run.closed),
        "left_share": left / filtered.budget,
        "remaining_epsilon": further,
        "given_to": account.given_to(promise),
        "changed": account.fixed is not None and account.fixed.lifetime != filtered,
        "same_again": _same_again(account, promise, left),
        "broken": _broken(account),
    }
    return amounts


def _given_back(run: Run, share: Callable[[Iterable[Cost]], float]) -> float:
    """What was reserved and never charged, but for rounding."""
    whole, spent = share([run.whole]), share(run.spent)
    return whole - spent if whole > spent * (1 + ROUNDING) else 0.0


def _same_again(account: Account, promise: Promise, left: float) -> dict[str, Any] | None:
    """What one more run like the latest would take, and how many of these fit."""
    live = [run for run in account.runs.values() if run.live]
    # A question that was answered since is no run.
    runs = [run for run in live if QUESTION not in run.about] or live
    if not runs:
        return None
    taken = runs[-1].whole.taken(promise.lifetime)
    return {
        "share": taken / promise.lifetime.budget,
        "runs": math.floor(left / taken * (1 + ROUNDING)) if taken > 0 else None,
        "rounds": runs[-1].rounds,
    }


def _broken(account: Account) -> list[dict[str, float]]:
    """The promises in force that what was charged does not keep, if runs were chosen adaptively."""
    return [
        {"epsilon": promise.allowance.epsilon, "delta": promise.allowance.delta}
        for promise in account.promises
        if not keeps(account, promise)
    ]


def summed_up(standings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What silos spent, by their lifetime, without names of silos or runs.

    Of each lifetime, how many silos have it, and the least and the most of each share, rounded to
    whole per cents.
    """
    alike: dict[tuple, list[Mapping[str, Any]]] = {}
    fields = ("lifetime_epsilon", "lifetime_delta", "relation", "unit")
    for one in standings:
        if one["lifetime_epsilon"] is not None:
            alike.setdefault(tuple(one[name] for name in fields), []).append(one)
    shares = ("spent_share", "reserved_share", "given_back_share", "left_share")
    rows = []
    for known in sorted(alike):
        rows.append(
            dict(zip(fields, known, strict=True))
            | {"silos": len(alike[known])}
            | {name: _ends(one[name] for one in alike[known]) for name in shares}
        )
    return {"silos": sum(map(len, alike.values())), "lifetimes": rows}


def _ends(values: Iterable[float]) -> list[float]:
    rounded = [round(value, 2) for value in values]
    return [min(rounded), max(rounded)]
