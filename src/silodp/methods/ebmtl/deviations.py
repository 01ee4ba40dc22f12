"""D, how far each silo's updates have led it from the mean, and how uncertain that is."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from silodp.methods.ebmtl.constants import CONSTANTS
from silodp.methods.ebmtl.shapes import Deviations, Received


def first_deviations(silos: int, parameters: int) -> Deviations:
    """Before any round: nothing, without noise."""
    none = jnp.zeros(silos)
    return Deviations(jnp.zeros((silos, parameters)), none, none, none, _dividable(none), none == 0)


def deviations_of_round(
    got: Received, Ubar: Float[Array, " params"]
) -> Float[Array, "silos params"]:
    """U_k - Ubar; a silo that took no part stays as far from the mean as it is (eq. 3)."""
    return jnp.where(got.took_part[:, None], got.U - Ubar, 0.0)


def added(
    before: Deviations,
    of_round: Float[Array, "silos params"],
    got: Received,
    p: Float[Array, " silos"],
    drift: Float[Array, " silos"],
) -> Deviations:
    """The deviations after a round.

    Args:
      before: the round.
      of_round: what it adds to D (eq. 3).
      got: what it brought.
      p: the weights of its mean.
      drift: what it adds to the drift by sampling (eq. 9).
    """
    noise_var = jnp.where(got.took_part, deviation_noise_var(got.v, p), 0.0)
    D = before.D + of_round
    V = before.V + jnp.where(got.discloses_noise, noise_var, jnp.inf)
    update_noise_var = before.update_noise_var + got.v
    drift = before.sampling_drift + drift
    T = _uncertainty(V, update_noise_var, drift, D.shape[1])
    private = jnp.where(got.took_part, ~got.discloses_noise | (got.v > 0), before.private)
    return Deviations(D, V, update_noise_var, drift, T, private)


def deviation_noise_var(
    v: Float[Array, " silos"], p: Float[Array, " silos"]
) -> Float[Array, " silos"]:
    """The variance of the noise in U_k - Ubar: U_k's, which is in Ubar too, and the others'."""
    return v * (1.0 - 2.0 * p) + (p * v) @ p  # (eq. 4)


def _uncertainty(
    V: Float[Array, " silos"],
    update_noise_var: Float[Array, " silos"],
    sampling_drift: Float[Array, " silos"],
    parameters: int,
) -> Float[Array, " silos"]:
    """The variance of each entry of D: from noise, and from records' being a sample (eq. 10).

    Silos' deviations from their mean hang together: of two silos, each is the other's opposite.
    Counted with the noise of their sums, which do not, deviations look no more alike than noise
    makes them; V is a little less.
    """
    total = update_noise_var + sampling_drift**2 / parameters
    return _dividable(jnp.where(jnp.isfinite(V), total, jnp.inf))


def _dividable(variances: Float[Array, " silos"]) -> Float[Array, " silos"]:
    """Variances that can be divided by: at least a share of the largest."""
    known = jnp.isfinite(variances)
    most = jnp.max(jnp.where(known, variances, 0.0))
    most = jnp.where(most > 0, most, 1.0)
    # Of a silo that does not say how noisy it is, nothing is known: as good as nothing but noise.
    unknown = CONSTANTS.unknown_variance_factor * most
    return jnp.where(known, jnp.maximum(variances, CONSTANTS.least_variance_share * most), unknown)


def shown(deviations: Deviations) -> Float[Array, "silos params"]:
    """D where its noise is known, and 0 where it is not."""
    return jnp.where(jnp.isfinite(deviations.V)[:, None], deviations.D, 0.0)
