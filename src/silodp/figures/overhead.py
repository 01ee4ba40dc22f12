"""What queries beyond training cost: above the noise that a budget asks for, below the metric.

IFCA's selections and Ditto's second pass are paid for out of the same epsilon, by more noise.
"""

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from silodp.figures.definition import Definition
from silodp.figures.looks import in_order, label_of, look_of
from silodp.figures.panels import letter, shown_panels
from silodp.figures.settings import as_numbers
from silodp.figures.style import legend_below, plain_log_ticks
from silodp.figures.tradeoffs import best_points, draw_tradeoff
from silodp.pictures.pictures import new_grid
from silodp.sweeps.settings import select, values_of, where

_NOISE = "noise_multiplier"


def numbers(definition: Definition, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The points drawn: x is epsilon; `noise_multiplier` is the median silo's, over seeds."""
    parts = []
    for panel in shown_panels(definition, tables):
        points = best_points(tables[panel.name])
        parts.append((panel.name, select(points, points["x"] < math.inf)))
    return as_numbers(definition, parts, more=(_NOISE,))


def draw(definition: Definition, tables: dict[str, pd.DataFrame]) -> Figure:
    """Draws a column per panel: noise above, the metric below."""
    points = numbers(definition, tables)
    panels = shown_panels(definition, set(points["panel"]))
    columns = len(panels)
    figure, grid = new_grid(max(5.0, 3.9 * columns), 6.4, 2, columns)
    for number, panel in enumerate(panels):
        mine = where(points, panel=panel.name)
        above, below = grid[0][number], grid[1][number]
        _draw_noise(above, mine)
        draw_tradeoff(below, mine)
        above.set_title(letter(number, columns) + panel.title, fontsize=10)
    figure.suptitle(definition.title, fontsize=11)
    legend_below(figure, [axes for row in grid for axes in row], columns=3)
    return figure


def _draw_noise(axes: Axes, points: pd.DataFrame) -> None:
    budgets = values_of(points, "x")
    for curve in in_order(points["curve"]):
        mine = where(points, curve=curve).sort_values("x")
        x = [budgets.index(budget) for budget in mine["x"]]
        axes.plot(x, mine[_NOISE], label=label_of(curve), **look_of(curve).line_style())
    axes.set_xticks(range(len(budgets)), [f"{budget:g}" for budget in budgets])
    axes.set_xlabel(r"privacy budget $\varepsilon$")
    axes.set_ylabel("noise multiplier (median silo)")
    axes.set_yscale("log")
    noise = points[_NOISE].to_numpy(float)
    plain_log_ticks(axes, noise.max() / noise.min())
