"""Advice on joining a federation: the paper's prediction for each silo, before training.

    advice = silodp.advise(records=[40, 80, 400], epsilon=1, delta=1e-4, sigma=0.2, tau=0.05)
    print([(silo["silo"], silo["verdict"]) for silo in advice.silos])

A silo's model is treated as a mean of d parameters: trained alone, its squared error is

    d (sigma^2 / n_k + sigma_DP,k^2 / n_k^2)

above what no model can avoid, and silos' models differ by tau^2. sigma_DP,k is the exact least
noise of one Gaussian mechanism at the silo's budget, because runs calibrate to the least as well;
the paper's formula asks for more (at epsilon 1 and delta 1e-3, for half as much again). From there
on it is `silodp.theory`.
"""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Unpack

import numpy as np
from dp_accounting import get_sigma_gaussian

from silodp.advice.advised_silos import (
    Advised,
    check_count,
    named_counts,
    silos_of_counts,
    silos_of_data,
)
from silodp.advice.spread import Spread, estimated_spread
from silodp.base.errors import SilodpError
from silodp.base.notebook_progress import usual_reporter
from silodp.base.progress import Reporter
from silodp.base.values import plain
from silodp.config.declared import LARGEST
from silodp.config.options import DATA_OPTIONS, OPTIONS, tagged
from silodp.config.run_arguments import RunArguments
from silodp.privacy.accounting.steps import moved_by
from silodp.privacy.policy import Policy, check_delta, concerns
from silodp.runs.prepare import Data
from silodp.runs.requests import requests_of
from silodp.runs.run_results import NOISE_FROM_A_SEED
from silodp.theory import errors, lambda_for_all, lambda_stars, local_variance

METHODS = ("local", "fedavg", "mrmtl")
NOTES = (
    "by mean estimation, the paper's model: a guide to who gains and which method is ahead, not a "
    "forecast of the test metric",
    "errors are squared errors above what no model can avoid, MR-MTL's at each silo's own lambda; "
    "gain is what that takes off the better of local and FedAvg, joining or verdict what it takes "
    "off local",
    "where lambda is large, train with --method meanpull, which contains FedAvg; mrmtl does not",
)
NOT_ADVISED = OPTIONS.keys() - {"data", *DATA_OPTIONS, *tagged("advised")}
# A gain below this share of the error is below the precision of the model.
WORTH = 0.05
_TAU_FACTORS = (0.5, 2.0)
_BANDS, _MOST_BUDGETS = 4, 4


@dataclass(frozen=True)
class Advice:
    """Who gains from federating, and by how much.

    Attributes:
      data: name of the data; None where only record counts were given.
      parameters: d, the number of a model's parameters.
      clip: largest norm of a record's contribution, in units of the label.
      weights: weights of silos in the common model: "records", or "uniform" as in the paper.
      spread: sigma and tau, guessed or estimated, and the cost of the estimate.
      silos: [{"silo", "records", "epsilon", "delta", "local", "fedavg", "mrmtl", "lam",
        "gain_over_local", "gain_over_best", "choice", "verdict"}]: predicted errors, the best
        lambda, gains as shares of the error, and which method is worth its effort.
      overall: {"by_records", "by_silos": means of the three errors; "ranking": best first, by
        records; "choice"; "lam": the one lambda for all with the least mean error by records;
        "own_lam_adds": what silos' own lambdas take off that error, as a part}.
      sensitivity: the advice for other tau: [{"tau", "ranking", "choice", "lam", "joining",
        "changed"}], where the last two count silos.
      warnings: sentences on what is allowed but unwise.

    Examples:
      >>> advice = silodp.advise(records=[40, 80, 400], epsilon=1, delta=1e-4, sigma=0.2, tau=0.05)
      >>> advice.joining, advice.overall["ranking"][-1]
      (2, 'fedavg')
    """

    data: str | None
    parameters: int
    clip: float
    weights: str
    spread: Spread
    silos: list[dict[str, Any]]
    overall: dict[str, Any]
    sensitivity: list[dict[str, Any]]
    warnings: list[str]

    @property
    def joining(self) -> int:
        """The number of silos that gain from federating."""
        return joining(self.silos)

    def silo_lam(self) -> str:
        """The silos' own lambdas, as the text of a file for `--silo-lam`."""

        def key(name: str) -> str:
            # A JSON string is a TOML key, but for this one character.
            return json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")

        return "".join(f"{key(row['silo'])} = {float(row['lam'])!r}\n" for row in self.silos)

    def as_json(self) -> dict[str, Any]:
        """The content of `advice.json`."""
        spread = self.spread._asdict() | {
            "estimated": bool(self.spread.releases),
            "releases": [release._asdict() for release in self.spread.releases],
        }
        return plain(asdict(replace(self, spread=spread)) | {"notes": list(NOTES)})  # type: ignore[arg-type]


