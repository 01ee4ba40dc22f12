"""site.toml, in a site's folder: where the site's records are, and what its policy allows.

It belongs to the site and never leaves it:

    site = "north"

    [data]
    path = "records.csv"            # relative to this file
    # delimiter = ";"               # how it is written, if not as UTF-8 with commas between values
    # decimal = ","                 # and decimal points (thousands and encoding likewise)
                                    # or of a database:
    # url = "postgresql+psycopg://reader:password@host/database"
    # url_env = "NORTH_URL"         # or the environment variable that holds the url
    # query = "select * from visits"
    test_fraction = 0.2             # kept for testing, each record by a coin of its own
    seed = 0                        # seed of these coins
    # id_column = "visit"           # a name that a record keeps for good: its coin goes by that

    [policy]                        # as in a policy file; and:
    epsilon = 3
    delta = 1e-5
    tell_noise = true               # may the coordinator know how strong the site's noise is?

    [ledger]
    path = "/home/north/.local/share/silodp/ledgers"
    source = "visits"               # the site's own name for these records, hence their ledger's;
                                    # without one, the ledger is this folder's, and the site's name
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from silodp.base.documents import check_keys, declared, decode, read_toml, toml_of
from silodp.base.errors import SilodpError
from silodp.base.files import whole_file
from silodp.data.split import check_seed, check_test_fraction
from silodp.data.tables.table import DEFAULT_TEST_FRACTION
from silodp.privacy.policy import FIELDS, REQUIRED, Policy
from silodp.sites.site_data import DATA_KEYS, DataAtSite, data_at_site

SITE_FILE = "site.toml"
DEFAULT_LEDGER = "ledger"
_MISSING = f"give the folder that holds the site's {SITE_FILE}"

Keys = Literal["os", "test"]


@dataclass(frozen=True)
class SiteConfig:
    """The content of site.toml.

    Attributes:
      folder: the folder of the file.
      site: the site's name.
      data: where its records are.
      policy: how much may be spent, and who is protected.
      ledger: the folder of its ledgers.
      source: its own name for the records, which all federations on them are charged under; None
        where the ledger is that of this folder alone.
      tell_noise: whether the coordinator may know the scale of its noise.
      test_fraction: share of its records that is kept for testing.
      seed: the seed of that split.
      id_column: the column that names a record for good, if it has one; the split goes by it.
      keys: where the keys of its noise come from: the operating system, or (for tests only, since
        nothing is private then) `seed`.
    """

    folder: Path
    site: str
    data: DataAtSite
    policy: Policy
    ledger: Path
    source: str | None = None
    tell_noise: bool = True
    test_fraction: float = DEFAULT_TEST_FRACTION
    seed: int = 0
    id_column: str | None = None
    keys: Keys = "os"

    @property
    def ledger_name(self) -> str:
        """The name of the ledger that is charged; results have the site's name in any case."""
        return self.site if self.source is None else self.source


def read_site(folder: str | PathLike[str]) -> SiteConfig:
    """Reads the site.toml of a site's folder; refuses unknown keys."""
    path = Path(folder) / SITE_FILE
    return _config(path, read_toml(path, missing=_MISSING))


def write_site(
    folder: str | PathLike[str],
    site: str,
    data: DataAtSite,
    policy: Policy,
    *,
    ledger: str | PathLike[str] = DEFAULT_LEDGER,
    source: str | None = None,
    tell_noise: bool = True,
    test_fraction: float = DEFAULT_TEST_FRACTION,
    seed: int = 0,
    id_column: str | None = None,
    keys: Keys = "os",
    overwrite: bool = False,
) -> Path:
    """Writes the site.toml of a site's folder, for the site's own eyes only (0600).

    It is checked before it is written. A relative path of the data or the ledger is relative to the
    folder.

    Args:
      folder: made if it does not exist.
      site: the site's name.
      data: where its records are.
      policy: the site's policy.
      ledger: the folder of its ledgers.
      source: its own name for the records, if their ledger is shared by federations.
      tell_noise: whether the coordinator may know the scale of its noise.
      test_fraction: share of its records to keep for testing.
      seed: the seed of that split.
      id_column: the column that names a record for good.
      keys: "test" draws noise from `seed`; nothing is private then.
      overwrite: whether an existing file may be replaced.
    """
    folder = Path(folder)
    path = folder / SITE_FILE
    if path.exists() and not overwrite:
        raise SilodpError(
            f"{path}: the site {site!r} has a file already: edit it, or choose another folder."
        )
    lines = [
        "# This site's records and policy. The file stays here: nobody else reads it.",
        f"site = {_toml(site)}",
        *([f"keys = {_toml(keys)}  # for tests only: nothing is private"] if keys != "os" else []),
        "",
        "[data]",
        *_data_lines(data),
        f"test_fraction = {_toml(test_fraction)}  # share of the records that is kept for testing",
        f"seed = {_toml(seed)}  # seed of that split",
        *([] if id_column is None else [f"id_column = {_toml(id_column)}  # the split goes by it"]),
        "",
        "[policy]",
        *_policy_lines(policy),
        f"tell_noise = {_toml(tell_noise)}  # may the coordinator know how strong the noise is?",
        "",
        "[ledger]",
        "# What was spent is kept here for good: whoever deletes it forgets what was promised.",
        f"path = {_toml(os.fspath(ledger))}",
        *([] if source is None else [f"source = {_toml(source)}  # {_ABOUT_SOURCE}"]),
    ]
    text = "\n".join(lines) + "\n"
    _config(path, toml_of(text, str(path)))
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError:
        raise SilodpError(
            f"{path}: what site {site!r} gives is text that cannot be written: check the names of "
            "its files."
        ) from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(content)
    except OSError as error:
        raise SilodpError(
            f"{path}: the file of site {site!r} cannot be written ({error.strerror}): check the "
            "folder and its permissions."
        ) from None
    return path


