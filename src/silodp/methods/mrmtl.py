"""MR-MTL: mean-regularised multi-task learning, Algorithm A1 of the paper.

Z. Liu, S. Hu, Z. S. Wu, V. Smith. On privacy and personalization in cross-silo federated learning.
NeurIPS 2022. After T. Evgeniou, M. Pontil. Regularized multi-task learning. KDD 2004.

Each silo keeps a model of its own and is pulled towards the mean of all. lambda = 0 is local
training; a larger lambda federates more. Costs no more privacy than local training. Use it where
neither end of the spectrum is right: moderate noise, moderate heterogeneity.
"""

from silodp.methods.base import Method, Params, difference, one_pass_a_round
from silodp.methods.server import AVERAGE, ServerOptimiser
from silodp.privacy.mechanisms.queries import Queries
from silodp.privacy.mechanisms.shapes import Number


def mrmtl(lam: Number, server: ServerOptimiser = AVERAGE) -> Method:
    """Personal models, each pulled towards their mean with strength lambda."""

    def train_towards_mean(own: Params, mean: Params, queries: Queries) -> tuple[Params, Params]:
        trained = queries.train(own, towards=mean, strength=lam)
        return trained, difference(trained, own)

    return Method(
        schedule=one_pass_a_round,
        init=lambda start: (server.init(start.params), start.params),
        broadcast=lambda mean: mean.model,
        local=train_towards_mean,
        merge=server.merge,
        personal=lambda own, mean: own,
    )
