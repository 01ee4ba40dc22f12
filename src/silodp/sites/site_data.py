"""Reads a site's own records from a file or a database, by the agreed schema.

An error from here may name a value of a record: it is for the site's own people, and may not
leave the site as it is.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from silodp.base.documents import check_keys
from silodp.base.errors import SilodpError, by_closeness
from silodp.data.federation import Federation, Records
from silodp.data.split import check_seed, check_test_fraction
from silodp.data.tables.dialect import KEYS as DIALECT_KEYS
from silodp.data.tables.dialect import PLAIN, Dialect, dialect_of, inner_suffix, sniffed
from silodp.data.tables.files import TEXT_ENDINGS, values_of
from silodp.data.tables.table import split_and_scale, table_of_frames
from silodp.data.tables.values import StoredTable, read_values
from silodp.sites.agreed_schema import AgreedSchema, table_options
from silodp.sites.database import read_query


@dataclass(frozen=True)
class DataAtSite:
    """Where a site's records are: in a file, or in a database.

    Attributes:
      folder: the folder that a relative path (also of an SQLite file) is relative to.
      path: a text table or Parquet file.
      dialect: how a text table is written, as its people have fixed it; None for the plain one. It
        is never found from the records: see `tables.dialect`.
      url: the database's, as SQLAlchemy writes it; not shown, since it may hold a password.
      url_env: the environment variable that holds the url instead, so that no file does.
      query: the query that selects the records.
    """

    folder: Path = field(default_factory=Path)
    path: Path | None = None
    dialect: Dialect | None = None
    url: str | None = field(default=None, repr=False)
    url_env: str | None = None
    query: str | None = None


DATA_KEYS = ("path", *DIALECT_KEYS, "url", "url_env", "query")


def data_at_site(where: str, folder: Path, table: Mapping[str, Any]) -> DataAtSite:
    """The source that a table of TOML states; `where` names it in errors."""
    check_keys(where, table, DATA_KEYS)
    form = {key: value for key, value in table.items() if key in DIALECT_KEYS}
    table = {key: value for key, value in table.items() if key not in DIALECT_KEYS}
    for key, value in table.items():
        if not isinstance(value, str) or not value.strip():
            # The value is not repeated: it may be a password in the wrong place.
            raise SilodpError(f"{where}: {key} is not text or is blank: write {key} in quotes.")
    databases = [key for key in ("url", "url_env") if key in table]
    if "path" in table and len(table) > 1:
        other = next(key for key in table if key != "path")
        raise SilodpError(
            f"{where}: path and {other} are both given: give path for a file, or url (or url_env) "
            "and query for a database."
        )
    if len(databases) > 1:
        raise SilodpError(f"{where}: url and url_env are both given: leave one of them out.")
    if form and "path" not in table:
        raise SilodpError(
            f"{where}: {next(iter(form))} is given, but no path: it says how a file is written."
        )
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
        dialect=dialect_of(where, form) if form else None,
        url=table.get("url"),
        url_env=table.get("url_env"),
        query=table.get("query"),
    )


def load_records(
    site: str,
    source: DataAtSite,
    schema: AgreedSchema,
    *,
    seed: int,
    test_fraction: float,
    id_column: str | None = None,
    most: int | None = None,
) -> Federation:
    """The site's records as a federation of one silo, named after the site.

    Total: whatever the records hold, and however few there are, they are not refused, since a
    coordinator would see that. Each row by itself is encoded by the schema's rules or left out.
    `findings.look_at` reports what a person should know about them.

    Args:
      site: its name.
      source: where the records are.
      schema: the agreed columns; others are not looked at.
      seed: the seed of the split.
      test_fraction: share of the records (or subjects) to keep for testing.
      id_column: the site's own name of the column that names a record for good, if it has one.
      most: the largest number of training records (or subjects) to use, where it is secret.
    """
    check_seed(seed)
    check_test_fraction(test_fraction)
    options = table_options(schema, test_fraction, id_column)
    stored = read_records(site, source, schema, id_column)
    table = table_of_frames(site, {site: stored.frame}, options, total=True)
    federation = split_and_scale(table, seed, options)
    if most is None:
        return federation
    (silo,) = federation.silos
    return replace(federation, silos=(replace(silo, train=at_most(silo.train, most)),))


def found_dialect(path: Path) -> Dialect | None:
    """The dialect of a site's text table, for its people to fix; None if it is the plain one."""
    if inner_suffix(path) not in TEXT_ENDINGS or not path.is_file():
        return None
    dialect = sniffed(path).dialect
    return None if dialect == PLAIN else dialect


