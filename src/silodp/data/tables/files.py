"""Reading a user's tables: one file with a silo column, or a folder with one file a silo.

Whatever is wrong with a file itself is said here: its encoding, its header, its columns. How a text
table is written is found from it, unless that is declared: see `dialect`.
"""

import csv
import importlib.util
import io
import math
import warnings
import zipfile
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

from silodp.base.errors import SilodpError, meant
from silodp.data.problems import Fault, Problems, reported
from silodp.data.tables.dialect import (
    MOST_BYTES,
    PLAIN,
    Dialect,
    inner_suffix,
    opened,
    plain_rows,
    sniffed,
)
from silodp.data.tables.schema import level_text

PARQUET_ENDINGS = (".parquet", ".pq")
TEXT_ENDINGS = (".csv", ".tsv", ".txt")
# Programs' own files, which pandas reads by itself or with an optional package.
PROGRAM_ENDINGS = (".xlsx", ".xlsm", ".dta", ".sav", ".zsav", ".sas7bdat", ".xpt")
ENDINGS = (*TEXT_ENDINGS, *PARQUET_ENDINGS, *PROGRAM_ENDINGS)
# A number is read as Python would read its text: so it stays what it is, whatever type its column
# comes to have because of other rows. Since pandas 3.1 that is the rule, and to ask for it is not.
_VERSION = tuple(int(part) for part in pd.__version__.split(".")[:2])
EXACT_FLOATS: dict[str, Any] = {} if _VERSION >= (3, 1) else {"float_precision": "round_trip"}
FRAME = "The frame"  # what errors call a table in memory
MOST_VALUES = 1 << 31  # of a table: as numbers they take 16 GiB

NO_NAME = " (no name)"  # behind the place of a column that has none, such as an index of pandas
# In the place of the columns whose values are taken as they are written.
EVERY_COLUMN: Collection[str] = ("*",)

Frames = dict[str, pd.DataFrame]  # by silo name, all with the same columns in the same order


@dataclass(frozen=True)
class FileForm:
    """What is declared of how a table's files are written; what is not is found from them."""

    dialect: Dialect | None = None
    sheet: str | None = None


@dataclass
class Reading:
    """What was found of files while they were read.

    Attributes:
      said: in words for people: the form of each file that is not the plain one.
      by_records: what of it was found from records, and not declared; epsilon does not cover it.
      dialect: that of the last text table.
      unsure: columns that may have marks of thousands, with an example.
    """

    said: list[str] = field(default_factory=list)
    by_records: list[str] = field(default_factory=list)
    dialect: Dialect | None = None
    unsure: dict[str, str] = field(default_factory=dict)


class TablesOfSilos(NamedTuple):
    """The table of each silo, and what was found of their files."""

    frames: Frames
    reading: Reading


def is_table(path: Path) -> bool:
    """Whether a file's name is that of a table."""
    suffix = inner_suffix(path)
    return suffix in (TEXT_ENDINGS if suffix != path.suffix.lower() else ENDINGS)


def table_stem(path: Path) -> str:
    """A table's name without its endings."""
    return path.stem if path.suffix.lower() == inner_suffix(path) else Path(path.stem).stem


def read_silos(
    path: Path,
    silo_column: str | None,
    as_text: Collection[str],
    form: FileForm | None = None,
    *,
    without_silo: bool = False,
    problems: Problems | None = None,
) -> TablesOfSilos:
    """The table of each silo, rows in the order of the file.

    Columns in `as_text` are taken from a text table as they are written, so that "007" is not 7.
    Rows that name no silo are refused (left out, where `problems` gets what is wrong), or left out
    by rule (`without_silo`).
    """
    form, reading = form or FileForm(), Reading()
    if path.is_dir():
        if silo_column is not None:
            raise SilodpError(
                f"silo_column is {silo_column!r}, but {path} is a folder, where each file is a "
                "silo: leave silo_column out."
            )
        return TablesOfSilos(_read_folder(path, as_text, form, reading), reading)
    if silo_column is not None and as_text is not EVERY_COLUMN:
        as_text = {*as_text, silo_column}
    frame = read_table(path, as_text, form=form, reading=reading)
    with reported(problems) as own:
        return TablesOfSilos(split_by_silo(path, frame, silo_column, without_silo, own), reading)


