"""Progress events of runs and sweeps, and the one place that passes them to listeners.

Nothing else depends on an event, and no listener decides what may be known: what must stay secret
(a metric that costs epsilon, the number of trials) is left out where the event is made.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class Reporter:
    """Listens to the progress of a run or a sweep; this one does nothing."""

    def stage(self, name: str) -> None:
        """Begins a stage that may take a while."""

    def promised(self, silos: Sequence[Mapping[str, Any]]) -> None:
        """Gives each silo's guarantee (see `SiloPlan.statement`), before any query."""

    def encoded(self, name: str, done: int, total: int, made: int, seconds: float) -> None:
        """Counts records with features; `made` of them were encoded now, in so many seconds."""

    def calibrated(self, done: int, total: int) -> None:
        """Counts the silos whose noise is calibrated."""

    def trained(self, done: int, total: int, metric: float) -> None:
        """Counts finished rounds (of all parts); with the mean metric over runs of the part."""

    def swept(self, done: float, total: int, current: str | None) -> None:
        """Counts runs in the table (shares of runs included); names what is trained now."""


class Reporters(Reporter):
    """Passes every event on to each of several listeners, in their order."""

    def __init__(self, *listeners: Reporter):
        self._listeners = listeners

    def stage(self, name: str) -> None:
        """Passes the event on."""
        for listener in self._listeners:
            listener.stage(name)

    def promised(self, silos: Sequence[Mapping[str, Any]]) -> None:
        """Passes the event on."""
        for listener in self._listeners:
            listener.promised(silos)

    def encoded(self, name: str, done: int, total: int, made: int, seconds: float) -> None:
        """Passes the event on."""
        for listener in self._listeners:
            listener.encoded(name, done, total, made, seconds)

    def calibrated(self, done: int, total: int) -> None:
        """Passes the event on."""
        for listener in self._listeners:
            listener.calibrated(done, total)

    def trained(self, done: int, total: int, metric: float) -> None:
        """Passes the event on."""
        for listener in self._listeners:
            listener.trained(done, total, metric)

    def swept(self, done: float, total: int, current: str | None) -> None:
        """Passes the event on."""
        for listener in self._listeners:
            listener.swept(done, total, current)


_listener: ContextVar[Reporter | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(reporter: Reporter) -> Iterator[None]:
    """Lets a reporter hear what is done within, however deep."""
    before = _listener.set(reporter)
    try:
        yield
    finally:
        _listener.reset(before)


def listener() -> Reporter:
    """The reporter that hears what is done here; one that does nothing where there is none."""
    return _listener.get() or Reporter()
