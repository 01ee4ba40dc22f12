"""The picture of what budgets buy in few messages: over budgets, and for each silo."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
    PercentFormatter,
)

from silodp.advice.messages import MessageAdvice
from silodp.base.text import in_picture
from silodp.pictures.pictures import COLOURS, new_figure, save

_STYLES = {1: (COLOURS[1], ":", "//"), 0: (COLOURS[0], "-", "")}
_MOST_NAMED = 25
_LEGEND: dict[str, Any] = {"fontsize": "small", "framealpha": 0.9, "edgecolor": "none"}


def draw_message_advice(advice: MessageAdvice, path: Path) -> Path:
    """Draws two panels: the range over budgets, and that of each silo at its own."""
    high = 4.4 if len(advice.silos) > _MOST_NAMED else max(4.4, 1.4 + 0.24 * len(advice.silos))
    figure, (left, right) = new_figure(10.4, high, panels=2)
    whose = in_picture(advice.data) if advice.data else "Silos"
    figure.suptitle(
        f"{whose}: what budgets buy in few messages, of what a linear model could tell", fontsize=11
    )
    _draw_budgets(advice, left)
    _draw_silos(advice, right)
    return save(figure, path)


def _draw_budgets(advice: MessageAdvice, axes: Axes) -> None:
    other = 1 if advice.messages != 1 else 3
    budgets: list[float] = []
    for number, key in ((other, 1), (advice.messages, 0)):
        rows = [row for row in advice.overall if row["messages"] == number]
        # Without privacy, all multiples of the budget are one.
        budgets = [
            row["epsilon"] if math.isfinite(row["epsilon"]) else row["times"] for row in rows
        ]
        low, high = ([row[end] for row in rows] for end in ("low", "high"))
        colour, line, hatch = _STYLES[key]
        label = f"{number} message{'s' * (number != 1)}"
        face = {"alpha": 0.18, "linewidth": 0, "facecolor": colour}
        axes.fill_between(budgets, low, high, hatch=hatch, edgecolor=colour, label=label, **face)
        for end in (low, high):
            axes.plot(budgets, end, color=colour, linestyle=line, linewidth=1.6)
    axes.set_xscale("log")
    axes.set_xticks(budgets)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    several = len({silo["epsilon"] for silo in advice.silos}) > 1
    label = "largest epsilon, others in proportion" if several else "epsilon"
    axes.set(xlabel=label, ylabel="predicted part of what features tell", ylim=(-0.02, 1.02))
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_title("mean over silos, from differing to alike", fontsize=10)
    axes.legend(loc="upper left", **_LEGEND)


def _draw_silos(advice: MessageAdvice, axes: Axes) -> None:
    rows = sorted(advice.silos, key=lambda silo: -silo["low"] - silo["high"])
    low, high = (np.array([row[end] for row in rows]) for end in ("low", "high"))
    axes.set_title(f"each silo, {advice.messages} messages, its own budget", fontsize=10)
    if len(rows) <= _MOST_NAMED:
        axes.hlines(range(len(rows)), low, high, linewidth=6, color=COLOURS[0], alpha=0.75)
        names = [f"{in_picture(row['silo'], 18)} ({row['records']:,})" for row in rows]
        axes.set_yticks(range(len(rows)), names, fontsize="small")
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set(xlabel="predicted part of what features tell", xlim=(-0.02, 1.02))
        axes.xaxis.set_major_formatter(PercentFormatter(1))
        return
    records = [row["records"] for row in rows]
    axes.vlines(records, low, high, linewidth=2, color=COLOURS[0], alpha=0.4)
    axes.scatter(records, low, s=9, color=COLOURS[0])
    axes.scatter(records, high, s=9, color=COLOURS[0])
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set(xlabel="records of the silo", ylim=(-0.02, 1.02))
    axes.yaxis.set_major_formatter(PercentFormatter(1))