def split_by_silo(
    where: object,
    frame: pd.DataFrame,
    silo_column: str | None,
    without_silo: bool,
    problems: Problems,
) -> Frames:
    """The rows of each silo, by the column that names it; `where` names the table in errors.

    Silos are in the order of their names (numbers by value), rows in the order of the file.
    """
    if silo_column is None:
        raise SilodpError(
            f"{where} is one file, so silo_column is needed (--silo-column): give the column that "
            f"names each row's silo, one of {', '.join(map(repr, frame.columns))}."
        )
    check_column(where, frame, silo_column, "silo_column")
    silo_of = values_of(frame, silo_column)
    is_blank = (silo_of.isna() | (silo_of.astype(str).str.strip() == "")).to_numpy(bool)
    if blanks := int(is_blank.sum()):
        if not without_silo:
            problems.add(
                Fault(
                    f"The silo column {silo_column!r}",
                    f"is empty in {blanks} row{'s' * (blanks > 1)}",
                    "name each row's silo, or drop such rows (in a schema: under [missing], "
                    f'{silo_column} = "drop")',
                    column=silo_column,
                    rows=blanks,
                )
            )
        frame = frame.loc[~is_blank]
        silo_of = values_of(frame, silo_column)
        if frame.empty:
            raise SilodpError(
                f"{where} has no row that names a silo in {silo_column!r}: name them."
            )
    names = np.array([level_text(value) for value in silo_of])
    features = frame.drop(columns=silo_column)
    return {name: features.loc[names == name] for name in in_order(set(names.tolist()))}


def silos_of_frame(table: Any, silo_column: str, without_silo: bool, problems: Problems) -> Frames:
    """The rows of each silo of a table in memory: of pandas, or with a method `to_pandas`."""
    if not isinstance(table, pd.DataFrame):
        if not hasattr(table, "to_pandas"):
            raise SilodpError(
                f"The frame is a {type(table).__name__}: give a DataFrame (of pandas, or one that "
                "has to_pandas)."
            )
        table = table.to_pandas()
    frame = table.set_axis(checked_names(FRAME, [str(name) for name in table.columns]), axis=1)
    if frame.empty:
        raise SilodpError(f"{FRAME} has no rows or no columns: give it records.")
    check_column(FRAME, frame, silo_column, "silo")
    return split_by_silo(FRAME, frame, silo_column, without_silo, problems)


def read_table(
    path: Path,
    as_text: Collection[str] = (),
    fewest: int = 2,
    form: FileForm | None = None,
    reading: Reading | None = None,
) -> pd.DataFrame:
    """One table in a file, with distinct column names and at least one row.

    Args:
      path: the file.
      as_text: columns of a text table whose values are taken as they are written.
      fewest: columns that it must have: two are features and a target.
      form: what is declared of how it is written.
      reading: is told what was found.
    """
    form, reading = form or FileForm(), reading or Reading()
    if not is_table(path):
        if path.suffix.lower() == ".xls":
            raise SilodpError(f"{path} is a workbook of the old kind: save it as .xlsx or CSV.")
        raise SilodpError(
            f"{path} does not end in {', '.join(ENDINGS)}: save the table as CSV, Excel (.xlsx) or "
            "Parquet."
        )
    if not path.is_file():
        raise SilodpError(f"{path} does not exist: check the path.")
    ending = inner_suffix(path)
    if ending in TEXT_ENDINGS:
        frame = _read_text(path, as_text, form.dialect, reading)
    elif ending in PARQUET_ENDINGS:
        frame = _read_parquet(path)
    else:
        frame = _read_of_program(path, ending, form.sheet, reading)
    if len(frame.columns) < fewest:
        raise SilodpError(
            f"{path} has {len(frame.columns)} column only ({', '.join(map(repr, frame.columns))}): "
            "a table needs features and a target; in a text file, separate columns by commas, "
            "semicolons, tabs or bars (a schema's [file] says which, where it has a delimiter)."
        )
    if frame.empty:
        raise SilodpError(f"{path} has a header but no rows: give it records or leave it out.")
    return frame


def check_column(where: object, frame: pd.DataFrame, column: str, option: str) -> None:
    """Refuses a column that is not there, with the closest names first."""
    if column not in frame.columns:
        raise Fault(
            f"{where}:",
            f"{option} names the column {column!r}, which is not there",
            meant(column, frame.columns),
            column=column,
        )


