"""`progress.json` in the folder of what goes on: for whoever watches from another process.

It holds nothing that the terminal does not show: where metrics have a price, there are none.
"""

import contextlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from silodp.base.files import SHARED, whole_file
from silodp.base.progress import Reporter, Reporters
from silodp.base.values import plain

PROGRESS_FILE = "progress.json"
FORMAT = 1  # of that file; sites and coordinators write theirs in the same
_SECONDS_BETWEEN = 0.5
_MOST_POINTS = 200


class ProgressFile(Reporter):
    """Keeps the newest of what is reported in a file."""

    def __init__(self, folder: Path, about: Mapping[str, Any], timed: bool = True):
        """Of a run or a sweep in that folder.

        Args:
          folder: where it is kept.
          about: what goes on.
          timed: whether how long it takes may be known.
        """
        self._path, self._timed = folder / PROGRESS_FILE, timed
        self._began = time.time()
        # When and where this process began to count: what was done before took it no time.
        self._counted_from: tuple[float, float] | None = None
        self._written = 0.0
        self._newest: dict[str, Any] = {
            "format": FORMAT,
            **about,
            "process": os.getpid(),
            "began": self._began,
            "stage": "starting",
            "done": 0,
            "total": None,
            "metrics": [],
            "silos": [],
        }

    def stage(self, name: str) -> None:
        """Another stage begins."""
        self._newest["stage"] = name
        if not self._is_sweep:  # there, the runs go on being counted
            self._counted_from = None
            self._newest |= {"done": 0, "total": None}
        self._write(at_once=True)

    def promised(self, silos: Sequence[Mapping[str, Any]]) -> None:
        """What each silo is promised."""
        kept = ("silo", "epsilon", "delta", "unit", "relation", "proven")
        self._newest["silos"] = [{name: silo[name] for name in kept} for silo in silos]

    def calibrated(self, done: int, total: int) -> None:
        """Silos whose noise is known."""
        self._advance(done, total)

    def trained(self, done: int, total: int, metric: float) -> None:
        """Rounds done, and the metric there."""
        points = self._newest["metrics"]
        # Between evaluations the same is newest again.
        if math.isfinite(metric) and (not points or points[-1][1] != metric):
            points.append([done, metric])
            if len(points) > _MOST_POINTS:
                del points[1:-1:2]
        self._advance(done, total)

    def swept(self, done: float, total: int, current: str | None) -> None:
        """Runs done, of a sweep."""
        self._newest["runs"] = [done, total]
        self._newest["metrics"] = []  # of another setting each time: no curve
        self._count(done, total)
        self._write()

    @property
    def _is_sweep(self) -> bool:
        return "runs" in self._newest

    def _advance(self, done: int, total: int) -> None:
        if not self._is_sweep:  # there, the runs are what is counted
            self._count(done, total)
            self._write(at_once=done >= total)

    def _count(self, done: float, total: int) -> None:
        self._newest |= {"done": done, "total": total}
        if self._counted_from is None:
            self._counted_from = (time.time(), done)

    def _seconds_left(self, now: float) -> float | None:
        if self._counted_from is None:
            return None
        began, before = self._counted_from
        done, total = self._newest["done"], self._newest["total"]
        return (now - began) / (done - before) * (total - done) if done > before else None

    def _write(self, at_once: bool = False) -> None:
        now = time.time()
        if now - self._written < _SECONDS_BETWEEN and not at_once:
            return
        newest = self._newest | {"time": now}
        if self._timed:
            newest |= {"seconds": now - self._began, "seconds_left": self._seconds_left(now)}
        else:
            del newest["began"]
        # Nobody's work may fail because somebody could have watched; and what is half a second old
        # need not outlive a crash of the machine.
        with contextlib.suppress(OSError):
            if self._path.parent.is_dir():
                with whole_file(self._path, mode=SHARED, sync="none") as file:
                    file.write(json.dumps(plain(newest)).encode())
                self._written = now


@contextlib.contextmanager
def kept_progress(
    folder: Path | None, listener: Reporter, about: Mapping[str, Any], timed: bool = True
) -> Iterator[Reporter]:
    """Within, the listener hears all, and (where there is a folder) a file there keeps the newest.

    The file is gone in the end, however it comes; only a process that is killed leaves it behind.
    See `ProgressFile` for `about` and `timed`.
    """
    if folder is None:
        yield listener
        return
    try:
        yield Reporters(listener, ProgressFile(folder, about, timed))
    finally:
        with contextlib.suppress(OSError):
            (folder / PROGRESS_FILE).unlink(missing_ok=True)
