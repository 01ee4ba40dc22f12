"""Makes the report: from folders to the page."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.base.text import count, shown
from silodp.base.version import own_version
from silodp.report.html import Html
from silodp.report.inputs import Run, SweepTable, read_inputs
from silodp.report.ledger_section import ledgers_section, read_ledgers, what_is_left
from silodp.report.page import GENERATOR, Part, page
from silodp.report.run_section import name_of_run, run_section
from silodp.report.sweep_section import runs_section, sweep_section
from silodp.runs.baselines import BASELINES

MOST_RUNS = 20  # runs shown in full; of more, the table of all is more useful
Progress = Callable[[str, int, int], None]


def write_report(
    folders: Sequence[Path | str],
    out: Path | str,
    *,
    ledger: Path | str | None = None,
    silo: str | None = None,
    title: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Writes one self-contained HTML page about runs, sweeps and ledgers.

    Args:
      folders: folders of runs and sweeps, or folders that contain them.
      out: file to write.
      ledger: folder of silos' ledgers: what was spent and is left, in words.
      silo: only this silo's ledger.
      title: title of the page; else the names of its data.
      overwrite: replace the file even if it is not a report.
      progress: called with (what, done, total) while it goes on.

    Examples:
      >>> result = silodp.run(
      ...     data="synthetic", silos=2, method="fedavg", epsilon=3, rounds=2, out="runs/reported"
      ... )
      >>> silodp.write_report(["runs/reported"], "report.html").name
      'report.html'
    """
    path = Path(out)
    if path.is_dir():
        raise SilodpError(f"{path} is a folder: give a file, such as {path / 'report.html'}.")
    if path.exists() and not overwrite and not _is_report(path):
        raise SilodpError(
            f"{path} is there already, and is no report: choose another --out, or give --overwrite."
        )
    content = report_page(folders, ledger=ledger, silo=silo, title=title, progress=progress)
    return write_file(path, content)


def report_page(
    folders: Sequence[Path | str],
    *,
    ledger: Path | str | None = None,
    silo: str | None = None,
    title: str | None = None,
    live: Html | None = None,
    progress: Progress | None = None,
) -> str:
    """The page as text; arguments as for `write_report`, and `live`, the part that changes."""
    if not folders and ledger is None:
        raise SilodpError("There is nothing to report on: give the folder of a run, or --ledger.")
    if silo is not None and ledger is None:
        raise SilodpError("--silo chooses one of the ledgers: give --ledger as well.")
    report = progress or (lambda what, done, total: None)
    runs, sweeps = read_inputs([Path(folder) for folder in folders])
    ledgers = read_ledgers(Path(ledger), silo) if ledger is not None else []
    done = iter(range(1, len(ledgers) + 1))
    left = None
    if ledger is not None:
        left = what_is_left(
            Path(ledger), ledgers, lambda: report("reading ledgers", next(done), len(ledgers))
        )
    parts = []
    for number, sweep in enumerate(sweeps):
        name = f"Sweep {shown(sweep.folder.name)}"
        parts.append(Part(f"sweep-{number}", name, sweep_section(sweep, number)))
        report("sweeps", number + 1, len(sweeps))
    detailed = in_full(runs)
    full = []
    for number, run in enumerate(detailed):
        full.append(Part(f"run-{number}", name_of_run(run), run_section(run, number, left)))
        report("runs", number + 1, len(detailed))
    beside = [Part("runs", "All runs", runs_section(runs))] if len(runs) > 1 else []
    # The answer first: if only one run is of interest, that is its section.
    parts += full + beside if len(full) == 1 else beside + full
    if left is not None:
        # Where a run shows its silos' bars, they need not be drawn twice.
        shown_by_runs = {p["silo"] for run in detailed for p in run.result.privacy}
        others = not left.keys() <= shown_by_runs
        parts.append(Part("ledgers", "Ledgers", ledgers_section(ledgers, left, with_bars=others)))
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    about = f"Made {now} by silodp {own_version()}, from {_sources(runs, sweeps, len(ledgers))}."
    if len(detailed) < len(runs) and len(detailed) == MOST_RUNS:
        about += f" The first {MOST_RUNS} runs are shown in full, the others in the table."
    return page(title or _title(runs, sweeps, bool(ledgers)), about, parts, live)


def _is_report(path: Path) -> bool:
    """Whether the file is a report, which can be replaced: all of it comes from elsewhere."""
    try:
        with path.open("rb") as file:
            return GENERATOR.encode() in file.read(2048)
    except OSError:
        return False


def in_full(runs: Sequence[Run]) -> list[Run]:
    """The runs with a section of their own: not those that others are compared with."""
    of_interest = [run for run in runs if run.result.method not in BASELINES]
    return list(of_interest or runs)[:MOST_RUNS]


def _sources(runs: Sequence[Run], sweeps: Sequence[SweepTable], ledgers: int) -> str:
    parts = [count(len(runs), "run")] if runs else []
    parts += [count(len(sweeps), "sweep")] if sweeps else []
    parts += [count(ledgers, "ledger")] if ledgers else []
    return ", ".join(parts)


def _title(runs: Sequence[Run], sweeps: Sequence[SweepTable], ledgers: bool) -> str:
    data = dict.fromkeys(shown(run.result.data) for run in runs)
    data |= dict.fromkeys(shown(sweep.folder.name) for sweep in sweeps)
    if not data:
        return "What was released, and what it could tell" if ledgers else "Report"
    named = list(data)[:3]
    more = f" and {len(data) - 3} more" if len(data) > 3 else ""
    return f"Learning together, each for itself: {', '.join(named)}{more}"