def advise(
    *,
    records: str | Sequence[int] | Mapping[str, int] | None = None,
    federation: Data | None = None,
    sigma: float | None = None,
    tau: float | None = None,
    estimate_epsilon: float | None = None,
    parameters: int | None = None,
    reporter: Reporter | None = None,
    **options: Unpack[RunArguments],
) -> Advice:
    """Predicts who gains from federating, and by how much. Trains nothing.

    Guesses of sigma and tau cost nothing: only record counts are used. An estimate is a release,
    charged to the ledger if there is one.

    Args:
      records: record counts of the silos, in place of data: "120,80", "north=120,south=80", a list
        or a dictionary.
      federation: records of the caller's own, in place of `data`.
      sigma: guessed standard deviation of records around their silo's centre, in units of the
        label.
      tau: guessed standard deviation of the silos' centres: its square is the error of a common
        model on an average silo.
      estimate_epsilon: epsilon that each silo spends on a noisy estimate of both, in place of the
        guesses.
      parameters: d; by default that of the model for the data, and 1 for bare record counts.
      reporter: hears about progress.
      **options: options of `RunRequest`: data, its options, budgets, clip, ledger.

    Examples:
      >>> advice = silodp.advise(records=[40, 80, 400], epsilon=1, delta=1e-4, sigma=0.2, tau=0.05)
      >>> [silo["choice"] for silo in advice.silos]
      ['mrmtl', 'mrmtl', 'local']
    """
    _check_spread_options(sigma, tau, estimate_epsilon)
    if parameters is not None:
        check_count("--parameters", parameters)
    reporter = reporter or usual_reporter()
    # Nothing is trained, so options that the method does not use are allowed.
    requests = requests_of(
        options, uses=NOT_ADVISED, own_data=federation is not None, own_model=False
    )
    if len(requests) > 1:
        raise SilodpError("Advice is for one setting: give one number in place of a list.")
    if sum((records is not None, federation is not None, "data" in options)) != 1:
        raise SilodpError(
            "Advice is for given silos: give either --data NAME, or --records with each silo's "
            "record count (120,80,400)."
        )
    if records is None:
        advised = silos_of_data(requests[0], federation, parameters, reporter)
    else:
        advised = silos_of_counts(requests[0], named_counts(records), parameters)
    for name, policy, n in zip(advised.names, advised.policies, advised.records, strict=True):
        check_delta(name, policy, n)
    if estimate_epsilon is None:
        assert sigma is not None
        assert tau is not None
        spread = Spread(float(sigma), float(tau))
    elif advised.federation is None:
        raise SilodpError(
            "--estimate-epsilon needs records to ask, and --records gives only their number: give "
            "--data, or --sigma and --tau."
        )
    else:
        spread = estimated_spread(
            advised.federation, advised.policies, advised.options, float(estimate_epsilon), reporter
        )
    return _advice(advised, spread)


def _check_spread_options(
    sigma: float | None, tau: float | None, estimate_epsilon: float | None
) -> None:
    """Refuses all but both guesses or an epsilon for their estimate."""
    if estimate_epsilon is not None:
        _check_number("--estimate-epsilon", estimate_epsilon)
        if estimate_epsilon == 0:
            raise SilodpError("--estimate-epsilon is 0: give a number above 0, such as 0.2.")
        if sigma is not None or tau is not None:
            raise SilodpError(
                "--sigma and --tau are guesses, --estimate-epsilon pays for an estimate of both: "
                "give the one or the other."
            )
        return
    for name, value in (("--sigma", sigma), ("--tau", tau)):
        if value is None:
            raise SilodpError(
                f"{name} is missing: guess both --sigma (of records within a silo) and --tau (of "
                "silos), which costs nothing, or pay for an estimate with --estimate-epsilon."
            )
        _check_number(name, value)


