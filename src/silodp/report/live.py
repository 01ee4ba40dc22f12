"""The live part of a report, from progress.json: rounds, metric, budgets and time left."""

import json
import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from silodp.base.progress_file import FORMAT, PROGRESS_FILE
from silodp.base.text import count, shown
from silodp.figures.looks import BLUE, Look, look_of
from silodp.report import charts, drawing, silo_charts
from silodp.report.checks import AMOUNT, NUMBER, TEXT, fits
from silodp.report.html import Html, joined, tag
from silodp.report.inputs import runs_below
from silodp.report.numbers import budget, duration, small
from silodp.report.tables import folded
from silodp.results.result import RESULT_FILE

_SILENT = 30.0  # seconds without a sign of life, after which a process may be gone
_FEW = 12  # silos whose budgets are shown at once
_MOST = 12  # runs shown at once
_MOST_BYTES = 4 << 20  # largest progress file: thousands of silos with their budgets
# Silos without a budget are left out.
_SILO = {"silo": TEXT, "epsilon": AMOUNT, "delta": AMOUNT}
_DEEPEST = 3  # folders below the given one: sites keep progress in state/JOB


def live_part(folders: Sequence[Path]) -> Html:
    """The part of the page that browsers request again and again."""
    active = [progress for folder in folders for progress in progress_in(folder)]
    active.sort(key=lambda progress: -progress["time"])
    # Screen readers announce changes of this, not of every second (live.js).
    stages = "; ".join(f"{_name(progress)}: {_stage(progress)}" for progress in active[:_MOST])
    if not active:
        content = tag("p", "Nothing is being trained here now. This page sees when that changes.")
    else:
        content = joined(_one(progress) for progress in active[:_MOST])
        if len(active) > _MOST:
            content = joined(content, tag("p", f"And {len(active) - _MOST} more."))
    return tag(
        "section",
        tag("h2", "Now", id="now"),
        content,
        id="live",
        aria_labelledby="now",
        data_known=fingerprint(folders),
        data_stages=stages or "Nothing is being trained",
    )


def fingerprint(folders: Sequence[Path]) -> str:
    """A text that changes when something finishes that the rest of the page should show."""
    results = []
    for folder in folders:
        if folder.is_dir():
            for place in runs_below(folder):
                result = place / RESULT_FILE
                # A sweep's table grows all the time: it counts once it is there.
                changed = result.stat().st_mtime if result.exists() else 0
                results.append(f"{place}:{changed}")
    return str(hash(tuple(results)))


def progress_in(folder: Path) -> list[dict[str, Any]]:
    """Progress of all that goes on in the folder and below it; skips what cannot be read."""
    rows = []
    depth = len(folder.parts)
    for place, inside, names in os.walk(folder):
        if len(Path(place).parts) - depth >= _DEEPEST:
            inside.clear()
        if PROGRESS_FILE in names:
            progress = _read(Path(place) / PROGRESS_FILE)
            if progress is not None and progress.get("finished") is not True:
                rows.append(progress | {"folder": Path(place).name})
    return rows


def _read(path: Path) -> dict[str, Any] | None:
    """The progress in a file; None if it is another file, or not complete yet."""
    try:
        # Opening a pipe would wait for a writer.
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        progress = json.loads(content) if len(content) <= _MOST_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return _valid(progress) if isinstance(progress, dict) else None


def _valid(progress: dict[str, Any]) -> dict[str, Any] | None:
    """Progress with checked fields, whether of runs and sweeps or of sites, which count rounds.

    Fields of another type are dropped. Gives None if time or count is missing, and for another
    format, in which the same names may mean something else.
    """
    if progress.get("format", FORMAT) != FORMAT:
        return None
    if "rounds" in progress:
        progress |= {
            "done": progress.get("round"),
            "total": progress["rounds"],
            "stage": "training",
        }
    if not fits(progress, {"time": NUMBER, "done": AMOUNT}):
        return None
    kinds = {
        **dict.fromkeys(("data", "method", "sweep", "job", "stage"), TEXT),
        **dict.fromkeys(("total", "seconds", "seconds_left"), AMOUNT),
    }
    odd = {name: None for name, kind in kinds.items() if not fits(progress.get(name), (kind,))}
    points, silos = progress.get("metrics"), progress.get("silos")
    lists = {
        "metrics": [p for p in _listed(points) if fits(p, [NUMBER]) and len(p) == 2],
        "silos": [silo for silo in _listed(silos) if fits(silo, _SILO)],
    }
    return progress | odd | lists


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []  # sites have a table of states there


