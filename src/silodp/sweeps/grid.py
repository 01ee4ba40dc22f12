"""From a sweep file to its points: each a run (over seeds), and each only once.

A file holds options, each a value or a list of values, and any number of `[[grid]]` tables with
more of them. Each grid, joined with the options above it, spans all combinations of its lists.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from silodp.base.documents import read_toml
from silodp.base.errors import SilodpError
from silodp.base.values import plain
from silodp.config.option_values import option_name, option_value
from silodp.config.options import OPTIONS, RunRequest, tagged
from silodp.methods import METHOD_OPTIONS, METHODS, get_method
from silodp.runs.requests import with_method

MOST_POINTS = 200_000


class Point(NamedTuple):
    """A setting, to be run over seeds.

    Attributes:
      run: its name, which is the same for the same options in every sweep.
      options: its request; options that its method does not use have their defaults.
    """

    run: str
    options: RunRequest

    @property
    def seeds(self) -> range:
        """The seeds that it is run with."""
        return range(self.options.first_seed, self.options.first_seed + self.options.seeds)


@dataclass(frozen=True)
class Sweep:
    """The content of a sweep file.

    Attributes:
      points: the settings, in the order of the file.
      columns: the options that the file names, `data` and `method` first.
      history: whether the table shows every evaluated round, or the last one alone.
    """

    points: tuple[Point, ...]
    columns: tuple[str, ...]
    history: bool

    @property
    def runs(self) -> int:
        """The number of runs: points, each with its seeds."""
        return sum(len(point.seeds) for point in self.points)


def read_sweep(path: Path) -> Sweep:
    """Reads the sweep of a TOML file."""
    where = f"Sweep file {path}"
    content = read_toml(path, where, missing="give the path of one")
    return sweep_of(content, where, path.parent)


def sweep_of(content: Mapping[str, Any], where: str, folder: Path) -> Sweep:
    """Makes a sweep of a file's content; `where` names it in errors, paths are from `folder`."""
    common = dict(content)
    grids, history = common.pop("grid", [{}]), common.pop("history", False)
    if not isinstance(grids, list) or not grids or not all(isinstance(g, dict) for g in grids):
        raise SilodpError(f"{where}: grid is not a list of tables: write [[grid]] above each.")
    if not isinstance(history, bool):
        raise SilodpError(f"{where}: history is {history!r}: write true or false.")
    shared = _axes(common, where, folder)
    all_axes = [
        shared | _axes(grid, f"{where}, grid {n + 1}", folder) for n, grid in enumerate(grids)
    ]
    if sum(math.prod(map(len, axes.values())) for axes in all_axes) > MOST_POINTS:
        raise SilodpError(
            f"{where} asks for more than {MOST_POINTS:,} settings: shorten its lists."
        )
    points: dict[str, Point] = {}
    for axes in all_axes:
        for values in itertools.product(*axes.values()):
            point = _point(dict(zip(axes, values, strict=True)), where)
            points.setdefault(point.run, point)
    named = dict.fromkeys(name for axes in all_axes for name in axes)
    columns = dict.fromkeys(["data", "method", *named])
    return Sweep(
        tuple(points.values()),
        tuple(name for name in columns if name not in tagged("single")),
        history,
    )


def _axes(content: Mapping[str, Any], where: str, folder: Path) -> dict[str, list[Any]]:
    """The values of each option."""
    axes: dict[str, list[Any]] = {}
    for written, values in content.items():
        name = option_name(written, where)
        if name in axes:
            raise SilodpError(f"{where}: {name} is given twice: give it once.")
        if name == "ledger":
            raise SilodpError(
                f"{where}: settings of a sweep share their noise, so that their costs do not add "
                "up in a ledger: leave out ledger, and charge single runs with `silodp run`."
            )
        if isinstance(values, list) and name in tagged("single"):
            raise SilodpError(
                f"{where}: {name} is a list: give one value"
                f"{', how many runs each setting gets' if name == 'seeds' else ''}."
            )
        if values == []:
            raise SilodpError(f"{where}: {name} is an empty list: give at least one value.")
        values = values if isinstance(values, list) else [values]
        axes[name] = [option_value(name, value, where, folder) for value in values]
    return axes


def _point(options: dict[str, Any], where: str) -> Point:
    try:
        request = with_method(RunRequest(**options), options)
        unused = set(METHOD_OPTIONS) - set(get_method(request.method).option_names)
    except SilodpError as error:
        raise SilodpError(f"{where}: {error}") from None
    request = replace(request, **{name: OPTIONS[name].default for name in unused})
    return Point(_name(request), request)


def _name(request: RunRequest) -> str:
    # Options at their defaults are left out: a new option changes no name. So is the first method,
    # which was the default once.
    values = {
        name: value
        for name, option in OPTIONS.items()
        if "outside" not in option.tags and (value := getattr(request, name)) != option.default
    }
    if values["method"] == next(iter(METHODS)):
        del values["method"]
    return hashlib.sha256(json.dumps(plain(values), sort_keys=True).encode()).hexdigest()[:12]
