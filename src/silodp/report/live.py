"""What changes while runs go on, from progress.json: rounds, metric, budgets and time left."""

import json
import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from silodp.base.progress_file import FORMAT, PROGRESS_FILE
from silodp.base.text import shown
from silodp.figures.looks import BLUE, Look, look_of
from silodp.report import charts, drawing, silo_charts
from silodp.report.checks import AMOUNT, NUMBER, TEXT, fits
from silodp.report.html import Html, joined, tag
from silodp.report.inputs import found_in
from silodp.report.numbers import budget, count, duration, small
from silodp.report.tables import folded
from silodp.results.result import RESULT_FILE

_SILENT = 30.0  # seconds without a word, after which a process may be gone
_FEW = 12  # silos whose budgets are shown at once
_MOST = 12  # runs shown at once
_MOST_BYTES = 4 << 20  # of a file of progress: thousands of silos with their budgets
# Those without a budget are left out.
_SILO = {"silo": TEXT, "epsilon": AMOUNT, "delta": AMOUNT}
_DEEPEST = 3  # folders: sites keep what goes on in state/JOB


def live_part(folders: Sequence[Path]) -> Html:
    """The part of the page that is asked for again and again."""
    going = [told for folder in folders for told in progress_in(folder)]
    going.sort(key=lambda told: -told["time"])
    # A screen reader hears of it when this changes, and not every second (live.js).
    stages = "; ".join(f"{_name(told)}: {_stage(told)}" for told in going[:_MOST])
    if not going:
        content = tag("p", "Nothing is being trained here now. This page sees when that changes.")
    else:
        content = joined(_one(told) for told in going[:_MOST])
        if len(going) > _MOST:
            content = joined(content, tag("p", f"And {len(going) - _MOST} more."))
    return tag(
        "section",
        tag("h2", "Now", id="now"),
        content,
        id="live",
        aria_labelledby="now",
        data_known=known(folders),
        data_stages=stages or "Nothing is being trained",
    )


def known(folders: Sequence[Path]) -> str:
    """Changes whenever something is finished that the rest of the page should show."""
    found = []
    for folder in folders:
        if folder.is_dir():
            for place in found_in(folder):
                result = place / RESULT_FILE
                # A sweep's table grows all the time: it counts once it is there.
                changed = result.stat().st_mtime if result.exists() else 0
                found.append(f"{place}:{changed}")
    return str(hash(tuple(found)))


def progress_in(folder: Path) -> list[dict[str, Any]]:
    """What goes on in the folder and below it; what cannot be read is left out until it can."""
    found = []
    depth = len(folder.parts)
    for place, inside, names in os.walk(folder):
        if len(Path(place).parts) - depth >= _DEEPEST:
            inside.clear()
        if PROGRESS_FILE in names:
            told = _read(Path(place) / PROGRESS_FILE)
            if told is not None and told.get("finished") is not True:
                found.append(told | {"folder": Path(place).name})
    return found


def _read(path: Path) -> dict[str, Any] | None:
    """What is in the file; None if it is no such file, or not whole yet."""
    try:
        # Whoever opens a pipe waits for somebody who writes into it.
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        told = json.loads(content) if len(content) <= _MOST_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return _sound(told) if isinstance(told, dict) else None


def _sound(told: dict[str, Any]) -> dict[str, Any] | None:
    """As runs and sweeps write it, or sites and coordinators: these count rounds.

    What is not of the kind that it should be is left out; of what has no place in time, all. So is
    another format, in which the same names may mean something else.
    """
    if told.get("format", FORMAT) != FORMAT:
        return None
    if "rounds" in told:
        told |= {"done": told.get("round"), "total": told["rounds"], "stage": "training"}
    if not fits(told, {"time": NUMBER, "done": AMOUNT}):
        return None
    kinds = {
        **dict.fromkeys(("data", "method", "sweep", "job", "stage"), TEXT),
        **dict.fromkeys(("total", "seconds", "seconds_left"), AMOUNT),
    }
    odd = {name: None for name, kind in kinds.items() if not fits(told.get(name), (kind,))}
    points, silos = told.get("metrics"), told.get("silos")
    sound = {
        "metrics": [p for p in _listed(points) if fits(p, [NUMBER]) and len(p) == 2],
        "silos": [silo for silo in _listed(silos) if fits(silo, _SILO)],
    }
    return told | odd | sound


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []  # of sites, it is a table of what they told


def _one(told: Mapping[str, Any]) -> Html:
    silent = max(0.0, time.time() - told["time"])
    gone = silent > _SILENT and not _alive(told.get("process"))
    total = told.get("total")
    parts: list[Html | None] = [
        tag("h3", _name(told)),
        tag("p", _words(told), class_="headline"),
        tag("progress", max=total, value=told["done"], aria_label=_name(told)) if total else None,
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
    parts += [_metrics(told), _budgets(told["silos"])]
    return tag("div", parts, class_="live")


def _name(told: Mapping[str, Any]) -> str:
    named = [shown(told[key]) for key in ("data", "method", "sweep", "job") if told.get(key)]
    return f"{', '.join(named) or 'A run'} ({shown(told['folder'])})"


def _stage(told: Mapping[str, Any]) -> str:
    return told.get("stage") or "at work"


def _words(told: Mapping[str, Any]) -> str:
    said = [_stage(told)]
    if total := told.get("total"):
        what = {"training": "rounds", "calibrating noise": "silos"}.get(said[0], "done")
        what = "runs" if "runs" in told else "%" if told.get("tuned") and what == "rounds" else what
        said.append(f"{told['done']:.10g} of {total:g} {what}")
    if told.get("seconds") is not None:
        said.append(f"{duration(told['seconds'])} so far")
    if told.get("seconds_left") is not None:
        said.append(f"about {duration(told['seconds_left'])} left")
    if points := told["metrics"]:
        said.append(f"test metric {points[-1][1]:.4g}")
    sentence = ", ".join(said)
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _alive(process: Any) -> bool:
    """Whether that process is there; of sites, nobody knows."""
    if type(process) is not int or process <= 0:
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # somebody else's, or a number that no process has
        return True
    return True


def _metrics(told: Mapping[str, Any]) -> Html | None:
    points = told["metrics"]
    if len(points) < 2:
        return None
    look = look_of(told["method"]) if told.get("method") else Look("", BLUE, "-", "o")
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
            drawing.Scale(points[0][0], told.get("total") or points[-1][0], 58, width - 14),
            drawing.Scale(low, high, 220 - 46, 28, log),
        )
        x_ticks = [(t, f"{t:g}") for t in frame.x.ticks(6)]
        y_ticks = [(t, f"{t:.4g}") for t in frame.y.ticks(5)]
        shape = drawing.axes(frame, "round", "test metric", x_ticks, y_ticks)
        alt = f"Test metric so far, now {points[-1][1]:.4g}"
        return drawing.svg(width, 220, alt, shape, drawing.series(frame, 0, line))

    return charts.figure("Test metric so far", drawing.both_widths(draw))


def _budgets(silos: Sequence[Mapping[str, Any]]) -> Html | None:
    """What the run costs each silo once it is through: in a ledger it counts from the start."""
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
    drawn = silo_charts.bars_chart(title, bars, "epsilon", f"{title}: {note}")
    if len(bars) > _FEW:
        drawn = folded(title, drawn)
    return joined(drawn, tag("p", note, class_="note"))
