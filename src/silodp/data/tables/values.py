"""A table's values as they are stored, none of them refused.

`table_files` is for whoever can be asked to mend a file. A site that has promised to answer cannot
say no because of what one record holds: a value that cannot be decoded, a row with too many values,
no row at all. What can still be refused is about the file as a whole: that it is there, that it is
of its kind, that it has a header.
"""

import csv
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from silodp.base.errors import SilodpError
from silodp.data.tables.files import ENDINGS, MOST_VALUES, checked_names

# Letters of a value in a CSV file: more than any memory holds, and what Python's reader can take.
_MOST_LETTERS = 2**31 - 1
# In the place of values whose type no number or level can have, and which Python may not hold.
_STRANGE = object()


class StoredTable(NamedTuple):
    """Columns of a table.

    Attributes:
      names: names of all its columns.
      frame: the columns to be read, as far as they are there; each value as it is stored.
      torn: rows that were left out, because they have more values than the table has columns.
    """

    names: list[str]
    frame: pd.DataFrame
    torn: int = 0


def read_values(path: Path, fields: Collection[str]) -> StoredTable:
    """The columns of these names of a CSV or Parquet file, as far as they are there."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise SilodpError(
            f"{path} does not end in {', '.join(ENDINGS)}: save the table as CSV or Parquet."
        )
    if not path.is_file():
        raise SilodpError(f"{path} does not exist: check the path.")
    try:
        return _read_csv(path, fields) if ending == ".csv" else _read_parquet(path, fields)
    except OSError as error:
        reason = error.strerror or "it is damaged or cut short"
        raise SilodpError(f"{path} cannot be read ({reason}): check it.") from None


def frame_of(columns: dict[str, list[Any]]) -> pd.DataFrame:
    """A table that leaves each value as it is."""
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})


def _read_csv(path: Path, fields: Collection[str]) -> StoredTable:
    """Every value as its text.

    A row with too few values lacks the last ones. Which of the values of a row with too many are
    which nobody knows: it is left out. (A quotation mark that is never closed makes one value of
    all that follows: whatever writes the file has to write CSV.)
    """
    csv.field_size_limit(_MOST_LETTERS)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = csv.reader(file, skipinitialspace=True)
        header = next((row for row in rows if row), None)
        if header is None:
            raise SilodpError(f"{path} is empty: give it a header and records.")
        names = checked_names(path, [name.strip() for name in header])
        places = {name: names.index(name) for name in fields if name in names}
        columns: dict[str, list[Any]] = {name: [] for name in places}
        torn = 0
        for row in rows:
            if not row:  # an empty line
                continue
            if len(row) > len(names):
                torn += 1
                continue
            for name, place in places.items():
                columns[name].append(row[place] if place < len(row) else None)
    return StoredTable(names, frame_of(columns), torn)


def _read_parquet(path: Path, fields: Collection[str]) -> StoredTable:
    try:
        import pyarrow.parquet  # optional, so not at the top
    except ImportError as error:
        raise SilodpError(
            f"{path} is a Parquet file, which needs pyarrow: install it with "
            "`pip install 'silodp[parquet]'`, or save the table as CSV."
        ) from error
    try:
        with pyarrow.parquet.ParquetFile(os.fspath(path)) as file:
            if file.metadata.num_rows * file.metadata.num_columns > MOST_VALUES:
                raise SilodpError(
                    f"{path} claims more than {MOST_VALUES} values: give a smaller table."
                )
            names = checked_names(path, [str(name) for name in file.schema_arrow.names])
            present = [name for name in names if name in fields]
            table = file.read(columns=present, use_pandas_metadata=False)
        columns = {name: _plain_values(pyarrow, table.column(name)) for name in present}
    except pyarrow.ArrowException:
        # Not in Arrow's words, which may hold a value.
        raise SilodpError(
            f"{path} cannot be read as Parquet: the file is damaged or cut short; copy it again."
        ) from None
    return StoredTable(names, frame_of(columns))


def _plain_values(arrow: Any, column: Any) -> list[Any]:
    """Words, numbers and truth values as Python's; the type of all others is a stranger's."""
    kinds, kind = arrow.types, column.type
    if kinds.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind):
        # By way of bytes, since these need not be UTF-8, and Arrow stops at the first that are not.
        values = column.cast(arrow.large_binary())
        values.validate(full=True)
        return [
            None if value is None else value.decode(errors="replace")
            for value in values.to_pylist()
        ]
    if kinds.is_floating(kind):
        return column.cast(arrow.float64()).to_pylist()
    if kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_decimal(kind):
        return column.to_pylist()
    return [None if missing else _STRANGE for missing in column.is_null().to_pylist()]
