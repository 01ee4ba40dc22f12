"""Local training: each silo for itself, nothing is sent.

One end of the personalisation spectrum: no harm from heterogeneity, no help against noise. Use it
where silos are large, budgets generous or silos unlike each other; and as the yardstick.
"""

from silodp.methods.base import Broadcast, Method, Params, one_pass_a_round
from silodp.privacy.mechanisms.queries import Queries


def local() -> Method:
    """Each silo trains its own model."""

    def train_alone(own: Params, _: Broadcast, queries: Queries) -> tuple[Params, tuple[()]]:
        return queries.train(own), ()

    return Method(
        schedule=one_pass_a_round,
        init=lambda start: ((), start.params),
        broadcast=lambda server: server,
        local=train_alone,
        merge=lambda server, messages, weights: server,
        personal=lambda own, _: own,
    )