def values_of(frame: pd.DataFrame, column: str) -> pd.Series:
    """One column (a cast, since its type depends on names being distinct, which was checked)."""
    return cast(pd.Series, frame[column])


def _read_folder(path: Path, as_text: Collection[str], form: FileForm, reading: Reading) -> Frames:
    files = sorted(
        file
        for file in path.iterdir()
        if is_table(file) and not file.name.startswith(".") and file.is_file()
    )
    # Beside tables of another kind, a text is about them.
    files = [file for file in files if inner_suffix(file) != ".txt"] or files
    if not files:
        raise SilodpError(
            f"Folder {path} holds no file that ends in {', '.join(ENDINGS)}: put one file a silo "
            "there, named after the silo (or one folder of images a silo)."
        )
    stems = Counter(map(table_stem, files))
    twice = [file.name for file in files if stems[table_stem(file)] > 1]
    if twice:
        raise SilodpError(
            f"Folder {path}: {' and '.join(twice[:2])} name the same silo: keep one of them."
        )
    first, *others = files
    frames = {table_stem(first): read_table(first, as_text, form=form, reading=reading)}
    columns = list(frames[table_stem(first)].columns)
    for file in others:
        frame = read_table(file, as_text, form=form, reading=reading)
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
        frames[table_stem(file)] = frame.loc[:, columns]
    return frames


def in_order(texts: Collection[str]) -> list[str]:
    """Sorted: by value where all are numbers, else as words."""
    try:
        values = {text: float(text) for text in texts}
    except ValueError:
        return sorted(texts)
    if not all(map(math.isfinite, values.values())):  # "nan" is a word, and in no order
        return sorted(texts)
    return sorted(texts, key=lambda text: (values[text], text))


def _read_text(
    path: Path, as_text: Collection[str], dialect: Dialect | None, reading: Reading
) -> pd.DataFrame:
    if dialect is None:
        found = sniffed(path)
        dialect = found.dialect
        reading.by_records += [f"{what} of {path.name}" for what in found.by_records]
        reading.unsure |= found.unsure
    reading.dialect = dialect
    if dialect != PLAIN:
        reading.said.append(f"{path.name} is read as {dialect.words}.")
    if dialect == PLAIN and path.suffix.lower() == ".csv" and not _has_own_mark(path):
        return _read_csv(path, path, as_text)
    # In the plain dialect, which pandas reads, row by row.
    plain = io.StringIO(newline="")
    try:
        # In quotation marks: what begins with a space there keeps it.
        csv.writer(plain, quoting=csv.QUOTE_ALL).writerows(plain_rows(path, dialect))
    except UnicodeError as error:
        raise SilodpError(
            f"{path} is not text in {dialect.encoding} ({error}): declare its encoding (in a "
            "schema: under [file])."
        ) from error
    except csv.Error as error:
        raise SilodpError(f"{path} cannot be read as CSV ({error}): save it as CSV anew.") from None
    plain.seek(0)
    return _read_csv(path, plain, as_text)


def _has_own_mark(path: Path) -> bool:
    """Whether the first line is Excel's own on the delimiter."""
    with opened(path, PLAIN, "replace") as file:
        return file.readline(8).lower().lstrip('"').startswith("sep=")


