"""What a report is made from: folders of runs and sweeps, and ledgers; each checked before use.

Folders come from other people and other versions: an error about what is missing or wrong names
the file and the field.
"""

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silodp.base.errors import SilodpError
from silodp.config.options import tagged
from silodp.models.metrics import METRICS, get_metric
from silodp.report.checks import LARGEST, checked
from silodp.report.numbers import one_budget
from silodp.results.result import RESULT_FILE, Result, read_result
from silodp.runs.baselines import BASELINES, BASELINES_FOLDER, baselines_of
from silodp.sweeps.table import TABLE_FILE

if TYPE_CHECKING:
    import pandas as pd

# Options that say what the data are: scaling does, the place of files does not.
_OF_DATA = ("preprocess", *tagged("records"))
_DEEPEST = 3  # folders below the given one: a site's runs are in results/JOB


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
      folder: where it is.
      result: its result.
      baselines: local training and FedAvg of the same silos, budgets and seeds, where known.
      others: runs of other methods of the same, one each: the best.
      sources: the folders of the baselines.
    """

    folder: Path
    result: Result
    baselines: dict[str, Result] = field(default_factory=dict)
    sources: dict[str, Path] = field(default_factory=dict)
    others: list[Result] = field(default_factory=list)

    @property
    def rivals(self) -> list[Result]:
        """All that the run is compared with: the baselines, and the best of each other method."""
        return [*self.baselines.values(), *self.others]


@dataclass(frozen=True)
class SweepTable:
    """A sweep's table, finished or not."""

    folder: Path
    table: "pd.DataFrame"


def read_inputs(folders: Sequence[Path]) -> tuple[list[Run], list[SweepTable]]:
    """The runs and sweeps in these folders, in the order given; runs with their baselines."""
    runs, sweeps = [], []
    for folder in dict.fromkeys(folders):
        places = runs_below(folder)
        if not places:
            raise SilodpError(
                f"{folder} holds neither a finished run ({RESULT_FILE}) nor a sweep "
                f"({TABLE_FILE}): give a folder that was --out of silodp run, tune, demo or sweep."
            )
        for place in places:
            if (place / TABLE_FILE).exists():
                sweeps.append(_read_sweep(place))
            else:
                runs.append(read_run(place))
    return with_baselines(runs), sweeps


def runs_below(folder: Path) -> list[Path]:
    """Folders of runs and sweeps: this folder if it is one, else those below it, in order.

    Folders within the folder of a run belong to that run.
    """
    if not folder.is_dir():
        raise SilodpError(f"{folder} is not a folder: give that of a run or a sweep.")
    folders = []
    depth = len(folder.parts)
    for place, inside, names in os.walk(folder, onerror=_refuse):
        if RESULT_FILE in names or TABLE_FILE in names:
            folders.append(Path(place))
            inside.clear()
        elif len(Path(place).parts) - depth >= _DEEPEST:
            inside.clear()
        inside[:] = sorted(name for name in inside if not name.startswith("."))
    return folders


def _refuse(error: OSError) -> None:
    raise SilodpError(f"{error.filename} cannot be read ({error.strerror}): check its permissions.")


def read_run(folder: Path) -> Run:
    """A run, and the baselines that `silodp run --baselines` kept with it."""
    result = checked(read_result(folder), folder / RESULT_FILE)
    baselines = baselines_of(folder)
    for method, other in baselines.items():
        checked(other, folder / BASELINES_FOLDER / method / RESULT_FILE)
    comparables = {m: r for m, r in baselines.items() if comparable(result, r)}
    return Run(folder, result, comparables, {m: folder / BASELINES_FOLDER / m for m in comparables})


def with_baselines(runs: Sequence[Run]) -> list[Run]:
    """Gives each run its baselines: local training and FedAvg of the same silos and budgets.

    Baselines that were trained with a run come first; among other runs, the best is taken.
    """
    completed = []
    for run in runs:
        baselines, sources = dict(run.baselines), dict(run.sources)
        metric = get_metric(run.result.metric)
        others = sorted(runs, key=lambda one, m=metric: m.loss_like(one.result.mean))
        rivals: dict[str, Result] = {}
        for other in others:
            method = other.result.method
            if method == run.result.method or not comparable(run.result, other.result):
                continue
            if method not in BASELINES:
                rivals.setdefault(method, other.result)
            elif method not in baselines:
                baselines[method], sources[method] = other.result, other.folder
        baselines.pop(run.result.method, None)
        completed.append(Run(run.folder, run.result, baselines, sources, list(rivals.values())))
    return completed


