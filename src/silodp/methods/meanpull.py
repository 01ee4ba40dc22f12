"""Mean pull: mean regularisation whose two ends are exact.

Ours, after "Federated mean estimation" in the analysis of Z. Liu, S. Hu, Z. S. Wu, V. Smith. On
privacy and personalization in cross-silo federated learning. NeurIPS 2022: there the personal model
is (w_k + lambda * mean) / (1 + lambda). MR-MTL takes that as a penalty in each step, and an
infinite lambda then stops training. Here each round trains freely and is pulled afterwards:
lambda = 0 is local training, lambda = infinity is FedAvg, both exactly, and no query more.

Use it in place of MR-MTL where budgets are strict (School at epsilon 1), and where silos should
have a lambda of their own (`--silo-lam`): those with less noise need less help.
"""

import jax

from silodp.methods.base import Method, Params, difference, one_pass_a_round
from silodp.methods.server import AVERAGE, ServerOptimiser
from silodp.privacy.mechanisms.queries import Queries
from silodp.privacy.mechanisms.shapes import Number


def meanpull(lam: Number, server: ServerOptimiser = AVERAGE) -> Method:
    """After each round's local work, w_k <- (w_k + lambda * mean) / (1 + lambda)."""
    keep = 1.0 / (1.0 + lam)

    def pulled(own: Params, mean: Params) -> Params:
        return jax.tree.map(lambda w, m: keep * w + (1.0 - keep) * m, own, mean)

    def train_freely(own: Params, mean: Params, queries: Queries) -> tuple[Params, Params]:
        trained = queries.train(pulled(own, mean))
        return trained, difference(trained, mean)  # averaged: the mean becomes that of all trained

    return Method(
        schedule=one_pass_a_round,
        init=lambda start: (server.init(start.params), start.params),
        broadcast=lambda mean: mean.model,
        local=train_freely,
        merge=server.merge,
        personal=pulled,
    )
