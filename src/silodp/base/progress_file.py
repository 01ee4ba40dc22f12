"""`progress.json` in the folder of a run or a sweep, for watching from another process.

It holds nothing that the terminal does not show: no metrics where they cost epsilon.
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
FORMAT = 1  # of progress.json, which sites and coordinators write too
_SECONDS_BETWEEN = 0.5
_MOST_POINTS = 200


class ProgressFile(Reporter):
    """Writes the latest progress to a file."""

    def __init__(self, folder: Path, about: Mapping[str, Any], timed: bool = True):
        """Prepares the file of a run or a sweep.

        Args:
          folder: the folder of the file.
          about: the fields that describe the run or sweep.
          timed: whether the time that it takes may be known.
        """
        self._path, self._timed = folder / PROGRESS_FILE, timed
        self._began = time.time()
        # Time and count at which this process began: what was done before took it no time.
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
        """Begins another stage."""
        self._newest["stage"] = name
        if not self._is_sweep:  # a sweep counts its runs throughout
            self._counted_from = None
            self._newest |= {"done": 0, "total": None}
        self._write(at_once=True)

    def promised(self, silos: Sequence[Mapping[str, Any]]) -> None:
        """Writes each silo's guarantee."""
        names = ("silo", "epsilon", "delta", "unit", "relation", "proven")
        self._newest["silos"] = [{name: silo[name] for name in names} for silo in silos]

    def calibrated(self, done: int, total: int) -> None:
        """Counts silos whose noise is calibrated."""
        self._advance(done, total)

    def trained(self, done: int, total: int, metric: float) -> None:
        """Counts finished rounds, and adds the metric."""
        points = self._newest["metrics"]
        # Between evaluations the metric stays the same.
        if math.isfinite(metric) and (not points or points[-1][1] != metric):
            points.append([done, metric])
            if len(points) > _MOST_POINTS:
                del points[1:-1:2]
        self._advance(done, total)

    def swept(self, done: float, total: int, current: str | None) -> None:
        """Counts the finished runs of a sweep."""
        self._newest["runs"] = [done, total]
        self._newest["metrics"] = []  # each is of another setting: no curve
        self._count(done, total)
        self._write()

    @property
    def _is_sweep(self) -> bool:
        return "runs" in self._newest

    def _advance(self, done: int, total: int) -> None:
        if not self._is_sweep:  # a sweep counts its runs instead
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
        # A run must not fail because of its progress file, and half a second of progress need not
        # outlive a crash of the machine.
        with contextlib.suppress(OSError):
            if self._path.parent.is_dir():
                with whole_file(self._path, mode=SHARED, sync="none") as file:
                    file.write(json.dumps(plain(newest)).encode())
                self._written = now


@contextlib.contextmanager
def kept_progress(
    folder: Path | None, listener: Reporter, about: Mapping[str, Any], timed: bool = True
) -> Iterator[Reporter]:
    """Gives a listener that passes events on, and writes the file if there is a folder.

    The file is removed when the block ends; only a killed process leaves it behind.
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
