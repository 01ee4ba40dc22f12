"""Federated mean estimation, the paper's model of personalisation ("Analysis" and its appendix).

K silos each hold records around a centre of their own, w_k; the centres lie around a common one
with standard deviation tau. Each silo releases the noisy mean of its clipped records, and wants the
best estimate of its own w_k. Here everything has a closed form: what lambda should be, what is
gained over local training and FedAvg, and what privacy costs.
"""

from silodp.theory.closed_forms import (
    error,
    error_fedavg,
    error_local,
    error_star,
    gap_fedavg,
    gap_local,
    lambda_star,
    local_variance,
    minimiser,
    own_weight,
    posterior,
    privacy_gap,
    sigma_dp,
)
from silodp.theory.estimate import estimate_lambdas, estimate_tau
from silodp.theory.silos import errors, lambda_for_all, lambda_stars, posteriors
from silodp.theory.simulation import Simulation, simulate

__all__ = [
    "Simulation",
    "error",
    "error_fedavg",
    "error_local",
    "error_star",
    "errors",
    "estimate_lambdas",
    "estimate_tau",
    "gap_fedavg",
    "gap_local",
    "lambda_for_all",
    "lambda_star",
    "lambda_stars",
    "local_variance",
    "minimiser",
    "own_weight",
    "posterior",
    "posteriors",
    "privacy_gap",
    "sigma_dp",
    "simulate",
]
