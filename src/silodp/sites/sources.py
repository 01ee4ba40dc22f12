"""A site's data sources, each with one ledger, whichever federations use it.

What was spent on records is a property of the records, not of a federation or of its folder: two
federations on one table share one lifetime. So ledgers are kept in one place of the site's own,
under names that the site gives its sources, and `sources.json` beside them says which file or
database each name stands for, so that a second federation on the same source finds its ledger:

    {"format": 1, "sources": {"visits": ["file:/data/visits.csv"]}}

A source may have several identities (moved, exported again). Where paths and addresses do not
show that two are one source (a copy elsewhere, a view), a person is asked: to share a ledger is
always safe.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from silodp.base.documents import read_json
from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.base.text import as_file_name
from silodp.privacy.ledger.storage import exists
from silodp.sites.database import identity_of_database
from silodp.sites.site_data import DataAtSite, url_of
from silodp.sites.site_files import SiteConfig

SOURCES_FILE = "sources.json"
_LOCK = ".sources.lock"
FORMAT = 1
_REMEDY = (
    "put back an intact copy; it is not made again, because a source that it names would get a "
    "second ledger"
)


class Claim(NamedTuple):
    """A source that a site has a name for.

    Attributes:
      directory: the folder of the ledgers.
      name: the name of the source, hence of its ledger.
      identity: the file or database that it stands for now.
      apart_from: names under which the same file or database is known, and which are other sources
        according to a person.
    """

    directory: Path
    name: str
    identity: str
    apart_from: tuple[str, ...] = ()

    def make(self) -> None:
        """Records the claim; refuses if another process has meanwhile given it another name."""
        with _locked(self.directory):
            sources = known_sources(self.directory)
            _check_apart(self, sources)
            identities = sources.setdefault(self.name, [])
            if self.identity in identities:
                return
            identities.append(self.identity)
            content = json.dumps({"format": FORMAT, "sources": sources}, indent=2)
            write_file(self.directory / SOURCES_FILE, content + "\n")


def ledgers_dir() -> Path:
    """The folder of a site's ledgers, which need not exist yet.

    It is `$SILODP_LEDGERS`, else `$XDG_DATA_HOME/silodp/ledgers`, else
    `~/.local/share/silodp/ledgers`.
    """
    if own := os.environ.get("SILODP_LEDGERS"):
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(shared).expanduser().absolute() / "silodp" / "ledgers"


def identity_of(site: str, data: DataAtSite) -> str:
    """The file or database that the records are in; without users and passwords.

    It does not say which rows or columns: a ledger that is shared too widely only spends too much.
    """
    if data.path is not None:
        return f"file:{(data.folder / data.path).resolve()}"
    return identity_of_database(site, url_of(site, data), data.folder)


def suggested_name(data: DataAtSite, identity: str) -> str:
    """A name for a source: that of its file or database."""
    return as_file_name(data.path.stem if data.path is not None else Path(identity).stem)


def known_sources(directory: Path) -> dict[str, list[str]]:
    """The identities of each source that is recorded in the folder, by name."""
    path = directory / SOURCES_FILE
    try:
        path.stat()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _damaged(path, type(error).__name__) from None
    document = read_json(path, remedy=_REMEDY)
    try:
        sources = document["sources"]
        number = document["format"]
        valid = all(isinstance(identity, str) for own in sources.values() for identity in own)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, type(error).__name__) from None
    if number != FORMAT:
        raise SilodpError(
            f"{path} has format {number!r}, but this silodp knows only {FORMAT}: use the version "
            "that wrote it."
        )
    if not valid:
        raise _damaged(path, "an identity is not text")
    return sources


def names_of(directory: Path, identity: str) -> list[str]:
    """The names of the sources that this file or database is known as."""
    return [name for name, own in known_sources(directory).items() if identity in own]


def is_taken(directory: Path, name: str) -> bool:
    """Whether a source has this name, or a ledger does."""
    return name in known_sources(directory) or exists(directory, name)


def claim_of(config: SiteConfig) -> Claim | None:
    """The source that a site's file claims; None without one: the ledger is the folder's own.

    Refuses records that are known as another source: they would be charged to the wrong ledger.
    """
    if config.source is None or config.keys == "test":
        return None
    claim = Claim(config.ledger, config.source, identity_of(config.site, config.data))
    sources = known_sources(config.ledger)
    if claim.identity not in sources.get(claim.name, []):
        _check_apart(claim, sources)
    return claim


def check_claimed(config: SiteConfig) -> None:
    """Refuses records whose source the site never agreed to, before they are charged."""
    claim = claim_of(config)
    if claim is not None and claim.name not in names_of(claim.directory, claim.identity):
        raise SilodpError(
            f"Site {config.site!r}: its records ({claim.identity}) are not known as source "
            f"{claim.name!r}: look at the plan again with `silodp site consent`."
        )


def _check_apart(claim: Claim, sources: dict[str, list[str]]) -> None:
    others = [
        name
        for name, own in sources.items()
        if claim.identity in own and name not in (claim.name, *claim.apart_from)
    ]
    if others and claim.identity not in sources.get(claim.name, []):
        raise SilodpError(
            f"{claim.identity} is known as source {others[0]!r}, whose ledger holds what was spent "
            f"on it, but is called {claim.name!r} here: use the source {others[0]!r}."
        )


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Keeps other processes from changing the sources meanwhile."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise SilodpError(
            f"Folder {directory} cannot be written to ({error.strerror}): give the ledgers another "
            "one with --ledger or SILODP_LEDGERS."
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _damaged(path: Path, why: str) -> SilodpError:
    return SilodpError(f"{path} is damaged ({why}): {_REMEDY}.")
