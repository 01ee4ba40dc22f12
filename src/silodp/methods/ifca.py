"""IFCA (HypCluster): clusters of silos, each with a model of its own.

A. Ghosh, J. Chung, D. Yin, K. Ramchandran. An efficient framework for clustered federated learning.
NeurIPS 2020. Y. Mansour, M. Mohri, J. Ro, A. T. Suresh. Three approaches for personalization with
applications to federated learning. 2020. Privately as in "Mitigating strategies for private cluster
selection" of the paper: a silo chooses its cluster with the exponential mechanism, in the first
part of the rounds only. That the server parts the models half-way (below) is ours.

Use it where silos fall into a few kinds. Each selection costs privacy, which training then lacks.
"""

import math
from typing import TypedDict

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from silodp.methods.base import (
    Method,
    OfClusters,
    OfSilos,
    Params,
    Start,
    add,
    choose,
    difference,
    weighted_mean,
)
from silodp.methods.clusters import CHOSEN, distinct_starts, merge_by_cluster, of_cluster
from silodp.methods.fedavg import fedavg
from silodp.methods.parting import alike
from silodp.methods.server import AVERAGE, ServerOptimiser
from silodp.privacy.mechanisms.queries import Queries, Schedule
from silodp.privacy.mechanisms.shapes import WholeNumber

# The state of each cluster's server; the sums of silos' updates; the number of rounds done; the
# clusters that silos chose.
State = tuple[OfClusters, OfSilos, Int[Array, ""], Float[Array, "silos clusters"]]


class Update(TypedDict):
    """The message of a silo: its update, and 1 for the cluster that it is for."""

    chosen: Float[Array, " clusters"]
    update: Params


class Updates(TypedDict):
    """The messages of all silos."""

    chosen: Float[Array, "silos clusters"]
    update: OfSilos


def ifca(
    rounds: int, clusters: int, select_fraction: float, server: ServerOptimiser = AVERAGE
) -> Method:
    """Silos choose among cluster models, and train the one that they chose by FedAvg."""
    shared = fedavg(server)
    select_rounds = math.ceil(round(select_fraction * rounds, 9))
    if select_rounds == 0:  # nobody ever chooses
        return shared
    # Choices among models that know nothing would leave some of the models out for good. So in the
    # first half of the selections all models learn from all silos, while the server gets to know
    # the silos by their updates; then it parts the models, and silos choose among what differs.
    # (Not if there is but one selection.)
    listening = 0 if clusters == 1 else select_rounds // 2

    def init(start: Start) -> tuple[State, Int[Array, ""]]:
        models = distinct_starts(start.params, start.key, clusters)
        update_sums = jax.tree.map(lambda w: jnp.zeros((start.silos, *w.shape)), start.params)
        chosen = jnp.zeros((start.silos, clusters))
        states = jax.vmap(server.init)(models)
        return (states, update_sums, jnp.int32(start.round), chosen), jnp.int32(0)

    def choose_and_train(
        choice: Int[Array, ""], models: OfClusters, queries: Queries
    ) -> tuple[Int[Array, ""], Update]:
        choice = queries.select(models, otherwise=choice).astype(jnp.int32)
        _, update = shared.local((), of_cluster(models, choice), queries)
        return choice, {"chosen": jax.nn.one_hot(choice, clusters), "update": update}

    def merge(state: State, messages: Updates, weights: Float[Array, " silos"]) -> State:
        states, update_sums, done, _ = state
        members = jnp.where(done < listening, 1.0, messages["chosen"])
        states = merge_by_cluster(shared.merge, states, messages["update"], members, weights)
        update_sums = choose(done < listening, add(update_sums, messages["update"]), update_sums)

        def part(_: WholeNumber, states: OfClusters) -> OfClusters:
            each = jax.tree.map(lambda total: total / listening, update_sums)
            apart = difference(each, weighted_mean(each, weights))
            kinds = alike(update_sums, weights, clusters)
            return merge_by_cluster(shared.merge, states, apart, kinds, weights)

        # A loop of one turn or none: a condition would be worked out in every round.
        last = (done + 1 == listening).astype(int)
        states = jax.lax.fori_loop(0, last, part, states) if listening else states
        return states, update_sums, done + 1, messages["chosen"]

    return Method(
        schedule=lambda rounds: Schedule(rounds, train=1, select_rounds=select_rounds),
        init=init,
        broadcast=lambda server: server[0].model,
        local=choose_and_train,
        merge=merge,
        personal=lambda choice, models: of_cluster(models, choice),
        learned=lambda server: {CHOSEN: server[3]},
    )
