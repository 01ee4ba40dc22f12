"""How silos' models relate to each other, and what that lets expect of each.

The models W [silos, parameters] are taken for draws from a Gaussian with covariance S between
silos. S = W W' + ridge is its estimate (Y. Zhang, D.-Y. Yeung, A convex formulation for learning
task relationships in multi-task learning, UAI 2010, have the square root, which shrinks what silos
have in common as well), and Omega its inverse. Given the others, model k is then expected at
w_k - (Omega W)_k / Omega_kk, with precision Omega_kk: a regression on the other silos' models, with
signs.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from silodp.privacy.mechanisms.shapes import WholeNumber

# The ridge, as a part of the mean eigenvalue of W W': what no silo has shown yet may still come.
RIDGE = 0.3


def expectations(
    rows: Float[Array, "silos params"],
) -> tuple[Float[Array, "silos params"], Float[Array, " silos"]]:
    """What each row is expected to be, and how precisely; the mean precision is 1.

    So lambda means about the same as in MR-MTL.
    """
    silos, parameters = rows.shape
    ridge = jnp.maximum(RIDGE * jnp.sum(rows**2) / silos, 1e-12)
    if silos <= parameters:
        omega = inverse(rows @ rows.T + ridge * jnp.eye(silos), silos + parameters)
        pull, precision = omega @ rows, jnp.diag(omega)
    else:  # the same by way of a smaller inverse (Woodbury)
        smaller = inverse(rows.T @ rows + ridge * jnp.eye(parameters), silos + parameters)
        pull = rows @ smaller
        precision = (1.0 - jnp.sum(pull * rows, axis=1)) / ridge
    return rows - pull / precision[:, None], precision / jnp.mean(precision)


def inverse(matrix: Float[Array, "n n"], size: int) -> Float[Array, "n n"]:
    """The inverse of a positive definite matrix, by Newton's iteration.

    Its eigenvalues lie between RIDGE/size and 1, as parts of the trace. Products of matrices alone:
    LAPACK's routines can wait for each other for ever when several devices of one processor call
    them at once.
    """
    one = jnp.eye(len(matrix))
    steps = math.ceil(math.log2(size / RIDGE)) + 5  # then errors of 1 - RIDGE/size are nothing

    def step(_: WholeNumber, x: Float[Array, "n n"]) -> Float[Array, "n n"]:
        return x @ (2.0 * one - matrix @ x)

    return jax.lax.fori_loop(0, steps, step, one / jnp.trace(matrix))
