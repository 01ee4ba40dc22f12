"""How runs and sweeps go: the events, and the one place that passes them on to who listens.

Nothing else hangs on an event, and no listener decides what may be known: what must stay secret (a
metric that has a price, how many trials there are) is left out where the event is made.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class Reporter:
    """Listens to how a run or a sweep goes; this one does nothing."""

    def stage(self, name: str) -> None:
        """A stage that may take a while begins."""

    def promised(self, silos: Sequence[Mapping[str, Any]]) -> None:
        """What each silo is promised (see `SiloPlan.statement`), before it is asked anything."""

    def calibrated(self, done: int, total: int) -> None:
        """So many of the silos' noises are calibrated."""

    def trained(self, done: int, total: int, metric: float) -> None:
        """So many rounds (of all parts) are done; the mean metric over runs of the part."""

    def swept(self, done: float, total: int, current: str | None) -> None:
        """So many runs are in the table (or nearly: parts of a run count); what is trained now."""


class Reporters(Reporter):
    """Passes every event on to each of several listeners, in their order."""

    def __init__(self, *listeners: Reporter):
        self._listeners = listeners

    def stage(self, name: str) -> None:
        """Passed on."""
        for listener in self._listeners:
            listener.stage(name)

    def promised(self, silos: Sequence[Mapping[str, Any]]) -> None:
        """Passed on."""
        for listener in self._listeners:
            listener.promised(silos)

    def calibrated(self, done: int, total: int) -> None:
        """Passed on."""
        for listener in self._listeners:
            listener.calibrated(done, total)

    def trained(self, done: int, total: int, metric: float) -> None:
        """Passed on."""
        for listener in self._listeners:
            listener.trained(done, total, metric)

    def swept(self, done: float, total: int, current: str | None) -> None:
        """Passed on."""
        for listener in self._listeners:
            listener.swept(done, total, current)
