"""Any mechanism of pure differential privacy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import attr
import numpy as np
from dp_accounting.dp_event import DpEvent
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from silodp.config.choices import Relation
from silodp.privacy.accounting import losses
from silodp.privacy.accounting.events.bounded_range import mu_of_odds
from silodp.privacy.accounting.events.kind import AMOUNT, Kind, checked
from silodp.privacy.accounting.steps import MOST_EPSILON, Step

_RULES = {"epsilon": AMOUNT}


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PureDpEvent(DpEvent):
    """Any epsilon-DP mechanism, such as permute-and-flip, which is not epsilon-bounded-range.

    Attributes:
      epsilon: largest log ratio, for the silo's own neighbouring relation.
    """

    epsilon: float

    def __attrs_post_init__(self):
        checked(self, PureDpEvent, _RULES)


@dataclass(frozen=True)
class PureSteps(Step):
    """Mechanisms of pure differential privacy."""

    epsilon: float
    repeats: int

    @property
    def is_free(self) -> bool:
        """See `Step`."""
        return self.epsilon == 0

    @property
    def words(self) -> str:
        """See `Step`."""
        return f"pure mechanism of epsilon {self.epsilon:g}"

    def spread(self, relation: Relation) -> float:
        """See `Step`."""
        return min(self.epsilon, math.sqrt(2 * self.epsilon))

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
        """Bun and Steinke 2016: each order may take the better of the two, whatever the count."""
        alphas = np.asarray(orders, dtype=float)
        return np.minimum(alphas * self.epsilon * self.epsilon / 2, self.epsilon)

    def squared_mu(self, relation: Relation) -> float:
        """It is of bounded range, twice its epsilon (see `mu_of_odds`)."""
        if self.is_computable(relation):
            return self.repeats * mu_of_odds(2 * self.epsilon) ** 2
        return math.inf


def profile(x: np.ndarray, epsilon: float) -> np.ndarray:
    """The most by which an epsilon-DP mechanism diverges at x, for |x| <= epsilon."""
    return np.expm1(x - epsilon) / -(1 + np.exp(-epsilon))


KIND = Kind(
    PureDpEvent, _RULES, step=lambda event, values, steps_of: PureSteps(values["epsilon"], 1)
)
