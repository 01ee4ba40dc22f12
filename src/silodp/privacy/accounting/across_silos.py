"""What a person loses who has a record in several silos, each with its own budget."""

from collections.abc import Sequence

import numpy as np
from dp_accounting import DpEvent

from silodp.base.errors import SilodpError
from silodp.config.choices import Relation
from silodp.privacy.accounting import rdp
from silodp.privacy.accounting.accountant import check_delta, rdp_curve, supporting


def epsilon_of_any(
    events: Sequence[DpEvent], m: int, delta: float, relation: Relation = "add-remove"
) -> float:
    """A bound for a person with one record in each of any `m` silos, of which `events` are all.

    At each order, whichever the m silos are, their divergences add up to at most the sum of the m
    largest. Refuses events that the Rényi accountant does not know.
    """
    check_delta(delta)
    _check_number(m)

    def curve_at(orders: Sequence[float]) -> np.ndarray:
        curves = [rdp_curve(event, orders, relation) for event in events]
        return np.sort(np.reshape(curves, (len(events), len(orders))), axis=0)[-m:].sum(axis=0)

    with np.errstate(all="ignore"):
        return rdp.least_epsilon(curve_at, delta)


def composed_guarantee(
    epsilons: Sequence[float],
    deltas: Sequence[float],
    events: Sequence[DpEvent],
    m: int,
    relation: Relation = "add-remove",
    *,
    reserved: Sequence[float] = (),
) -> tuple[float, float]:
    """The (epsilon, delta) that holds for a person with a record in each of any `m` silos.

    Args:
      epsilons: what each silo spent.
      deltas: delta of each silo.
      events: the event of each silo.
      m: in how many silos one person has a record.
      relation: for which the silos' budgets hold.
      reserved: the part of each silo's delta that pays for what its event does not cover, such as
        a draw that overflows; none if left out.
    """
    _check_number(m)
    if not len(epsilons) == len(deltas) == len(events) or len(reserved) not in (0, len(events)):
        raise SilodpError(
            f"There are {len(epsilons)} epsilons, {len(deltas)} deltas, {len(events)} events and "
            f"{len(reserved)} reserved parts: give one of each for every silo."
        )
    epsilon, delta = _largest(epsilons, m), _largest(deltas, m)
    left = delta - _largest(reserved, m)
    # The sums hold for any events; the curves may be tighter, where they are known.
    if 0 < left < 1 and all("rdp" in supporting(event, relation) for event in events):
        epsilon = min(epsilon, epsilon_of_any(events, m, left, relation))
    return epsilon, delta


def _largest(values: Sequence[float], m: int) -> float:
    return float(sum(sorted(values)[-m:]))


def _check_number(m: int) -> None:
    if m < 1:
        raise SilodpError(f"A person is said to be in {m} silos: give a whole number from 1.")
