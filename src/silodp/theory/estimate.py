"""lambda estimated from what silos release anyway, at no cost in privacy.

Empirical Bayes by the method of moments: the released means differ by tau^2 and by noise, whose
variance is public. What is left of their variance is tau^2, and lambda follows. It is
post-processing of released means: the budget stays whole for the release itself.
"""

import numpy as np

from silodp.base.errors import SilodpError
from silodp.theory.closed_forms import Numbers
from silodp.theory.silos import lambda_stars


def estimate_tau(means: np.ndarray, known_variances: Numbers) -> np.ndarray:
    """tau, from means [..., silos] and the known part of their variances (for all, or by silo).

    The known part is `local_variance` with a public guess of sigma, or with sigma 0: then what
    sampling adds counts as silos that differ. 0 where the means differ less than the noise alone
    would make them. Variances of silos that differ enter by their mean, as E[S^2] has them.
    """
    silos = means.shape[-1]
    if silos < 2:
        raise SilodpError("One silo says nothing about how silos differ: give two or more.")
    variances = np.broadcast_to(np.asarray(known_variances, float), means.shape)
    excess = means.var(axis=-1, ddof=1) - variances.mean(axis=-1)
    return np.sqrt(np.maximum(excess, 0.0))


def estimate_lambdas(means: np.ndarray, known_variances: Numbers) -> np.ndarray:
    """lambda of each silo, [..., silos], from released means; infinite (FedAvg) where tau is 0."""
    variances = np.broadcast_to(np.asarray(known_variances, float), means.shape)
    return lambda_stars(variances, estimate_tau(means, variances)[..., None])
