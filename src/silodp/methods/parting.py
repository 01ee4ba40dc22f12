"""Silos parted by what they released, at no cost in privacy."""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from silodp.methods.base import OfSilos
from silodp.privacy.mechanisms.shapes import WholeNumber

# Silos are sorted into clusters in so many passes; few change in the last.
JOININGS = 10
# Weights below are rounding errors.
ALONE = 1e-9

# How much like a picked silo each is at best, and which are not picked yet.
Picked = tuple[Float[Array, " silos"], Bool[Array, " silos"]]


def alike(
    updates: OfSilos, weights: Float[Array, " silos"], clusters: int
) -> Float[Array, "silos {clusters}"]:
    """Silos in clusters by their updates: 1 where a silo is in a cluster.

    Updates are compared by direction, since more steps or more noise make longer ones (F. Sattler,
    K.-R. Mueller, W. Samek. Clustered federated learning. 2020). A silo is never compared with
    itself: noise would pass for likeness.
    """
    rows = jax.vmap(lambda update: ravel_pytree(update)[0])(updates)
    rows = rows / jnp.maximum(jnp.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
    likeness = (rows @ rows.T) * (1.0 - jnp.eye(len(rows)))

    # First a silo for each cluster, one after another: the one that brings the others most
    # likeness (L. Kaufman, P. J. Rousseeuw. Finding groups in data. 1990: BUILD).
    def pick(so_far: Picked, _: None) -> tuple[Picked, Int[Array, ""]]:
        best, free = so_far
        gain = weights @ jnp.maximum(likeness - best[:, None], 0.0)
        choice = jnp.argmax(jnp.where(free, gain, -1.0))
        return (jnp.maximum(best, likeness[:, choice]), free.at[choice].set(False)), choice

    nobody = (jnp.full(len(rows), -1.0), weights > 0)
    _, first = jax.lax.scan(pick, nobody, length=clusters)
    at_first = jax.nn.one_hot(first, len(rows), axis=0)

    # Then each joins those whom it is most like on the whole, again and again.
    def join(
        _: WholeNumber, joined: Float[Array, "silos clusters"]
    ) -> Float[Array, "silos clusters"]:
        others = (weights @ joined)[None] - weights[:, None] * joined
        mean = likeness @ (weights[:, None] * joined) / jnp.maximum(others, ALONE)
        mean = jnp.where(others > ALONE, mean, 2.0 * joined - 1.0)  # who is alone stays, none joins
        return jax.nn.one_hot(jnp.argmax(mean, axis=1), clusters)

    return jax.lax.fori_loop(0, JOININGS, join, at_first)
