"""Reading a user's tables: one file with a silo column, or a folder with one file a silo.

Whatever is wrong with a file itself is said here: its encoding, its header, its columns.
"""

import math
import warnings
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from silodp.base.errors import SilodpError, one_of
from silodp.data.tables.schema import level_text

PARQUET_ENDINGS = (".parquet", ".pq")
ENDINGS = (".csv", *PARQUET_ENDINGS)
# A number is read as Python would read its text: so it stays what it is, whatever type its column
# comes to have because of other rows. Since pandas 3.1 that is the rule, and to ask for it is not.
_VERSION = tuple(int(part) for part in pd.__version__.split(".")[:2])
EXACT_FLOATS: dict[str, Any] = {} if _VERSION >= (3, 1) else {"float_precision": "round_trip"}
_FRAME = "The frame"  # what errors call a table in memory
MOST_VALUES = 1 << 31  # of a table: as numbers they take 16 GiB

Frames = dict[str, pd.DataFrame]  # by silo name, all with the same columns in the same order


def read_silos(path: Path, silo_column: str | None, as_text: Collection[str]) -> Frames:
    """The table of each silo, rows in the order of the file.

    Columns in `as_text` are taken from a CSV file as they are written, so that "007" is not 7.
    """
    if path.is_dir():
        if silo_column is not None:
            raise SilodpError(
                f"silo_column is {silo_column!r}, but {path} is a folder, where each file is a "
                "silo: leave silo_column out."
            )
        return _read_folder(path, as_text)
    frame = read_table(path, as_text if silo_column is None else {*as_text, silo_column})
    if silo_column is None:
        raise SilodpError(
            f"{path} is one file, so silo_column is needed (--silo-column): give the column that "
            f"names each row's silo, one of {', '.join(map(repr, frame.columns))}."
        )
    check_column(path, frame, silo_column, "silo_column")
    return _split_by_silo(frame, silo_column)


def silos_of_frame(table: Any, silo_column: str) -> Frames:
    """The rows of each silo of a table in memory: of pandas, or with a method `to_pandas`."""
    if not isinstance(table, pd.DataFrame):
        if not hasattr(table, "to_pandas"):
            raise SilodpError(
                f"The frame is a {type(table).__name__}: give a DataFrame (of pandas, or one that "
                "has to_pandas)."
            )
        table = table.to_pandas()
    frame = table.set_axis(checked_names(_FRAME, [str(name) for name in table.columns]), axis=1)
    if frame.empty:
        raise SilodpError(f"{_FRAME} has no rows or no columns: give it records.")
    check_column(_FRAME, frame, silo_column, "silo")
    return _split_by_silo(frame, silo_column)


