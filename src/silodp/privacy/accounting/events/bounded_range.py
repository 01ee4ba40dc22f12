"""A selection by the exponential mechanism, or any other mechanism of bounded range."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import attr
import numpy as np
from dp_accounting.dp_event import DpEvent
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from scipy.special import expit, ndtri

from silodp.config.choices import Relation
from silodp.privacy.accounting import losses
from silodp.privacy.accounting.events.kind import AMOUNT, Kind, checked
from silodp.privacy.accounting.steps import MOST_EPSILON, Step

_RULES = {"epsilon": AMOUNT}

# What is taken for rounding.
_ROUNDING = 1e-12


@attr.s(frozen=True, slots=True, auto_attribs=True)
class BoundedRangeDpEvent(DpEvent):
    """One selection by the exponential mechanism, or any other epsilon-bounded-range mechanism.

    Between neighbours, the log ratios of the probabilities of all outcomes lie in one interval of
    length epsilon (Durfee and Rogers 2019). That is more than epsilon-DP says, and so costs less.

    Attributes:
      epsilon: length of the interval, for the silo's own neighbouring relation.
    """

    epsilon: float

    def __attrs_post_init__(self):
        checked(self, BoundedRangeDpEvent, _RULES)


@dataclass(frozen=True)
class Selections(Step):
    """Mechanisms of bounded range."""

    epsilon: float
    repeats: int

    @property
    def is_free(self) -> bool:
        """See `Step`."""
        return self.epsilon == 0

    @property
    def words(self) -> str:
        """See `Step`."""
        return f"selection of epsilon {self.epsilon:g}"

    def spread(self, relation: Relation) -> float:
        """See `Step`."""
        return min(self.epsilon / math.sqrt(3), math.sqrt(2 * self.epsilon))

    def is_computable(self, relation: Relation) -> bool:
        """See `Step`."""
        return self.epsilon <= MOST_EPSILON

    @property
    def pure_epsilon(self) -> float:
        """See `Step`."""
        return self.epsilon

    def losses(self, grid: float, relation: Relation, more: int) -> PrivacyLossDistribution:
        """See `Step`."""
        return losses.bounded(self.epsilon, profile, grid)

    def reach(self, relation: Relation) -> float:
        """See `Step`."""
        return self.epsilon

    def divergences(self, orders: Sequence[float], relation: Relation, exact: bool) -> np.ndarray:
        """See `Step`."""
        return np.array([_divergence(order, self.epsilon) for order in orders])

    def squared_mu(self, relation: Relation) -> float:
        """See `Step`."""
        if self.is_computable(relation):
            return self.repeats * mu_of_odds(self.epsilon) ** 2
        return math.inf


def profile(x: np.ndarray, epsilon: float) -> np.ndarray:
    """The most by which a mechanism of bounded range diverges at x, for |x| <= epsilon.

    If log ratios lie in [t - epsilon, t], the worst has two outcomes, at the ends, and diverges by
    (1 - e^(t-epsilon)) (1 - e^(x-t)) / (1 - e^-epsilon). Of all t, (x + epsilon) / 2 is the worst.
    """
    return np.expm1((x - epsilon) / 2) ** 2 / -np.expm1(-epsilon)


@functools.lru_cache(maxsize=2**16)
def _divergence(order: float, epsilon: float) -> float:
    """The largest Rényi divergence of a mechanism of bounded range.

    Its losses lie in [t - epsilon, t] for some t, and the mean of their exponentials is 1. The
    divergence is the mean of a convex function of the exponentials, so that it is largest if losses
    are at the two ends only: what is left is the largest over t. It is zCDP of epsilon^2/8 as well
    (Cesar and Rogers 2021), and pure.
    """
    known = min(order * epsilon * epsilon / 8, epsilon)
    if not 1e-4 < epsilon < 20 or order * epsilon > 500:
        return known  # the ends of floating point, where little is to be gained

    def divergence(t: np.ndarray) -> np.ndarray:
        # The chance, on the neighbour, of an outcome with loss t and not t - epsilon.
        chance = np.exp(-t) * np.expm1(t - epsilon) / math.expm1(-epsilon)
        both = np.logaddexp(order * t + np.log(chance), order * (t - epsilon) + np.log1p(-chance))
        return both / (order - 1)

    # A smooth hump: a coarse look finds its top, a fine one leaves out less than is then added.
    places = np.linspace(0, epsilon, 203)[1:-1]
    top = places[np.argmax(divergence(places))]
    width = epsilon / 202
    fine = np.linspace(max(top - width, 0.0), min(top + width, epsilon), 203)[1:-1]
    return min(known, float(divergence(fine).max()) * (1 + 1e-4))


def mu_of_odds(width: float) -> float:
    """The least mu that bounds every mechanism of bounded range `width`.

    If log ratios of neighbours' chances lie in [t - width, t], then the trade-off function is
    nowhere below the two chords of slopes -e^t (from 0) and -e^(t-width) (to 1), which meet where
    the odds of detection are e^width times those of a false alarm. A Gaussian trade-off function is
    convex, and so is below both chords if it is at most as high where they meet: if mu is at least
    g(x + width) - g(x), where g is the inverse of Phi at odds e^x. The slope of g is even, and
    falls away from 0, because the logistic distribution has the heavier tails (van Zwet 1964: its
    quantile at Phi is convex above 0). So x = -width/2 is the worst, and mu = 2 g(width/2).

    An epsilon-DP mechanism (t = epsilon, and t - width = -epsilon) is one of width 2 epsilon, with
    that very x: mu = -2 Phi^-1(1 / (1 + e^epsilon)).
    """
    if width < 1e-3:  # g is below its tangent at 0, and here all but on it
        return width * math.sqrt(math.pi / 8)
    return -2 * float(ndtri(expit(-width / 2))) * (1 + _ROUNDING)


KIND = Kind(
    BoundedRangeDpEvent,
    _RULES,
    step=lambda event, values, steps_of: Selections(values["epsilon"], 1),
)
