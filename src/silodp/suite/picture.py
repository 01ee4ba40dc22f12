"""The picture of the suite: each method's excess over the best simple choice, by federation."""

import math
from collections.abc import Sequence
from pathlib import Path

from silodp.pictures.pictures import COLOURS, new_grid, save
from silodp.suite.cases import Case
from silodp.suite.cells import BEST
from silodp.suite.comparing import Line

MARKERS = "osD^vPX*"
LEAST, MOST = 0.5, 2.0  # times the best simple choice; what is beyond stands at the end


def draw(lines: Sequence[Line], cases: Sequence[Case], path: Path) -> Path | None:
    """Draws and writes it; None if nothing can be compared yet."""
    compared = [line for line in lines if line.verdict]
    if not compared:
        return None
    epsilons = sorted({line.epsilon for line in compared})
    rows = sorted({line.row for line in compared if not line.row.startswith(BEST)})
    there = {line.federation for line in compared}
    shown = [case for case in cases if case.name in there]
    figure, grid = new_grid(3.2 * len(epsilons) + 2.5, 0.32 * len(shown) + 1.8, 1, len(epsilons))
    for column, (axes, epsilon) in enumerate(zip(grid[0], epsilons, strict=True)):
        for number, row in enumerate(rows):
            own = {
                one.federation: one for one in compared if (one.row, one.epsilon) == (row, epsilon)
            }
            places = [place for place, case in enumerate(shown) if case.name in own]
            ratios = [1 + own[shown[place].name].excess for place in places]
            axes.plot(
                [min(MOST, max(LEAST, ratio)) for ratio in ratios],
                [place + 0.12 * (number - (len(rows) - 1) / 2) for place in places],
                MARKERS[number % len(MARKERS)],
                color=COLOURS[number % len(COLOURS)],
                markersize=5,
                alpha=0.8,
                label=row,
            )
        axes.axvline(1, color="black", linewidth=1)
        axes.set_xscale("log")
        axes.set_xlim(LEAST * 0.96, MOST * 1.04)
        ticks = (0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_yticks(range(len(shown)), [case.title for case in shown] if column == 0 else [])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        title = "no privacy" if math.isinf(epsilon) else f"epsilon {epsilon:g}"
        axes.set_title(title)
        axes.set_xlabel("loss over that of the best\nsimple choice (less is better)")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(rows)))
    return save(figure, path)
