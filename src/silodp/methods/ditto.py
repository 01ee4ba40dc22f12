"""Ditto: a shared model found by FedAvg, and personal models pulled towards it.

T. Li, S. Hu, A. Beirami, V. Smith. Ditto: fair and robust federated learning through
personalization. ICML 2021.

The shared model has a solver of its own, so that without privacy lambda interpolates perfectly:
0 is local training, a large lambda FedAvg. But both models ask for training passes, and noise
grows with them (figure 4 of the paper). Use it without privacy, or with budgets so generous that
twice the passes do not hurt; else `mrmtl` or `meanpull`.
"""

from silodp.methods.base import Method, Params, difference
from silodp.methods.server import AVERAGE, ServerOptimiser
from silodp.privacy.mechanisms.queries import Queries, Schedule
from silodp.privacy.mechanisms.shapes import Number


def ditto(
    lam: Number,
    shared_passes: int = 1,
    personal_passes: int = 1,
    server: ServerOptimiser = AVERAGE,
) -> Method:
    """In each round a silo trains its own model, pulled towards the shared one, and the shared."""

    def train_both(own: Params, shared: Params, queries: Queries) -> tuple[Params, Params]:
        # The personal passes come first: with lambda 0 they draw what local training draws.
        for _ in range(personal_passes):
            own = queries.train(own, towards=shared, strength=lam)
        solved = shared
        for _ in range(shared_passes):
            solved = queries.train(solved)
        return own, difference(solved, shared)

    return Method(
        schedule=lambda rounds: Schedule(rounds, train=shared_passes + personal_passes),
        init=lambda start: (server.init(start.params), start.params),
        broadcast=lambda shared: shared.model,
        local=train_both,
        merge=server.merge,
        personal=lambda own, shared: own,
    )