def _check_number(name: str, value: Any) -> None:
    kinds = (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < LARGEST:
        raise SilodpError(f"{name} is {value!r}: give a number from 0 to below {LARGEST:g}.")


def _other_taus(spread: Spread) -> list[float]:
    """What tau may be instead; where it is 0, the most that the estimate leaves open."""
    if spread.tau:
        return [factor * spread.tau for factor in _TAU_FACTORS]
    most = 0.0 if spread.tau_range is None else spread.tau_range[1]
    return [most] if most else []


def _advice(advised: Advised, spread: Spread) -> Advice:
    records = np.array(advised.records, float)
    sigma_dp = np.array([_sigma_dp(policy, advised.clip) for policy in advised.policies])
    variances = np.asarray(advised.parameters * local_variance(records, spread.sigma, sigma_dp))
    silos = _rows(advised, variances, spread.tau)
    overall = _overall(advised, silos, variances, spread.tau)
    sensitivity = []
    for tau in _other_taus(spread):
        others = _rows(advised, variances, tau)
        summed = _overall(advised, others, variances, tau)
        pairs = zip(silos, others, strict=True)
        sensitivity.append(
            {
                "tau": tau,
                **{name: summed[name] for name in ("ranking", "choice", "lam")},
                "joining": joining(others),
                "changed": sum(one["choice"] != other["choice"] for one, other in pairs),
            }
        )
    return Advice(
        advised.data,
        advised.parameters,
        advised.clip,
        advised.options.request.weights,
        spread,
        silos,
        overall,
        sensitivity,
        _warnings(advised, spread),
    )


def _warnings(advised: Advised, spread: Spread) -> list[str]:
    from_seed = bool(spread.releases) and advised.options.entropy == "seed"
    return [
        *concerns(advised.names, advised.policies, advised.records),
        *([f"the estimate's noise: {NOISE_FROM_A_SEED}"] if from_seed else []),
    ]


def _sigma_dp(policy: Policy, clip: float) -> float:
    """Noise on a sum of clipped records; twice as much if neighbours exchange a record."""
    if math.isinf(policy.epsilon):
        return 0.0
    least = float(get_sigma_gaussian(policy.epsilon, policy.delta))
    return clip * least * moved_by(policy.relation)


def _rows(advised: Advised, variances: np.ndarray, tau: float) -> list[dict[str, Any]]:
    lams = lambda_stars(variances, tau, advised.weights)
    ends = [errors(lam, variances, tau, advised.weights) for lam in (0.0, math.inf)]
    best = errors(lams, variances, tau, advised.weights)
    rows = []
    for k, (name, n, policy) in enumerate(
        zip(advised.names, advised.records, advised.policies, strict=True)
    ):
        local, fedavg, mrmtl = (float(values[k]) for values in (*ends, best))
        choice = _choice(local, fedavg, mrmtl)
        gain = _gain(mrmtl, local)
        rows.append(
            {
                "silo": name,
                "records": n,
                "epsilon": policy.epsilon,
                "delta": policy.delta,
                **dict(zip(METHODS, (local, fedavg, mrmtl), strict=True)),
                "lam": float(lams[k]),
                "gain_over_local": gain,
                "gain_over_best": _gain(mrmtl, min(local, fedavg)),
                "choice": choice,
                "verdict": _verdict(choice, gain, len(variances)),
            }
        )
    return rows


def _gain(error: float, than: float) -> float:
    """The reduction of an error, as a share of it."""
    return max(0.0, 1 - error / than) if than > 0 else 0.0


def _choice(local: float, fedavg: float, mrmtl: float) -> str:
    """The simplest method that is about as good as MR-MTL."""
    if _gain(mrmtl, local) < WORTH:
        return "local"
    return "fedavg" if _gain(mrmtl, fedavg) < WORTH else "mrmtl"


def _verdict(choice: str, gain: float, silos: int) -> str:
    if silos == 1:
        return "nobody to learn from"
    if choice == "local":
        return "trains best alone"
    return f"joins: gains {percent(gain)} %" + (" by FedAvg" if choice == "fedavg" else "")


def percent(part: float | np.floating) -> int:
    """A share in whole percent, at most 99: no error vanishes."""
    return min(99, round(100 * float(part)))


def joining(rows: Sequence[Mapping[str, Any]]) -> int:
    """The number of these silos that gain from federating."""
    return sum(row["choice"] != "local" for row in rows)


def bands(rows: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Silos grouped by budget (if budgets are few), and these by record count in four parts."""
    budgets = sorted({row["epsilon"] for row in rows})
    by_budget = (
        [[row for row in rows if row["epsilon"] == budget] for budget in budgets]
        if len(budgets) <= _MOST_BUDGETS
        else [list(rows)]
    )
    groups = []
    for own in by_budget:
        own = sorted(own, key=lambda row: row["records"])
        ends = np.linspace(0, len(own), min(_BANDS, len(own)) + 1).round().astype(int)
        groups += [own[low:high] for low, high in itertools.pairwise(ends.tolist())]
    return groups


def _overall(
    advised: Advised, rows: list[dict[str, Any]], variances: np.ndarray, tau: float
) -> dict[str, Any]:
    """Means over silos, and the one lambda for all; by records, as results are weighted."""
    table = np.array([[row[method] for method in METHODS] for row in rows])
    shares = np.array(advised.records, float) / sum(advised.records)
    by_records = dict(zip(METHODS, (shares @ table).tolist(), strict=True))
    lam = lambda_for_all(variances, tau, shares, advised.weights)
    shared = float(shares @ errors(lam, variances, tau, advised.weights))
    return {
        "by_records": by_records,
        "by_silos": dict(zip(METHODS, table.mean(axis=0).tolist(), strict=True)),
        "ranking": sorted(METHODS, key=by_records.__getitem__),
        "choice": _choice(**by_records),
        "lam": lam,
        "own_lam_adds": _gain(by_records["mrmtl"], shared),
    }