def check_dialect(site: str, source: DataAtSite) -> None:
    """Refuses, before a person consents, a file that is not written as the site's answers take it.

    Never called by an answer: it looks at all records.
    """
    if source.path is None or source.dialect is not None:
        return
    path = source.folder / source.path
    found = found_dialect(path)
    if found is not None:
        lines = ", ".join(f"{key} = {json.dumps(value)}" for key, value in found.as_toml().items())
        raise SilodpError(
            f"Site {site!r}: {path} looks as if it had {found.words}: write that into [data] of "
            f'site.toml ({lines}), or delimiter = "," if that is wrong.'
        )


class RecordsAtSite(NamedTuple):
    """A site's records as they are stored.

    Attributes:
      place: their name in errors.
      frame: the agreed columns, in the order of the features.
      torn: the number of rows that were left out; see `StoredTable`.
    """

    place: str
    frame: pd.DataFrame
    torn: int


def read_records(
    site: str, source: DataAtSite, schema: AgreedSchema, id_column: str | None = None
) -> RecordsAtSite:
    """Reads the agreed columns; refuses only what is wrong with the table as a whole.

    The site's own id column comes last, if it is none of them.
    """
    own = [] if id_column is None or id_column in schema.columns else [id_column]
    wanted = [*schema.columns, *own]
    place, stored = _read(site, source, wanted)
    if own and id_column not in stored.frame.columns:
        nearest = by_closeness(own[0], stored.names)[0]
        raise SilodpError(
            f"Site {site!r}: {place} has no column {id_column!r}, which site.toml names as "
            f"id_column (the nearest is {nearest!r}): correct or remove it there."
        )
    for column in schema.columns:
        if column not in stored.frame.columns:
            nearest = by_closeness(column, stored.names)[0]
            raise SilodpError(
                f"Site {site!r}: {place} has no column {column!r}, which was agreed on: give the "
                f"column that name (the nearest is {nearest!r}; in a query: select ... as "
                f'"{column}").'
            )
    frame = stored.frame.loc[:, wanted]
    return RecordsAtSite(place, frame if source.path else _in_fixed_order(frame), stored.torn)


def at_most(records: Records, most: int) -> Records:
    """At most `most` records (or subjects): those whose contents have the smallest hashes.

    The choice must not depend on the order of the table. If two tables differ in one record, the
    selections differ in one record if both tables fit, and else in two: a record that comes in may
    push another out. So epsilon is that of the plan only where `most` holds. The site declares it
    (records in its policy), and a person checks it when consenting. Records above it are dropped,
    not refused: a refusal would tell for certain that there are too many.
    """
    if records.units <= most:
        return records
    rows = [
        hashlib.sha256(x.tobytes() + y.tobytes()).digest()
        for x, y in zip(records.x, records.y, strict=True)
    ]
    owner = np.arange(len(records)) if records.subject is None else records.subject
    rows_of: dict[int, list[bytes]] = {}
    for number, row in zip(owner.tolist(), rows, strict=True):
        rows_of.setdefault(number, []).append(row)
    hashes = {n: hashlib.sha256(b"".join(sorted(own))).digest() for n, own in rows_of.items()}
    chosen = sorted(hashes, key=hashes.__getitem__)[:most]
    return records.take(np.flatnonzero(np.isin(owner, chosen)))


def _read(site: str, source: DataAtSite, wanted: Sequence[str]) -> tuple[str, StoredTable]:
    """The table's name in errors, and the table."""
    if source.path is not None:
        path = source.folder / source.path
        try:
            return str(path), read_values(path, wanted, source.dialect or PLAIN)
        except SilodpError as error:
            raise SilodpError(f"Site {site!r}: {error}") from error
    if source.query is None or (source.url is None and source.url_env is None):
        raise SilodpError(
            f"Site {site!r}: data has neither a path, nor a url with a query: give one of them."
        )
    frame = read_query(site, url_of(site, source), source.query, source.folder)
    return "the query's answer", StoredTable([str(name) for name in frame.columns], frame)


def url_of(site: str, source: DataAtSite) -> str:
    """The url of a database, from the site's file or from the environment variable."""
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


def _in_fixed_order(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows ordered by their values: a database may return another order each time.

    Batches are drawn by position, and a resumed job must draw what it drew before.
    """
    keys = list(zip(*(map(_key, values_of(frame, column)) for column in frame), strict=True))
    return frame.iloc[sorted(range(len(keys)), key=keys.__getitem__)]


def _key(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # a whole number of more digits than Python writes
        return ""
