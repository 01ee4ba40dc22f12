"""Privacy against utility: the metric over epsilon, each method at its best setting.

For each epsilon a curve shows the setting (lambda, learning rate...) with the best mean over seeds,
as the paper does: what the choice costs in privacy is left out.
"""

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from silodp.figures.definition import Definition
from silodp.figures.looks import in_order, label_of, look_of
from silodp.figures.panels import letter, shown_panels
from silodp.figures.settings import as_numbers, settings_of
from silodp.figures.style import draw_band, legend_below, metric_label, scale_metric
from silodp.pictures.pictures import new_grid
from silodp.sweeps.settings import best_of, select, values_of, where

_GAP = 0.35  # before the place of runs without privacy
_SIDE_BY_SIDE = 0.8  # share of the width for markers, if there is one epsilon alone


def numbers(definition: Definition, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The points drawn: x is epsilon."""
    panels = shown_panels(definition, tables)
    parts = ((panel.name, best_points(tables[panel.name])) for panel in panels)
    return as_numbers(definition, parts)


def best_points(table: pd.DataFrame, also_by: Sequence[str] = ()) -> pd.DataFrame:
    """The best setting of each curve at each epsilon (and value of the columns `also_by`)."""
    best = best_of(settings_of(table), ("curve", "epsilon", *also_by))
    return best.assign(x=best["epsilon"])


def draw(definition: Definition, tables: dict[str, pd.DataFrame]) -> Figure:
    """Draws a column per panel and a row per group of methods in the definition."""
    points = numbers(definition, tables)
    groups = definition.rows or (tuple(values_of(points, "method")),)
    panels = shown_panels(definition, set(points["panel"]))
    if len(panels) == 1:  # the groups go side by side
        places = [[(panels[0], group) for group in groups]]
    else:
        places = [[(panel, group) for panel in panels] for group in groups]
    rows, columns = len(places), len(places[0])
    figure, grid = new_grid(max(5.0, 3.6 * columns), 3.1 * rows + 1.1, rows, columns)
    # Drawings of the same data share their y axis, so that they can be compared.
    alike = len({str(panel.sweep.get("data", panel.name)) for panel in panels}) == 1
    count = 0
    for row, line in zip(grid, places, strict=True):
        parts = [_of_methods(where(points, panel=panel.name), group) for panel, group in line]
        for axes, (panel, _), mine in zip(row, line, parts, strict=True):
            if alike and axes is not row[0]:
                axes.sharey(row[0])
            draw_tradeoff(axes, mine, pd.concat(parts) if alike else mine)
            axes.set_title(letter(count, rows * columns) + panel.title, fontsize=10)
            count += 1
    figure.suptitle(definition.title, fontsize=11)
    legend_below(figure, [axes for row in grid for axes in row], columns=3 if columns == 1 else 5)
    return figure


def _of_methods(points: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    return select(points, points["method"].isin(methods))


def draw_tradeoff(axes: Axes, points: pd.DataFrame, scaled_for: pd.DataFrame | None = None) -> None:
    """Draws lines over the budgets, with markers for runs without privacy apart at the right.

    The y axis fits the points, or those of `scaled_for`.
    """
    budgets = values_of(points, "x")
    place = {budget: number + _GAP * math.isinf(budget) for number, budget in enumerate(budgets)}
    curves = in_order(points["curve"])
    for number, curve in enumerate(curves):
        mine = where(points, curve=curve).sort_values("x")
        # Without lines, markers above one another would hide each other.
        shift = _SIDE_BY_SIDE * ((number + 0.5) / len(curves) - 0.5) if len(budgets) == 1 else 0.0
        _draw_curve(axes, mine, {budget: place[budget] + shift for budget in mine["x"]})
    if len(budgets) > 1 and math.isinf(budgets[-1]):
        axes.axvline(place[math.inf] - (1 + _GAP) / 2, color="0.6", linewidth=0.8, linestyle=":")
    named = ["none" if math.isinf(budget) else f"{budget:g}" for budget in budgets]
    axes.set_xticks([place[budget] for budget in budgets], named)
    axes.set_xlabel(r"privacy budget $\varepsilon$")
    if not points.empty:
        axes.set_ylabel(metric_label(points["metric"].iloc[0]))
        scale_metric(axes, points if scaled_for is None else scaled_for)


def _draw_curve(axes: Axes, points: pd.DataFrame, place: dict[float, float]) -> None:
    (curve,) = values_of(points, "curve")
    look = look_of(curve)
    style = look.line_style()
    private = select(points, points["x"] < math.inf)
    x = [place[budget] for budget in private["x"]]
    axes.plot(x, private["mean"], label=label_of(curve), **style)
    draw_band(axes, x, private, look.colour)
    without = where(points, x=math.inf)
    if not without.empty:
        x = [place[math.inf]] * len(without)
        axes.plot(x, without["mean"], **look.line_style(linestyle="none"))
    # A band has no width at a single place.
    alone = points if len(private) < 2 else without
    if not alone.empty:
        x = [place[budget] for budget in alone["x"]]
        axes.errorbar(
            x, alone["mean"], alone["std"], color=look.colour, linestyle="none", linewidth=1.0
        )
