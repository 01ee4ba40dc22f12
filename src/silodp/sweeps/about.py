"""`sweep.json`: who trained the rows of a sweep's table, and on which data and files."""

import json
import os
import time
from pathlib import Path
from typing import Any

from silodp.base.documents import read_json
from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.base.values import plain
from silodp.results.result import versions
from silodp.sweeps.best import TUNING_NOTE
from silodp.sweeps.grid import Sweep
from silodp.sweeps.named_files import check_unchanged, digests_of

ABOUT_FILE = "sweep.json"


def read_about(out: Path) -> dict[str, Any]:
    """The content of `sweep.json`; {} if it cannot be read."""
    try:
        about = read_json(out / ABOUT_FILE, remedy="sweep again")
    except SilodpError:
        return {}
    return about if isinstance(about, dict) else {}


class About:
    """Keeps `sweep.json` up to date while a session adds rows, so that a killed one counts too."""

    def __init__(self, sweep: Sweep, out: Path, has_runs: bool):
        """Refuses a table with runs that were trained on files that have changed since."""
        self._sweep, self._out = sweep, out
        before = read_about(out)
        self._sessions, self._data = before.get("sessions", []), before.get("data", {})
        self.files = digests_of(sweep)
        if has_runs:
            check_unchanged(before.get("files", {}), self.files, out)
        self._began = time.perf_counter()

    def write(self, trained: int, data: dict[str, dict[str, int]]) -> None:
        """Writes `sweep.json`: this session has trained that number of runs, on these data."""
        session = {
            "runs": trained,
            "seconds": time.perf_counter() - self._began,
            "cores": len(os.sched_getaffinity(0)),
            "versions": versions(),
        }
        about = {
            "runs": self._sweep.runs,
            "settings": len(self._sweep.points),
            "columns": ["run", *self._sweep.columns],
            "history": self._sweep.history,
            "note": TUNING_NOTE,
            "data": self._data | data,
            "files": self.files,
            # A session that trained nothing is left out, unless it is the only one.
            "sessions": self._sessions + [session] * (trained > 0 or not self._sessions),
        }
        write_file(self._out / ABOUT_FILE, json.dumps(plain(about), indent=2) + "\n")
