"""What an event costs: epsilon at a given delta, for neighbours that differ by one record.

Events are the language: they say what was asked, not of which model or by which method. Only what
is listed in `events` is understood; anything else is refused, never guessed.

The neighbouring relation is the silo's choice. Noise of a Gaussian mechanism is always in units of
one record's clip, so that under replace-one the same noise hides only half as much. The epsilon of
a selection, and rho of zCDP, are already those of the silo's relation.
"""

import math
from collections.abc import Sequence
from types import ModuleType
from typing import get_args

import numpy as np
from dp_accounting import DpEvent

from silodp.base.errors import SilodpError
from silodp.config.choices import Accountant, Relation
from silodp.privacy.accounting import pld, rdp
from silodp.privacy.accounting.events import steps_of
from silodp.privacy.accounting.steps import (
    LEAST_NOISE,
    Step,
    check_relation,
    describe,
    merge_unsampled,
)

__all__ = [
    "LEAST_NOISE",
    "Accountant",
    "Relation",
    "contenders",
    "deltas_of",
    "epsilon_of",
    "rdp_curve",
    "steps_of",
    "supporting",
]

_ACCOUNTANTS: dict[str, ModuleType] = {"pld": pld, "rdp": rdp}

# More steps than a float counts have no bound that can be computed.
_MOST_STEPS = 2**53


def epsilon_of(
    event: DpEvent,
    delta: float,
    accountant: Accountant = "best",
    relation: Relation = "add-remove",
) -> float:
    """An upper bound on what `event` costs at `delta`, for one record and this relation.

    Returns `math.inf` where the event is not private, or where no finite bound can be computed.
    Where delta is too small for a privacy loss distribution, "pld" falls back on "rdp".
    """
    check_delta(delta)
    names = contenders(event, accountant, relation)
    steps = steps_of(event)
    return min(_epsilon(steps, delta, name, relation) for name in names)


def deltas_of(
    event: DpEvent, epsilons: np.ndarray, relation: Relation = "add-remove"
) -> np.ndarray:
    """Upper bounds on the delta of the event at each epsilon, by its privacy loss distribution."""
    contenders(event, "pld", relation)
    steps = steps_of(event)
    if not steps:
        return np.zeros(len(epsilons))
    if not pld.computable(steps, relation):
        return np.ones(len(epsilons))
    with np.errstate(over="ignore", divide="ignore"):
        return pld.deltas(steps, epsilons, relation)


def supporting(event: DpEvent, relation: Relation = "add-remove") -> tuple[str, ...]:
    """The accountants that know every step of the event."""
    check_relation(relation)
    steps = steps_of(event)
    return tuple(name for name in _ACCOUNTANTS if not _unknown(steps, name, relation))


def contenders(
    event: DpEvent, accountant: Accountant = "best", relation: Relation = "add-remove"
) -> tuple[str, ...]:
    """The accountants that have to try: the one that was named, or all that could be best.

    Refuses an event that they do not know, rather than leave a step uncharged.
    """
    if accountant not in get_args(Accountant):
        known = ", ".join(get_args(Accountant))
        raise SilodpError(f"Accountant {accountant!r} is unknown: choose one of {known}.")
    names = supporting(event, relation)
    steps = steps_of(event)
    if accountant != "best":
        if accountant not in names:
            unknown = "; ".join(map(describe, _unknown(steps, accountant, relation)))
            remedy = f"take accountant '{names[0]}'" if names else _NO_REMEDY
            raise SilodpError(
                f"The {accountant} accountant has no price under {relation} for {unknown}: "
                f"{remedy}."
            )
        return (accountant,)
    if not names:
        parts = "; ".join(
            f"{name} has none for {describe(step)}"
            for name in _ACCOUNTANTS
            for step in _unknown(steps, name, relation)
        )
        raise SilodpError(
            f"No accountant has a price under {relation} for all of the event ({parts}): "
            f"{_NO_REMEDY}."
        )
    # For Gaussian mechanisms alone, loss distributions are exact but for the grid, and so never
    # looser: a search for noise need not pay for Rényi divergences too.
    if "pld" in names and all(step.losses_are_exact for step in steps):
        return ("pld",)
    return names


_NO_REMEDY = "ask it in separate events, each with its own epsilon and delta, and add those up"


def rdp_curve(
    event: DpEvent, orders: Sequence[float], relation: Relation = "add-remove"
) -> np.ndarray:
    """The event's Rényi divergence at each order (above 1); infinite where none is known."""
    contenders(event, "rdp", relation)
    if not all(order > 1 for order in orders):
        raise SilodpError(f"Rényi orders are {list(orders)}: give numbers above 1.")
    with np.errstate(all="ignore"):
        return rdp.curve(steps_of(event), orders, relation)


def check_delta(delta: float) -> None:
    """Refuses a delta that is no chance."""
    if not 0 < delta < 1:
        raise SilodpError(f"delta is {delta}, but must lie between 0 and 1: give one such as 1e-5.")


def _unknown(steps: Sequence[Step], name: str, relation: Relation) -> list[Step]:
    return [step for step in steps if not _ACCOUNTANTS[name].supports(step, relation)]


def _epsilon(steps: Sequence[Step], delta: float, name: str, relation: Relation) -> float:
    if not steps:
        return 0.0
    if sum(step.repeats for step in steps) > _MOST_STEPS:
        return math.inf
    plain = _plain_sum(steps)
    if not all(step.is_computable(relation) for step in merge_unsampled(steps)):
        return plain
    if name == "pld" and not pld.resolves(steps, delta, relation):
        if _unknown(steps, "rdp", relation):
            return plain
        name = "rdp"
    # Ratios that overflow and logarithms of 0 give infinities, which err on the safe side.
    with np.errstate(over="ignore", divide="ignore"):
        epsilon = float(_ACCOUNTANTS[name].epsilon(steps, delta, relation))
    return plain if math.isnan(epsilon) else min(epsilon, plain)


def _plain_sum(steps: Sequence[Step]) -> float:
    """What pure mechanisms cost at most, at any delta: their sum. Infinite for any others."""
    return math.fsum(step.repeats * step.pure_epsilon for step in steps)
