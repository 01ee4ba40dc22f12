"""Local finetuning: FedAvg for the first part of the rounds, then each silo for itself.

T. Yu, E. Bagdasaryan, V. Shmatikov. Salvaging federated learning by local adaptation. 2020.
G. Cheng, K. Chadha, J. Duchi. Fine-tuning is fine in federated learning. 2021.

Under silo-specific privacy the help against noise ends where finetuning begins, so it may gain
less than one hopes (figure 2 of the paper). A fraction of 1 is FedAvg, of 0 local training. Use it
where budgets are generous and silos differ moderately.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from silodp.methods.base import Method, OfSilos, Params, choose, difference, one_pass_a_round
from silodp.methods.server import AVERAGE, ServerOptimiser, Shared
from silodp.privacy.mechanisms.queries import Queries
from silodp.privacy.mechanisms.shapes import Number

# The shared model, and the number of rounds done: at the server, and as it goes out.
State = tuple[Shared, Int[Array, ""]]
Sent = tuple[Params, Int[Array, ""]]


def finetune(rounds: int, fraction: Number, server: ServerOptimiser = AVERAGE) -> Method:
    """FedAvg for `fraction` of the rounds, local training from the shared model after that."""
    federated_rounds = jnp.round(fraction * rounds)

    def train_adopted(own: Params, sent: Sent, queries: Queries) -> tuple[Params, Params]:
        start = personal(own, sent)
        trained = queries.train(start)
        return trained, difference(trained, start)

    def merge(state: State, updates: OfSilos, weights: Float[Array, " silos"]) -> State:
        shared, done = state
        merged = server.merge(shared, updates, weights)
        return choose(done < federated_rounds, merged, shared), done + 1

    def personal(own: Params, sent: Sent) -> Params:
        shared, done = sent
        # Still adopted in the first round of finetuning: that is where it starts from.
        return choose(done <= federated_rounds, shared, own)

    return Method(
        schedule=one_pass_a_round,
        init=lambda start: ((server.init(start.params), jnp.int32(start.round)), start.params),
        broadcast=lambda state: (state[0].model, state[1]),
        local=train_adopted,
        merge=merge,
        personal=personal,
    )
