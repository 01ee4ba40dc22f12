"""The metric over rounds: what becomes of a shared model when each silo trains on alone.

A drawing for each share of rounds that is federated (rows) and each epsilon (columns): finetuning,
private and not, and in its background local training and FedAvg at the same epsilon. With `ends` in
the definition, the two have a drawing to themselves at the left, at the first epsilon.
"""

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from silodp.figures.definition import Definition
from silodp.figures.looks import in_order, label_of, look_of
from silodp.figures.panels import heading, letter, shown_panels
from silodp.figures.settings import as_numbers, best_runs, with_curves
from silodp.figures.style import budget, draw_band, legend_below, metric_label
from silodp.pictures.pictures import new_grid
from silodp.sweeps.settings import metric_of, select, values_of, where

_ENDS = ("local", "fedavg")
_BACKGROUND = 0.3  # opacity
_FRACTION = "finetune_fraction"
_MARKS = 8  # on each curve


def numbers(definition: Definition, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The points drawn: x is the round."""
    parts = []
    for panel in shown_panels(definition, tables):
        points = _points(tables[panel.name])
        parts.append((panel.name, points.assign(x=points["round"])))
    return as_numbers(definition, parts)


def _points(table: pd.DataFrame) -> pd.DataFrame:
    if _FRACTION not in table.columns:
        table = table.assign(**{_FRACTION: math.nan})
    return best_runs(with_curves(table), ("curve", "epsilon", _FRACTION))


def draw(definition: Definition, tables: dict[str, pd.DataFrame]) -> Figure:
    """Draws rows of drawings, a block of rows per panel."""
    points = numbers(definition, tables)
    panels = shown_panels(definition, set(points["panel"]))
    lines = [
        (panel, line)
        for panel in panels
        for line in _places(where(points, panel=panel.name), definition.ends)
    ]
    rows, columns = len(lines), max(len(line) for _, line in lines)
    figure, grid = new_grid(3.7 * columns, 2.7 * rows + 1.1, rows, columns)
    number = 0
    for row, (panel, line) in zip(grid, lines, strict=True):
        for axes in row[len(line) :]:
            axes.set_axis_off()
        for axes, (fraction, epsilon) in zip(row, line, strict=False):
            _draw_place(axes, where(points, panel=panel.name), fraction, epsilon)
            title = _title(fraction, epsilon)
            title = title if len(panels) == 1 else f"{panel.title}: {title}"
            axes.set_title(letter(number, rows * columns) + title, fontsize=10)
            number += 1
        row[0].set_ylabel(metric_label(metric_of(where(points, panel=panel.name))))
    for axes in grid[-1]:
        axes.set_xlabel("round")
    figure.suptitle(heading(definition, panels), fontsize=11)
    legend_below(figure, [axes for row in grid for axes in row], columns=4)
    return figure


def _places(points: pd.DataFrame, ends: bool) -> list[list[tuple[float, float]]]:
    """Rows of (share of rounds that is federated, epsilon); NaN is the drawing of the ends."""
    budgets = [e for e in values_of(points, "epsilon") if e < math.inf] or [math.inf]
    fractions = values_of(points, _FRACTION)
    rows = [[(fraction, epsilon) for epsilon in budgets] for fraction in fractions]
    if ends or not rows:
        rows = [[(math.nan, budgets[0]), *row] for row in rows] or [[(math.nan, budgets[0])]]
    return rows


def _title(fraction: float, epsilon: float) -> str:
    if math.isnan(fraction):
        return budget(epsilon)
    return f"finetuning from {100 * fraction:g} %, {budget(epsilon)}"


def _draw_place(axes: Axes, points: pd.DataFrame, fraction: float, epsilon: float) -> None:
    of_ends = select(points, points["method"].isin(_ENDS))
    only_ends = math.isnan(fraction)
    tuned = where(points, **{_FRACTION: fraction})
    for budget_here in dict.fromkeys((math.inf, epsilon)):
        private = budget_here < math.inf
        opacity = 1.0 if only_ends else _BACKGROUND
        _draw_curves(axes, where(of_ends, epsilon=budget_here), private, opacity)
        _draw_curves(axes, where(tuned, epsilon=budget_here), private, 1.0)
    if not only_ends:
        start = fraction * points["x"].to_numpy(float).max()
        axes.axvline(start, color="0.5", linewidth=0.9, linestyle=":")


def _draw_curves(axes: Axes, points: pd.DataFrame, private: bool, opacity: float) -> None:
    """Draws curves: solid without privacy, dashed with it."""
    for curve in in_order(points["curve"]):
        mine = where(points, curve=curve).sort_values("x")
        look = look_of(curve)
        style = look.line_style(linestyle=(0, (4, 1.5)) if private else "-", alpha=opacity)
        style |= {"markevery": max(1, len(mine) // _MARKS)}
        label = f"{label_of(curve)}, {'private' if private else 'non-private'}"
        # The legend shows the curve at full opacity.
        opaque: dict[str, Any] = style | {"alpha": 1.0}
        axes.plot([], [], label=label, **opaque)
        axes.plot(mine["x"], mine["mean"], **style)
        if opacity == 1.0:
            draw_band(axes, mine["x"].tolist(), mine, look.colour)