def read_table(path: Path, as_text: Collection[str] = (), fewest: int = 2) -> pd.DataFrame:
    """One CSV or Parquet file, with distinct column names and at least one row.

    `fewest` columns it must have: two are features and a target.
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise SilodpError(
            f"{path} does not end in {', '.join(ENDINGS)}: save the table as CSV or Parquet."
        )
    if not path.is_file():
        raise SilodpError(f"{path} does not exist: check the path.")
    frame = _read_csv(path, as_text) if ending == ".csv" else _read_parquet(path)
    if len(frame.columns) < fewest:
        raise SilodpError(
            f"{path} has {len(frame.columns)} column only ({', '.join(map(repr, frame.columns))}): "
            "a table needs features and a target; in a CSV file, separate columns by commas."
        )
    if frame.empty:
        raise SilodpError(f"{path} has a header but no rows: give it records or leave it out.")
    return frame


def check_column(where: object, frame: pd.DataFrame, column: str, option: str) -> None:
    """Refuses a column that is not there, with the closest names first."""
    if column not in frame.columns:
        raise SilodpError(
            f"{where}: {option} names the column {column!r}, which is not there: use "
            f"{one_of(column, frame.columns)}."
        )


def values_of(frame: pd.DataFrame, column: str) -> pd.Series:
    """One column (a cast, since its type depends on names being distinct, which was checked)."""
    return cast(pd.Series, frame[column])


def _read_folder(path: Path, as_text: Collection[str]) -> Frames:
    files = sorted(
        file
        for file in path.iterdir()
        if file.suffix.lower() in ENDINGS and not file.name.startswith(".") and file.is_file()
    )
    if not files:
        raise SilodpError(
            f"Folder {path} holds no file that ends in {', '.join(ENDINGS)}: put one file a silo "
            "there, named after the silo (or one folder of images a silo)."
        )
    stems = Counter(file.stem for file in files)
    twice = [file.name for file in files if stems[file.stem] > 1]
    if twice:
        raise SilodpError(
            f"Folder {path}: {' and '.join(twice[:2])} name the same silo: keep one of them."
        )
    first, *others = files
    frames = {first.stem: read_table(first, as_text)}
    columns = list(frames[first.stem].columns)
    for file in others:
        frame = read_table(file, as_text)
        for column in columns:
            if column not in frame.columns:
                raise SilodpError(
                    f"{file} has no column {column!r}, but {first} has it: give every silo the "
                    "same columns."
                )
        for column in frame.columns:
            if column not in columns:
                raise SilodpError(
                    f"{file} has a column {column!r}, but {first} has not: give every silo the "
                    "same columns."
                )
        frames[file.stem] = frame.loc[:, columns]
    return frames


def _split_by_silo(frame: pd.DataFrame, silo_column: str) -> Frames:
    """Silos in the order of their names (numbers by value), rows in the order of the file."""
    silo_of = values_of(frame, silo_column)
    unnamed = int(silo_of.isna().to_numpy().sum())
    if unnamed:
        raise SilodpError(
            f"The silo column {silo_column!r} is empty in {unnamed} rows: name each row's silo."
        )
    names = np.array([level_text(value) for value in silo_of])
    features = frame.drop(columns=silo_column)
    return {name: features.loc[names == name] for name in in_order(set(names.tolist()))}


def in_order(texts: Collection[str]) -> list[str]:
    """Sorted: by value where all are numbers, else as words."""
    try:
        values = {text: float(text) for text in texts}
    except ValueError:
        return sorted(texts)
    if not all(map(math.isfinite, values.values())):  # "nan" is a word, and in no order
        return sorted(texts)
    return sorted(texts, key=lambda text: (values[text], text))


def _read_csv(path: Path, as_text: Collection[str]) -> pd.DataFrame:
    try:
        # A warning of pandas here means a row that does not fit: never to be passed over.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            header = pd.read_csv(
                path,
                header=None,
                nrows=1,
                dtype=str,
                keep_default_na=False,
                encoding="utf-8-sig",
                skipinitialspace=True,
            )
            names = checked_names(path, [str(name).strip() for name in header.iloc[0]])
            return pd.read_csv(
                path,
                header=0,
                names=names,
                index_col=False,  # or a row with one value too many would shift every column
                dtype=dict.fromkeys(set(as_text) & set(names), str),
                encoding="utf-8-sig",
                skipinitialspace=True,
                low_memory=False,
                **EXACT_FLOATS,
            )
    except SilodpError:
        raise
    except UnicodeDecodeError as error:
        raise SilodpError(f"{path} is not UTF-8 text ({error}): save it as UTF-8 CSV.") from error
    except pd.errors.EmptyDataError as error:
        raise SilodpError(f"{path} is empty: give it a header and records.") from error
    except OSError as error:
        raise SilodpError(f"{path} cannot be read ({error}): check its permissions.") from error
    except Exception as error:
        reason = " ".join(str(error).split())
        raise SilodpError(
            f"{path} cannot be read as CSV ({reason}): each row needs as many values as the header."
        ) from error


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow.parquet  # optional, so not at the top
    except ImportError as error:
        raise SilodpError(
            f"{path} is a Parquet file, which needs pyarrow: install it with "
            "`pip install 'silodp[parquet]'`, or save the table as CSV."
        ) from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if file.metadata.num_rows * file.metadata.num_columns > MOST_VALUES:
                raise ValueError(f"it claims more than {MOST_VALUES} values")
            table = file.read()
        table.validate(full=True)  # or text that is not UTF-8 would fail much later
        # Without pandas' metadata, or a saved index would vanish from the columns.
        frame = table.to_pandas(ignore_metadata=True)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise SilodpError(
            f"{path} cannot be read as Parquet ({reason}): the file is damaged or cut short; copy "
            "it again."
        ) from error
    frame.columns = checked_names(path, [str(name) for name in frame.columns])
    return frame


def checked_names(where: object, names: list[str]) -> list[str]:
    """The names of a table's columns, each of which must have one of its own."""
    for position, name in enumerate(names, start=1):
        if not name or name.startswith("__index_level_"):
            raise SilodpError(
                f"{where}: column {position} has no name: name it, or leave it out (pandas writes "
                "such a column unless told index=False)."
            )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise SilodpError(
            f"{where}: the column name {repeated[0]!r} is used more than once: rename one of them."
        )
    return names
