"""The privacy ledger of a silo: one SQLite file, only ever added to, chained by hashes.

What an entry costs is not known here (see `account`): this is how entries are kept. A ledger that
is damaged, or that is not wholly understood, is refused, and never made anew: that would forget
what was spent.
"""

import contextlib
import os
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from silodp.base.errors import SilodpError
from silodp.base.files import new_beside, sync_folder
from silodp.base.text import own_file_name
from silodp.config.choices import Relation
from silodp.privacy.ledger.chain import COLUMNS, BrokenChainError, Entry, check_chain, next_entry

Unit = Literal["record", "subject"]
"""Whose privacy is counted: that of a record, or of a person with all their records."""

FORMAT = 2
SUFFIX = ".ledger"
KINDS = ("opened", "policy", "reserve", "charge", "close", "converted")
# Of the first format, which charged a run whole when it began: such ledgers are read.
_FIRST_FORMAT, _FIRST_KINDS = 1, ("resume", "finish", "void", "settle")

_PATIENCE = 60.0  # seconds to wait for another process that holds a ledger

# The triggers stop mistakes, not malice: whoever can write the file can drop them. Then the schema
# is not the one below, or else the chain shows what was done.
_SCHEMA = (
    "CREATE TABLE entries (seq INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, "
    "run TEXT NOT NULL, body TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE head (entries INTEGER NOT NULL, hash TEXT NOT NULL)",
    "CREATE TRIGGER entries_in_order BEFORE INSERT ON entries "
    "WHEN NEW.seq IS NOT (SELECT max(entries) + 1 FROM head) "
    "BEGIN SELECT RAISE(ABORT, 'entries are added at the end only'); END",
    "CREATE TRIGGER entries_stay BEFORE DELETE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'entries are never removed'); END",
    "CREATE TRIGGER entries_unchanged BEFORE UPDATE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END",
    "CREATE TRIGGER head_advances BEFORE UPDATE ON head WHEN NEW.entries IS NOT OLD.entries + 1 "
    "BEGIN SELECT RAISE(ABORT, 'the head goes on by one entry at a time'); END",
    "CREATE TRIGGER head_stays BEFORE DELETE ON head "
    "BEGIN SELECT RAISE(ABORT, 'the head is never removed'); END",
)


@dataclass(frozen=True)
class Ledger:
    """What a ledger says, its chain checked.

    Attributes:
      silo: the name of its silo.
      relation: under which everything in it is counted.
      unit: for which everything in it is counted.
      entries: from the first, which opened it.
    """

    silo: str
    relation: Relation
    unit: Unit
    entries: tuple[Entry, ...]

    @property
    def head(self) -> str:
        """The hash of the last entry: noted elsewhere, it shows later that nothing was altered."""
        return self.entries[-1].hash


class OpenLedger:
    """A ledger that no other process can write to, until it is committed or closed."""

    def __init__(self, path: Path, connection: sqlite3.Connection, silo: str):
        self._connection, self._path = connection, path
        with _refusing(path):
            connection.execute("BEGIN IMMEDIATE")
        self.content = _content(path, connection, silo)
        self._last = self.content.entries[-1]

    def append(self, kind: str, run: str, body: dict[str, Any]) -> None:
        """Adds an entry; it counts once it is committed, together with all others."""
        self._last = next_entry(self._last, kind, run, body)
        with _refusing(self._path):
            _insert(self._connection, self._last)

    @property
    def head(self) -> str:
        """The hash of the last entry, committed or not."""
        return self._last.hash

    def commit(self) -> None:
        """Returns when the entries are on the disk."""
        with _refusing(self._path):
            self._connection.execute("COMMIT")


def ledger_path(directory: Path, silo: str) -> Path:
    """The silo's file."""
    return Path(directory) / f"{own_file_name(silo)}{SUFFIX}"


def ledger_paths(directory: Path) -> list[Path]:
    """All ledgers in the folder, in the order of their file names."""
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise SilodpError(
            f"Folder {directory} cannot be read ({error.strerror}): give the folder that holds the "
            "ledgers."
        ) from None
    found = sorted(name for name in names if name.endswith(SUFFIX) and not name.startswith("."))
    if not found:
        raise SilodpError(
            f"Folder {directory} holds no ledgers: give the folder that was charged to."
        )
    return [Path(directory) / name for name in found]


def exists(directory: Path, silo: str) -> bool:
    """Whether the silo has a ledger, sound or not. If that cannot be known, it is an error."""
    path = ledger_path(directory, silo)
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise SilodpError(
            f"Silo {silo!r}: {path} cannot be looked at ({error.strerror}): check the folder and "
            "its permissions."
        ) from None
    return True


def read_ledger(directory: Path, silo: str) -> Ledger:
    """The silo's ledger, its chain checked."""
    if not exists(directory, silo):
        raise SilodpError(
            f"Silo {silo!r} has no ledger in {directory}: check the name and the folder."
        )
    return read_path(ledger_path(directory, silo), silo)


