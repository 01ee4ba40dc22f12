"""IFCA (HypCluster): clusters of silos, each with a model of its own.

A. Ghosh, J. Chung, D. Yin, K. Ramchandran. An efficient framework for clustered federated learning.
NeurIPS 2020. Y. Mansour, M. Mohri, J. Ro, A. T. Suresh. Three approaches for personalization with
applications to federated learning. 2020. Privately as in "Mitigating strategies for private cluster
selection" of the paper: a silo chooses its cluster with the exponential mechanism, in the first
part of the rounds only.

Use it where silos fall into a few kinds. Each selection costs privacy, which training then lacks.
"""

import math

import jax
import jax.numpy as jnp

from silodp.methods.base import Method, add, difference
from silodp.privacy.queries import Schedule

# How far the clusters' first models lie apart, as a standard deviation of each parameter.
START_SPREAD = 0.1


def ifca(clusters: int, select_fraction: float) -> Method:
    """Silos choose among cluster models, and train the one that they chose."""

    def schedule(rounds: int) -> Schedule:
        return Schedule(rounds, train=1, select_rounds=math.ceil(select_fraction * rounds))

    def distinct_starts(params, key):
        def around(leaf, number):
            spread = jax.random.normal(jax.random.fold_in(key, number), (clusters, *leaf.shape))
            return leaf + START_SPREAD * spread

        leaves, treedef = jax.tree.flatten(params)
        models = [around(leaf, number) for number, leaf in enumerate(leaves)]
        return jax.tree.unflatten(treedef, models), jnp.int32(0)

    def choose_and_train(choice, models, queries):
        choice = queries.select(models, otherwise=choice).astype(jnp.int32)
        own = _model(models, choice)
        update = difference(queries.train(own), own)
        return choice, {"chosen": jax.nn.one_hot(choice, clusters), "update": update}

    def mean_by_cluster(models, messages, weights):
        shares = weights[:, None] * messages["chosen"]  # [silos, clusters]
        total = jnp.sum(shares, axis=0)
        # A cluster that nobody chose stays as it is.
        shares = shares / jnp.where(total > 0, total, 1.0)
        return add(
            models, jax.tree.map(lambda u: jnp.tensordot(shares.T, u, axes=1), messages["update"])
        )

    return Method(
        schedule=schedule,
        init=distinct_starts,
        broadcast=lambda models: models,
        local=choose_and_train,
        merge=mean_by_cluster,
        personal=lambda choice, models: _model(models, choice),
    )


def _model(models, choice):
    return jax.tree.map(lambda leaf: leaf[choice], models)
