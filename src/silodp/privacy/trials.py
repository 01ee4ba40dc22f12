"""How many hyperparameters are tried: a random number, so that choosing the best stays cheap.

With a fixed number h of trials, releasing the best can cost as much as releasing all of them. With
a random number it costs about two to three times as much as one trial, however many there are on
average (N. Papernot and T. Steinke, Hyperparameter tuning with Rényi differential privacy, 2022).
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import root_scalar

from silodp.base.errors import SilodpError

_LEAST_SHAPE = -0.999


@dataclass(frozen=True)
class Trials:
    """The distribution of the number of trials.

    Attributes:
      mean: mean number of trials, at least 1.
      shape: eta of the truncated negative binomial distribution, above -1: 0 is the logarithmic and
        1 the geometric distribution; infinity is the Poisson distribution, which may be 0. The
        smaller, the cheaper, and the more often there is but one trial.
    """

    mean: float
    shape: float = 0.0

    def __post_init__(self):
        if not 1 <= self.mean < math.inf:
            raise SilodpError(f"The mean number of trials is {self.mean}: give 1 or more.")
        if not self.shape >= _LEAST_SHAPE:
            raise SilodpError(
                f"eta is {self.shape}: give a number above -1 (such as 0), or inf for Poisson."
            )

    @property
    def poisson(self) -> bool:
        """Whether it is the Poisson distribution."""
        return self.shape == math.inf

    @property
    def _logarithmic(self) -> bool:
        # So close to 0 that products with it vanish.
        return abs(self.shape) < 1e-100

    @functools.cached_property
    def log_halting(self) -> float:
        """-log gamma of the truncated negative binomial distribution."""

        def excess(t: float) -> float:
            if t == 0:
                return 1 - self.mean
            if self._logarithmic:
                return math.expm1(t) / t - self.mean
            return self.shape * math.expm1(t) / -math.expm1(-self.shape * t) - self.mean

        if self.mean == 1:
            return 0.0
        most = 2 * math.log(self.mean) + 2
        while most < 700 and excess(most) < 0:
            most *= 2
        if most >= 700:
            raise SilodpError(
                f"No distribution of eta {self.shape} has a mean of {self.mean} trials that can be "
                "computed with: give a larger eta."
            )
        return float(root_scalar(excess, bracket=(0.0, most), xtol=1e-12).root)

    @property
    def gamma(self) -> float:
        """gamma of the truncated negative binomial distribution: the smaller, the more trials."""
        return math.exp(-self.log_halting)

    def probabilities(self, most: int) -> np.ndarray:
        """The probabilities of 0, 1, ... `most` trials."""
        if self.poisson:
            steps = math.log(self.mean) - np.log(np.arange(1, most + 1))
            return np.exp(np.concatenate([[0.0], np.cumsum(steps)]) - self.mean)
        t = self.log_halting
        if t == 0:
            return np.eye(1, most + 1, 1)[0]
        halts = -math.expm1(-t)  # 1 - gamma
        # The first: (1 - gamma) eta / (gamma^-eta - 1), of which eta = 0 is the limit.
        first = halts / t if self._logarithmic else halts * self.shape / math.expm1(self.shape * t)
        number = np.arange(1, most)
        ratios = halts * (number + self.shape) / (number + 1)
        return np.concatenate([[0.0], first * np.cumprod(np.concatenate([[1.0], ratios]))])[
            : most + 1
        ]

    def most(self, chance: float, limit: int) -> int | None:
        """A number that is exceeded with at most this chance; None if that is above `limit`."""
        number = np.arange(limit + 1)
        if self.poisson:
            ratios = self.mean / (number + 1)
        else:
            ratios = -math.expm1(-self.log_halting) * (number + max(self.shape, 1.0)) / (number + 1)
        # Probabilities fall from here on at least as fast as powers of this ratio.
        with np.errstate(divide="ignore"):
            beyond = np.where(ratios < 1, self.probabilities(limit) * ratios / (1 - ratios), np.inf)
        small = np.flatnonzero((beyond <= chance) & (number >= 1))
        return int(small[0]) if len(small) else None

    def draw(self, uniform: float, most: int) -> int:
        """The number of trials that a uniform number from 0 to 1 gives, `most` where it is more."""
        below = np.cumsum(self.probabilities(most))
        return min(int(np.searchsorted(below, uniform, side="right")), most)
