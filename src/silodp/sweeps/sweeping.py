"""Runs a sweep: finds what is finished, trains the rest, and adds it to the table."""

import hashlib
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silodp.base.errors import SilodpError
from silodp.base.files import check_writable
from silodp.base.progress import Reporter, Reporters
from silodp.base.progress_file import kept_progress
from silodp.engines.programs import Programs
from silodp.runs.run_folder import RunFolder
from silodp.sweeps.about import ABOUT_FILE, About
from silodp.sweeps.chunks import Chunk, make_chunks
from silodp.sweeps.grid import Sweep
from silodp.sweeps.known import known_runs
from silodp.sweeps.table import TABLE_FILE, Row, Table, read_table
from silodp.sweeps.training import Loader, naming, train_chunk

if TYPE_CHECKING:
    import pandas as pd

_UNFINISHED = "unfinished"


def run_sweep(
    sweep: Sweep,
    out: Path | str,
    *,
    overwrite: bool = False,
    ray: str | None = None,
    reuse: Collection[Path] = (),
    reporter: Reporter | None = None,
) -> "pd.DataFrame":
    """Runs what is not in the table of the folder yet, and returns the table.

    Args:
      sweep: the settings to run.
      out: folder for `results.csv` and `sweep.json`. A sweep that was interrupted goes on there.
      overwrite: start over.
      ray: address of a Ray cluster that is to do the work.
      reuse: folders of finished sweeps: runs that they hold are taken from there.
      reporter: hears about progress.
    """
    out = Path(out)
    check_writable(out)
    if overwrite:
        for name in (TABLE_FILE, ABOUT_FILE, ".chunk.json"):
            (out / name).unlink(missing_ok=True)
        shutil.rmtree(out / _UNFINISHED, ignore_errors=True)
    table = Table(out, sweep.columns)
    with (
        closing(table),
        kept_progress(out, reporter or Reporter(), {"sweep": out.name}) as listener,
    ):
        finished = _finished(sweep, table, out)
        about = About(sweep, out, has_runs=bool(finished))
        others = [folder for folder in reuse if folder != out]
        known = known_runs(sweep, finished, others, about.files)
        if known.rows:
            about.write(0, known.data)  # first: no row is without the version that trained it
            table.add(known.rows)
            finished |= {(row.run, row.seed) for row in known.rows}
        chunks = make_chunks(sweep.points, finished)
        before = done = sweep.runs - sum(chunk.runs for chunk in chunks)
        listener.swept(done, sweep.runs, None)
        loader = Loader()
        for chunk, rows in _trained(sweep, chunks, out, ray, loader, listener, done):
            table.add(rows)
            done += chunk.runs
            about.write(done - before, known.data | loader.seen)
            shutil.rmtree(_folder(out, chunk), ignore_errors=True)
            listener.swept(done, sweep.runs, None)
        table.sort([point.run for point in sweep.points])
        shutil.rmtree(out / _UNFINISHED, ignore_errors=True)
        about.write(done - before, known.data | loader.seen)
    return read_table(out)


def _finished(sweep: Sweep, table: Table, out: Path) -> set[tuple[str, int]]:
    wanted = {(point.run, seed) for point in sweep.points for seed in point.seeds}
    finished = table.finished()
    if others := finished - wanted:
        raise SilodpError(
            f"{out / TABLE_FILE} holds {len(others)} runs that are not in this sweep: choose "
            "another --out, or start over with --overwrite."
        )
    return finished


def _trained(
    sweep: Sweep,
    chunks: list[Chunk],
    out: Path,
    ray: str | None,
    loader: Loader,
    reporter: Reporter,
    done: int,
) -> Iterator[tuple[Chunk, list[Row]]]:
    """Yields each chunk with its rows, as they are finished."""
    if ray is not None:
        from silodp.sweeps.ray_cluster import train_on_ray

        yield from train_on_ray(ray, chunks, sweep, loader, reporter)
        return
    programs = Programs()
    for chunk in chunks:
        watch = _Within(reporter, done, sweep.runs, chunk)
        place = RunFolder(_folder(out, chunk), resume=True)
        with naming(chunk):
            loaded = loader.loaded(chunk, watch)
            rows = train_chunk(chunk, loaded, sweep.columns, sweep.history, place, watch, programs)
        yield chunk, rows
        done += chunk.runs


class _Within(Reporters):
    """Passes on the progress of one chunk, and reports that of the sweep."""

    def __init__(self, reporter: Reporter, done: int, total: int, chunk: Chunk):
        super().__init__(reporter)
        self._done, self._total, self._chunk = done, total, chunk
        self.swept(done, total, chunk.title)

    def promised(self, silos: Sequence[Mapping[str, Any]]) -> None:
        """Does not pass the event on: the promise holds for this chunk, not for the sweep."""

    def trained(self, done: int, total: int, metric: float) -> None:
        """Passes the event on, and counts the finished share of the chunk."""
        super().trained(done, total, metric)
        so_far = self._done + self._chunk.runs * done / total
        self.swept(so_far, self._total, self._chunk.title)


def _folder(out: Path, chunk: Chunk) -> Path:
    """The folder of an unfinished chunk, named by a hash of its runs."""
    runs = repr((chunk.seeds, [point.run for point in chunk.points]))
    return out / _UNFINISHED / hashlib.sha256(runs.encode()).hexdigest()[:12]
