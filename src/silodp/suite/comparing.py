"""From cells to one table: a line for each row of each federation at each epsilon.

A method is compared with the best of the simple choices: local training and FedAvg at their best
settings (chosen by the test records, which no one can do in practice) and the constant prediction.
Both share seeds, and so splits: differences are taken seed by seed. What chance can do is the
larger of two standard errors of their mean:

    over seeds           sd_s(d_s) / sqrt(S)
    within silos         sqrt(sum_k w_k^2 sd_s(d_sk)^2 / S)  (w_k: share of test records)

The first is itself unsure with few seeds; the second is surer, but silos that share noise move
together. A difference counts from CLEAR times the larger one on.
"""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from silodp.base.errors import SilodpError
from silodp.base.files import SHARED, write_file
from silodp.base.values import plain
from silodp.models.metrics import get_metric
from silodp.suite.cells import BEST, SIMPLE, Cell, Setting

CLEAR = 3.0
FEWEST_SEEDS = 2
# A silo counts as harmed if it loses more than this part of its own model's loss, clearly.
HARM = 0.01
TABLE = "suite.csv"
NOT_RUN = "not run"
"""The row of a federation without any; `refused` says why."""


_LOCAL = f"{BEST}local"


@dataclass(frozen=True)
class Line:
    """What a row reached; numbers that do not exist are NaN.

    Attributes:
      federation: the federation's name.
      epsilon: what each silo may spend at most.
      row: the method's name, "constant", or "best of " and the method's name.
      metric: the metric's name.
      mean: the metric over silos (weighted by test records), mean over seeds.
      standard_error: over seeds.
      seeds: how many.
      values: the metric in each seed, separated by blanks.
      settings: the best setting, where several were tried.
      tried: how many settings.
      at_edge: whether its learning rate is the lowest or highest that was tried.
      against: the best of the simple choices.
      excess: by which part its loss is more than theirs (loss: the metric, or 1 less it where
        higher is better).
      chance: the standard error of that part.
      verdict: "worse" or "better" than they are by more than chance, or "level".
      silos: how many.
      harmed: silos that are clearly worse off than with local training at its best.
      epsilon_spent: the largest over silos.
      proven: whether it is proven, but for noise from a seed.
      seconds: how long training took, of all epsilons that were trained together.
      refused: why the method is not for these data.
    """

    federation: str
    epsilon: float
    row: str
    metric: str
    mean: float = math.nan
    standard_error: float = math.nan
    seeds: int = 0
    values: str = ""
    settings: str = ""
    tried: int = 0
    at_edge: bool = False
    against: str = ""
    excess: float = math.nan
    chance: float = math.nan
    verdict: str = ""
    silos: int = 0
    harmed: int = 0
    epsilon_spent: float = math.nan
    proven: bool = False
    seconds: float = math.nan
    refused: str = ""


def lines_of(cells: Iterable[Cell]) -> list[Line]:
    """A line for each cell, compared with the simple choices where these are finished."""
    grouped: dict[tuple[str, float], dict[str, Cell]] = {}
    for cell in cells:
        grouped.setdefault((cell.federation, cell.epsilon), {})[cell.row] = cell
    return [line for place in sorted(grouped) for line in _lines_of_federation(grouped[place])]


def _lines_of_federation(cells: Mapping[str, Cell]) -> list[Line]:
    best = {row: best_setting(cell) for row, cell in cells.items()}
    simple = {
        row: setting for row, setting in best.items() if setting is not None and row in SIMPLE
    }
    metric = get_metric(next(iter(cells.values())).metric)
    first = min(simple, key=lambda row: _loss(metric, simple[row]), default="")
    lines = []
    for row, cell in cells.items():
        setting, about = best[row], {"federation": cell.federation, "epsilon": cell.epsilon}
        about |= {"row": row, "metric": cell.metric, "seconds": cell.seconds}
        if setting is None:
            lines.append(Line(**about, refused=cell.refused or "diverged"))
            continue
        values = _numbers(setting.values)
        compared = {}
        if len(simple) == len(SIMPLE) and row not in SIMPLE:
            compared = _compared(cell, setting, simple[first], simple[_LOCAL])
            compared["against"] = first
        lines.append(
            Line(
                **about,
                mean=fmean(values),
                standard_error=_standard_error(values),
                seeds=len(values),
                values=" ".join(f"{value:.7g}" for value in values),
                settings=json.dumps(plain(dict(setting.options))) if setting.options else "",
                tried=len(cell.settings),
                at_edge=is_at_edge(cell, setting),
                silos=len(cell.silos),
                epsilon_spent=setting.epsilon,
                proven=setting.proven,
                **compared,
            )
        )
    return lines


