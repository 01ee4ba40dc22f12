"""The Rényi accountant: divergences at many orders add up, and become epsilon at the end."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from absl import logging
from dp_accounting.rdp import compute_epsilon
from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

from silodp.config.choices import Relation
from silodp.privacy.accounting.steps import Step

# dp_accounting warns of each Rényi order that it leaves out; leaving one out only raises epsilon.
logging.set_verbosity(logging.ERROR)

ORDERS: tuple[float, ...] = tuple(DEFAULT_RDP_ORDERS)


def supports(step: Step, relation: Relation) -> bool:
    """Whether the divergence of such a step is known, under either relation."""
    return step.has_divergences(relation)


def epsilon(steps: Sequence[Step], delta: float, relation: Relation) -> float:
    """The least bound over all orders."""
    return least_epsilon(lambda orders: curve(steps, orders, relation), delta)


def least_epsilon(curve_at: Callable[[Sequence[float]], np.ndarray], delta: float) -> float:
    """The least bound over dp_accounting's orders, found by a coarse pass and a fine one around it.

    Each order alone gives a bound, so an order that is not tried can only leave it looser. Whole
    orders come first: they are quick to compute, and never fail to converge.
    """
    coarse = [
        i for i, order in enumerate(ORDERS) if order == int(order) and (order < 11 or i % 4 == 0)
    ]
    bound, best = _bound(curve_at, delta, [ORDERS[i] for i in coarse])
    below = coarse[best - 1] if best > 0 else 0
    above = coarse[best + 1] if best + 1 < len(coarse) else len(ORDERS)
    return min(bound, _bound(curve_at, delta, ORDERS[below:above])[0])


def _bound(
    curve_at: Callable[[Sequence[float]], np.ndarray], delta: float, orders: Sequence[float]
) -> tuple[float, int]:
    """The least bound over `orders`, and the place of the order that gives it."""
    bound, order = compute_epsilon(orders, curve_at(orders).tolist(), delta)
    return float(bound), list(orders).index(order)


def curve(
    steps: Sequence[Step], orders: Sequence[float], relation: Relation, *, exact: bool = False
) -> np.ndarray:
    """The Rényi divergence of all steps together, at each order; infinite where none is known.

    Poisson samples under add-remove are priced by dp_accounting, as in the paper and in whatever
    was calibrated with it. At orders that are not whole its series is slow and a little too dear
    (0.4 % of epsilon on School), and does not always converge; `exact` integrates instead.
    """
    total = np.zeros(len(orders))
    for step in steps:
        total += step.repeats * step.divergences(orders, relation, exact)
    return np.where(np.isnan(total), math.inf, total)
