"""Runs that tables of other sweeps hold already: they need not be trained again.

The same options have the same name in every sweep, and a run gives the same numbers in each.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from silodp.errors import SilodpError
from silodp.methods import METHOD_OPTIONS, get_method
from silodp.result import versions
from silodp.sweeps.about import read_about
from silodp.sweeps.grid import Point, Sweep
from silodp.sweeps.settings import at_last_round
from silodp.sweeps.table import MEASURED, TABLE_FILE, Row, read_table

if TYPE_CHECKING:
    import pandas as pd


def tables_below(folder: Path) -> list[Path]:
    """The folders of sweeps in that folder, itself among them."""
    found = sorted(path.parent for path in folder.rglob(TABLE_FILE))
    if not found:
        raise SilodpError(
            f"--reuse: there is no {TABLE_FILE} in {folder}: give the folder of a finished sweep "
            "or figure."
        )
    return found


class Known(NamedTuple):
    """What other tables hold of a sweep.

    Attributes:
      rows: of runs that it asks for.
      data: what is told of the data that they were trained on.
    """

    rows: list[Row]
    data: dict[str, dict[str, int]]


def known_runs(
    sweep: Sweep, finished: Collection[tuple[str, int]], folders: Collection[Path]
) -> Known:
    """What the tables in these folders hold of the runs that are not finished.

    Tables made by other versions (of silodp, JAX...) are left alone.
    """
    wanted = {
        (point.run, seed): point
        for point in sweep.points
        for seed in point.seeds
        if (point.run, seed) not in finished
    }
    known = Known([], {})
    for folder in folders:
        about = read_about(folder)
        if not wanted or not _of_now(about, sweep.history):
            continue
        table = read_table(folder)
        for key, same in (table if sweep.history else at_last_round(table)).groupby(
            ["run", "seed"], sort=False
        ):
            run, seed = key  # type: ignore[misc]
            options = _options(wanted.get((run, seed)), sweep.columns, same)
            if options is not None:
                known.rows.extend(_rows(run, options, same))
                known.data.update(about.get("data", {}))
                del wanted[run, seed]
    return known


def _of_now(about: dict[str, Any], history: bool) -> bool:
    sessions = about.get("sessions", [])
    same = all(session.get("versions") == versions() for session in sessions)
    return bool(sessions) and same and (about.get("history", False) or not history)


def _options(
    point: Point | None, columns: tuple[str, ...], same: "pd.DataFrame"
) -> dict[str, Any] | None:
    """The options of a row; None if nobody asks for it, or the table does not tell them all."""
    if point is None:
        return None
    has = get_method(point.options.method).option_names
    options = {}
    for name in columns:
        if name in METHOD_OPTIONS and name not in has:
            continue
        value = same[name].iloc[0] if name in same.columns else getattr(point.options, name)
        if value is None or value != value:  # stands for a default that training would fill in
            return None
        options[name] = _plain(value)
    return options


def _rows(run: str, options: dict[str, Any], same: "pd.DataFrame") -> Iterator[Row]:
    for measured in zip(*(same[name] for name in MEASURED), strict=True):
        values = dict(zip(MEASURED, map(_plain, measured), strict=True))
        yield Row(run=run, options=options, **values)


def _plain(value: Any) -> Any:
    """As Python writes it: a table shows no types of NumPy."""
    return value.item() if isinstance(value, np.generic) else value