def best_setting(cell: Cell) -> Setting | None:
    """The best by the test records; None if every one diverged in some seed."""
    sound = [one for one in cell.settings if None not in one.values]
    metric = get_metric(cell.metric)
    return min(sound, key=lambda one: _loss(metric, one), default=None)


def is_at_edge(cell: Cell, setting: Setting) -> bool:
    """Whether a better learning rate might lie beyond those that were tried with its batches."""

    def others(one: Setting) -> dict[str, Any]:
        return {name: value for name, value in one.options.items() if name != "lr"}

    if "lr" not in setting.options:
        return False
    tried = [one.options["lr"] for one in cell.settings if others(one) == others(setting)]
    return len(tried) > 1 and setting.options["lr"] in (min(tried), max(tried))


def _loss(metric: Any, setting: Setting) -> float:
    return float(_losses(metric, np.array(_numbers(setting.values))).mean())


def _losses(metric: Any, values: np.ndarray) -> np.ndarray:
    """Values as losses: those of which more is better are shares of 1."""
    return values if metric.better == "lower" else 1 - values


def _compared(cell: Cell, own: Setting, other: Setting, local: Setting) -> dict[str, Any]:
    metric, seeds = get_metric(cell.metric), min(len(own.values), len(other.values))
    mine, theirs = (_losses(metric, np.array(_numbers(one.values)[:seeds])) for one in (own, other))
    apart, scale = mine - theirs, float(theirs.mean())
    chance = _chance(cell, metric, own, other, apart)
    excess = float(apart.mean())
    verdict = "level"
    if abs(excess) > CLEAR * chance:
        verdict = "worse" if excess > 0 else "better"
    return {
        "excess": excess / scale,
        "chance": chance / scale,
        "verdict": verdict if math.isfinite(chance) else "",
        "harmed": _harmed(metric, own, local),
    }


def _chance(cell: Cell, metric: Any, own: Setting, other: Setting, apart: np.ndarray) -> float:
    """The larger of the two standard errors; NaN with one seed."""
    seeds = len(apart)
    if seeds < FEWEST_SEEDS:
        return math.nan
    mine, theirs = (_by_silo(metric, one, seeds) for one in (own, other))
    weights = np.array(cell.tests, float)
    known = ~np.isnan(mine - theirs).any(axis=1) & (weights > 0)
    weights = weights[known] / max(1.0, weights[known].sum())
    spread = (mine - theirs)[known].std(axis=1, ddof=1)
    within = math.sqrt(float((weights**2 * spread**2).sum()) / seeds)
    return max(within, float(apart.std(ddof=1)) / math.sqrt(seeds))


def _harmed(metric: Any, own: Setting, local: Setting) -> int:
    """Silos whose own model, by local training at its best, is clearly better."""
    seeds = min(len(own.values), len(local.values))
    if seeds < FEWEST_SEEDS:
        return 0
    mine, theirs = (_by_silo(metric, one, seeds) for one in (own, local))
    apart = mine - theirs
    error = apart.std(axis=1, ddof=1) / math.sqrt(seeds)
    mean, scale = apart.mean(axis=1), theirs.mean(axis=1)
    return int(((mean > CLEAR * error) & (mean > HARM * scale)).sum())


def _by_silo(metric: Any, setting: Setting, seeds: int) -> np.ndarray:
    """Losses [silos, seeds]; NaN where a silo has no such metric."""
    values = [[math.nan if one is None else one for one in own] for own in setting.by_silo]
    return _losses(metric, np.array(values, float)[:, :seeds])


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _standard_error(values: Sequence[float]) -> float:
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


# --- the table as a file


def write_lines(path: Path, lines: Sequence[Line]) -> Path:
    """Writes the table as CSV: numbers to 7 digits, and blanks where there is none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in fields(Line)]
    writer.writerow(names)
    for line in lines:
        writer.writerow([_cell(getattr(line, name)) for name in names])
    return write_file(path, text.getvalue(), mode=SHARED)


def read_lines(path: Path) -> list[Line]:
    """Reads the table."""
    if not path.is_file():
        raise SilodpError(f"{path} does not exist: run `silodp bench suite` first.")
    with path.open(encoding="utf-8", newline="") as file:
        table = csv.DictReader(file)
        if table.fieldnames != [field.name for field in fields(Line)]:
            raise SilodpError(
                f"{path} has other columns than the table of the suite: remove it, and run "
                "`silodp bench suite --as-is`."
            )
        return [
            Line(**{field.name: _value(row[field.name], field.type) for field in fields(Line)})
            for row in table
        ]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.7g}"
    return str(value)


def _value(text: str, kind: Any) -> Any:
    if kind is bool:
        return text == "True"
    if kind is float:
        return float(text) if text else math.nan
    return kind(text)
