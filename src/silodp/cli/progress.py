"""How runs and sweeps go, on the terminal."""

import math
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from silodp.base.progress import Reporter
from silodp.cli.terminal import safe


class _Bar:
    """A line that is gone in the end: what is done, how much of it, and the time left."""

    def __init__(self, console: Console, **options: Any):
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),  # only where there is a total
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_interactive,  # a file would get an empty line
            **options,
        )
        self._task: Any = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_) -> None:
        self._progress.stop()


class LiveProgress(_Bar, Reporter):
    """Rounds, metric and time left."""

    def stage(self, name: str) -> None:
        """A stage begins: a line of its own."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(name, total=None, note="", left="")

    def calibrated(self, done: int, total: int) -> None:
        """Silos whose noise is known."""
        self._show(done, total, "silos")

    def counted(self, what: str, done: int, total: int) -> None:
        """So many of anything are done."""
        self._show(done, total, what)

    def trained(self, done: int, total: int, metric: float) -> None:
        """Rounds done, and the metric there."""
        shown = "" if math.isnan(metric) else f", test metric {metric:.5f}"
        self._show(done, total, f"rounds{shown}")

    def _show(self, done: int, total: int, note: str) -> None:
        note = f"{done}/{total} {note}"
        self._progress.update(self._task, completed=done, total=total, note=note, left="left")


class SweepProgress(_Bar, Reporter):
    """Runs done, time left, and what is being done now."""

    def __init__(self, console: Console):
        # Chunks come in lumps: what was fast or slow just now tells little.
        super().__init__(console, speed_estimate_period=600)
        self._about = self._stage = ""

    def begin(self, name: str) -> None:
        """Another sweep begins."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(safe(name), total=None, note="", left="")

    def swept(self, done: float, total: int, current: str | None) -> None:
        """Runs in the table, or nearly."""
        if current is not None:
            self._about = current
        note = f"{math.floor(done)}/{total} runs, {safe(self._about)}{self._stage}"
        self._progress.update(self._task, completed=done, total=total, note=note, left="left")

    def stage(self, name: str) -> None:
        """What is being done."""
        self._stage = f": {name}"
        known = self._progress.tasks[-1]
        self.swept(known.completed, int(known.total or 0), None)
