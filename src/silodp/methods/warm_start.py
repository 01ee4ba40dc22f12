"""Warm starts: IFCA for the first rounds, then any method within the clusters that it found.

Algorithm A2 of the paper (with MR-MTL), "IFCA Preconditioning / Warm-Starting". Z. Liu, S. Hu,
Z. S. Wu, V. Smith. On privacy and personalization in cross-silo federated learning. NeurIPS 2022.

While silos choose, each trains its cluster's model, and the second method stands where that model
stands. Then the clusters are frozen and the second method goes on, in each cluster by itself: silos
from the models that they have trained, the server from the clusters' models. Costs what the second
method costs, and IFCA's selections; of several passes a round, IFCA uses the first.

Use it where silos fall into a few kinds, and silos of a kind still differ.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from silodp.methods.base import Message, Method, OfClusters, Params, Server, Start, choose
from silodp.methods.base import Silo as OwnState
from silodp.methods.clusters import merge_by_cluster, number_of, of_cluster
from silodp.privacy.mechanisms.queries import Queries, Schedule
from silodp.privacy.mechanisms.shapes import Number, WholeNumber

# How the second method starts; IFCA's state; the second method's state in each cluster.
State = tuple[Start, Server, OfClusters]
# Likewise of a silo, with the number of its cluster.
Silo = tuple[Start, Int[Array, ""], OwnState]
# The number of the round, the clusters' models, and what the second method sends in each cluster.
Sent = tuple[Int[Array, ""], OfClusters, OfClusters]


def warm_start(rounds: int, ifca: Method, then: Method) -> Method:
    """IFCA for as long as it selects, then the other method within the frozen clusters."""
    select_rounds = ifca.schedule(rounds).select_rounds
    if select_rounds == 0:
        return then

    def begin(start: Start, number: WholeNumber, model: Params) -> tuple[Server, OwnState]:
        return then.init(start._replace(params=model, round=number))

    def begin_in_each(start: Start, number: WholeNumber, choosing: Server) -> OfClusters:
        return jax.vmap(lambda model: begin(start, number, model)[0])(ifca.broadcast(choosing))

    def init(start: Start) -> tuple[State, Silo]:
        choosing, choice = ifca.init(start)
        how = jax.tree.map(jnp.asarray, start._replace(params=()))
        return (how, choosing, begin_in_each(how, 0, choosing)), (how, choice, then.init(start)[1])

    def broadcast(server: State) -> Sent:
        how, choosing, states = server
        models = ifca.broadcast(choosing)
        return (
            jnp.asarray(how.round),
            models,
            jax.vmap(then.broadcast, axis_size=number_of(models))(states),
        )

    def local(silo: Silo, sent: Sent, queries: Queries) -> tuple[Silo, tuple[Message, Message]]:
        how, choice, own = silo
        number, models, sent_then = sent
        answers = []

        def train(params: Params, towards: Params = None, strength: Number = 0.0) -> Params:
            # While silos choose, nothing pulls at the cluster's model that they train.
            strength = jnp.where(number < select_rounds, 0.0, strength)
            answers.append(queries.train(params, towards, strength))
            return answers[-1]

        choice = queries.select(models, otherwise=choice).astype(jnp.int32)
        fresh = begin(how, number, of_cluster(models, choice))[1]
        own = choose(number < select_rounds, fresh, own)
        sent_own = of_cluster(sent_then, choice)
        asking = Queries(train, queries.select, queries.noise)
        own, message = then.local(own, sent_own, asking)
        # IFCA makes its message from the same answers: no query more.
        same = Queries(lambda model: answers[0], lambda models, otherwise: choice, queries.noise)
        return (how, choice, own), (ifca.local(choice, models, same)[1], message)

    def merge(
        server: State, messages: tuple[Message, Message], weights: Float[Array, " silos"]
    ) -> State:
        how, choosing, states = server
        ifca_messages, messages_then = messages
        choosing_goes_on, later = jnp.asarray(how.round) < select_rounds, how.round + 1
        frozen = choose(choosing_goes_on, ifca.merge(choosing, ifca_messages, weights), choosing)
        restart = begin_in_each(how, later, frozen)
        merged = merge_by_cluster(
            then.merge, states, messages_then, ifca_messages["chosen"], weights
        )
        return how._replace(round=later), frozen, choose(choosing_goes_on, restart, merged)

    def personal(silo: Silo, sent: Sent) -> Params:
        _, choice, own = silo
        number, models, sent_then = sent
        own = then.personal(own, of_cluster(sent_then, choice))
        return choose(number < select_rounds, of_cluster(models, choice), own)

    paid = Schedule(rounds, then.schedule(rounds).train, select_rounds)

    def learned(server: State) -> dict[str, Any]:
        return ifca.learned(server[1])

    return Method(lambda rounds: paid, init, broadcast, local, merge, personal, learned)
