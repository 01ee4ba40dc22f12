"""Features that were made, kept in the user's cache by the content of each record.

One file for each encoder, named after its hash; it is SQLite's, so that a part that is written is
written whole, and a run that was interrupted goes on where it was. Features are as secret as
records: folder and file are for their owner alone. A file that is damaged, or cannot be written,
is as none: features are made anew.
"""

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from silodp.base.cache import cache_dir
from silodp.base.files import OWNER_ONLY
from silodp.data.encoders.encoder import EncoderInfo

FOLDER = "features"
_CHECK = 8  # bytes
_SECONDS = 10  # to wait for another process
_MOST_ASKED = 500  # keys in one question


class KeptFeatures:
    """The features of one encoder, by the keys of records."""

    def __init__(self, database: sqlite3.Connection | None, width: int):
        self._database, self._width = database, width

    def of(self, keys: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """What is kept of these records."""
        found = {}
        with self._unless_damaged() as database:
            for start in range(0, len(keys) if database else 0, _MOST_ASKED):
                asked = keys[start : start + _MOST_ASKED]
                marks = ", ".join("?" * len(asked))
                rows = database.execute(f"select key, x from kept where key in ({marks})", asked)
                for key, content in rows:
                    numbers = content[_CHECK:]
                    sound = len(numbers) == 4 * self._width
                    if sound and _check(key, numbers) == content[:_CHECK]:
                        found[key] = np.frombuffer(numbers, "<f4")
        return found

    def keep(self, made: Mapping[bytes, np.ndarray]) -> None:
        """Keeps these, all or none."""
        rows = []
        for key, x in made.items():
            numbers = x.astype("<f4").tobytes()
            rows.append((key, _check(key, numbers) + numbers))
        with self._unless_damaged() as database:
            if database is not None:
                with database:
                    database.executemany("insert or replace into kept values (?, ?)", rows)

    @contextlib.contextmanager
    def _unless_damaged(self) -> Iterator[sqlite3.Connection]:
        """Gives up the file where it is damaged or full: what it would save is time alone."""
        try:
            yield self._database  # type: ignore[misc]  (None where there is none)
        except sqlite3.Error:
            self._database = None


@contextlib.contextmanager
def kept_features(info: EncoderInfo, wanted: bool) -> Iterator[KeptFeatures]:
    """Opens what is kept of an encoder; nothing is, where it is not wanted."""
    database = _opened(info) if wanted else None
    try:
        yield KeptFeatures(database, info.width)
    finally:
        if database is not None:
            with contextlib.suppress(sqlite3.Error):
                database.close()


def _opened(info: EncoderInfo) -> sqlite3.Connection | None:
    folder = cache_dir() / FOLDER
    path = folder / f"{info.sha256[:32]}.sqlite"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.chmod(folder, 0o700)
        # Before SQLite makes it, with the rights that its journal takes over.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, OWNER_ONLY))
        os.chmod(path, OWNER_ONLY)
        database = sqlite3.connect(path, timeout=_SECONDS)
    except (OSError, sqlite3.Error):
        return None
    try:
        database.execute("create table if not exists kept (key blob primary key, x blob)")
    except sqlite3.Error:
        database.close()
        return None
    return database


def _check(key: bytes, numbers: bytes) -> bytes:
    return hashlib.blake2b(numbers, key=key, digest_size=_CHECK).digest()
