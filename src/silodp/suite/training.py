"""Trains the cells of a row: all epsilons (and all settings) of a method in one program."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from silodp.base.errors import DataMissingError, SilodpError
from silodp.base.progress import Reporter
from silodp.config.options import tagged
from silodp.data.federation import Federation
from silodp.methods import get_method
from silodp.models.metrics import Metric
from silodp.models.model import Model
from silodp.results.result import Result
from silodp.runs.run import plan, sweep
from silodp.runs.run_results import over_silos
from silodp.suite.cases import Case
from silodp.suite.cells import BEST, CONSTANT, Cell, Setting, known

# Rows of a method with options of their own, the same for every federation: nothing is tuned.
FULL_BATCHES = {"rounds": 50, "batch_size": 1_000_000, "small_silos": "full-batch"}
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "ebmtl 50 full batches": ("ebmtl", FULL_BATCHES),
}


def request_of(case: Case, row: str) -> dict[str, Any]:
    """The options of a cell's runs but epsilon and seeds: what it is recognised by."""
    request: dict[str, Any] = {"metric": case.metric, **case.run}
    if "policies" in request:  # wherever the package lies
        request["policies"] = request["policies"].read_text(encoding="utf-8")
    if case.made_up is not None:
        request["made_up"] = asdict(case.made_up)
    return {**request, **_own_options(case, row)}


def method_of(row: str) -> str:
    """The method that a row is of."""
    return VARIANTS[row][0] if row in VARIANTS else row.removeprefix(BEST)


def _own_options(case: Case, row: str) -> Mapping[str, Any]:
    """The options of a row's runs beside those of the federation."""
    if row in VARIANTS:
        return VARIANTS[row][1]
    return {"grids": case.grids} if row.startswith(BEST) else {}


def train_row(
    case: Case, row: str, epsilons: Sequence[float], seeds: int, reporter: Reporter | None = None
) -> list[Cell]:
    """The cells of a row of a federation, one for each epsilon.

    A method that the data do not suit gives cells that say why; missing data are an error.
    """
    began = time.perf_counter()
    request = request_of(case, row)
    common: dict[str, Any] = {"request": request, "seeds": seeds}
    try:
        if row == CONSTANT:
            found = _constant(case, epsilons, seeds)
        else:
            found = _trained(case, row, epsilons, seeds, reporter or Reporter())
    except DataMissingError:
        raise
    except SilodpError as error:
        nothing: dict[str, Any] = {"silos": [], "records": [], "tests": [], "settings": []}
        return [
            Cell(case.name, row, one, metric=case.metric, refused=str(error), **nothing, **common)
            for one in epsilons
        ]
    seconds = round(time.perf_counter() - began, 1)
    return [Cell(case.name, row, **one, **common, seconds=seconds) for one in found]


def _trained(
    case: Case, row: str, epsilons: Sequence[float], seeds: int, reporter: Reporter
) -> list[dict[str, Any]]:
    method, own = method_of(row), _own_options(case, row)
    known_options = get_method(method).option_names
    settings: dict[float, list[Setting]] = {epsilon: [] for epsilon in epsilons}
    first: Result | None = None
    for grid in own.get("grids", [own]):
        options = {
            name: value
            for name, value in {**case.source, **grid}.items()
            if name not in tagged("of_method") or name in known_options
        }
        budgets = list(epsilons)
        for one in sweep(**options, method=method, epsilon=budgets, seeds=seeds, reporter=reporter):
            first = first or one
            tried = {name: one.options[name] for name in grid}
            settings[one.options["epsilon"]].append(_setting(one, tried if "grids" in own else {}))
    assert first is not None
    return [
        {
            "epsilon": epsilon,
            "metric": first.metric,
            "silos": [silo["silo"] for silo in first.per_silo],
            "records": [silo["records"] for silo in first.per_silo],
            "tests": [silo["test_records"] for silo in first.per_silo],
            "settings": settings[epsilon],
        }
        for epsilon in epsilons
    ]


def _setting(result: Result, options: Mapping[str, Any]) -> Setting:
    return Setting(
        options=options,
        values=[known(value) for value in result.test["per_seed"]],
        by_silo=[[known(value) for value in silo["per_seed"]] for silo in result.per_silo],
        epsilon=max(result.epsilons),
        proven=not result.unproven,
    )


def _constant(case: Case, epsilons: Sequence[float], seeds: int) -> list[dict[str, Any]]:
    """What the best prediction without features has, by each silo's own training labels.

    No privacy is taken into account: it is what a method should be better than.
    """
    prepared = plan(**case.source, method="local", epsilon=math.inf, seeds=seeds)
    spec, federations = prepared.specs[0], prepared.federations
    values = np.array([_without_skill(spec.metric, spec.model, one) for one in federations])
    has_value = spec.metric.where_known(federations)
    overall = over_silos(values, federations, has_value)
    silos = federations[0].silos
    setting = Setting(
        options={},
        values=[known(value) for value in overall.tolist()],
        by_silo=[
            [
                known(v) if has else None
                for v, has in zip(values[:, k], has_value[:, k], strict=True)
            ]
            for k in range(len(silos))
        ],
        epsilon=0.0,
        proven=True,
    )
    return [
        {
            "epsilon": epsilon,
            "metric": spec.metric.name,
            "silos": [silo.name for silo in silos],
            "records": [silo.public_count for silo in silos],
            "tests": [silo.public_test_count for silo in silos],
            "settings": [setting],
        }
        for epsilon in epsilons
    ]


def _without_skill(metric: Metric, model: Model, federation: Federation) -> list[float]:
    everybody = np.concatenate([silo.train.y for silo in federation.silos])
    values = []
    for silo in federation.silos:
        labels = silo.train.y if len(silo.train) else everybody
        output = metric.no_skill(model.deciding, labels, federation.num_classes)
        if output is None or not len(silo.test):
            values.append(math.nan)
            continue
        shape = (len(silo.test), *np.shape(output))
        outputs = np.broadcast_to(output, shape).astype(np.float64)
        ones = np.ones((1, len(silo.test)))
        values.append(float(metric.value(model.deciding, outputs, silo.test.y, ones)[0]))
    return values
