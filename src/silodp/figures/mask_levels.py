"""Rotated & Masked MNIST: privacy against utility, a drawing for each mask ratio.

Rotations make clusters of silos, masks make silos of a cluster differ: from left to right, silos
have less in common.
"""

import pandas as pd
from matplotlib.figure import Figure

from silodp.figures.definition import Definition
from silodp.figures.panels import heading, letter, shown_panels
from silodp.figures.settings import as_numbers
from silodp.figures.style import legend_below
from silodp.figures.tradeoffs import best_points, draw_tradeoff
from silodp.pictures.pictures import new_grid
from silodp.sweeps.settings import values_of, where

_LEVEL = "mask_ratio"


def numbers(definition: Definition, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The points drawn: x is epsilon, and `mask_ratio` says which drawing they are in."""
    panels = shown_panels(definition, tables)
    parts = ((panel.name, best_points(tables[panel.name], also_by=(_LEVEL,))) for panel in panels)
    return as_numbers(definition, parts)


def draw(definition: Definition, tables: dict[str, pd.DataFrame]) -> Figure:
    """Draws a row per panel and a column per mask ratio."""
    points = numbers(definition, tables)
    panels = shown_panels(definition, set(points["panel"]))
    levels = values_of(points, _LEVEL)
    rows, columns = len(panels), len(levels)
    figure, grid = new_grid(max(5.0, 3.2 * columns), 3.1 * rows + 1.1, rows, columns)
    for panel, row in zip(panels, grid, strict=True):
        for number, (axes, level) in enumerate(zip(row, levels, strict=True)):
            mine = where(points, **{"panel": panel.name, _LEVEL: level})
            draw_tradeoff(axes, mine)
            title = f"masked {100 * level:g} %" if level else "no mask"
            title = title if rows == 1 else f"{panel.title}, {title}"
            axes.set_title(letter(number, columns) + title, fontsize=10)
            if number:
                axes.set_ylabel("")
    figure.suptitle(heading(definition, panels), fontsize=11)
    legend_below(figure, [axes for row in grid for axes in row], columns=5)
    return figure
