"""Any mechanism of zero-concentrated differential privacy; no pair that dominates it is known."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from dp_accounting.dp_event import ZCDpEvent
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from silodp.config.choices import Relation
from silodp.privacy.accounting.events.kind import AMOUNT, Kind
from silodp.privacy.accounting.steps import Step


@dataclass(frozen=True)
class ConcentratedSteps(Step):
    """Mechanisms whose Rényi divergence is at most xi + rho * order."""

    rho: float
    xi: float
    repeats: int

    @property
    def is_free(self) -> bool:
        """See `Step`."""
        return self.rho == 0 and self.xi == 0

    @property
    def words(self) -> str:
        """See `Step`."""
        return f"zCDP mechanism of rho {self.rho:g} and xi {self.xi:g}"

    def spread(self, relation: Relation) -> float:
        """See `Step`."""
        return math.sqrt(2 * (self.rho + self.xi))

    @property
    def pure_epsilon(self) -> float:
        """See `Step`."""
        return self.xi if self.rho == 0 else math.inf

    def has_losses(self, relation: Relation) -> bool:
        """No pair is known."""
        return False

    def losses(self, grid: float, relation: Relation, more: int) -> PrivacyLossDistribution:
        """None are known."""
        raise TypeError(f"no privacy loss distribution of {self}")

    def divergences(self, orders: Sequence[float], relation: Relation, exact: bool) -> np.ndarray:
        """See `Step`."""
        return self.xi + self.rho * np.asarray(orders, dtype=float)


KIND = Kind(
    ZCDpEvent,
    {"rho": AMOUNT, "xi": AMOUNT},
    step=lambda event, values, steps_of: ConcentratedSteps(values["rho"], values["xi"], 1),
)
