"""A table's values as they are stored, none of them refused.

`files` is for whoever can be asked to mend a file. A site that has promised to answer cannot
say no because of what one record holds: a value that cannot be decoded, a row with too many values,
no row at all. What can still be refused is about the file as a whole: that it is there, that it is
of its kind, that it has a header.

How a text table is written is given, and never found from it: one record could change what is
found, and so how all others are read. (Workbooks of Excel and files of statistics programs are not
taken: their readers may refuse a whole file for what one value is.)
"""

import csv
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from silodp.base.errors import SilodpError
from silodp.data.tables.dialect import Dialect, inner_suffix, plain_rows
from silodp.data.tables.files import (
    MOST_VALUES,
    PARQUET_ENDINGS,
    TEXT_ENDINGS,
    checked_names,
    is_table,
)

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


def read_values(path: Path, fields: Collection[str], dialect: Dialect) -> StoredTable:
    """The columns of these names of a text table or Parquet file, as far as they are there."""
    ending = inner_suffix(path)
    if not is_table(path) or ending not in (*TEXT_ENDINGS, *PARQUET_ENDINGS):
        raise SilodpError(
            f"{path} does not end in {', '.join((*TEXT_ENDINGS, *PARQUET_ENDINGS))}, which is what "
            "a site can read whatever one record holds: save the table as CSV or Parquet."
        )
    if not path.is_file():
        raise SilodpError(f"{path} does not exist: check the path.")
    try:
        if ending in TEXT_ENDINGS:
            return _read_text(path, fields, dialect)
        return _read_parquet(path, fields)
    except OSError as error:
        reason = error.strerror or "it is damaged or cut short"
        raise SilodpError(f"{path} cannot be read ({reason}): check it.") from None


def frame_of(columns: dict[str, list[Any]]) -> pd.DataFrame:
    """A table that leaves each value as it is."""
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})


def _read_text(path: Path, fields: Collection[str], dialect: Dialect) -> StoredTable:
    """Every value as its text, in plain spelling.

    A row with too few values lacks the last ones. Which of the values of a row with too many are
    which nobody knows: it is left out.
    """
    csv.field_size_limit(_MOST_LETTERS)
    rows = plain_rows(path, dialect, errors="replace")
    header = next(rows, None)
    if header is None:
        raise SilodpError(f"{path} is empty: give it a header and records.")
    names = checked_names(path, [name.strip() for name in header])
    places = {name: names.index(name) for name in fields if name in names}
    columns: dict[str, list[Any]] = {name: [] for name in places}
    torn = 0
    for row in rows:
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
    if kinds.is_date(kind) or kinds.is_timestamp(kind):
        return _dates(arrow, column)
    return [None if missing else _STRANGE for missing in column.is_null().to_pylist()]


def _dates(arrow: Any, column: Any) -> list[Any]:
    """Dates as ISO has them, in UTC where they have a zone; numpy holds any that Arrow can."""
    kinds, kind = arrow.types, column.type
    if kinds.is_timestamp(kind):
        unit, numbers = kind.unit, column.cast(arrow.int64())
    elif kinds.is_date32(kind):
        unit, numbers = "D", column.cast(arrow.int32())
    else:
        unit, numbers = "ms", column.cast(arrow.int64())
    zone = "Z" if kinds.is_timestamp(kind) and kind.tz is not None else ""
    finest = "us" if unit == "ns" else unit  # that Python's dates can have
    return [
        None if number is None else f"{np.datetime64(number, unit).astype(f'M8[{finest}]')}{zone}"
        for number in numbers.to_pylist()
    ]