def comparable(one: Result, other: Result) -> bool:
    """Whether two results are of the same silos, records, splits and budgets."""

    def conditions(result: Result) -> tuple[Any, ...]:
        promises = [(p["delta"], p["unit"], p["relation"]) for p in result.privacy]
        return len(result.test["per_seed"]), result.options.get("first_seed"), promises

    return (
        data_of(one) == data_of(other)
        and conditions(one) == conditions(other)
        and all(
            # Calibration ends a little below the budget, and not with the same digits.
            mine == theirs or one_budget([mine, theirs])
            for mine, theirs in zip(one.epsilons, other.epsilons, strict=True)
        )
    )


def data_of(result: Result) -> str:
    """The data of a result as text: equal for the same data, as far as a result shows."""
    silos = [(silo["silo"], silo["records"], silo["test_records"]) for silo in result.per_silo]
    options = {name: result.options.get(name) for name in ("data", *_OF_DATA)}
    return json.dumps([result.data, result.metric, silos, options], default=str)


def _read_sweep(folder: Path) -> SweepTable:
    from silodp.sweeps.table import read_table  # pandas takes long to load

    path, table = folder / TABLE_FILE, read_table(folder)
    if not len(table):
        raise SilodpError(f"{path} has no rows yet: wait for the sweep's first runs to finish.")
    for column in ("method", "epsilon"):
        if column not in table.columns:
            table[column] = table["epsilon_spent"] if column == "epsilon" else "(one method)"
    for column, expected in _COLUMNS.items():
        _check_column(table[column].tolist(), column, expected, path)
    for line, (budget, spent) in enumerate(
        zip(_numbers(table["epsilon"]), _numbers(table["epsilon_spent"]), strict=True), start=2
    ):
        if math.isnan(budget) and math.isnan(spent):
            raise SilodpError(
                f"{path}: line {line} has neither epsilon nor epsilon_spent: remove the line, and "
                "what it held is run again."
            )
    # Values that are too large to draw count as diverged.
    table["value"] = [v if abs(v) <= LARGEST else math.nan for v in _numbers(table["value"])]
    return SweepTable(folder, table)


_ABOVE_0, _NUMBER_OR_NONE = "a number above 0", "a number"
_COLUMNS = {
    "method": "the name of a method",
    "metric": f"one of {', '.join(METRICS)}",
    "seed": "a whole number",
    "round": "a whole number",
    "value": _NUMBER_OR_NONE,
    "epsilon": _ABOVE_0,
    "epsilon_spent": _ABOVE_0,
    "proven": "True or False",
}


def _check_column(cells: Sequence[Any], column: str, expected: str, path: Path) -> None:
    for line, cell in enumerate(cells, start=2):
        if not _is_cell(cell, column, expected):
            shown = "empty" if _is_empty(cell) else f"{cell!r:.60}"
            raise SilodpError(
                f"{path}: line {line}: {column} is {shown}, not {expected}: remove the line, and "
                "what it held is run again."
            )


def _is_cell(cell: Any, column: str, expected: str) -> bool:
    if column == "method":
        return isinstance(cell, str)
    if column == "metric":
        return cell in METRICS
    if column == "proven":
        return isinstance(cell, bool) or cell in ("True", "False")  # text if another is neither
    if expected in (_ABOVE_0, _NUMBER_OR_NONE) and _is_empty(cell):
        return True
    number = _number(cell)
    if number is None:
        return False
    return number > 0 if expected is _ABOVE_0 else expected is _NUMBER_OR_NONE or number % 1 == 0


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def _numbers(cells: Iterable[Any]) -> list[float]:
    return [math.nan if _is_empty(cell) else _number(cell) or 0.0 for cell in cells]


def _number(cell: Any) -> float | None:
    """The number in a cell, which is text if the column has a word anywhere; else None."""
    try:
        return None if isinstance(cell, bool) else float(cell)
    except (ValueError, OverflowError):
        return None
