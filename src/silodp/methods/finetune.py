"""Local finetuning: FedAvg for the first part of the rounds, then each silo for itself.

T. Yu, E. Bagdasaryan, V. Shmatikov. Salvaging federated learning by local adaptation. 2020.
G. Cheng, K. Chadha, J. Duchi. Fine-tuning is fine in federated learning. 2021.

Under silo-specific privacy the help against noise ends where finetuning begins, so it may gain
less than one hopes (figure 2 of the paper). A fraction of 1 is FedAvg, of 0 local training.
"""

import jax.numpy as jnp

from silodp.methods.base import (
    Method,
    add,
    choose,
    difference,
    one_pass_a_round,
    weighted_mean,
)


def finetune(rounds: int, fraction) -> Method:
    """FedAvg for `fraction` of the rounds, local training from the shared model after that."""
    federated_rounds = jnp.round(fraction * rounds)

    def broadcast(server):
        shared, done = server
        # Still adopted in the first round of finetuning: that is where it starts from.
        return shared, done <= federated_rounds

    def train_adopted(own, told, queries):
        shared, adopt = told
        start = choose(adopt, shared, own)
        trained = queries.train(start)
        return trained, difference(trained, start)

    def merge(server, updates, weights):
        shared, done = server
        merged = add(shared, weighted_mean(updates, weights))
        return choose(done < federated_rounds, merged, shared), done + 1

    def personal(own, told):
        shared, adopt = told
        return choose(adopt, shared, own)

    return Method(
        schedule=one_pass_a_round,
        init=lambda params, key: ((params, jnp.int32(0)), params),
        broadcast=broadcast,
        local=train_adopted,
        merge=merge,
        personal=personal,
    )
