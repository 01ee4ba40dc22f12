"""The part of a report about the metric over rounds."""

import math

from silodp.report import answer, charts
from silodp.report.drawing import Line, Point
from silodp.report.html import Html, tag
from silodp.report.inputs import Run
from silodp.report.numbers import (
    measured,
    plus_minus,
)
from silodp.report.verdict import method_name
from silodp.results.result import Result
from silodp.runs.baselines import BASELINES


def history_part(run: Run) -> Html:
    """Charts the metric over rounds, beside the run's baselines."""
    results = [*(run.baselines[m] for m in BASELINES if m in run.baselines), run.result]
    lines = [history_line(one) for one in results]
    lines = [line for line in lines if line.points]
    if not lines:
        return tag("p", "The result holds no test metric by round.")
    last = run.result.history[-1] if run.result.history else None
    alt = "Test metric against rounds"
    if last is not None:
        alt += f"; {method_name(run.result)} ends at {measured(last['mean'], run.result.metric)}"
    title = "Test metric against rounds"
    if all(len(line.points) == 1 for line in lines):
        return tag("p", f"The test metric was worked out once: {lines[-1].points[0].label}.")
    return charts.lines_chart(title, lines, run.result.metric, "round", alt)


def history_line(result: Result) -> Line:
    """A result's metric over rounds, as a line."""
    points = []
    for at in result.history:
        if at["mean"] is None:
            continue
        error = at["std"] / math.sqrt(len(at["per_seed"])) if at["per_seed"] else 0.0
        value = plus_minus(at["mean"], at["std"], result.metric)
        label = f"{method_name(result)}, round {at['round']:g}: {value}"
        points.append(Point(at["round"], at["mean"], at["std"], error, label))
    return Line(answer.look(result), points, marked=len(points) <= 12)
