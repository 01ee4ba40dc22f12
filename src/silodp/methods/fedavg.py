"""FedAvg: one model for all.

B. McMahan, E. Moore, D. Ramage, S. Hampson, B. A. y Arcas. Communication-efficient learning of deep
networks from decentralized data. AISTATS 2017.

The other end of the personalisation spectrum: averaging cancels the silos' independent noise, but
the silos must share one model. Use it where budgets are strict or silos alike.
"""

from silodp.methods.base import Method, Params, Silo, difference, one_pass_a_round
from silodp.methods.server import AVERAGE, ServerOptimiser
from silodp.privacy.mechanisms.queries import Queries


def fedavg(server: ServerOptimiser = AVERAGE) -> Method:
    """Every silo trains the shared model for a pass; the server adds the mean update."""

    def train_shared(silo: Silo, shared: Params, queries: Queries) -> tuple[Silo, Params]:
        return silo, difference(queries.train(shared), shared)

    return Method(
        schedule=one_pass_a_round,
        init=lambda start: (server.init(start.params), ()),
        broadcast=lambda shared: shared.model,
        local=train_shared,
        merge=server.merge,
        personal=lambda silo, shared: shared,
    )
