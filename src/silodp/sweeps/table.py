"""The table of a sweep: a CSV file that grows by whole chunks, whatever ends the process.

A chunk's rows are first written to a file beside the table, then appended. If a process is killed
in between, that file is left, and whoever opens the table next appends it again.
"""

import csv
import fcntl
import io
import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from silodp.base.documents import read_json
from silodp.base.errors import SilodpError
from silodp.base.files import write_file

if TYPE_CHECKING:
    import pandas as pd

TABLE_FILE = "results.csv"
_ASIDE = ".chunk.json"
MEASURED = (
    *("seed", "round", "metric", "value"),
    *("epsilon_spent", "noise_multiplier", "proven"),
)


class Row(NamedTuple):
    """A run after a round.

    Attributes:
      run: the name of its setting.
      options: the options of the training; None where its method has no such option.
      seed: the seed of the run.
      round: the round after which it was tested.
      metric: the metric's name.
      value: the metric over silos; NaN if the run diverged.
      epsilon_spent: the largest over silos.
      noise_multiplier: the median over silos.
      proven: whether epsilon is proven in every silo.
    """

    run: str
    options: dict[str, Any]
    seed: int
    round: int
    metric: str
    value: float
    epsilon_spent: float
    noise_multiplier: float
    proven: bool


class Table:
    """The table in a folder, open for one sweep alone."""

    def __init__(self, folder: Path, columns: Sequence[str]):
        """Opens the table, or makes one with these options as columns; refuses other columns."""
        self._path, self._aside = folder / TABLE_FILE, folder / _ASIDE
        self._columns = tuple(columns)
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder)
        self._finish_appending()
        if not self._path.exists():
            write_file(self._path, self._text([["run", *columns, *MEASURED]]))

    def close(self) -> None:
        """Unlocks the table for other processes."""
        self._lock.close()

    def finished(self) -> set[tuple[str, int]]:
        """The runs in the table: names of settings, with seeds."""
        return {(row[0], int(row[self._place("seed")])) for row in self._rows()}

    def add(self, rows: Iterable[Row]) -> None:
        """Appends all rows, or none if the process is killed."""
        text = self._text(
            [
                row.run,
                *(_cell(row.options.get(name)) for name in self._columns),
                *(_cell(getattr(row, name)) for name in MEASURED),
            ]
            for row in rows
        )
        size = self._path.stat().st_size
        write_file(self._aside, json.dumps({"size": size, "text": text}))
        self._finish_appending()

    def sort(self, runs: Sequence[str]) -> None:
        """Sorts the rows by the order of the sweep's points."""
        place = {run: number for number, run in enumerate(runs)}
        seed, at = self._place("seed"), self._place("round")
        rows = self._rows()
        in_order = sorted(rows, key=lambda row: (place[row[0]], int(row[seed]), int(row[at])))
        if in_order != rows:
            header = ["run", *self._columns, *MEASURED]
            write_file(self._path, self._text([header, *in_order]))

    def _finish_appending(self) -> None:
        if not self._aside.exists():
            return
        aside = read_json(self._aside, remedy="remove it; its runs are done again")
        with self._path.open("r+b") as file:
            file.truncate(aside["size"])
            file.seek(aside["size"])
            file.write(aside["text"].encode())
            file.flush()
            os.fsync(file.fileno())
        self._aside.unlink()

    def _rows(self) -> list[list[str]]:
        header, *rows = _checked(self._path)
        if header != ["run", *self._columns, *MEASURED]:
            raise SilodpError(
                f"{self._path} has other columns than this sweep ({', '.join(header)}): choose "
                "another --out, or start over with --overwrite."
            )
        return rows

    def _place(self, name: str) -> int:
        return 1 + len(self._columns) + MEASURED.index(name)

    @staticmethod
    def _text(rows: Iterable[Sequence[str]]) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        return text.getvalue()


def read_table(folder: Path | str) -> "pd.DataFrame":
    """The table of a sweep; numbers are read as they were written."""
    import pandas as pd

    path = Path(folder) / TABLE_FILE
    if not path.exists():
        raise SilodpError(f"{path} does not exist: give the folder of a sweep.")
    header, *rows = _checked(path)
    columns = zip(*rows, strict=True) if rows else [()] * len(header)
    return pd.DataFrame(
        {n: list(v) if n == "run" else _values(v) for n, v in zip(header, columns, strict=True)}
    )


def _checked(path: Path) -> list[list[str]]:
    """The rows of a table, all of the same length."""
    try:
        rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"))))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SilodpError(
            f"{path} cannot be read ({error}): start over with --overwrite."
        ) from None
    if not rows or tuple(rows[0][-len(MEASURED) :]) != MEASURED:
        raise SilodpError(f"{path} is not the table of a sweep: choose another --out.")
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise SilodpError(
                f"{path}: line {number} has {len(row)} cells, not {len(rows[0])}: remove the line, "
                "and its run is trained again."
            )
    return rows


def _values(cells: Sequence[str]) -> list[Any]:
    """The values of a column, exactly as they were before they were written."""
    if set(cells) <= {"True", "False"}:
        return [cell == "True" for cell in cells]
    for kind in (int, float):
        try:
            return [kind(cell) if cell or kind is int else math.nan for cell in cells]
        except ValueError:
            continue
    return [cell or None for cell in cells]


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return repr(value) if isinstance(value, float) else str(value)


def _locked(folder: Path) -> IO[str]:
    """Locks the folder: two sweeps in it would spoil each other's table."""
    lock = (folder / ".lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise SilodpError(
            f"Another sweep is at work in {folder}: wait for it, or choose another --out."
        ) from None
    return lock
