"""Whether one more run fits what a silo promised: among others, or its lifetime alone.

`account` says why a run may have a lifetime alone, and `lifetime` what fits among others.
"""

import functools
import math
from collections.abc import Iterable
from typing import Literal

from dp_accounting import ComposedDpEvent

from silodp.config.choices import Relation
from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.ledger import lifetime
from silodp.privacy.ledger.account import Account, Allowance, Promise
from silodp.privacy.ledger.costs import Cost, read_event
from silodp.privacy.ledger.lifetime import Lifetime


def admits(account: Account, cost: Cost, promises: Iterable[Promise]) -> Literal["shared", "alone"]:
    """Whether a further run fits all promises: among others, or (a first run) alone.

    Raises:
      DoesNotFit: if it fits in neither way.
    """
    promises = tuple(promises)
    for promise in promises:
        if (given := account.given_to(promise)) is not None:
            raise DoesNotFit(promise, given)
    misfits = [promise for promise in promises if not _fits(account, cost, promise.lifetime)]
    if not misfits:
        return "shared"
    if not any(run.live for run in account.runs.values()) and all(
        planned_epsilon(cost, promise.allowance) <= promise.allowance.epsilon
        for promise in promises
    ):
        return "alone"
    raise DoesNotFit(misfits[0], None)


class DoesNotFit(Exception):
    """A run that a promise has no room for; `given_to` names the run that has all of it."""

    def __init__(self, promise: Promise, given_to: str | None):
        super().__init__()
        self.promise, self.given_to = promise, given_to


def _fits(account: Account, cost: Cost, of: Lifetime) -> bool:
    costs = (*account.counted, cost)
    return lifetime.fits([c.taken(of) for c in costs], [c.overflow for c in costs], of)


def planned_epsilon(cost: Cost, allowance: Allowance) -> float:
    """Epsilon, at the lifetime delta, of a run by itself: its plan is fixed before it starts.

    If everything without overflow is (epsilon, d)-DP, and overflow has chance p in all on either of
    two neighbours, then what really happens is (epsilon, d + (1 + e^epsilon) p)-DP.
    """
    aside = 0.0
    if cost.overflow:
        aside = (1 + math.exp(min(allowance.epsilon, 700.0))) * cost.overflow
    left = allowance.delta - aside
    return _planned(cost.event, left, allowance.relation) if left > 0 else math.inf


@functools.lru_cache(maxsize=2**16)
def _planned(text: str, delta: float, relation: Relation) -> float:
    """Silos often share their events, and one run is checked twice."""
    return epsilon_of(ComposedDpEvent([read_event(text)]), delta, "best", relation)
