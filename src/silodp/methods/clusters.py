"""Silos in clusters: what the methods that choose among several models share."""

import jax
import jax.numpy as jnp

from silodp.methods.base import choose

# What a method that chooses calls its choices in what it learned: [silos, clusters], 1 where a silo
# ended.
CHOSEN = "chosen_clusters"

# How far first models lie apart: so little that updates of silos that trained different ones can
# still be compared. In standard deviations of the model's own start; of 1 if it starts at zero.
START_SPREAD = 0.01


def number_of(models) -> int:
    """How many clusters there are."""
    return jax.tree.leaves(models)[0].shape[0]


def of_cluster(tree, choice):
    """What is the chosen cluster's, of arrays with a leading axis of clusters."""
    return jax.tree.map(lambda leaf: leaf[choice], tree)


def merge_by_cluster(merge, states, messages, chosen, weights):
    """`merge` for each cluster over the silos that chose it; one that nobody chose stays as it is.

    `chosen` is [silos, clusters], 1 where a silo is in a cluster.
    """

    def of_members(state, members):
        share = jnp.sum(weights * members) / jnp.sum(weights)
        merged = merge(state, messages, weights * members / jnp.where(share > 0, share, 1.0))
        return choose(share > 0, merged, state)

    return jax.vmap(of_members, in_axes=(0, 1))(states, chosen)


def distinct_starts(params, key, clusters: int):
    """Models drawn at random around the parameters."""
    leaves, treedef = jax.tree.flatten(params)
    if clusters == 1:
        return jax.tree.map(lambda leaf: leaf[None], params)
    spreads = jnp.stack([jnp.std(leaf) for leaf in leaves])
    spreads = START_SPREAD * jnp.where(jnp.any(spreads > 0), spreads, 1.0)

    def drawn(leaf, number):
        unit = jax.random.normal(jax.random.fold_in(key, number), (clusters, *leaf.shape))
        return leaf + spreads[number] * unit

    return jax.tree.unflatten(treedef, [drawn(leaf, n) for n, leaf in enumerate(leaves)])
