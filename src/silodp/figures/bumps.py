"""The metric over lambda: where pulling silos together beats both local training and FedAvg.

A drawing for each epsilon, with the runs without privacy in each. At every lambda a curve shows the
learning rate with the best mean; a star marks the best lambda of a curve.
"""

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from silodp.figures.definition import Definition
from silodp.figures.looks import in_order, label_of, look_of
from silodp.figures.panels import heading, letter, shown_panels
from silodp.figures.settings import as_numbers, settings_of
from silodp.figures.style import budget, draw_band, legend_below, metric_label, scale_metric
from silodp.pictures.pictures import new_grid
from silodp.sweeps.settings import best_of, select, values_of, where

_IN_A_ROW = 3


def numbers(definition: Definition, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The points drawn: x is lambda, empty for methods without; `star` marks the best lambda."""
    panels = shown_panels(definition, tables)
    parts = ((panel.name, _points(tables[panel.name])) for panel in panels)
    return as_numbers(definition, parts, more=("star",))


def _points(table: pd.DataFrame) -> pd.DataFrame:
    if "lam" not in table.columns:
        table = table.assign(lam=math.nan)
    settings = settings_of(table)
    points = best_of(settings, ("curve", "epsilon", "lam"))
    stars = best_of(select(points, points["lam"].notna()), ("curve", "epsilon")).index
    return points.assign(x=points["lam"], star=points.index.isin(stars))


def draw(definition: Definition, tables: dict[str, pd.DataFrame]) -> Figure:
    """Draws one drawing per panel and epsilon, in rows of three."""
    points = numbers(definition, tables)
    panels = shown_panels(definition, set(points["panel"]))
    alone = len(panels) == 1
    places = [
        (panel, epsilon)
        for panel in panels
        for epsilon in _budgets(where(points, panel=panel.name))
    ]
    columns = min(_IN_A_ROW, len(places))
    rows = -(-len(places) // columns)
    width, height = (5.6, 3.6) if len(places) == 1 else (3.6 * columns, 2.7 * rows)
    figure, grid = new_grid(width, height + 1.3, rows, columns)
    all_axes = [axes for row in grid for axes in row]
    for axes in all_axes[len(places) :]:
        axes.set_axis_off()
    for number, (axes, (panel, epsilon)) in enumerate(zip(all_axes, places, strict=False)):
        mine = where(points, panel=panel.name)
        for here in dict.fromkeys((math.inf, epsilon)):
            _draw_bump(axes, where(mine, epsilon=here), private=here < math.inf)
        scale_metric(axes, select(mine, mine["epsilon"].isin([epsilon, math.inf])))
        title = budget(epsilon) if alone else f"{panel.title}, {budget(epsilon)}"
        axes.set_title(letter(number, len(places)) + title, fontsize=10)
        axes.set_xscale("log")
        axes.set_xlabel(r"$\lambda$ (to the right: federate more)")
        if number % columns == 0:
            axes.set_ylabel(metric_label(mine["metric"].iloc[0]))
    figure.suptitle(heading(definition, panels), fontsize=11)
    legend_below(figure, all_axes, columns=2 if columns == 1 else 4)
    return figure


def _budgets(points: pd.DataFrame) -> list[float]:
    """The finite budgets; infinity alone if nothing is private."""
    budgets = values_of(points, "epsilon")
    return [epsilon for epsilon in budgets if epsilon < math.inf] or budgets


def _draw_bump(axes: Axes, points: pd.DataFrame, private: bool) -> None:
    """Draws the curves at one epsilon: solid without privacy as in the paper, dashed with it."""
    for curve in in_order(points["curve"]):
        mine = where(points, curve=curve).sort_values("x")
        look = look_of(curve)
        label = f"{label_of(curve, tuned=False)}, {'private' if private else 'non-private'}"
        style: dict[str, Any] = {"linestyle": (0, (4, 1.5)) if private else "-"}
        style["linewidth"] = look.width if private else 1.0
        if bool(mine["x"].isna().all()):
            _draw_level(axes, mine, curve, label, style)
            continue
        style |= {} if private else {"markersize": 3}
        axes.plot(mine["x"], mine["mean"], label=label, **look.line_style(**style))
        draw_band(axes, mine["x"].tolist(), mine, look.colour)
        best = where(mine, star=True)
        star = {"markersize": 13, "markeredgecolor": "black", "zorder": 5, "linestyle": "none"}
        axes.plot(best["x"], best["mean"], "*", color=look.colour, **star)


def _draw_level(
    axes: Axes, points: pd.DataFrame, curve: str, label: str, style: dict[str, Any]
) -> None:
    """Draws a method without a lambda as a line over the whole width, with one marker."""
    look = look_of(curve)
    mean, std = float(points["mean"].iloc[0]), float(points["std"].iloc[0])
    # Between the borders of the axes, whatever lambdas the curves have.
    across = axes.get_yaxis_transform()
    places = {"markevery": [1], **look.line_style(**style)}
    axes.plot([0, 0.03, 1], [mean] * 3, transform=across, label=label, **places)
    axes.fill_between(
        [0, 1],
        mean - std,
        mean + std,
        transform=across,
        color=look.colour,
        alpha=0.1,
        linewidth=0,
    )
