"""What a plan claims at every epsilon, had it so many times the noise."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from dp_accounting import DpEvent

from silodp.privacy.accounting.accountant import deltas_of, epsilon_of
from silodp.privacy.plan import SiloPlan

_POINTS = 200


@dataclass(frozen=True)
class Curve:
    """The curves of a plan; each is worked out once.

    Attributes:
      plan: the audited silo's plan.
    """

    plan: SiloPlan
    _known: dict[float, Any] = field(default_factory=dict, repr=False)

    @property
    def epsilons(self) -> np.ndarray:
        """The epsilons at which the curves are known."""
        return np.linspace(0.0, 2 * self.plan.epsilon + 2, _POINTS)

    def deltas(self, multiple: float) -> tuple[np.ndarray, np.ndarray]:
        """Epsilons, and the delta at each with so many times the noise."""
        key = round(multiple, 6)
        if key not in self._known:
            deltas = deltas_of(self._event(key), self.epsilons, self.plan.relation)
            # A draw that does not fit counts in both worlds.
            self._known[key] = deltas + (1 + np.exp(self.epsilons)) * self.plan.overflow
        return self.epsilons, self._known[key]

    def epsilon(self, multiple: float) -> float:
        """Epsilon at the plan's delta, with so many times the noise."""
        plan = self.plan
        return epsilon_of(self._event(multiple), plan.delta_for_queries, "best", plan.relation)

    def _event(self, multiple: float) -> DpEvent:
        plan = self.plan
        return replace(plan, noise_multiplier=plan.noise_multiplier * multiple).event