_ABOUT_SOURCE = "these records, in whichever federations they are used"
_DATA = (*DATA_KEYS, "test_fraction", "seed", "id_column")
_EXPLAINED = {
    "epsilon": "at most this is spent in one run",
    "delta": "chance with which that bound may fail",
    "lifetime_epsilon": "at most this over all runs together",
    "lifetime_delta": "chance with which that bound may fail",
    "lifetime_filter": "what decides whether a run fits it, for good: renyi or gaussian",
    "relation": "how neighbours differ: add-remove or replace-one",
    "subject": "the column of those who are protected, with all their records",
    "public": "what everyone may know",
    "records": "a public stand-in for the number of records",
}


def _is_name(name: str) -> bool:
    return bool(name.strip()) and name.isprintable()


def _is_share(value: float) -> bool:
    check_test_fraction(value)
    return True


def _is_seed(value: int) -> bool:
    check_seed(value)
    return True


@dataclass(frozen=True)
class _SiteFile:
    """The file as it is written; the tables in it are checked one by one."""

    site: str = declared('give the site\'s name, as in site = "north"', fits=_is_name)
    data: Mapping[str, Any] = declared("write [data] and its lines below", {})
    policy: Mapping[str, Any] = declared("write [policy] and its lines below", {})
    ledger: Mapping[str, Any] = declared("write [ledger] and its lines below", {})
    keys: Literal["os", "test"] = declared(
        "use 'os', or 'test' where nothing need be private", "os"
    )


@dataclass(frozen=True)
class _Split:
    """The fields of [data] that say how records are split."""

    test_fraction: float = declared("give a share", DEFAULT_TEST_FRACTION, _is_share)
    seed: int = declared("give a whole number from 0", 0, _is_seed)
    id_column: str | None = declared("give the name of a column", None, str.strip)


@dataclass(frozen=True)
class _Rights:
    """The field of [policy] that is not part of a policy."""

    tell_noise: bool = declared("write true or false", True)


@dataclass(frozen=True)
class _LedgerTable:
    """The fields of [ledger]."""

    path: str = declared('give a folder, as in path = "ledger"', DEFAULT_LEDGER, str.strip)
    source: str | None = declared(
        'give the site\'s own name for its records, as in source = "visits"', None, _is_name
    )


def _config(path: Path, file: Mapping[str, Any]) -> SiteConfig:
    """Makes a `SiteConfig` of the file's values; errors name the place of each."""
    folder = path.parent
    for key, table in {**dict.fromkeys(FIELDS, "policy"), **dict.fromkeys(_DATA, "data")}.items():
        if key in file:
            raise SilodpError(f"{path}: {key} stands outside all tables: write it below [{table}].")
    own = decode(_SiteFile, file, str(path))
    where = f"{path}: site {own.site!r}"
    check_keys(f"{where}: [data]", own.data, _DATA)
    records = {key: value for key, value in own.data.items() if key in DATA_KEYS}
    split = {key: value for key, value in own.data.items() if key not in DATA_KEYS}
    split = decode(_Split, split, f"{where}: [data]")
    rights = {key: value for key, value in own.policy.items() if key not in FIELDS}
    ledger = decode(_LedgerTable, own.ledger, f"{where}: [ledger]")
    return SiteConfig(
        folder=folder,
        site=own.site,
        data=data_at_site(f"{where}: [data]", folder, records),
        policy=_policy(where, own.site, own.policy),
        ledger=folder / ledger.path,
        source=ledger.source,
        tell_noise=decode(_Rights, rights, f"{where}: [policy]").tell_noise,
        test_fraction=split.test_fraction,
        seed=split.seed,
        id_column=split.id_column,
        keys=own.keys,
    )


def _policy(where: str, site: str, table: Mapping[str, Any]) -> Policy:
    check_keys(f"{where}: [policy]", table, (*FIELDS, "tell_noise"))
    for field in REQUIRED:
        if field not in table:
            example = "1e-5" if field == "delta" else "3"
            raise SilodpError(
                f"{where}: [policy] has no {field}: give one, such as {field} = {example}."
            )
    return Policy(**{key: table[key] for key in table if key in FIELDS}, silo=site)


def _data_lines(data: DataAtSite) -> list[str]:
    if data.path is not None:
        form = {} if data.dialect is None else data.dialect.as_toml()
        return [
            f"path = {_toml(os.fspath(data.path))}  # CSV or Parquet",
            *(f"{key} = {_toml(value)}  # how it is written" for key, value in form.items()),
        ]
    lines = []
    if data.url is not None:
        lines.append(f"url = {_toml(data.url)}")
    if data.url_env is not None:
        lines.append(
            f"url_env = {_toml(data.url_env)}  # the environment variable that holds the url"
        )
    if data.query is not None:
        lines.append(f"query = {_lines_of_query(data.query)}")
    return lines


def _lines_of_query(query: str) -> str:
    """The query in TOML: line by line, as it was written, where TOML can hold it so."""
    plain = all(letter in "\n\t" or letter.isprintable() for letter in query)
    if "\n" in query and plain and "'''" not in query and not query.endswith("'"):
        return f"'''\n{query}'''"
    return _toml(query)


def _policy_lines(policy: Policy) -> list[str]:
    given = {name: getattr(policy, name) for name in FIELDS}
    return [
        f"{name} = {_toml(value)}  # {_EXPLAINED[name]}"
        for name, value in given.items()
        if value is not None
    ]


def _toml(value: object) -> str:
    """The value in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's text is TOML's too, but for one character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return str(int(value))
    return repr(value)