def _read_csv(path: Path, content: Any, as_text: Collection[str]) -> pd.DataFrame:
    try:
        # A warning of pandas here means a row that does not fit: never to be passed over.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            header = pd.read_csv(
                content,
                header=None,
                nrows=1,
                dtype=str,
                keep_default_na=False,
                encoding="utf-8-sig",
                skipinitialspace=True,
            )
            names = checked_names(path, [str(name).strip() for name in header.iloc[0]])
            if isinstance(content, io.StringIO):
                content.seek(0)
            return pd.read_csv(
                content,
                header=0,
                names=names,
                index_col=False,  # or a row with one value too many would shift every column
                dtype=_as_text(as_text, names),
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
        raise Fault(
            f"{path}",
            f"cannot be read as CSV ({reason})",
            "each row needs as many values as the header, which is the first line; take out titles "
            "above it, and put values that hold the delimiter in quotation marks",
        ) from error


def _as_text(as_text: Collection[str], names: list[str]) -> Any:
    """The types that pandas is to read columns as; of all others it finds them."""
    return dict.fromkeys(names if as_text is EVERY_COLUMN else set(as_text) & set(names), str)


_NEEDS = {
    "openpyxl": ("an Excel workbook", "excel"),
    "pyreadstat": ("an SPSS file", "spss"),
}


def _read_of_program(path: Path, ending: str, sheet: str | None, reading: Reading) -> pd.DataFrame:
    """A table in the file of Excel, Stata, SPSS or SAS; categories by their labels."""
    is_excel = ending in (".xlsx", ".xlsm")
    if sheet is not None and not is_excel:
        raise SilodpError(f"{path} has no sheets, but sheet is {sheet!r}: leave it out.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a workbook's styles, and of formats of dates
            if is_excel:
                frame = _read_excel(path, sheet, reading)
            elif ending == ".dta":
                frame = cast(pd.DataFrame, pd.read_stata(path))
            elif ending in (".sav", ".zsav"):
                frame = pd.read_spss(path)
            else:
                frame = cast(pd.DataFrame, pd.read_sas(path, encoding="latin-1"))
    except SilodpError:
        raise
    except ImportError as error:
        missing = "openpyxl" if is_excel else "pyreadstat"
        what, extra = _NEEDS[missing]
        raise SilodpError(
            f"{path} is {what}, which needs {missing}: install it with `pip install "
            f"'silodp[{extra}]'`, or save the table as CSV."
        ) from error
    except OSError as error:
        raise SilodpError(f"{path} cannot be read ({error}): check its permissions.") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SilodpError(
            f"{path} cannot be read as {ending} ({reason}): the file is damaged or of another "
            "kind; save the table as CSV."
        ) from error
    frame.columns = checked_names(path, [str(name).strip() for name in frame.columns])
    return frame


def _read_excel(path: Path, sheet: str | None, reading: Reading) -> pd.DataFrame:
    """A sheet whose first row with a value is the header; empty rows and columns are left out."""
    if importlib.util.find_spec("openpyxl") is None:
        raise ImportError("openpyxl")
    with zipfile.ZipFile(path) as archive:
        if sum(member.file_size for member in archive.infolist()) > MOST_BYTES:
            raise SilodpError(f"{path} holds more than {MOST_BYTES} bytes: give a smaller table.")
    with pd.ExcelFile(path, engine="openpyxl") as book:
        names = [str(name) for name in book.sheet_names]
        if sheet is not None and sheet not in names:
            raise SilodpError(f"{path} has no sheet {sheet!r}: {meant(sheet, names)}")
        sheets = {
            name: cast(pd.DataFrame, book.parse(name, header=None, dtype=cast(Any, object)))
            for name in ([sheet] if sheet is not None else names)
        }
    tables = {name: raw.dropna(how="all").dropna(how="all", axis=1) for name, raw in sheets.items()}
    tables = {name: raw for name, raw in tables.items() if not raw.empty}
    if not tables:
        raise SilodpError(f"{path} is empty: give it a header and records.")
    if len(tables) > 1:
        raise SilodpError(
            f"{path} has {len(tables)} sheets ({', '.join(map(repr, tables))}): name one (--sheet, "
            "or sheet under [file] in a schema)."
        )
    ((name, raw),) = tables.items()
    if sheet is None and len(names) > 1:
        reading.said.append(f"{path.name} is read from its sheet {name!r}; the others are empty.")
    header = ["" if pd.isna(value) else level_text(value) for value in raw.iloc[0]]
    frame = raw.iloc[1:].set_axis(header, axis=1).reset_index(drop=True)
    checked_names(path, header)  # before the names are used
    return pd.DataFrame({name: _of_one_kind(values_of(frame, name)) for name in frame})


def _of_one_kind(values: pd.Series) -> pd.Series:
    """A column of a workbook; where it has words, all its numbers are words as well, as in CSV."""
    if any(isinstance(value, str) for value in values):
        return values.map(lambda value: level_text(value) if pd.notna(value) else None)
    return values.infer_objects()


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
    """The names of a table's columns, each of its own; one without a name gets its place as one."""
    names = [
        name if name and not name.startswith("__index_level_") else f"column {position}{NO_NAME}"
        for position, name in enumerate(names, start=1)
    ]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise SilodpError(
            f"{where}: the column name {repeated[0]!r} is used more than once: rename one of them."
        )
    return names
