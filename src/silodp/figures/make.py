"""Makes a figure: runs its sweeps (or goes on with them), writes numbers, draws the picture."""

import contextlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import pandas as pd

from silodp.base.errors import DataMissingError
from silodp.base.files import check_writable, write_file
from silodp.base.progress import Reporter
from silodp.figures.definition import Definition, Panel
from silodp.figures.settings import settings_of
from silodp.pictures.pictures import save_both
from silodp.sweeps.about import read_about
from silodp.sweeps.grid import sweep_of
from silodp.sweeps.settings import options_of
from silodp.sweeps.sweeping import run_sweep
from silodp.sweeps.table import TABLE_FILE, read_table


@dataclass(frozen=True)
class FigureOutput:
    """The files and numbers of a figure.

    Attributes:
      files: pictures and numbers; none if no panel has data.
      numbers: what is drawn.
      missing: what to do about each panel without data, by title.
      seconds: seconds that the sweeps took, in all sessions.
      runs: number of runs in the sweeps.
    """

    files: list[Path]
    numbers: pd.DataFrame
    missing: dict[str, str]
    seconds: float
    runs: int


def make_figure(
    definition: Definition,
    scale: str,
    out: Path,
    *,
    overwrite: bool = False,
    ray: str | None = None,
    reuse: Collection[Path] = (),
    reporter: Reporter | None = None,
) -> FigureOutput:
    """Runs the sweep of each panel whose data are there, and draws the results.

    Each panel has a folder of its own in `out`, with its table; what is finished is not run again,
    there or in the tables of the folders `reuse`.
    """
    check_writable(out)
    tables: dict[str, pd.DataFrame] = {}
    missing: dict[str, str] = {}
    panels, seconds = [], 0.0
    for panel in definition.panels:
        folder = out / panel.name
        where = f"Figure {definition.name}, panel {panel.name}"
        sweep = sweep_of(panel.at(scale), where, Path())
        try:
            table = run_sweep(
                sweep, folder, overwrite=overwrite, ray=ray, reuse=reuse, reporter=reporter
            )
        except DataMissingError as error:
            missing[panel.title] = str(error)
            _remove_empty(folder)
            continue
        tables[panel.name] = table
        about = read_about(folder)
        seconds += sum(session["seconds"] for session in about.get("sessions", []))
        panels.append(_with_counts(panel, about.get("data", {})))
    if not tables:
        return FigureOutput([], pd.DataFrame(), missing, seconds, 0)
    drawn = replace(definition, panels=tuple(panels))
    picture = import_module(f"silodp.figures.{definition.picture}")
    numbers = picture.numbers(drawn, tables)
    name = f"figure{definition.name}" if definition.name.isdigit() else definition.name
    files = save_both(picture.draw(drawn, tables), out, name)
    for part, content in ((name, numbers), (f"{name}-settings", _all_settings(tables))):
        digits = None if content is numbers else "%.7g"
        text = content.to_csv(index=False, lineterminator="\n", float_format=digits)
        files.append(write_file(out / f"{part}.csv", text))
    return FigureOutput(files, numbers, missing, seconds, sum(map(runs_in, tables.values())))


def _remove_empty(folder: Path) -> None:
    """Removes what a sweep without data leaves behind, but neither runs nor others' files."""
    if read_table(folder).empty:
        for name in (TABLE_FILE, ".lock"):
            (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # there are other files in it
            folder.rmdir()


def _all_settings(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """A table of all settings, not only those drawn: over seeds, after the last round."""
    parts = []
    for name, table in tables.items():
        settings = settings_of(table)
        columns = [*options_of(table), "metric", "mean", "std", "seeds", "per_seed"]
        parts.append(settings[[*columns, "epsilon_spent", "noise_multiplier"]].assign(panel=name))
    joined = pd.concat(parts, ignore_index=True)
    joined.insert(0, "panel", joined.pop("panel"))
    return joined


def runs_in(table: pd.DataFrame) -> int:
    """How many runs a table holds: settings, each with its seeds."""
    return len(table[["run", "seed"]].drop_duplicates())


def _with_counts(panel: Panel, data: dict[str, dict[str, int]]) -> Panel:
    """Adds the numbers of silos and records to the title: a scale may use a part of the data."""
    if len(data) != 1:
        return panel
    (of,) = data.values()
    records = f"{of['least']}" if of["least"] == of["most"] else f"{of['least']} to {of['most']}"
    return replace(panel, title=f"{panel.title}\n({of['silos']} silos of {records} records)")
