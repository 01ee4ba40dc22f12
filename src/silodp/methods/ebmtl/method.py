"""EBMTL: empirical-Bayes multi-task learning. Personalisation that tunes itself, at no cost.

Ours; docs/ebmtl.md derives it. After "Future directions" of Z. Liu, S. Hu, Z. S. Wu, V. Smith. On
privacy and personalization in cross-silo federated learning. NeurIPS 2022, which asks how lambda
could be found without spending privacy on it.

All that a silo sends is private already, and the variance of the noise in it is known. So the
server can find out how much of the difference between silos is real, by post-processing alone:

    each round, silo k starts from w_k = wbar + Dhat_k, makes a training pass, sends its update U_k
    Ubar = mean of U_k by weight and precision;   wbar += Ubar;   D_k += U_k - Ubar
    V_k += the known noise variance of each entry of U_k - Ubar
    Dhat = a mixture of estimates of D without noise; the next updates say for free which mixture
    what silo k uses: the mean of its w_k over the last rounds; how many, the updates say as well

With Dhat = 0 that is FedAvg, with Dhat = D local training. It costs what local training costs.
Without noise a silo keeps all of its own: it is local training, to the last bit; so it is with one
silo. With noise without end it goes FedAvg's path.

Use it always, unless there is no privacy: nothing is to be tuned. `server.merge` is what happens in
a round.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from silodp.methods.base import Method, Params, Start, choose, difference, one_pass_a_round
from silodp.methods.ebmtl.choices import Choices, checked
from silodp.methods.ebmtl.diagnostics import learned
from silodp.methods.ebmtl.free_tests import Layers
from silodp.methods.ebmtl.server import first_server, merge, received
from silodp.methods.ebmtl.shapes import Broadcast, Server, Silo, Update
from silodp.privacy.mechanisms.queries import Queries

State = tuple[Server, Params]  # and a model: the rows have its shapes when they go out


def ebmtl(rounds: int, **options: float) -> Method:
    """Personal models; how much each keeps of its own is learned from released updates."""
    choices = checked(Choices(**options))

    def init(start: Start) -> tuple[State, Silo]:
        model, _ = ravel_pytree(start.params)
        server = first_server(model, start.silos, rounds, _layers(start.params), choices)
        private = jnp.bool(start.silos > 1)
        return (server, start.params), Silo(start.params, jnp.int32(start.place), private)

    def broadcast(state: State) -> Broadcast:
        server, example = state
        models = jax.vmap(ravel_pytree(example)[1])
        # A silo without privacy has its own model; what it released goes out in the mean alone.
        shown = [
            jnp.where(server.deviations.private[:, None], rows, server.wbar)
            for rows in (server.w, server.averaging.average)
        ]
        return Broadcast(*map(models, shown))

    def local(silo: Silo, sent: Broadcast, queries: Queries) -> tuple[Silo, Update]:
        private = (queries.noise.variance > 0) & (_silos(sent) > 1)
        start = choose(private, _of_silo(sent.start, silo.place), silo.own)
        trained = queries.train(start)
        update = Update(difference(trained, start), queries.noise)  # (eq. 1)
        return Silo(trained, silo.place, private), update

    def merge_updates(state: State, sent: Update, weights: Float[Array, " silos"]) -> State:
        server, example = state
        updates = jax.vmap(lambda update: ravel_pytree(update)[0])(sent.update)
        got = received(updates, sent.noise, weights)
        return merge(server, got, _layers(example), rounds, choices), example

    def personal(silo: Silo, sent: Broadcast) -> Params:
        models = sent.average if choices.average else sent.start
        return choose(silo.private, _of_silo(models, silo.place), silo.own)

    def learned_of(state: State) -> dict[str, Any]:
        server, example = state
        found = learned(server, rounds)
        return found | {"differs": ravel_pytree(example)[1](found["differs"])}

    return Method(one_pass_a_round, init, broadcast, local, merge_updates, personal, learned_of)


def _of_silo(models: Params, place: Array) -> Params:
    # A silo's place is never out of bounds: saying so saves operations in every group of silos.
    def own(leaf: Array) -> Array:
        return leaf.at[place].get(mode="promise_in_bounds", wrap_negative_indices=False)

    return jax.tree.map(own, models)


def _silos(sent: Broadcast) -> int:
    return jax.tree.leaves(sent.start)[0].shape[0]


def _layers(params: Params) -> Layers:
    return Layers(tuple(int(end) for end in np.cumsum([p.size for p in jax.tree.leaves(params)])))
