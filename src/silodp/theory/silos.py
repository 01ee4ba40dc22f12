"""Silos of their own sizes, variances and budgets: the appendix's heterogeneous case.

`local_variances` are the silos' sigma_k^2/n_k + sigma_k,DP^2/n_k^2, along the last axis. In the
paper all silos weigh alike in the common mean; `weights` are other ones (such as record counts, by
which runs merge), and every formula is the paper's where they are equal.
"""

import numpy as np

from silodp.theory.closed_forms import Numbers, own_weight

# A lambda above its inverse is FedAvg: what is left between the two is rounding.
_ROUNDING = 1e-12


def lambda_stars(
    local_variances: np.ndarray, tau: Numbers, weights: np.ndarray | None = None
) -> np.ndarray:
    """Theorem: the best lambda of each silo.

    It turns negative where a silo is so noisy that even the common mean gives it too much weight:
    FedAvg (infinity) is then the best on the spectrum.
    """
    own = np.asarray(local_variances, float)
    if own.shape[-1] == 1:
        return np.zeros_like(own)  # there is nobody to learn from
    share = _shares(own, weights)
    # Of equal weights: tau^2 + (mean of the others' variances - own) / K.
    differing = _sum_of_others(share) * _others_variance(own, tau, share) - share * own
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(differing > _ROUNDING * own, own / differing, np.inf)


def lambda_for_all(
    local_variances: np.ndarray,
    tau: float,
    counting: np.ndarray,
    weights: np.ndarray | None = None,
) -> float:
    """The one lambda with the least mean error over silos, which count by `counting`.

    Not in the paper: the mean error is quadratic in 1 / (1 + lambda).
    """
    own = np.asarray(local_variances, float)
    if own.shape[-1] == 1:
        return 0.0
    share = _shares(own, weights)
    rest = _sum_of_others(share)
    by_others = rest * _others_variance(own, tau, share)
    curvature = counting @ (rest * (rest * own + by_others))
    slope = counting @ (rest * (by_others - share * own))
    if curvature == 0:
        return 0.0  # no estimate errs
    keep = slope / curvature
    return float(1 / keep - 1) if keep > _ROUNDING else np.inf


def posteriors(local_variances: np.ndarray, tau: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """Lemma: variance and own weight of each w_k, given its own mean and that of the others."""
    own = np.asarray(local_variances, float)
    variance = 1 / (1 / own + 1 / _others_variance(own, tau, _shares(own, None)))
    return variance, variance / own


def errors(
    lams: Numbers, local_variances: np.ndarray, tau: Numbers, weights: np.ndarray | None = None
) -> np.ndarray:
    """The error of each silo with its own lambda: 0 is local training, infinity FedAvg."""
    own = np.asarray(local_variances, float)
    share = _shares(own, weights)
    weight = own_weight(np.asarray(lams, float), 1 / share)
    if own.shape[-1] == 1:
        return own * np.ones_like(weight)
    return weight**2 * own + (1 - weight) ** 2 * _others_variance(own, tau, share)


def _shares(own: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """The share of each silo in the common mean."""
    weights = np.ones(own.shape[-1]) if weights is None else np.asarray(weights, float)
    return weights / weights.sum()


def _others_variance(own: np.ndarray, tau: Numbers, share: np.ndarray) -> np.ndarray:
    """The variance of the other silos' mean around w_k: centres differ, and they are noisy."""
    others = _sum_of_others(share**2 * (own + np.square(tau)))
    return np.square(tau) + others / _sum_of_others(share) ** 2


def _sum_of_others(values: np.ndarray) -> np.ndarray:
    """Adds up the others, rather than take one off the total: it may outweigh them all by far."""
    none = np.zeros_like(values[..., :1])
    before = np.concatenate([none, np.cumsum(values[..., :-1], axis=-1)], axis=-1)
    after = np.concatenate([none, np.cumsum(values[..., :0:-1], axis=-1)], axis=-1)
    return before + after[..., ::-1]
