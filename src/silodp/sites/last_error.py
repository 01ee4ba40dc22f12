"""last-error.json, in a site's folder: why the site last refused, in words for the site alone.

What the coordinator is told is less: that the site cannot answer, or one of a few fixed sentences.
"""

import json
import time
from pathlib import Path
from typing import NamedTuple

from silodp.base.documents import json_of
from silodp.base.errors import SilodpError
from silodp.base.files import write_file

FILE = "last-error.json"


class LastError(NamedTuple):
    """Why the site last refused, and when."""

    time: float
    job: str
    words: str


def note_error(folder: Path, job: str, words: str) -> None:
    """Notes it, if the disk allows: it may be what is full."""
    content = {"time": time.time(), "job": job, "words": words}
    try:
        write_file(folder / FILE, json.dumps(content), sync="none")
    except (SilodpError, OSError):
        return


def forget_error(folder: Path) -> None:
    """Forgets it: the site answers again."""
    try:
        (folder / FILE).unlink(missing_ok=True)
    except OSError:  # it stays, and is older than the answer
        return


def last_error(folder: Path) -> LastError | None:
    """Why the site last refused, if it did since its last answer."""
    path = folder / FILE
    try:
        found = json_of(path.read_bytes(), str(path), "remove it")
        return LastError(float(found["time"]), str(found["job"]), str(found["words"]))
    except (OSError, SilodpError, KeyError, TypeError, ValueError):
        return None


def from_the_machine(error: BaseException) -> str | None:
    """What the machine would not do, with its remedy; None if an error is of another kind.

    It names a file and the machine's reason, hence nothing that a record holds.
    """
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        if isinstance(one, OSError) and one.strerror:
            place = f"{one.filename}: " if isinstance(one.filename, str) else ""
            return (
                f"{place}{one.strerror}: see to the disk and its permissions; nothing was "
                "released, and the job goes on when it is submitted again"
            )
        one = one.__cause__ or one.__context__
    return None
