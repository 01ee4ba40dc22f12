"""A setting in numbers: every closed form, and beside it what a simulation measures.

Where silos differ, the numbers for all of them are means over silos under one common lambda. These
follow the same closed forms, with the mean of the local variances for sigma_loc^2, because every
error is linear in the variances. Silos' own best lambdas come beside them.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from silodp.theory import closed_forms, silos
from silodp.theory.setting import Setting
from silodp.theory.simulation import (
    Simulation,
    best_lambda,
    errors_of_silos,
    errors_of_trials,
    mean_and_standard_error,
    simulate,
)

Numbers = dict[str, Any]


def simulation_of(setting: Setting, trials: int, seed: int) -> Simulation:
    """The setting's simulation, which a seed repeats."""
    return simulate(
        setting.silos,
        setting.records,
        setting.sigma,
        setting.tau,
        clip=setting.clip,
        trials=trials,
        random=np.random.default_rng(seed),
    )


def compare(setting: Setting, simulation: Simulation | None = None) -> Numbers:
    """Everything that `silodp theory` shows; with the simulation's numbers, if there is one."""
    private, plain = _closed(setting), _closed(setting.without_privacy)
    star = private["lambda_star"]
    ends_and_star = np.array([[0.0], [star], [math.inf]])
    costs = np.mean(
        closed_forms.privacy_gap(ends_and_star, setting.records, setting.sigma_dp, setting.silos),
        axis=-1,
    )
    content: Numbers = {
        "setting": {
            "silos": setting.silos,
            "records": _one_or_all(setting.records.astype(int)),
            "sigma": _one_or_all(setting.sigma),
            "tau": setting.tau,
            "epsilon": _one_or_all(setting.epsilon),
            "delta": setting.delta,
            "clip": setting.clip,
        },
        "sigma_dp": _one_or_all(setting.sigma_dp),
        **private,
        **_named_costs(costs.tolist()),
        "without_privacy": plain,
    }
    if simulation is not None:
        content["simulated"] = {
            "trials": len(simulation.centres),
            **_measured(simulation, setting, star),
        }
    if not setting.equal:
        content["per_silo"] = _silo_by_silo(setting, simulation)
        content["error_silo_lambdas"] = float(
            np.mean([silo["error_star"] for silo in content["per_silo"]])
        )
    return content


def _closed(setting: Setting) -> Numbers:
    variance, tau, count = float(setting.local_variances.mean()), setting.tau, setting.silos
    numbers = {
        "local_variance": variance,
        "lambda_star": closed_forms.lambda_star(variance, tau),
        "error_star": closed_forms.error_star(variance, tau, count),
        "error_local": closed_forms.error_local(variance),
        "error_fedavg": closed_forms.error_fedavg(variance, tau, count),
        "gap_local": closed_forms.gap_local(variance, tau, count),
        "gap_fedavg": closed_forms.gap_fedavg(variance, tau, count),
    }
    return {name: float(value) for name, value in numbers.items()}


def _named_costs(costs: Iterable[Any]) -> Numbers:
    names = ("privacy_gap_local", "privacy_gap_star", "privacy_gap_fedavg")
    return dict(zip(names, costs, strict=True))


def _measured(simulation: Simulation, setting: Setting, star: float) -> Numbers:
    """The numbers of `_closed`, by simulation; errors and gaps with their standard errors."""
    private = simulation.means(setting.sigma_dp)
    plain = simulation.means()
    lams = np.array([0.0, star, math.inf])
    costs = errors_of_trials(lams, private, simulation.centres) - errors_of_trials(
        lams, plain, simulation.centres
    )
    plain_star = float(setting.without_privacy.local_variances.mean()) / setting.tau**2
    return {
        **_measured_errors(private, simulation.centres, star),
        **_named_costs(map(_estimate, costs)),
        "without_privacy": _measured_errors(plain, simulation.centres, plain_star),
    }


def _measured_errors(means: np.ndarray, centres: np.ndarray, star: float) -> Numbers:
    local, best, fedavg = errors_of_trials(np.array([0.0, star, math.inf]), means, centres)
    return {
        "lambda_star": best_lambda(means, centres),
        "error_star": _estimate(best),
        "error_local": _estimate(local),
        "error_fedavg": _estimate(fedavg),
        "gap_local": _estimate(local - best),
        "gap_fedavg": _estimate(fedavg - best),
    }


def _silo_by_silo(setting: Setting, simulation: Simulation | None) -> list[Numbers]:
    variances = setting.local_variances
    lams = silos.lambda_stars(variances, setting.tau)
    best, local, fedavg = (
        silos.errors(lam, variances, setting.tau) for lam in (lams, 0.0, math.inf)
    )
    columns: dict[str, Any] = {
        "records": setting.records.astype(int),
        "sigma": setting.sigma,
        "epsilon": setting.epsilon,
        "sigma_dp": setting.sigma_dp,
        "local_variance": variances,
        "lambda_star": lams,
        "error_star": best,
        "error_local": local,
        "error_fedavg": fedavg,
        "gap_local": local - best,
        "gap_fedavg": fedavg - best,
    }
    if simulation is not None:
        means = simulation.means(setting.sigma_dp)
        for name, lam in {"star": lams, "local": 0.0, "fedavg": math.inf}.items():
            squares = errors_of_silos(lam, means, simulation.centres)
            columns[f"simulated_{name}"] = [_estimate(silo) for silo in squares.T]
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _estimate(values: np.ndarray) -> dict[str, float]:
    mean, standard_error = mean_and_standard_error(values)
    return {"mean": float(mean), "standard_error": float(standard_error)}


def _one_or_all(values: np.ndarray) -> Any:
    """The number that all silos share, else one a silo."""
    listed = values.tolist()
    return listed[0] if len(set(listed)) == 1 else listed
