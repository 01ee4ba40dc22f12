"""What changes while runs go on, from progress.json: rounds, metric, budgets and time left."""

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from silodp.figures.looks import BLUE, Look, look_of
from silodp.names import shown
from silodp.progress_file import PROGRESS_FILE
from silodp.report import charts, drawing
from silodp.report.html import Html, joined, tag
from silodp.report.numbers import budget, count, duration, small
from silodp.report.tables import folded
from silodp.result import RESULT_FILE

_SILENT = 30.0  # seconds without a word, after which a process may be gone
_FEW = 12  # silos whose budgets are shown at once
_MOST = 12  # runs shown at once
_DEEPEST = 3  # folders: sites keep what goes on in state/JOB


def live_part(folders: Sequence[Path]) -> Html:
    """The part of the page that is asked for again and again."""
    going = [told for folder in folders for told in progress_in(folder)]
    going.sort(key=lambda told: -told["time"])
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
    )


def known(folders: Sequence[Path]) -> str:
    """Changes whenever something is finished that the rest of the page should show."""
    from silodp.report.inputs import found_in

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
    """As runs and sweeps write it, or sites and coordinators: these count rounds."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if "rounds" in told:
            told |= {"done": told["round"], "total": told["rounds"], "stage": "training"}
        numbers = (told["time"], told["done"], told.get("total") or 0)
        if not all(type(n) in (int, float) and math.isfinite(n) for n in numbers):
            return None
        return told
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _one(told: Mapping[str, Any]) -> Html:
    silent = max(0.0, time.time() - told["time"])
    gone = silent > _SILENT and not _alive(told.get("process"))
    name = ", ".join(
        shown(str(told[key])) for key in ("data", "method", "sweep", "job") if told.get(key)
    )
    parts: list[Html | None] = [
        tag("h3", f"{name or 'A run'} ({shown(told['folder'])})"),
        tag("p", _words(told), class_="headline", role="status"),
        tag("progress", max=told["total"], value=told["done"]) if told.get("total") else None,
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
    parts += [_metrics(told), _budgets(told.get("silos") or [])]
    return tag("div", parts, class_="live")


def _words(told: Mapping[str, Any]) -> str:
    said = [str(told["stage"])]
    if total := told.get("total"):
        what = {"training": "rounds", "calibrating noise": "silos"}.get(told["stage"], "done")
        what = "runs" if "runs" in told else "%" if told.get("tuned") and what == "rounds" else what
        said.append(f"{told['done']:.10g} of {total:g} {what}")
    if told.get("seconds") is not None:
        said.append(f"{duration(told['seconds'])} so far")
    if told.get("seconds_left") is not None:
        said.append(f"about {duration(told['seconds_left'])} left")
    points = told.get("metrics")
    if points and isinstance(points, list):  # of sites, it is a table of what they told
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
    except OSError:
        return True
    return True


def _metrics(told: Mapping[str, Any]) -> Html | None:
    points = told.get("metrics")
    if not isinstance(points, list) or len(points) < 2:
        return None
    look = (
        look_of(str(told.get("method") or "")) if told.get("method") else Look("", BLUE, "-", "o")
    )
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
    finite = [s for s in silos if isinstance(s.get("epsilon"), int | float)]
    if not finite:
        return None
    bars = [
        charts.Bar(
            str(s["silo"]),
            [("c-blue", float(s["epsilon"]))],
            f"{shown(str(s['silo']))}: epsilon {budget(s['epsilon'])}, delta {small(s['delta'])}",
        )
        for s in finite
    ]
    note = "All of it counts from the start: a run that is stopped has still released something."
    title = f"Budget of this run ({count(len(bars), 'silo')})"
    drawn = charts.bars_chart(title, bars, "epsilon", f"{title}: {note}")
    if len(bars) > _FEW:
        drawn = folded(title, drawn)
    return joined(drawn, tag("p", note, class_="note"))
