"""A site's own records: from a file or a database, as the agreed schema wants them.

What goes wrong here is said to the site's own people only; an error may name a value of a record,
so no error of this file may leave the site as it is.
"""

import decimal
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api import types

from silodp.datasets.columns import column_type
from silodp.datasets.schema import known_keys
from silodp.datasets.split import check_seed, check_test_fraction
from silodp.datasets.table_files import read_table, values_of
from silodp.datasets.tables import split_and_scale, table_of_frames, text_columns
from silodp.errors import SilodpError, by_closeness
from silodp.federation import Federation
from silodp.sites.agreed_schema import AgreedSchema, table_options
from silodp.sites.database import read_query


@dataclass(frozen=True)
class DataAtSite:
    """Where a site's records are: a file, or what a database answers to a query.

    Attributes:
      folder: what a relative path (also that of an SQLite file) is relative to.
      path: a CSV or Parquet file.
      url: of the database, as SQLAlchemy writes it; not shown, since it may hold a password.
      url_env: the environment variable that holds the url instead, so that no file does.
      query: that selects the records.
    """

    folder: Path = field(default_factory=Path)
    path: Path | None = None
    url: str | None = field(default=None, repr=False)
    url_env: str | None = None
    query: str | None = None


DATA_KEYS = ("path", "url", "url_env", "query")


def data_at_site(where: str, folder: Path, table: Mapping[str, Any]) -> DataAtSite:
    """The source that a table of TOML states; `where` names it in errors."""
    known_keys(where, table, DATA_KEYS)
    for key, value in table.items():
        if not isinstance(value, str) or not value.strip():
            # The value is not repeated: it may be a password in the wrong place.
            raise SilodpError(f"{where}: {key} is no text or is blank: write {key} in quotes.")
    databases = [key for key in ("url", "url_env") if key in table]
    if "path" in table and len(table) > 1:
        other = next(key for key in table if key != "path")
        raise SilodpError(
            f"{where}: path and {other} are both given: give path for a file, or url (or url_env) "
            "and query for a database."
        )
    if len(databases) > 1:
        raise SilodpError(f"{where}: url and url_env are both given: leave one of them out.")
    if not databases and "query" in table:
        raise SilodpError(
            f"{where}: query is given, but no database: give its url, or url_env with the name of "
            "the environment variable that holds it."
        )
    if databases and "query" not in table:
        raise SilodpError(
            f'{where}: {databases[0]} is given, but no query: give one, such as query = "select * '
            'from visits".'
        )
    if not table:
        raise SilodpError(
            f'{where}: no records are named: give path = "records.csv", or url and query of a '
            "database."
        )
    return DataAtSite(
        folder=folder,
        path=Path(table["path"]) if "path" in table else None,
        url=table.get("url"),
        url_env=table.get("url_env"),
        query=table.get("query"),
    )


def load_records(
    site: str, source: DataAtSite, schema: AgreedSchema, *, seed: int, test_fraction: float
) -> Federation:
    """The site's records as a federation of one silo, named after the site.

    Args:
      site: its name.
      source: where the records are.
      schema: what was agreed on; columns that it does not name are not looked at.
      seed: of the split.
      test_fraction: share of the records (or subjects) to keep for testing.
    """
    check_seed(seed)
    check_test_fraction(test_fraction)
    options = table_options(schema, test_fraction)
    place, frame = _read(site, source, text_columns(options))
    frame = _agreed_columns(site, place, frame, schema)
    if source.path is None:
        frame = _with_booleans(_in_fixed_order(frame), schema)
    _check_numbers(site, frame, schema)
    _check_words(site, frame, schema)
    table = table_of_frames(site, {site: frame}, options, where=f"Site {site!r}: {place}")
    return split_and_scale(table, seed, options)


def _read(site: str, source: DataAtSite, as_text: set[str]) -> tuple[str, pd.DataFrame]:
    """What the table is called in errors, and the table."""
    if source.path is not None:
        path = source.folder / source.path
        try:
            return str(path), read_table(path, as_text)
        except SilodpError as error:
            raise SilodpError(f"Site {site!r}: {error}") from error
    if source.query is None or (source.url is None and source.url_env is None):
        raise SilodpError(
            f"Site {site!r}: data has neither a path, nor a url with a query: give one of them."
        )
    return "the query's answer", read_query(site, url_of(site, source), source.query, source.folder)


