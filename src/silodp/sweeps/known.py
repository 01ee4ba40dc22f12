"""Runs that tables of other sweeps hold already and that need not be trained again.

A run with given options has one name in every sweep, and gives the same numbers in each.
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
    """The folders with a sweep's table in that folder, itself included."""
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
      rows: rows of its runs.
      data: counts of silos and records of their data sets, by name.
    """

    rows: list[Row]
    data: dict[str, dict[str, int]]


def known_runs(
    sweep: Sweep,
    finished: Collection[tuple[str, int]],
    folders: Collection[Path],
    files: Mapping[str, str] = MappingProxyType({}),
) -> Known:
    """Unfinished runs of the sweep that the tables in these folders hold.

    Tables made by other versions (of silodp, JAX...) are skipped, and so are those made from files
    that have changed since; `files` has the digests of their content now.
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
        if not wanted or not _is_current(about, sweep.history, files):
            continue
        table = read_table(folder)
        table = select(table, table["run"].isin([run for run, _ in wanted]))
        table = table if sweep.history else at_last_round(table)
        for key, rows in table.groupby(["run", "seed"], sort=False):
            run, seed = key  # type: ignore[misc]
            if (point := wanted.get((run, seed))) is None:
                continue
            if (options := _options(point, sweep.columns, rows)) is None:
                continue
            known.rows.extend(_rows(run, options, rows))
            data = point.options.data
            if data in about.get("data", {}):
                known.data[data] = about["data"][data]
            del wanted[run, seed]
    return known


def _is_current(about: dict[str, Any], history: bool, files: Mapping[str, str]) -> bool:
    sessions = about.get("sessions", [])
    same_versions = all(session.get("versions") == versions() for session in sessions)
    unchanged = all(about.get("files", {}).get(path) == digest for path, digest in files.items())
    has_rounds = about.get("history", False) or not history
    return bool(sessions) and same_versions and unchanged and has_rounds


def _options(point: Point, columns: tuple[str, ...], rows: "pd.DataFrame") -> dict[str, Any] | None:
    """The options of a run as training would record them; None if the table lacks one."""
    has = get_method(point.options.method).option_names
    options = {}
    for name in columns:
        if name in METHOD_OPTIONS and name not in has:
            continue
        given = getattr(point.options, name)
        if given is None and name not in rows.columns:  # training may fill in a default
            return None
        options[name] = _plain(rows[name].iloc[0]) if given is None else given
    return options


def _rows(run: str, options: dict[str, Any], rows: "pd.DataFrame") -> Iterator[Row]:
    for measured in zip(*(rows[name] for name in MEASURED), strict=True):
        values = dict(zip(MEASURED, map(_plain, measured), strict=True))
        yield Row(run=run, options=options, **values)


def _plain(value: Any) -> Any:
    """The value as Python's own type: tables show no NumPy types."""
    return value.item() if isinstance(value, np.generic) else value
