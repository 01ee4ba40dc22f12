"""Runs that tables of other sweeps hold already: they need not be trained again.

The same options have the same name in every sweep, and a run gives the same numbers in each.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from silodp.base.errors import SilodpError
from silodp.methods import METHOD_OPTIONS, get_method
from silodp.results.result import versions
from silodp.sweeps.about import read_about
from silodp.sweeps.grid import Point, Sweep
from silodp.sweeps.settings import at_last_round, select
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
    sweep: Sweep,
    finished: Collection[tuple[str, int]],
    folders: Collection[Path],
    files: Mapping[str, str] = MappingProxyType({}),
) -> Known:
    """What the tables in these folders hold of the runs that are not finished.

    Tables made by other versions (of silodp, JAX...) are left alone, and so are those made of files
    that have changed since; `files` has digests of what is in them now.
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
        if not wanted or not _of_now(about, sweep.history, files):
            continue
        table = read_table(folder)
        table = select(table, table["run"].isin([run for run, _ in wanted]))
        table = table if sweep.history else at_last_round(table)
        for key, same in table.groupby(["run", "seed"], sort=False):
            run, seed = key  # type: ignore[misc]
            if (point := wanted.get((run, seed))) is None:
                continue
            if (options := _options(point, sweep.columns, same)) is None:
                continue
            known.rows.extend(_rows(run, options, same))
            data = point.options.data
            if data in about.get("data", {}):
                known.data[data] = about["data"][data]
            del wanted[run, seed]
    return known


def _of_now(about: dict[str, Any], history: bool, files: Mapping[str, str]) -> bool:
    sessions = about.get("sessions", [])
    same = all(session.get("versions") == versions() for session in sessions)
    unchanged = all(about.get("files", {}).get(path) == digest for path, digest in files.items())
    return bool(sessions) and same and unchanged and (about.get("history", False) or not history)


def _options(point: Point, columns: tuple[str, ...], same: "pd.DataFrame") -> dict[str, Any] | None:
    """The options of a row, as training would tell them; None if the table does not."""
    has = get_method(point.options.method).option_names
    options = {}
    for name in columns:
        if name in METHOD_OPTIONS and name not in has:
            continue
        given = getattr(point.options, name)
        if given is None and name not in same.columns:  # training may fill in a default
            return None
        options[name] = _plain(same[name].iloc[0]) if given is None else given
    return options


def _rows(run: str, options: dict[str, Any], same: "pd.DataFrame") -> Iterator[Row]:
    for measured in zip(*(same[name] for name in MEASURED), strict=True):
        values = dict(zip(MEASURED, map(_plain, measured), strict=True))
        yield Row(run=run, options=options, **values)


def _plain(value: Any) -> Any:
    """As Python writes it: a table shows no types of NumPy."""
    return value.item() if isinstance(value, np.generic) else value
