"""The mixture of the three estimates, moved towards those along which losses fall."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from silodp.methods.ebmtl.constants import CONSTANTS
from silodp.methods.ebmtl.estimators import estimates_of
from silodp.methods.ebmtl.free_tests import Layers, products, scores
from silodp.methods.ebmtl.shapes import Deviations, Estimates, Received, Server, Structure

AS_IS = Estimates._fields.index("as_is")


def first_log_shares(only: float, layers: int) -> Float[Array, "3 layers"]:
    """The log-weights of the estimates at first: equal, or of one alone."""
    logs = jnp.zeros(3) if not only else jnp.where(jnp.arange(3) == only - 1, 0.0, -jnp.inf)
    return jnp.tile(logs[:, None], (1, layers))


def shares_of(log_shares: Float[Array, "3 layers"]) -> Float[Array, "3 layers"]:
    """The weight of each estimate in the mixture; the largest log-weight is 0 (eq. 16)."""
    weights = jnp.exp(log_shares)
    return weights / jnp.sum(weights, axis=0)


def mixed(
    deviations: Deviations,
    structure: Structure,
    log_shares: Float[Array, "3 layers"],
    layers: Layers,
) -> Float[Array, "silos params"]:
    """Dhat, by all three estimates (eq. 16); of a silo without noise it is D."""
    first, second, third = layers.widened(shares_of(log_shares))
    estimates = estimates_of(deviations, structure)
    Dhat = first * estimates.by_coordinate + second * estimates.by_relations
    Dhat = Dhat + third * estimates.as_is
    return jnp.where(deviations.private[:, None], Dhat, deviations.D)


def log_shares_after(
    server: Server,
    got: Received,
    of_round: Float[Array, "silos params"],
    drift: Float[Array, " silos"],
    layers: Layers,
    learns: bool,
) -> Float[Array, "3 layers"]:
    """The log-weights after a round, which tests what the rounds before made (eq. 18).

    Args:
      server: before the round.
      got: what the round brought.
      of_round: how far silos went from its mean.
      drift: how far another sample of records would have led (eq. 9).
      layers: the model's layers.
      learns: whether the mixture is learned; else it stays as it is.
    """
    if not learns:
        return server.log_shares
    g = jnp.where(got.discloses_noise, got.g, 0.0)
    estimates = jnp.stack(estimates_of(server.deviations, server.structure))
    rises, errors = products(of_round, estimates, g, got.v, layers)
    # A silo's records are in its update and in its deviations alike: of what they say for more
    # personalisation, so much is true of these records only, and not of others like them (eq. 19).
    common = layers.sizes * ((drift * server.deviations.sampling_drift) @ g)
    own = errors[AS_IS, AS_IS]
    rises = rises - common * errors[:, AS_IS] / jnp.where(own > 0, own, 1.0)
    z = scores(rises, errors, shares_of(server.log_shares))
    doubt = _doubt(server.structure.found, *of_round.shape) * jnp.eye(3)[AS_IS]
    wanted = jnp.tanh(z + doubt[:, None])
    moved = (wanted[:, :-1] + wanted[:, -1:]) / 2.0  # by the layer's own test, and by all together
    rate = jnp.where(server.round > 0, CONSTANTS.mixture_rate, 0.0)
    logs = server.log_shares + rate * moved
    return jnp.maximum(logs - jnp.max(logs, axis=0), CONSTANTS.least_log_share)


def _doubt(found: Float[Array, " directions"], silos: int, parameters: int) -> Float[Array, ""]:
    """What speaks for keeping D as it is where tests are silent (eq. 20)."""
    directions = max(min(silos - 1, parameters), 1)
    return CONSTANTS.trust * (jnp.sum(found) / directions - CONSTANTS.doubt)
