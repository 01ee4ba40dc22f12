"""Entries that are chained by their hashes, so that none can be changed or taken out unseen.

Each entry's hash covers the hash before it and everything that the entry says:

    hash = SHA-256(previous hash, then the canonical JSON of {body, kind, run, seq, time})

Whoever noted a hash elsewhere can show that nothing up to that entry was altered since. A chain by
itself shows less: somebody who rewrites all of it can make it fit again.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

START = "0" * 64
"""What stands in place of a previous hash in the first entry."""

COLUMNS = ("seq", "time", "kind", "run", "body", "previous", "hash")


class BrokenChainError(Exception):
    """Something was changed: says what, and in which row."""


@dataclass(frozen=True)
class Entry:
    """One line of a ledger.

    Attributes:
      seq: its number, from 1.
      time: when it was written, in UTC.
      kind: what it is.
      run: which run it concerns; empty if none.
      body: what it says, in plain JSON.
      previous: hash of the entry before.
      hash: its own.
    """

    seq: int
    time: str
    kind: str
    run: str
    body: dict[str, Any]
    previous: str
    hash: str

    def as_json(self) -> dict[str, Any]:
        """All of it: enough to work out the hash again."""
        return asdict(self)

    def as_row(self) -> tuple[int | str, ...]:
        """The row that is stored, in the order of `COLUMNS`."""
        return tuple(
            canonical(value) if name == "body" else value
            for name, value in ((name, getattr(self, name)) for name in COLUMNS)
        )


def canonical(value: Any) -> str:
    """JSON in the one way in which it is hashed: sorted keys, no spaces, ASCII.

    JSON has no infinity: it is written as "inf".
    """
    return json.dumps(
        _finite(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def next_entry(last: Entry | None, kind: str, run: str, body: dict[str, Any]) -> Entry:
    """The entry that follows `last`, dated now."""
    seq, previous = (1, START) if last is None else (last.seq + 1, last.hash)
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    plain = json.loads(canonical(body))  # what will be read back, not what was given
    return Entry(
        seq, time, kind, run, plain, previous, _hash(seq, time, kind, run, plain, previous)
    )


def check_chain(rows: Iterable[Sequence[Any]], heads: Sequence[Sequence[Any]]) -> tuple[Entry, ...]:
    """The entries, if the chain is whole and ends where `heads` (count and hash) says."""
    entries: list[Entry] = []
    previous = START
    for number, row in enumerate(rows, start=1):
        entry = _checked(number, row, previous)
        entries.append(entry)
        previous = entry.hash
    if len(heads) != 1:
        raise BrokenChainError(f"the head has {len(heads)} rows instead of one")
    count, last = heads[0]
    if type(count) is not int or count < 0 or type(last) is not str:
        raise BrokenChainError("the head is not a count and a hash")
    if count > len(entries):
        raise BrokenChainError(f"row {len(entries) + 1} is missing, of {count} that were written")
    if count < len(entries):
        raise BrokenChainError(f"row {count + 1} was added without the head, which counts {count}")
    if last != previous:
        raise BrokenChainError(f"row {count} is not the one whose hash the head has")
    return tuple(entries)


def _checked(number: int, row: Sequence[Any], previous: str) -> Entry:
    if [type(value) for value in row] != [int, *[str] * (len(COLUMNS) - 1)]:
        raise BrokenChainError(f"row {number} holds values of a wrong kind")
    seq, time, kind, run, text, before, digest = row
    if seq != number:
        raise BrokenChainError(f"row {number} is missing or out of place (there is row {seq})")
    if before != previous:
        raise BrokenChainError(f"row {number} does not follow the row before it")
    changed = BrokenChainError(f"row {number} was changed: its content does not have its hash")
    try:
        body = json.loads(text)
        if not isinstance(body, dict) or canonical(body) != text:
            raise changed
    except (ValueError, RecursionError):
        raise changed from None
    if _hash(seq, time, kind, run, body, before) != digest:
        raise changed
    return Entry(seq, time, kind, run, body, before, digest)


def _hash(seq: int, time: str, kind: str, run: str, body: dict[str, Any], previous: str) -> str:
    content = {"seq": seq, "time": time, "kind": kind, "run": run, "body": body}
    return hashlib.sha256((previous + canonical(content)).encode("ascii")).hexdigest()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value
