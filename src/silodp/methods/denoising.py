"""What of the differences between silos is real, given how noisy they are.

D [silos, parameters] is how far each silo has gone from the mean of all, by its own released
updates; each entry of row k holds noise of variance V_k, which is known. Each function here is an
estimate of D without noise. All is computed from what was released: it costs no privacy.

- `coordinate`: empirical Bayes for each parameter by itself. C. Morris. Parametric empirical Bayes
  inference. JASA 1983.
- `relation`: by what silos have in common with others, found as the singular vectors of D that
  stand out of the noise. M. Gavish, D. Donoho. Optimal shrinkage of singular values. IEEE
  Transactions on Information Theory 2017. Ours: a direction is kept as far as it is *found*, and
  not shrunk further for the noise within it (docs/ebmtl.md says why).
"""

import math

import jax.numpy as jnp
from jax import Array

# A silo without noise would have infinite weight: its noise counts as this share of the most.
LEAST_SHARE = 1e-3
# So many spreads beyond what is usual, noise alone goes once in forty times, and (the largest
# singular value, by Tracy and Widom) beyond its edge once in a hundred.
CHANCE = 2.0


def spread(differences: Array, variances: Array) -> Array:
    """tau^2 of each parameter: how much silos really differ in it [parameters].

    Silos count by 1 / V^2, which is what the noise of D^2 - V asks for. What noise alone gives one
    time in forty is taken off, so that silos without differences keep little, few silos too.
    """
    weights = (jnp.max(variances) / variances) ** 2
    weights = weights / jnp.sum(weights)
    noise = weights * variances
    usual = jnp.sum(noise)
    # As many are free to vary as there are silos, but one: their mean is taken off.
    free = (len(variances) - 1) / len(variances) if len(variances) > 1 else 1.0
    most = usual * _largest_mean_square(free / jnp.sum((noise / usual) ** 2))
    return jnp.maximum(0.0, jnp.sum(weights[:, None] * differences**2, axis=0) - most)


def _largest_mean_square(freedom: Array) -> Array:
    """Of so many squares of noise with variance 1, their mean by chance, CHANCE spreads up.

    E. Wilson, M. Hilferty. The distribution of chi-square. PNAS 1931.
    """
    part = 2.0 / (9.0 * freedom)
    return (1.0 - part + CHANCE * jnp.sqrt(part)) ** 3


def coordinate(differences: Array, variances: Array, tau2: Array) -> Array:
    """Each entry kept by tau^2 / (tau^2 + V)."""
    total = tau2 + variances[:, None]
    return differences * (tau2 / total)


def found(values: Array, silos: int, parameters: int) -> Array:
    """How surely each direction among silos is found, from 0 to 1.

    It is the squared cosine between a left singular vector of (signal + noise of variance 1) and
    that of the signal alone, in the limit of large matrices (F. Benaych-Georges, R. Nadakuditi.
    2012). Directions that noise alone could give have 0: those below the largest value of a matrix
    of noise, with a margin for its chance (I. Johnstone. 2001).

    Args:
      values: squared singular values of the noisy matrix.
      silos: its rows.
      parameters: its columns.
    """
    beta = silos / parameters
    over = values / parameters - 1.0 - beta
    edge = 2.0 * math.sqrt(beta)
    seen = over > edge + CHANCE * _edge_spread(silos, parameters) / parameters
    # No squares of values: with little noise they would be too large.
    root = jnp.sqrt(jnp.where(seen, over - edge, 0.0)) * jnp.sqrt(jnp.where(seen, over + edge, 0.0))
    theta2 = jnp.where(seen, (over + root) / 2.0, 1.0)
    cosine2 = 1.0 - (beta / theta2) * ((1.0 + theta2) / (theta2 + beta))
    return jnp.where(seen, jnp.clip(cosine2, 0.0, 1.0), 0.0)


def _edge_spread(silos: int, parameters: int) -> float:
    """By how much the largest squared singular value of noise varies, in Johnstone's scaling."""
    rows, columns = math.sqrt(silos), math.sqrt(parameters)
    return (rows + columns) * (1.0 / rows + 1.0 / columns) ** (1.0 / 3.0)


def gram(whitened: Array) -> Array:
    """The products of rows, or those of columns if these are fewer."""
    silos, parameters = whitened.shape
    return whitened @ whitened.T if silos <= parameters else whitened.T @ whitened


def relation(whitened: Array, basis: Array, share: Array) -> Array:
    """What is left of the (whitened) differences in the directions of the basis, by their share."""
    projection = (basis * share) @ basis.T
    silos, parameters = whitened.shape
    return projection @ whitened if silos <= parameters else whitened @ projection
