"""What a target needs beside its own column (exposure, events, cut points): all of it declared."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from silodp.base.errors import SilodpError

# Exposures that differ by more are not in the same unit.
_WIDEST = 1e9
MOST_CUTS = 1000


@dataclass(frozen=True)
class Beside:
    """Declarations beside a target's own; each belongs to some tasks, which say so.

    Attributes:
      exposure_column: for how long, or of how many, a record counts.
      exposure_range: the lowest and highest exposure; values beyond are moved there.
      event_column: whether the time is that of the event, or the last one seen (censored).
      event_value: what stands for the event there; any other value is then censored. By default 1,
        true or yes, and 0, false or no.
      cut_points: where time is cut into intervals; the first begins at 0.
    """

    exposure_column: str | None = None
    exposure_range: tuple[float, float] | None = None
    event_column: str | None = None
    event_value: str | None = None
    cut_points: tuple[float, ...] = ()

    @property
    def given(self) -> tuple[str, ...]:
        """The names of what is declared."""
        return tuple(one.name for one in fields(self) if getattr(self, one.name) not in (None, ()))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns beside the target's own."""
        both = (self.exposure_column, self.event_column)
        return tuple(column for column in both if column is not None)

    @property
    def largest_exposure(self) -> float:
        """The exposure that is 1 to a model."""
        return 1.0 if self.exposure_range is None else self.exposure_range[1]

    def to_plain(self) -> dict[str, Any]:
        """What is declared, as JSON or TOML can hold it."""
        plain = {name: getattr(self, name) for name in self.given}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in plain.items()}


KEYS = tuple(one.name for one in fields(Beside))


def checked_beside(where: str, given: Mapping[str, Any]) -> Beside:
    """Declarations from plain values (None where there is none), each of which is checked."""
    values = {name: given.get(name) for name in KEYS}
    for name in ("exposure_column", "event_column"):
        if values[name] is not None and not (isinstance(values[name], str) and values[name]):
            raise SilodpError(f"{where}: {name} is {values[name]!r}: give the name of a column.")
    for column, of_it in (("exposure_column", "exposure_range"), ("event_column", "event_value")):
        if values[of_it] is not None and values[column] is None:
            raise SilodpError(f"{where}: {of_it} is given, but no {column}: name the column.")
    exposure, event = values["exposure_range"], values["event_value"]
    if exposure is not None and not (
        _are_numbers(exposure) and len(exposure) == 2 and _fits(*exposure)
    ):
        raise SilodpError(
            f"{where}: exposure_range is {exposure!r}: give two numbers above 0, the lower one "
            f"first, the higher no more than {_WIDEST:.0e} times as large."
        )
    if event is not None and not isinstance(event, str):
        raise SilodpError(f"{where}: event_value is {event!r}: give a word or a number.")
    cuts = values["cut_points"] or ()
    if not _are_numbers(cuts) or list(cuts) != sorted(set(cuts)) or len(cuts) > MOST_CUTS:
        raise SilodpError(
            f"{where}: cut_points are {cuts!r}: give at most {MOST_CUTS} numbers, each above the "
            "one before."
        )
    if cuts and not 0 < cuts[0] <= cuts[-1] <= _WIDEST:
        raise SilodpError(
            f"{where}: cut_points go from {cuts[0]:g} to {cuts[-1]:g}: give times above 0 and up "
            f"to {_WIDEST:.0e}; the first interval begins at 0."
        )
    return Beside(
        values["exposure_column"],
        None if exposure is None else (float(exposure[0]), float(exposure[1])),
        values["event_column"],
        event,
        tuple(map(float, cuts)),
    )


def _are_numbers(values: Any) -> bool:
    return (
        isinstance(values, Sequence)
        and not isinstance(values, str | bytes)
        and all(type(v) in (int, float) and abs(v) < 1e30 and math.isfinite(v) for v in values)
    )


def _fits(low: float, high: float) -> bool:
    return 1 / _WIDEST < low <= high <= min(_WIDEST * low, _WIDEST)
