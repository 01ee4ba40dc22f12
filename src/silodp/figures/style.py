"""What all drawings share: bands, axes, budgets, legends."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from silodp.models.metrics import METRICS, get_metric

_LARGEST = 2.5  # times the least error: the top of the axis


def draw_band(axes: Axes, x: Sequence[float], points: pd.DataFrame, colour: str) -> None:
    """Draws a band of one standard deviation over seeds to both sides of the mean."""
    low, high = points["mean"] - points["std"], points["mean"] + points["std"]
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def metric_label(metric: str) -> str:
    """Label of the metric's axis, with the direction that is better."""
    return get_metric(metric).label if metric in METRICS else f"test {metric}"


def scale_metric(axes: Axes, points: pd.DataFrame) -> None:
    """Sets a log axis for errors that differ by a factor of 2 or more; else keeps a plain one.

    Errors far above the best are cut off at the top: they would squeeze the rest.
    """
    means = points["mean"].to_numpy(float)
    means = means[np.isfinite(means)]
    if not len(means) or not get_metric(points["metric"].iloc[0]).by_ratio:
        return
    least, most = means.min(), means.max()
    if not 0 < 2 * least <= most:
        return
    most = min(most, _LARGEST * least)
    axes.set_yscale("log")
    axes.set_ylim(0.93 * least, 1.07 * most)
    plain_log_ticks(axes, most / least)


def plain_log_ticks(axes: Axes, ratio: float) -> None:
    """Sets plain numbers as ticks of a log axis, as many as fit a range of this ratio."""
    places = (1, 1.5, 2, 3, 4, 5, 7) if ratio < 6 else (1, 2, 3, 5) if ratio < 40 else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=places))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())


def budget(epsilon: float) -> str:
    """A budget as the paper writes it."""
    return r"non-private" if math.isinf(epsilon) else rf"$\varepsilon$ = {epsilon:g}"


def legend_below(figure: Figure, all_axes: Iterable[Axes], columns: int) -> None:
    """Puts one legend below all drawings, with each label once."""
    entries = {}
    for axes in all_axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center",
        ncols=min(columns, max(len(entries), 1)),
        fontsize="small",
        frameon=False,
    )
