"""A method of one's own: silos use a mixture of the shared model and of a model of their own.

Y. Deng, M. M. Kamani, M. Mahdavi. Adaptive personalized federated learning. 2020. In simplified
form: both models are trained each for itself, and alpha is given. 1 is local training, 0 is FedAvg.

pip install examples/own_method
silodp run --method mixture --method-options alpha=0.7 --data synthetic --epsilon 3

Two passes a round are twice the queries. The schedule says so, and the noise follows from it.
"""

import jax

import silodp


def mixture(alpha: float, server: silodp.ServerOptimiser) -> silodp.Method:
    """In each round a silo trains its own model for a pass, and the shared one for a pass."""
    if not 0 <= alpha <= 1:
        raise silodp.SilodpError(f"--method-options: alpha is {alpha}: give a number from 0 to 1.")

    def train_both(own, shared, queries: silodp.Queries):
        own = queries.train(own)
        return own, silodp.difference(queries.train(shared), shared)

    return silodp.Method(
        schedule=lambda rounds: silodp.Schedule(rounds, train=2),
        init=lambda start: (server.init(start.params), start.params),
        broadcast=lambda shared: shared.model,
        local=train_both,
        merge=server.merge,
        personal=lambda own, shared: jax.tree.map(
            lambda mine, ours: alpha * mine + (1 - alpha) * ours, own, shared
        ),
    )


entry = silodp.merging(
    silodp.MethodEntry(
        summary="a mixture of a shared model and of the silo's own",
        cost="2 training passes a round",
        build=lambda rounds, alpha, server: mixture(alpha, server),
        own={"alpha": 0.5},
    )
)
