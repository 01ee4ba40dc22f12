"""Reads a site's records from a database, through SQLAlchemy; writes nothing to it.

The url may hold a password. No error shows it: none repeats the url, nor a driver's message
as it is.
"""

import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pandas as pd

from silodp.base.errors import SilodpError
from silodp.data.tables.files import checked_names

_HIDDEN = "***"
# Parts of the names of url options whose values are secret.
_SECRET = ("pass", "pwd", "secret", "token", "key")
_LONGEST_REASON = 300
_USUAL_PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
_EXTRA_OF = {"psycopg": "silodp[postgres]", "psycopg2": "silodp[postgres]"}


def read_query(site: str, url: str, query: str, folder: Path) -> pd.DataFrame:
    """The rows that a query selects, each value as the driver gives it.

    Values are kept as they come (pandas would turn whole numbers with gaps, and decimals, into
    floating point, in which two long numbers of patients can become one).

    Args:
      site: the name in errors.
      url: the database's, as SQLAlchemy writes it.
      query: one statement in the database's own language.
      folder: the folder that the path of an SQLite file is relative to.
    """
    where = f"Site {site!r}"
    sqlalchemy = _sqlalchemy(where)
    address = _address(where, sqlalchemy, url, folder)
    shown = address.set(query={}).render_as_string(hide_password=True)
    engine = _engine(where, sqlalchemy, address, shown)
    try:
        with engine.connect() as connection:
            _forbid_writing(connection)
            _take_any_value(connection)
            # Without parameters, or the % of a "like 'a%'" would be taken for one.
            answer = connection.execution_options(no_parameters=True).exec_driver_sql(query)
            selects = answer.returns_rows
            names = list(answer.keys()) if selects else []
            rows = answer.fetchall() if selects else []
            # Closed without a commit, so that databases which _forbid_writing does not know undo
            # what a query might have done.
    except Exception as error:
        reason = _reason(error, address)
        failed = getattr(error, "statement", None) is not None
        remedy = (
            "correct the query"
            if failed
            else "check the url, and that the database runs and can be reached from here"
        )
        problem = "the query fails" if failed else f"the database {shown} cannot be used"
        # Not from the error: its own words may hold the password.
        raise SilodpError(f"{where}: {problem} ({reason}): {remedy}.") from None
    finally:
        engine.dispose()
    if not selects:
        raise SilodpError(
            f"{where}: the query selects nothing: give one that returns rows, such as select * "
            "from visits."
        )
    checked_names(f"{where}: the query", [str(name) for name in names])
    plain = [tuple(_plain(value) for value in row) for row in rows]
    return pd.DataFrame(plain, columns=pd.Index([str(name) for name in names]), dtype=object)


def identity_of_database(site: str, url: str, folder: Path) -> str:
    """The database that a url leads to, whatever the user and the driver; without a password."""
    where = f"Site {site!r}"
    address = _address(where, _sqlalchemy(where), url, folder)
    backend = address.get_backend_name()
    if backend == "sqlite":
        return f"sqlite:{Path(address.database).resolve()}"
    port = address.port or _USUAL_PORTS.get(backend, "")
    return f"{backend}://{(address.host or 'localhost').lower()}:{port}/{address.database or ''}"


def _sqlalchemy(where: str) -> Any:
    try:
        import sqlalchemy  # optional, so not at the top
    except ImportError as error:
        raise SilodpError(
            f"{where}: its data has a url, and databases need SQLAlchemy: install it with "
            "`pip install 'silodp[sites]'`, or save the records as CSV."
        ) from error
    return sqlalchemy


def _address(where: str, sqlalchemy: Any, url: str, folder: Path) -> Any:
    """The url in parts; refuses an ambiguous one, without repeating it."""
    # With an @ in a password, part of it would be taken for the host and shown.
    if url.count("@") > 1:
        raise SilodpError(
            f"{where}: the url of the database holds more than one @: write an @ in a password as "
            "%40."
        )
    try:
        address = sqlalchemy.make_url(url)
    except Exception:
        raise SilodpError(
            f"{where}: the url of the database cannot be understood: write it as "
            "postgresql+psycopg://user:password@host/database or sqlite:///records.db, with "
            "special characters in a password as %xx."
        ) from None
    if address.get_backend_name() != "sqlite":
        return address
    database = address.database
    if not database or database == ":memory:" or database.startswith("file:"):
        raise SilodpError(
            f"{where}: the url of SQLite names no file: write it as sqlite:///records.db."
        )
    path = folder / database
    if not path.is_file():  # SQLite would make it
        raise SilodpError(f"{where}: {path} (url) does not exist: check the path.")
    return address.set(database=str(path))


def _engine(where: str, sqlalchemy: Any, address: Any, shown: str) -> Any:
    try:
        return sqlalchemy.create_engine(address, poolclass=sqlalchemy.pool.NullPool)
    except ImportError as error:
        package = (error.name or address.get_driver_name()).split(".")[0]
        installed = _EXTRA_OF.get(package, package)
        also = (
            " and begin the url with postgresql+psycopg://"
            if installed != package and address.drivername != "postgresql+psycopg"
            else ""
        )
        raise SilodpError(
            f"{where}: the database {shown} needs the package {package!r}: install it with "
            f"`pip install '{installed}'`{also}."
        ) from None
    except sqlalchemy.exc.NoSuchModuleError:
        raise SilodpError(
            f"{where}: the url begins with {address.drivername!r}, which SQLAlchemy does not know: "
            "begin it with postgresql+psycopg:// or sqlite:///, or install the database's package."
        ) from None
    except Exception as error:
        raise SilodpError(
            f"{where}: the database {shown} cannot be used ({_reason(error, address)}): check the "
            "url."
        ) from None


def _forbid_writing(connection: Any) -> None:
    """Has the database forbid writing, where it can: a slip in a query then changes nothing."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("set transaction read only")
    elif connection.dialect.name == "sqlite":
        connection.exec_driver_sql("pragma query_only = on")


def _take_any_value(connection: Any) -> None:
    """Has the driver return text or dates that Python cannot hold as text, instead of failing."""
    driver = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        driver.text_factory = lambda content: content.decode("utf-8", "replace")
    elif connection.dialect.driver == "psycopg":
        from psycopg.types.string import TextLoader  # optional, so not at the top

        for kind in ("date", "time", "timetz", "timestamp", "timestamptz", "interval"):
            driver.adapters.register_loader(kind, TextLoader)


def _reason(error: Exception, address: Any) -> str:
    """The driver's message in one line, without secrets."""
    cause = getattr(error, "orig", None) or error
    words = " ".join(str(cause).split()) or type(cause).__name__
    options = address.query.items()
    secrets = [value for name, value in options if any(part in name.lower() for part in _SECRET)]
    for secret in (address.password, *secrets):
        for text in (secret,) if isinstance(secret, str) else secret or ():
            for spelled in {text, quote(text, safe=""), quote_plus(text), repr(text)[1:-1]} - {""}:
                words = words.replace(spelled, _HIDDEN)
    if len(words) > _LONGEST_REASON:
        words = f"{words[:_LONGEST_REASON]}..."
    return words.rstrip(".")


def _plain(value: object) -> object:
    """The value, a UUID as text: as a file would hold it."""
    return str(value) if isinstance(value, uuid.UUID) else value
