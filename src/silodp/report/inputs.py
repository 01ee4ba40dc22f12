"""What a report is made from: folders of runs and sweeps, and ledgers; each checked before use.

Folders come from other people and other versions: whatever is missing or of another kind is told
in a sentence that names the file and the field.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silodp.baselines import BASELINES, BASELINES_FOLDER, baselines_of
from silodp.errors import SilodpError
from silodp.result import RESULT_FILE, Result, read_result
from silodp.sweeps.table import TABLE_FILE

if TYPE_CHECKING:
    import pandas as pd

_SAME_BUDGET = 0.02
_DEEPEST = 3  # folders: a site's runs are in results/JOB


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
      folder: that holds it.
      result: what came of it.
      baselines: local training and FedAvg of the same silos, budgets and seeds, where known.
    """

    folder: Path
    result: Result
    baselines: dict[str, Result] = field(default_factory=dict)


@dataclass(frozen=True)
class SweepTable:
    """A sweep's table, finished or not."""

    folder: Path
    table: "pd.DataFrame"


def read_inputs(folders: Sequence[Path]) -> tuple[list[Run], list[SweepTable]]:
    """The runs and sweeps in these folders, in the order given; runs with their baselines."""
    runs, sweeps = [], []
    for folder in dict.fromkeys(folders):
        found = found_in(folder)
        if not found:
            raise SilodpError(
                f"{folder} holds neither a finished run ({RESULT_FILE}) nor a sweep "
                f"({TABLE_FILE}): give a folder that was --out of silodp run, tune, demo or sweep."
            )
        for place in found:
            if (place / TABLE_FILE).exists():
                sweeps.append(_read_sweep(place))
            else:
                runs.append(read_run(place))
    return with_baselines(runs), sweeps


def found_in(folder: Path) -> list[Path]:
    """The folders of runs and sweeps: it is one itself, or those below it, in order.

    What lies within the folder of a run belongs to that run.
    """
    if not folder.is_dir():
        raise SilodpError(f"{folder} is not a folder: give that of a run or a sweep.")
    found = []
    depth = len(folder.parts)
    for place, inside, names in os.walk(folder, onerror=_refuse):
        if RESULT_FILE in names or TABLE_FILE in names:
            found.append(Path(place))
            inside.clear()
        elif len(Path(place).parts) - depth >= _DEEPEST:
            inside.clear()
        inside[:] = sorted(name for name in inside if not name.startswith("."))
    return found


def _refuse(error: OSError) -> None:
    raise SilodpError(f"{error.filename} cannot be read ({error.strerror}): check its permissions.")


def read_run(folder: Path) -> Run:
    """A run, and the baselines that `silodp run --baselines` kept with it."""
    result = checked(read_result(folder), folder / RESULT_FILE)
    found = baselines_of(folder)
    for method, other in found.items():
        checked(other, folder / BASELINES_FOLDER / method / RESULT_FILE)
    return Run(folder, result, {m: r for m, r in found.items() if comparable(result, r)})


def with_baselines(runs: Sequence[Run]) -> list[Run]:
    """Runs know those among the others that are local training or FedAvg of the same."""
    told = []
    for run in runs:
        kept = dict(run.baselines)
        for other in runs:
            method = other.result.method
            if method in BASELINES and comparable(run.result, other.result):
                kept.setdefault(method, other.result)
        kept.pop(run.result.method, None)
        told.append(Run(run.folder, run.result, kept))
    return told


def comparable(one: Result, other: Result) -> bool:
    """Whether two results are of the same silos, splits and budgets."""

    def key(result: Result) -> tuple[Any, ...]:
        options = result.options
        return (
            result.data,
            result.metric,
            [(s["silo"], s["records"], s["test_records"]) for s in result.per_silo],
            len(result.test["per_seed"]),
            options.get("first_seed"),
            options.get("test_fraction"),
            options.get("density"),
            [(p["delta"], p["unit"], p["relation"]) for p in result.privacy],
        )

    return key(one) == key(other) and all(
        # Calibration ends a little below the budget, and not with the same digits.
        mine == theirs or abs(mine - theirs) < _SAME_BUDGET * mine
        for mine, theirs in zip(one.epsilons, other.epsilons, strict=True)
    )


def _read_sweep(folder: Path) -> SweepTable:
    from silodp.sweeps.table import read_table  # pandas takes long to load

    table = read_table(folder)
    if not len(table):
        raise SilodpError(
            f"{folder / TABLE_FILE} has no rows yet: wait for the sweep's first runs to finish."
        )
    for column in ("method", "epsilon"):
        if column not in table.columns:
            table[column] = table["epsilon_spent"] if column == "epsilon" else "(one method)"
    return SweepTable(folder, table)


# Checks

_NUMBER, _TEXT, _COUNT = "a number", "text", "a whole number or nothing"
_SUMMARY = {"mean": _NUMBER, "std": _NUMBER, "per_seed": [_NUMBER]}
_FIELDS: dict[str, Any] = {
    "data": _TEXT,
    "method": _TEXT,
    "metric": _TEXT,
    "test": _SUMMARY,
    "per_silo": [{"silo": _TEXT, "records": _COUNT, "test_records": _COUNT, **_SUMMARY}],
    "privacy": [
        {
            "silo": _TEXT,
            "epsilon": _NUMBER,
            "delta": _NUMBER,
            "unit": _TEXT,
            "relation": _TEXT,
            "unproven": [_TEXT],
        }
    ],
    "history": [{"round": _NUMBER, **_SUMMARY}],
    "assumptions": [_TEXT],
    "warnings": [_TEXT],
    "versions": {},
    "seconds": {},
    "options": {},
}
METRICS = ("mse", "accuracy")


def checked(result: Result, path: Path) -> Result:
    """The result, if a report can be made from it."""
    for name, shape in _FIELDS.items():
        _check(getattr(result, name), shape, name, path)
    if result.metric not in METRICS:
        raise SilodpError(
            f"{path}: metric is {result.metric!r}, which is none of {', '.join(METRICS)}: write "
            "the result again with this version of silodp."
        )
    names = [silo["silo"] for silo in result.per_silo]
    if not names or names != [silo["silo"] for silo in result.privacy]:
        raise SilodpError(f"{path}: per_silo and privacy do not name the same silos: run it again.")
    seeds = {len(one["per_seed"]) for one in (result.test, *result.per_silo)}
    if len(seeds) > 1 or 0 in seeds:
        raise SilodpError(f"{path}: per_seed is not as long for all silos: run it again.")
    return result


def _check(value: Any, shape: Any, name: str, path: Path) -> None:
    if isinstance(shape, dict):
        wrong = not isinstance(value, Mapping)
        if not wrong:
            for key, inner in shape.items():
                _check(value.get(key), inner, f"{name}.{key}", path)
    elif isinstance(shape, list):
        wrong = not isinstance(value, list)
        if not wrong:
            for number, one in enumerate(value):
                _check(one, shape[0], f"{name}[{number}]", path)
    elif shape is _TEXT:
        wrong = not isinstance(value, str)
    elif shape is _COUNT:
        wrong = not (value is None or type(value) is int)
    else:
        wrong = type(value) not in (int, float) or math.isnan(value)
    if wrong:
        expected = {dict: "a table", list: "a list"}.get(type(shape), shape)
        raise SilodpError(f"{path}: {name} is {value!r:.60}, not {expected}: run it again.")
