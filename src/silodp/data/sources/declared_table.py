"""Published tables whose public declarations stand beside their readers.

A module of such a table says how its files become one table with a column that names the silo, and
declares what columns may hold. Bounds and levels are those of a code book, an instrument or a unit,
known before any record is seen; values beyond are moved to the nearer bound.
"""

import io
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from silodp.base.errors import SilodpError
from silodp.config.data_options import DataOptions
from silodp.data.federation import Federation
from silodp.data.files import DataFile, find_file
from silodp.data.formats.archives import read_member
from silodp.data.formats.bounded import read_bounded
from silodp.data.problems import reported
from silodp.data.sources.cell_silos import refetch
from silodp.data.tables.files import EXACT_FLOATS, silos_of_frame
from silodp.data.tables.table import Table, split_and_scale, table_of_frames

LARGEST = 1 << 28  # bytes of a table, unpacked

Paths = Mapping[str, Path]
"""Where each file lies, by its name."""


class DeclaredTable:
    """What a `DataSource` reads: the table is read and encoded once, and split for each seed."""

    def __init__(
        self,
        name: str,
        files: tuple[DataFile, ...],
        frame: Callable[[Paths, DataOptions], pd.DataFrame],
        declared: Callable[[DataOptions], DataOptions],
    ):
        """Reads nothing yet.

        Args:
          name: the data set's name.
          files: its files.
          frame: makes one table of them, with the columns that are used and no others.
          declared: what the columns are for and may hold, given the user's options.
        """
        self._name, self._files = name, files
        self._frame, self._declared = frame, declared
        self._read: tuple[Any, Table] | None = None

    def __call__(self, seed: int, options: DataOptions) -> Federation:
        """The federation of one seed."""
        declared = self._declared(options)
        split = replace(
            declared,
            preprocess=options.preprocess,
            density=options.density,
            split=options.split,
            test_fraction=options.test_fraction or declared.test_fraction,
        )
        return split_and_scale(self._table(options, declared), seed, split)

    def _table(self, options: DataOptions, declared: DataOptions) -> Table:
        paths = {
            file.name: find_file(self._name, file.names, options.data_dir) for file in self._files
        }
        stamps = [(path, path.stat().st_mtime_ns) for path in paths.values()]
        key = (stamps, repr(declared))
        if self._read is None or self._read[0] != key:
            assert declared.silo_column is not None
            frame = self._frame(paths, declared)
            with reported(None) as problems:
                frames = silos_of_frame(frame, declared.silo_column, True, problems)
            self._read = key, table_of_frames(self._name, frames, declared)
        return self._read[1]


def read_text(dataset: str, path: Path, *, member: str | None = None, **form: Any) -> pd.DataFrame:
    """A text table of a data set, packed or not; `form` is how pandas is to read it.

    If the path is that of a zip archive, the table is the `member` of that name.
    """
    remedy = refetch(dataset)
    if member is not None and path.suffix == ".zip":
        content = read_member(path, member, LARGEST, remedy)
    else:
        content = read_bounded(path, LARGEST, remedy)
    try:
        return pd.read_csv(io.BytesIO(content), **EXACT_FLOATS, **form)
    except (ValueError, pd.errors.ParserError) as error:
        raise SilodpError(f"{path} is not the table of {dataset} ({error}): {remedy}.") from error


def columns_of(dataset: str, path: Path, frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """These columns alone; refuses a table without one of them."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise SilodpError(
            f"{path} has no column {missing[0]!r}, so it is not the table of {dataset}: "
            f"{refetch(dataset)}."
        )
    return frame.loc[:, names]
