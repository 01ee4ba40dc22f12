"""A site's audit trail: who asked for what, and what was answered, refused and charged.

SITE/trail.jsonl has a line for whatever was new: a job that was joined, a block of rounds that was
charged, a refusal, an end. Each line holds the hash of the one before, and what the ledger was
shown by then (see `shown_ledger`); and what the ledger reserves for a job holds the hash of the
line before it. So neither can be changed without the other, back to the last job that was joined.

It is for the site alone: nothing of it is sent. No site stops because of its trail: one that cannot
be read any more, such as after a power cut, is put aside, and another one begun.
"""

import hashlib
import json
import logging
import os
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from silodp.base.documents import json_of
from silodp.base.errors import SilodpError
from silodp.privacy.ledger.chain import Entry

FILE = "trail.jsonl"
START = "0" * 64
Outcome = Literal["answered", "refused"]
_REMEDY = "put back an intact copy"
_MOST_REFUSALS = 200  # lines an hour
_log = logging.getLogger("silodp.site")


@dataclass(frozen=True)
class Line:
    """One line of the trail.

    Attributes:
      seq: its number, from 1.
      time: when it was written, in UTC.
      coordinator: the name of the key of who asked.
      federation: its name in the proposal.
      job: that was asked for.
      kind: what was asked: to join, to train or to finish.
      round: the first of these rounds, from 0.
      outcome: what the site did.
      reason: why it refused, as the coordinator was told.
      ledger: what the ledger was shown by; empty where nothing was charged.
      previous: hash of the line before.
      hash: its own.
    """

    seq: int
    time: str
    coordinator: str
    federation: str
    job: str
    kind: str
    round: int
    outcome: Outcome
    reason: str
    ledger: str
    previous: str
    hash: str = ""

    def hashed(self) -> str:
        """What its hash must be."""
        content = {name: value for name, value in asdict(self).items() if name != "hash"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Trail:
    """The trail of the site in a folder, to be added to."""

    def __init__(self, folder: Path):
        """Reads nothing yet."""
        self._path = folder / FILE
        self._last: Line | None = None
        self._refused: deque[float] = deque(maxlen=_MOST_REFUSALS)
        self._size = -1

    def mark(self) -> list[str]:
        """The hashes of the first line and of the last: which trail it is, and how far it is."""
        lines = self._lines()
        return [lines[0].hash, lines[-1].hash] if lines else [START, START]

    def note(
        self,
        coordinator: str,
        federation: str,
        job: str,
        kind: str,
        number: int,
        outcome: Outcome,
        reason: str = "",
        ledger: str = "",
    ) -> None:
        """Adds a line, unless the last one says the same of earlier rounds."""
        last = self._newest()
        about = (coordinator, federation, job, kind, outcome, reason, ledger)
        if last is not None and about == (
            *(last.coordinator, last.federation, last.job, last.kind),
            *(last.outcome, last.reason, last.ledger),
        ):
            return
        now = time.monotonic()
        if outcome == "refused":
            # Whoever asks for nonsense without end must not fill the disk.
            if len(self._refused) == _MOST_REFUSALS and now - self._refused[0] < 3600.0:
                return
            self._refused.append(now)
        line = Line(
            1 if last is None else last.seq + 1,
            f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            *(coordinator, federation, job, kind, number, outcome, reason, ledger),
            START if last is None else last.hash,
        )
        line = Line(**{**asdict(line), "hash": line.hashed()})
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "ab") as file:
            file.write(json.dumps(asdict(line)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._last, self._size = line, self._path.stat().st_size

    def _newest(self) -> Line | None:
        """The last line, read again only if another process has added some."""
        size = self._path.stat().st_size if self._path.exists() else 0
        if size != self._size:
            lines = self._lines()
            self._last, self._size = (lines[-1] if lines else None), size
        return self._last

    def _lines(self) -> list[Line]:
        try:
            return read_trail(self._path.parent)
        except SilodpError as error:
            aside = self._path.with_name(f"{FILE}.{time.time_ns()}")
            _log.warning("%s It is put aside as %s.", error, aside.name)
            os.replace(self._path, aside)
            return []


def read_trail(folder: Path) -> list[Line]:
    """All lines of the site's trail; refuses one that was changed."""
    path = folder / FILE
    try:
        texts = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SilodpError(f"{path} cannot be read ({error.strerror}): {_REMEDY}.") from None
    lines: list[Line] = []
    for place, text in enumerate(texts, 1):
        before = lines[-1].hash if lines else START
        try:
            line = Line(**json_of(text, f"{path}: line {place}", _REMEDY))
        except TypeError:
            raise SilodpError(f"{path}: line {place} is none of a trail: {_REMEDY}.") from None
        if (line.seq, line.previous, line.hash) != (place, before, line.hashed()):
            raise SilodpError(f"{path}: line {place} was changed, or one before it: {_REMEDY}.")
        lines.append(line)
    return lines


def check_against(lines: Sequence[Line], entries: Iterable[Entry], where: Path) -> None:
    """Refuses a trail that is not the one that the ledger knows of, such as a shorter one."""
    hashes = [line.hash for line in lines]
    for entry in entries:
        mark: Any = entry.body.get("about", {}).get("trail") if entry.kind == "reserve" else None
        # The same ledger may be charged by the site of another federation, with its own trail.
        ours = isinstance(mark, list) and len(mark) == 2 and mark[0] in hashes[:1]
        if ours and mark[1] not in hashes:
            raise SilodpError(
                f"{where / FILE} has lost lines which the ledger knows of (its entry {entry.seq}): "
                f"{_REMEDY}."
            )
