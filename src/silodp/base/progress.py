"""Who is told how runs and sweeps go."""

from collections.abc import Mapping, Sequence
from typing import Any


class Reporter:
    """Is told how a run goes; this one says nothing."""

    def stage(self, name: str) -> None:
        """A stage that may take a while begins."""

    def promised(self, silos: Sequence[Mapping[str, Any]]) -> None:
        """What each silo is promised (see `SiloPlan.statement`), before it is asked anything."""

    def calibrated(self, done: int, total: int) -> None:
        """So many of the silos' noises are calibrated."""

    def trained(self, done: int, total: int, metric: float) -> None:
        """So many rounds (of all parts) are done; the mean metric over runs of the part."""


class SweepReporter(Reporter):
    """Is told how a sweep goes, as well; this one says nothing."""

    def swept(self, done: float, total: int, current: str | None) -> None:
        """So many runs are in the table (or nearly: parts of a run count); what is trained now."""
