"""Cells of the suite: what a method reached on a federation at an epsilon, kept in a file each.

A cell is written whole once its training is over; whoever is killed loses the one under way.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from silodp.base.documents import read_json
from silodp.base.files import SHARED, write_file
from silodp.base.text import as_file_name
from silodp.base.values import plain

FOLDER = "cells"
CONSTANT = "constant"
BEST = "best of "
"""Before the name of a method whose settings are chosen by the test records."""
SIMPLE = (CONSTANT, f"{BEST}local", f"{BEST}fedavg")
"""The rows of the simple choices, with which every other row is compared."""


@dataclass(frozen=True)
class Setting:
    """One setting of a method: what was tried, and what came of it.

    Attributes:
      options: those that the settings of a cell differ in, such as the learning rate.
      values: the metric over silos, for each seed; None where it diverged.
      by_silo: [silos][seeds], likewise; None where a silo has no such metric, too.
      epsilon: the largest that a silo spent.
      proven: whether that is proven, but for noise from a seed.
    """

    options: Mapping[str, Any]
    values: list[float | None]
    by_silo: list[list[float | None]]
    epsilon: float
    proven: bool


@dataclass(frozen=True)
class Cell:
    """What a row of the suite's table holds for a federation at an epsilon.

    Attributes:
      federation: the federation's name.
      row: the method's name, "constant", or "best of " and the method's name.
      epsilon: what each silo may spend at most; infinite without privacy.
      request: the options of its runs; it is trained again if they have changed.
      seeds: how many seeds.
      metric: the metric's name.
      silos: the silos' names.
      records: training records (subjects) of each silo, as far as they are public.
      tests: test records of each silo, by which silos weigh.
      settings: one, or those among which the best is looked for.
      refused: why the method is not for these data, if so; there is no setting then.
      seconds: how long all epsilons that were trained together took.
    """

    federation: str
    row: str
    epsilon: float
    request: Mapping[str, Any]
    seeds: int
    metric: str
    silos: list[str]
    records: list[int]
    tests: list[int]
    settings: list[Setting]
    refused: str = ""
    seconds: float = 0.0


def place_of(out: Path, federation: str, row: str, epsilon: float) -> Path:
    """Where the cell lies."""
    return out / FOLDER / federation / f"{as_file_name(row)}-{epsilon:g}.json"


def write_cell(out: Path, cell: Cell) -> None:
    """Keeps the cell."""
    place = place_of(out, cell.federation, cell.row, cell.epsilon)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_file(place, json.dumps(plain(asdict(cell))) + "\n", mode=SHARED)


def read_cell(path: Path) -> Cell:
    """The cell in a file."""
    content = read_json(path, remedy="remove it; it is trained again")
    settings = [
        Setting(**{**one, "epsilon": float(one["epsilon"])}) for one in content.pop("settings")
    ]
    return Cell(**{**content, "epsilon": float(content["epsilon"]), "settings": settings})


def cells_in(out: Path) -> Iterator[Cell]:
    """All finished cells."""
    for path in sorted((out / FOLDER).glob("*/*.json")):
        yield read_cell(path)


def is_finished(
    out: Path, federation: str, row: str, epsilon: float, request: Mapping[str, Any], seeds: int
) -> bool:
    """Whether the cell is there, of the same request and of as many seeds at least."""
    path = place_of(out, federation, row, epsilon)
    if not path.exists():
        return False
    cell = read_cell(path)
    return cell.request == plain(request) and cell.seeds >= seeds


def known(value: float | None) -> float | None:
    """A number as JSON can hold it."""
    return None if value is None or not math.isfinite(value) else float(value)
