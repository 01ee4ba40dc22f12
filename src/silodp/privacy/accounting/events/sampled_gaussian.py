"""A Gaussian mechanism on a Poisson sample, or on every record (which is one of rate 1)."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.rdp import RdpAccountant

from silodp.config.choices import Relation
from silodp.privacy.accounting import losses
from silodp.privacy.accounting.events.kind import (
    AN_EVENT,
    CHANCE,
    GAUSSIAN,
    Kind,
    StepsOf,
    Values,
    charged_noise,
    checked,
    no_price,
)
from silodp.privacy.accounting.steps import LEAST_NOISE, Step, moved_by

_LEAST_MERGED = 1e-3

# An allowance for rounding: dp_accounting takes a divergence rounded below 0 as free.
_ALLOWANCE = 50 * 2.0**-52

_ROUNDING = 2.0**-52

# The trapezoid rule: its error is at most e^-40 of the integral, a thousandth of one rounding. The
# grid reaches ten deviations beyond what matters, and has at most so many points.
_LOG_ERROR = 42.0
_REACH = 10.0
_MOST_POINTS = 2**16


@dataclass(frozen=True)
class Steps(Step):
    """Gaussian mechanisms, each on a Poisson sample (on every record if `sampling` is 1).

    Noise is in units of one record's largest norm, whatever the neighbouring relation.
    """

    sampling: float
    noise: float
    repeats: int

    @property
    def is_free(self) -> bool:
        """See `Step`."""
        return self.sampling == 0 or self.noise == math.inf

    @property
    def words(self) -> str:
        """See `Step`."""
        where = "on every record" if self.sampling == 1 else "on a Poisson sample"
        return f"Gaussian mechanism {where}, noise {self.noise:g}"

    def spread(self, relation: Relation) -> float:
        """See `Step`."""
        return gaussian_spread(self.sampling, self.noise) * moved_by(relation)

    def is_computable(self, relation: Relation) -> bool:
        """See `Step`."""
        least = _LEAST_MERGED if self.sampling == 1 else LEAST_NOISE
        return self.relative_noise(relation) >= least

    def relative_noise(self, relation: Relation) -> float:
        """The noise in units of the most by which neighbours can differ.

        One record replaced by another moves a sum by twice a record's largest norm.
        """
        return self.noise / moved_by(relation)

    @property
    def losses_are_exact(self) -> bool:
        """See `Step`."""
        return True

    def unsampled_noise(self, relation: Relation) -> float | None:
        """See `Step`."""
        return self.relative_noise(relation) if self.sampling == 1 else None

    def losses(self, grid: float, relation: Relation, more: int) -> PrivacyLossDistribution:
        """See `Step`."""
        return losses.gaussian(self.noise, self.sampling, grid, relation)

    def reach(self, relation: Relation) -> float:
        """See `Step`."""
        return losses.gaussian_reach(self.relative_noise(relation))

    def divergences(self, orders: Sequence[float], relation: Relation, exact: bool) -> np.ndarray:
        """See `Step`."""
        if not self.is_computable(relation):
            return np.full(len(orders), math.inf)
        if self.sampling == 1:
            return np.asarray(orders, dtype=float) / (2 * self.relative_noise(relation) ** 2)
        replaced = relation == "replace-one"
        if exact or replaced:
            return np.array([_sampled(a, self.sampling, self.noise, replaced) for a in orders])
        return np.array([_by_series(a, self.sampling, self.noise) for a in orders])

    def squared_mu(self, relation: Relation) -> float:
        """See `Step`; a sample has none but that without sampling (see `ledger.lifetime`)."""
        if self.sampling == 1 and self.is_computable(relation):
            return self.repeats / self.relative_noise(relation) ** 2
        return math.inf


def gaussian_spread(sampling: float, noise: float) -> float:
    """The spread of a Gaussian mechanism on a Poisson sample, where one record moves it once."""
    if noise == 0:
        return math.inf
    if sampling == 1:
        return 1 / noise
    # The formula explodes below noise 1/2, where the loss itself only grows like 1/noise.
    tempered = max(noise, 0.5)
    return sampling * math.sqrt(math.expm1(tempered**-2)) * tempered / noise


@functools.lru_cache(maxsize=2**16)
def _by_series(order: float, rate: float, noise: float) -> float:
    event = PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
    return float(RdpAccountant([order]).compose(event).rdp[0]) + _ALLOWANCE


@functools.lru_cache(maxsize=2**16)
def _sampled(order: float, rate: float, noise: float, replaced: bool) -> float:
    """The Rényi divergence of a Gaussian mechanism on a Poisson sample, and no less.

    With a(z) = 1 - q + q e^(tz - t^2/2) and t = 1/noise, outcomes of neighbours have the densities
    phi(z) a(z) and phi(z) b(z). Under add-remove b is 1, and this direction is the larger one
    (Mironov, Talwar and Zhang 2019, theorem 5). Under replace-one b(z) = a(-z): that pair dominates
    (see `losses.gaussian`), a Rényi divergence is a mean of hockey-stick divergences, and both
    directions are equal by reflection. So what is sought is the logarithm of

        M = integral of f,    f = phi a^order b^(1-order),

    divided by order - 1. The trapezoid rule gives it from above:

    - Step. In the strip |Im z| <= w with tw < pi/2 both a and b have positive real parts, so f is
      analytic. There |a(x+iw)| <= a(x), |b(x+iw)| >= cos(tw) b(x), |phi(x+iw)| = e^(w^2/2) phi(x),
      and hence |f(x+iw)| <= C f(x) with C = e^(w^2/2) cos(tw)^(1-order). The sum over the whole
      line with step h is then off by at most 2 C M / (e^(2 pi w/h) - 1) (Trefethen and Weideman
      2014, theorem 5.1). Where b is 1, the cosine is not needed, and tw < pi is enough.
    - Tails. The slope of log f is -z plus a number between 0 and c = (2 order - 1) t (where b is 1:
      order t). So below 0, and beyond c, f falls like a Gaussian: beyond either end of
      [-10, c + 10] the sum leaves out less than the value of f at that end, which is added.
    - Rounding. Exponents are sums of terms of at most order (|log q| + c t + 10 t + t^2) and
      (c + 10)^2 / 2; sixteen roundings of their total, and of 1, are added in the end. This is also
      why nothing that has a price is rounded to 0.

    Whatever the sample, no more is lost than on every record (quasi-convexity); and because b is at
    least 1 - q, replace-one loses at most -log(1 - q) more than add-remove. Where the grid would be
    too long that is charged, and it is nearly true there.
    """
    t, above_one = 1 / noise, order - 1
    top = (2 * order - 1 if replaced else order) * t
    most = order * t * t / 2
    if replaced:
        most = min(4 * most, most - math.log1p(-rate))
        width = min(math.sqrt(2 * _LOG_ERROR / (1 + above_one * t * t)), 1.25 / t)
        log_c = width * width / 2 - above_one * math.log(math.cos(t * width))
    else:
        width = min(math.sqrt(2 * _LOG_ERROR), 3 / t)
        log_c = width * width / 2
    h = 2 * math.pi * width / (_LOG_ERROR + log_c)
    points = (top + 2 * _REACH) / h + 2
    if points > _MOST_POINTS:
        return most
    z = h * np.arange(math.ceil(points)) - _REACH
    rest, drawn = math.log1p(-rate), math.log(rate) - t * t / 2
    exponents = order * np.logaddexp(rest, drawn + t * z) - z * z / 2
    if replaced:
        exponents -= above_one * np.logaddexp(rest, drawn - t * z)
    highest = exponents.max()
    f = np.exp(exponents - highest)
    moment = (h * f.sum() + f[0] + f[-1]) / math.sqrt(2 * math.pi)
    size = 1 + order * (t * (top + _REACH) - drawn) + (top + _REACH) ** 2 / 2
    divergence = (highest + math.log(moment) + 16 * _ROUNDING * size) / above_one
    return float(min(divergence, most))


def _step(event: PoissonSampledDpEvent, values: Values, steps_of: StepsOf) -> Steps:
    if type(event.event) is not GaussianDpEvent:
        raise no_price(event)
    noise = charged_noise(checked(event.event, GaussianDpEvent, GAUSSIAN))
    return Steps(values["sampling_probability"], noise, 1)


KIND = Kind(PoissonSampledDpEvent, {"sampling_probability": CHANCE, "event": AN_EVENT}, step=_step)