def _one(progress: Mapping[str, Any]) -> Html:
    silent = max(0.0, time.time() - progress["time"])
    gone = silent > _SILENT and not _alive(progress.get("process"))
    total = progress.get("total")
    parts: list[Html | None] = [
        tag("h3", _name(progress)),
        tag("p", _words(progress), class_="headline"),
        tag("progress", max=total, value=progress["done"], aria_label=_name(progress))
        if total
        else None,
    ]
    if gone:
        parts.append(
            tag(
                "p",
                f"No sign of life for {duration(silent)}: the process has ended without finishing. "
                "The same command with --resume goes on from the last checkpoint.",
                class_="warning",
                role="note",
            )
        )
    parts += [_metrics(progress), _budgets(progress["silos"])]
    return tag("div", parts, class_="live")


def _name(progress: Mapping[str, Any]) -> str:
    names = [
        shown(progress[key]) for key in ("data", "method", "sweep", "job") if progress.get(key)
    ]
    return f"{', '.join(names) or 'A run'} ({shown(progress['folder'])})"


def _stage(progress: Mapping[str, Any]) -> str:
    return progress.get("stage") or "at work"


def _words(progress: Mapping[str, Any]) -> str:
    parts = [_stage(progress)]
    if total := progress.get("total"):
        what = {"training": "rounds", "calibrating noise": "silos"}.get(parts[0], "done")
        what = (
            "runs"
            if "runs" in progress
            else "%"
            if progress.get("tuned") and what == "rounds"
            else what
        )
        parts.append(f"{progress['done']:.10g} of {total:g} {what}")
    if progress.get("seconds") is not None:
        parts.append(f"{duration(progress['seconds'])} so far")
    if progress.get("seconds_left") is not None:
        parts.append(f"about {duration(progress['seconds_left'])} left")
    if points := progress["metrics"]:
        parts.append(f"test metric {points[-1][1]:.4g}")
    sentence = ", ".join(parts)
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _alive(process: Any) -> bool:
    """Whether a process is there; True if that is unknown, as for sites."""
    if type(process) is not int or process <= 0:
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's, or a number that no process has
        return True
    return True


def _metrics(progress: Mapping[str, Any]) -> Html | None:
    points = progress["metrics"]
    if len(points) < 2:
        return None
    look = look_of(progress["method"]) if progress.get("method") else Look("", BLUE, "-", "o")
    line = drawing.Line(
        look,
        [drawing.Point(x, y, 0, 0, f"{x:g}: {y:.4g}") for x, y in points],
        marked=False,
    )
    low, high = min(y for _, y in points), max(y for _, y in points)
    log = 0 < 4 * low < high

    def draw(width: int) -> Html:
        frame = drawing.Frame(
            width,
            220,
            drawing.Scale(points[0][0], progress.get("total") or points[-1][0], 58, width - 14),
            drawing.Scale(low, high, 220 - 46, 28, log),
        )
        x_ticks = [(t, f"{t:g}") for t in frame.x.ticks(6)]
        y_ticks = [(t, f"{t:.4g}") for t in frame.y.ticks(5)]
        shape = drawing.axes(frame, "round", "test metric", x_ticks, y_ticks)
        alt = f"Test metric so far, now {points[-1][1]:.4g}"
        return drawing.svg(width, 220, alt, shape, drawing.series(frame, 0, line))

    return charts.figure("Test metric so far", drawing.both_widths(draw))


def _budgets(silos: Sequence[Mapping[str, Any]]) -> Html | None:
    """Bars of what the run costs each silo; a ledger counts all of it from the start."""
    if not silos:
        return None
    bars = [
        silo_charts.Bar(
            s["silo"],
            [("c-blue", float(s["epsilon"]))],
            f"{shown(s['silo'])}: epsilon {budget(s['epsilon'])}, delta {small(s['delta'])}",
        )
        for s in silos
    ]
    note = "All of it counts from the start: a run that is stopped has still released something."
    title = f"Budget of this run ({count(len(bars), 'silo')})"
    chart = silo_charts.bars_chart(title, bars, "epsilon", f"{title}: {note}")
    if len(bars) > _FEW:
        chart = folded(title, chart)
    return joined(chart, tag("p", note, class_="note"))
