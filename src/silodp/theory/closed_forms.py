"""The paper's analysis, one function a lemma, theorem or proposition.

Numbers may be arrays, which broadcast. Names: K `silos`, n `records`, sigma (of records around
their silo's centre), tau (of the centres), sigma_loc^2 `local_variance`, lambda `lam` (infinite:
FedAvg).
"""

import math

import numpy as np
from dp_accounting import get_sigma_gaussian

from silodp.base.errors import SilodpError

Numbers = float | np.ndarray

# The exact noise is not computed beyond it: it would be less.
_LARGEST_EPSILON = 1e6


def sigma_dp(clip: float, epsilon: float, delta: float) -> float:
    """Noise on the sum of records clipped to `clip`: c sqrt(2 ln(1.25 / delta)) / epsilon.

    The formula is proven for epsilon below 1. The exact least noise (Balle and Wang 2018) takes
    its place where it is larger, so that epsilon is true for all. Infinite epsilon: no noise.
    """
    if not 0 < clip < math.inf:
        raise SilodpError(f"clip is {clip}, but must be above 0 and finite: give one such as 1.")
    if not epsilon > 0:
        raise SilodpError(
            f"epsilon is {epsilon}, but must be above 0: give one such as 1, or inf for no privacy."
        )
    if not 0 < delta < 1:
        raise SilodpError(f"delta is {delta}, but must lie between 0 and 1: give one such as 1e-5.")
    if math.isinf(epsilon):
        return 0.0
    simple = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    with np.errstate(all="ignore"):
        exact = get_sigma_gaussian(min(epsilon, _LARGEST_EPSILON), delta)
    return clip * max(simple, float(exact))


def local_variance(records: Numbers, sigma: Numbers, sigma_dp: Numbers = 0.0) -> Numbers:
    """sigma_loc^2: of a silo's noisy mean around its centre, by sampling and by noise."""
    return sigma**2 / records + (sigma_dp / records) ** 2


def own_weight(lam: Numbers, silos: Numbers) -> Numbers:
    """Lemma: alpha, the weight of a silo's own mean in w_k(lambda); the others share the rest."""
    # (K + lambda) / ((1 + lambda) K), written so that an infinite lambda is no special case.
    return 1 / silos + (1 - 1 / silos) / (1 + lam)


def minimiser(means: np.ndarray, lam: Numbers) -> np.ndarray:
    """Lemma: w_k(lambda) for all silos (the last axis), the least of MR-MTL's objectives."""
    own = 1 / (1 + np.asarray(lam, float))
    return own * means + (1 - own) * means.mean(axis=-1, keepdims=True)


def posterior(local_variance: Numbers, tau: Numbers, silos: int) -> tuple[Numbers, Numbers]:
    """Lemma: w_k given all means is normal; its variance sigma_w^2, and the own mean's weight.

    mu_k is that weight times the own mean, and the rest times the mean of the other silos.
    """
    others = (silos - 1) / (silos * tau**2 + local_variance)
    variance = 1 / (1 / local_variance + others)
    return variance, variance / local_variance


def lambda_star(local_variance: Numbers, tau: Numbers) -> Numbers:
    """Theorem: the best lambda, sigma_loc^2 / tau^2; infinite for silos that do not differ."""
    with np.errstate(divide="ignore"):
        return np.divide(local_variance, np.square(tau))


def error(lam: Numbers, local_variance: Numbers, tau: Numbers, silos: Numbers) -> Numbers:
    """Lemma: E(lambda), the mean squared error of w_k(lambda)."""
    own = 1 / (1 + np.asarray(lam, float))
    mixed = own**2 * local_variance + (1 - own) ** 2 * np.square(tau)
    return (1 - 1 / silos) * mixed + local_variance / silos


def error_star(local_variance: Numbers, tau: Numbers, silos: Numbers) -> Numbers:
    """Corollary: the error at the best lambda."""
    both = local_variance + np.square(tau)
    return local_variance * (local_variance + silos * np.square(tau)) / (silos * both)


def error_local(local_variance: Numbers) -> Numbers:
    """The error of local training (lambda 0)."""
    return local_variance


def error_fedavg(local_variance: Numbers, tau: Numbers, silos: Numbers) -> Numbers:
    """The error of FedAvg (infinite lambda)."""
    return (local_variance + (silos - 1) * np.square(tau)) / silos


def gap_local(local_variance: Numbers, tau: Numbers, silos: Numbers) -> Numbers:
    """Proposition: how much worse local training is than the best lambda."""
    return (1 - 1 / silos) * local_variance**2 / (local_variance + np.square(tau))


def gap_fedavg(local_variance: Numbers, tau: Numbers, silos: Numbers) -> Numbers:
    """Proposition: how much worse FedAvg is than the best lambda."""
    return (1 - 1 / silos) * np.square(tau) ** 2 / (local_variance + np.square(tau))


def privacy_gap(lam: Numbers, records: Numbers, sigma_dp: Numbers, silos: Numbers) -> Numbers:
    """Theorem: what privacy adds to the error at lambda; it shrinks by up to a factor of K."""
    noise = (sigma_dp / records) ** 2
    return (1 - 1 / silos) * noise / (1 + np.asarray(lam, float)) ** 2 + noise / silos