def url_of(site: str, source: DataAtSite) -> str:
    """The url of a source that is a database, where it stands or from the environment."""
    if source.url is not None:
        return source.url
    name = source.url_env or ""
    url = os.environ.get(name, "").strip()
    if not url:
        raise SilodpError(
            f"Site {site!r}: the environment variable {name!r} (url_env) is not set: set it to the "
            "url of the database, such as postgresql+psycopg://user:password@host/database."
        )
    return url


def _agreed_columns(
    site: str, place: str, frame: pd.DataFrame, schema: AgreedSchema
) -> pd.DataFrame:
    """The agreed columns in the agreed order, which is then the order of the features."""
    for column in schema.columns:
        if column not in frame.columns:
            nearest = by_closeness(column, map(str, frame.columns))[0]
            raise SilodpError(
                f"Site {site!r}: {place} has no column {column!r}, which was agreed on: give the "
                f"column that name (the nearest is {nearest!r}; in a query: select ... as "
                f'"{column}").'
            )
    return frame.loc[:, list(schema.columns)]


def _in_fixed_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows by their values: a database may answer in another order each time.

    The split goes by the order, and what was once kept for testing must not be trained on later.
    """
    keys = list(zip(*(map(str, values_of(frame, column)) for column in frame), strict=True))
    return frame.iloc[sorted(range(len(keys)), key=keys.__getitem__)]


def _check_numbers(site: str, frame: pd.DataFrame, schema: AgreedSchema) -> None:
    """Refuses what is no number where numbers were agreed on.

    The code for tables would refuse it too, but advise to declare it otherwise, which is no longer
    up to a single site.
    """
    of_numbers = [*schema.bounds, *([schema.target] if schema.task == "regression" else [])]
    for column in of_numbers:
        values = values_of(frame, column).dropna()  # missing ones are spoken of elsewhere
        if values.empty or (kind := column_type(values)) == "number":
            continue
        where = f"Site {site!r}: column {column!r}"
        if kind == "date":
            raise SilodpError(
                f"{where} holds dates, but numbers were agreed on: turn them into numbers, such as "
                "years or days since an event."
            )
        strange = next((value for value in values if not _is_number(value)), values.iloc[0])
        raise SilodpError(
            f"{where} holds {strange!r}, but numbers were agreed on: store plain numbers such as "
            "1234.5 there."
        )


def _check_words(site: str, frame: pd.DataFrame, schema: AgreedSchema) -> None:
    """Refuses what can be no category: lists, bytes, and whatever else a database may hold."""
    for column in _categories(schema):
        values = values_of(frame, column).dropna()
        if not types.is_object_dtype(values.dtype):
            continue
        for value in values:
            if not isinstance(value, str | int | float | decimal.Decimal):
                raise SilodpError(
                    f"Site {site!r}: column {column!r} holds values of type "
                    f"{type(value).__name__}, but categories were agreed on: give words, numbers "
                    "or true/false."
                )


def _with_booleans(frame: pd.DataFrame, schema: AgreedSchema) -> pd.DataFrame:
    """False and true, where they were agreed on, for the 0 and 1 of databases without them."""
    for column, levels in _categories(schema).items():
        values = values_of(frame, column)
        whole = all(type(value) is int and value in (0, 1) for value in values.dropna())
        if whole and set(levels) == {"False", "True"}:
            plain = [bool(value) if isinstance(value, int) else value for value in values]
            frame = frame.copy()
            frame[column] = pd.Series(plain, frame.index, dtype=object)
    return frame


def _categories(schema: AgreedSchema) -> dict[str, tuple[str, ...]]:
    """What each column of categories may hold, the target's classes included."""
    classes = {} if schema.classes is None else {schema.target: schema.classes}
    return {**schema.levels, **classes}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool)
