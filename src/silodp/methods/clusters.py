"""Silos in clusters: what the methods that choose among several models share."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, UInt32

from silodp.methods.base import OfClusters, OfSilos, Params, Server, choose
from silodp.privacy.mechanisms.shapes import WholeNumber

# What a method that chooses calls its choices in what it learned: [silos, clusters], 1 where a silo
# ended.
CHOSEN = "chosen_clusters"

# How far first models lie apart: so little that updates of silos that trained different ones can
# still be compared. In standard deviations of the model's own start; of 1 if it starts at zero.
START_SPREAD = 0.01


def number_of(models: OfClusters) -> int:
    """How many clusters there are."""
    return jax.tree.leaves(models)[0].shape[0]


def of_cluster(tree: OfClusters, choice: WholeNumber) -> Params:
    """What is the chosen cluster's, of arrays with a leading axis of clusters."""
    return jax.tree.map(lambda leaf: leaf[choice], tree)


def merge_by_cluster(
    merge: Callable[[Server, OfSilos, Float[Array, " silos"]], Server],
    states: OfClusters,
    messages: OfSilos,
    chosen: Float[Array, "silos clusters"],
    weights: Float[Array, " silos"],
) -> OfClusters:
    """`merge` for each cluster over the silos that chose it; one that nobody chose stays as it is.

    `chosen` is 1 where a silo is in a cluster.
    """

    def of_members(state: Server, members: Float[Array, " silos"]) -> Server:
        share = jnp.sum(weights * members) / jnp.sum(weights)
        merged = merge(state, messages, weights * members / jnp.where(share > 0, share, 1.0))
        return choose(share > 0, merged, state)

    return jax.vmap(of_members, in_axes=(0, 1))(states, chosen)


def distinct_starts(
    params: Params, key: UInt32[Array, "2"] | Key[Array, ""], clusters: int
) -> OfClusters:
    """Models drawn at random around the parameters."""
    leaves, treedef = jax.tree.flatten(params)
    if clusters == 1:
        return jax.tree.map(lambda leaf: leaf[None], params)
    spreads = jnp.stack([jnp.std(leaf) for leaf in leaves])
    spreads = START_SPREAD * jnp.where(jnp.any(spreads > 0), spreads, 1.0)

    def drawn(leaf: Float[Array, "*leaf"], number: int) -> Float[Array, " clusters *leaf"]:
        unit = jax.random.normal(jax.random.fold_in(key, number), (clusters, *leaf.shape))
        return leaf + spreads[number] * unit

    return jax.tree.unflatten(treedef, [drawn(leaf, n) for n, leaf in enumerate(leaves)])
