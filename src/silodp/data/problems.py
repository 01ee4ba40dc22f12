"""Faults of a table, all of them: found by the checks that a run makes anyway.

A check raises a `Fault`. Whoever calls it within `Problems.noted` goes on with the next silo or
column, so that one reading finds everything; `Problems.check` then raises the first, and says how
many there are. `silodp data check` shows them all.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from silodp.base.errors import SilodpError

_SHOWN = "`silodp data check` with the same options shows all"


class Fault(SilodpError):
    """A fault of a user's records.

    Attributes:
      what: the fault, with examples of values: for those who may see the records.
      remedy: what to do about it.
      silo: the silo, if it is one's alone.
      column: the column, if it is one's alone.
      rows: the number of rows affected, if rows are.
    """

    def __init__(
        self,
        place: str,
        what: str,
        remedy: str,
        *,
        silo: str = "",
        column: str = "",
        rows: int | None = None,
    ):
        remedy = remedy.rstrip(".")
        end = "" if remedy.endswith("?") else "."
        super().__init__(f"{place} {what}: {remedy}{end}".lstrip())
        self.what, self.remedy = what, remedy
        self.silo, self.column, self.rows = silo, column, rows


class ManyFaults(SilodpError):
    """Several faults, told by the first; `shown` says what shows the others."""

    def __init__(self, faults: list[SilodpError], shown: str = _SHOWN):
        more = len(faults) - 1
        also = f" {more} more problem{'s' * (more > 1)}: {shown}." if more else ""
        super().__init__(f"{faults[0]}{also}")
        self.faults = faults


class Problems:
    """The faults that were found so far, each once, in the order of finding."""

    def __init__(self):
        self._found: dict[str, SilodpError] = {}

    def __len__(self) -> int:
        return len(self._found)

    @property
    def faults(self) -> list[SilodpError]:
        """All faults."""
        return list(self._found.values())

    def add(self, error: SilodpError) -> None:
        """Keeps a fault, unless the same was found before (such as with another seed)."""
        for one in error.faults if isinstance(error, ManyFaults) else [error]:
            self._found.setdefault(str(one), one)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Keeps the fault that what follows raises, if it raises one."""
        try:
            yield
        except SilodpError as error:
            self.add(error)

    def check(self, shown: str = _SHOWN) -> None:
        """Raises what was found, if anything was; `shown` says what shows all of several."""
        if self._found:
            raise as_one(self.faults, shown)

    def rows(self) -> list[dict[str, Any]]:
        """The faults as a table: silo, column, what, rows, remedy."""
        return [
            {
                "silo": error.silo,
                "column": error.column,
                "what": error.what,
                "rows": error.rows,
                "remedy": error.remedy,
            }
            if isinstance(error, Fault)
            else _in_parts(error)
            for error in self.faults
        ]


@contextmanager
def reported(problems: Problems | None) -> Iterator[Problems]:
    """The problems that are given; without any, own ones, of which the first is raised at the end.

    An error within, after which nothing more could be checked, is told with what was found before.
    """
    if problems is not None:
        yield problems
        return
    own = Problems()
    try:
        yield own
    except SilodpError as error:
        if not len(own):
            raise
        own.add(error)
    own.check()


def _in_parts(error: SilodpError) -> dict[str, Any]:
    """An error of which only the sentence is known: its remedy stands behind the last colon."""
    what, _, remedy = str(error).rstrip(".").rpartition(": ")
    return {"silo": "", "column": "", "what": what or remedy, "rows": None, "remedy": remedy}


def as_one(faults: Sequence[SilodpError], shown: str = _SHOWN) -> SilodpError:
    """The error that tells of all of them; `Problems` takes them apart again."""
    return faults[0] if len(faults) == 1 else ManyFaults([*faults], shown)