def read_path(path: Path, silo: str | None = None) -> Ledger:
    """The ledger in this file; refused if it is not the named silo's."""
    with _connected(path, write=False) as connection:
        with _refusing(path):
            connection.execute("BEGIN")  # entries and head are read at one and the same moment
        return _content(path, connection, silo)


def head_of(directory: Path, silo: str) -> str | None:
    """The hash that the silo's ledger says its last entry has, unchecked; None without a ledger.

    As long as it is one that was checked before, nothing was added since: no need to read all
    entries again.
    """
    path = ledger_path(directory, silo)
    if not exists(directory, silo):
        return None
    with _connected(path, write=False) as connection, _refusing(path):
        row = connection.execute("SELECT hash FROM head").fetchone()
    return None if row is None else str(row[0])


def check_head(ledger: Ledger, head: str) -> Entry:
    """The entry that has this hash, which was noted elsewhere; refused if there is none."""
    digest = head.strip().lower()
    for entry in ledger.entries:
        if entry.hash == digest:
            return entry
    raise SilodpError(
        f"Silo {ledger.silo!r}: none of its {len(ledger.entries)} entries has the hash {head!r}: "
        "the ledger was cut short or rewritten since that was noted, or it is another silo's."
    )


@contextlib.contextmanager
def locked(directory: Path, silos: Collection[str]) -> Iterator[dict[str, OpenLedger]]:
    """The ledgers of all these silos at once, each held against other processes.

    What is not committed within is undone. They are taken in one order by everybody, so that two
    processes never wait for each other.
    """
    with contextlib.ExitStack() as stack:
        ledgers = {}
        for silo in sorted(silos, key=lambda silo: ledger_path(directory, silo)):
            if not exists(directory, silo):
                raise SilodpError(
                    f"Silo {silo!r} has no ledger in {directory}: check the name and the folder."
                )
            path = ledger_path(directory, silo)
            connection = stack.enter_context(_connected(path, write=True))
            ledgers[silo] = OpenLedger(path, connection, silo)
        yield ledgers


def create(directory: Path, silo: str, relation: Relation, unit: Unit) -> None:
    """Opens a ledger for the silo, if it has none.

    It is made aside and linked into place whole. A process that is killed meanwhile leaves nothing
    in its place; of two processes, the first wins and the other finds the ledger made.
    """
    path = ledger_path(directory, silo)
    body = {"silo": silo, "format": FORMAT, "relation": relation, "unit": unit}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _aside(path) as part:
            _make(part, next_entry(None, "opened", "", body))
            with contextlib.suppress(FileExistsError):
                os.link(part, path)
            sync_folder(path.parent)
    except (OSError, sqlite3.Error) as error:
        raise SilodpError(
            f"Silo {silo!r}: no ledger can be made in {directory} ({error}): choose a folder on a "
            "local disk that you can write to."
        ) from None


