"""Progress of runs and sweeps on the terminal."""

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
    """A line, removed at the end, that shows what is done, how much of it, and the time left."""

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
    """Shows rounds, metric and time left."""

    def stage(self, name: str) -> None:
        """Begins a stage, with a line of its own."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(name, total=None, note="", left="")

    def encoded(self, name: str, done: int, total: int, made: int, seconds: float) -> None:
        """Shows the number of records with features, and in the end how fast they were made."""
        rate = f" ({made / seconds:.0f} a second)" if made and seconds else ""
        self._show(done, total, f"records as features {safe(name)}{rate}")
        if done == total and made:
            self._progress.console.print(
                f"Features {safe(name)}: {made} of {total} records encoded in {seconds:.3g} s"
                f"{rate}.",
                soft_wrap=True,
            )

    def calibrated(self, done: int, total: int) -> None:
        """Shows the number of silos whose noise is calibrated."""
        self._show(done, total, "silos")

    def counted(self, what: str, done: int, total: int) -> None:
        """Shows how many of anything are done."""
        self._show(done, total, what)

    def trained(self, done: int, total: int, metric: float) -> None:
        """Shows the rounds done and the latest metric."""
        shown = "" if math.isnan(metric) else f", test metric {metric:.5f}"
        self._show(done, total, f"rounds{shown}")

    def _show(self, done: int, total: int, note: str) -> None:
        note = f"{done}/{total} {note}"
        self._progress.update(self._task, completed=done, total=total, note=note, left="left")


class SweepProgress(_Bar, Reporter):
    """Shows runs done, time left, and what is being done now."""

    def __init__(self, console: Console):
        # Chunks of runs finish at once: the speed of the last seconds says little.
        super().__init__(console, speed_estimate_period=600)
        self._about = self._stage = ""

    def begin(self, name: str) -> None:
        """Begins another sweep."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(safe(name), total=None, note="", left="")

    def swept(self, done: float, total: int, current: str | None) -> None:
        """Shows the runs that are in the table, with fractions for those being trained."""
        if current is not None:
            self._about = current
        note = f"{math.floor(done)}/{total} runs, {safe(self._about)}{self._stage}"
        self._progress.update(self._task, completed=done, total=total, note=note, left="left")

    def stage(self, name: str) -> None:
        """Shows what is being done."""
        self._stage = f": {name}"
        task = self._progress.tasks[-1]
        self.swept(task.completed, int(task.total or 0), None)