def backup(path: Path, directory: Path) -> Ledger:
    """A copy of a ledger in another folder, as it is at one moment, whoever writes to it meanwhile.

    The copy is made aside, checked entry by entry, and put into place whole; an older copy there is
    replaced only by one that continues it.
    """
    target = directory / path.name
    # By whichever name: a ledger that is exchanged for its copy loses what is written meanwhile.
    if _is_same(directory, path.parent) or _is_same(target, path):
        raise SilodpError(f"{directory} is where the ledgers are: give another folder to copy to.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _aside(target) as aside:
            with (
                _connected(path, write=False) as source,
                _refusing(path),
                closing(sqlite3.connect(aside, isolation_level=None)) as copy,
            ):
                source.backup(copy)
                # One file and nothing beside it, as fits a copy that is put away.
                copy.execute("PRAGMA journal_mode = DELETE")
            with _connected(aside, write=False) as copy:
                content = _content(path, copy, None)
            if target.exists():
                before = read_path(target)
                check_head(content, before.head)
            with aside.open("rb") as file:
                os.fsync(file.fileno())
            aside.replace(target)
            sync_folder(directory)
    except OSError as error:
        raise SilodpError(
            f"{target} cannot be written ({error.strerror}): choose another folder."
        ) from None
    return content


def _is_same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _make(path: Path, first: Entry) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        tables = [statement for statement in _SCHEMA if "TABLE" in statement.split()[:2]]
        for statement in tables:
            connection.execute(statement)
        connection.execute("INSERT INTO head VALUES (0, '')")
        for statement in _SCHEMA[len(tables) :]:
            connection.execute(statement)
        _insert(connection, first)
        connection.execute("COMMIT")
        # The file alone is put into place: what stays in the log, such as on a full disk, is lost.
        busy, written, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if busy or written != moved:
            raise sqlite3.OperationalError("its first entry did not get from the log to the file")


@contextlib.contextmanager
def _aside(path: Path) -> Iterator[Path]:
    """A new file beside it for SQLite to write to; nothing of it is left, SQLite's own included."""
    with new_beside(path) as part:
        try:
            yield part
        finally:
            for rest in ("-wal", "-shm", "-journal"):
                Path(f"{part}{rest}").unlink(missing_ok=True)


def _insert(connection: sqlite3.Connection, entry: Entry) -> None:
    places = ", ".join("?" * len(COLUMNS))
    columns = ", ".join(COLUMNS)
    connection.execute(f"INSERT INTO entries ({columns}) VALUES ({places})", entry.as_row())
    connection.execute("UPDATE head SET entries = ?, hash = ?", (entry.seq, entry.hash))


@contextlib.contextmanager
def _connected(path: Path, write: bool) -> Iterator[sqlite3.Connection]:
    """A connection to a ledger that is there; never makes one.

    The file is never opened by other means: to close it again would drop SQLite's locks on it.
    """
    with _refusing(path):
        # A folder that may only be read (an auditor's copy) has no place for SQLite's own files.
        # Where changes still wait in such a file, SQLite must see it, or else refuse.
        fixed = not write and not os.access(path.parent, os.W_OK)
        waiting = os.path.lexists(f"{path}-wal")
        mode = "mode=rw" if not fixed else "mode=ro" if waiting else "mode=ro&immutable=1"
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=_PATIENCE, isolation_level=None
        )
    with closing(connection):
        with _refusing(path):
            # The file may come from elsewhere: nothing in its schema is trusted to do anything.
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA fullfsync = ON")
            connection.execute(f"PRAGMA query_only = {'OFF' if write else 'ON'}")
        yield connection


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """What SQLite reports, as a sentence."""
    try:
        yield
    except sqlite3.OperationalError as error:
        # The lowest byte is the kind of the error, whatever SQLite's words for it.
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_LOCKED,
        ):
            remedy = f"another process has held it for {_PATIENCE:g} seconds: wait until it ends"
        else:
            remedy = (
                f"it cannot be used ({error}): check its permissions, the room on the disk and, "
                "with many silos, how many files a process may open (ulimit -n)"
            )
        raise SilodpError(f"Ledger {path}: {remedy}.") from None
    except sqlite3.Error as error:
        raise _damaged(path, str(error)) from None


def _content(path: Path, connection: sqlite3.Connection, silo: str | None) -> Ledger:
    """All that is in it, each part checked before it is used."""
    with _refusing(path):
        schema = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
        if sorted(str(sql) for (sql,) in schema) != sorted(_SCHEMA):
            raise _damaged(path, "its tables and triggers are not those of a ledger")
        # Text that is not UTF-8 was not written here: read on, it cannot have the right hash.
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        checked = connection.execute("PRAGMA quick_check(1)").fetchall()
        if checked != [("ok",)]:
            raise _damaged(path, "SQLite finds its pages inconsistent")
        rows = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM entries ORDER BY seq")
        heads = connection.execute("SELECT entries, hash FROM head").fetchall()
        rows = rows.fetchall()
    try:
        entries = check_chain(rows, heads)
        return _opened(entries, silo, path)
    except BrokenChainError as error:
        raise _damaged(path, str(error), silo) from None


def _opened(entries: tuple[Entry, ...], silo: str | None, path: Path) -> Ledger:
    """Who it belongs to and how it counts, from the first entry."""
    if not entries or entries[0].kind != "opened":
        raise BrokenChainError("row 1 does not open a ledger")
    body = entries[0].body
    if body.get("format") not in (_FIRST_FORMAT, FORMAT):
        raise SilodpError(
            f"Ledger {path} has format {body.get('format')!r}, but this version of silodp knows "
            f"formats {_FIRST_FORMAT} and {FORMAT}: use the version that wrote it."
        )
    for entry in entries[1:]:
        if entry.kind not in (*KINDS[1:], *_FIRST_KINDS):
            raise BrokenChainError(f"row {entry.seq} is of the unknown kind {entry.kind!r}")
    name: Any = body.get("silo")
    relation: Any = body.get("relation")
    unit: Any = body.get("unit")
    if type(name) is not str or relation not in get_args(Relation) or unit not in get_args(Unit):
        raise BrokenChainError("row 1 does not say whose ledger it is and how it counts")
    if ledger_path(path.parent, name).name != path.name or silo not in (None, name):
        raise SilodpError(
            f"Ledger {path} is that of silo {name!r}, but has another silo's file name: put the "
            "right file back."
        )
    return Ledger(name, relation, unit, entries)


def _damaged(path: Path, why: str, silo: str | None = None) -> SilodpError:
    whose = f" of silo {silo!r}" if silo is not None else ""
    return SilodpError(
        f"Ledger {path}{whose} is damaged ({why}): put back a sound copy; it is not made anew, "
        "because what was spent would be forgotten."
    )
