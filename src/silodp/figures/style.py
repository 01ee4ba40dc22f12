"""What all drawings share: bands, axes, budgets, legends."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from silodp.models.metrics import METRICS, get_metric

_SHOWN = 2.5  # times the least error


def draw_band(axes: Axes, x: Sequence[float], points: pd.DataFrame, colour: str) -> None:
    """One standard deviation over seeds, to both sides of the mean."""
    low, high = points["mean"] - points["std"], points["mean"] + points["std"]
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def metric_label(metric: str) -> str:
    """Of an axis, with the direction that is better."""
    return get_metric(metric).label if metric in METRICS else f"test {metric}"


def scale_metric(axes: Axes, points: pd.DataFrame) -> None:
    """A log axis for errors that differ by more than their half; a plain one for shares.

    Errors far above the best leave the drawing at its top: they would squeeze what matters.
    """
    means = points["mean"].to_numpy(float)
    means = means[np.isfinite(means)]
    if not len(means) or not get_metric(points["metric"].iloc[0]).by_ratio:
        return
    least, most = means.min(), means.max()
    if not 0 < 2 * least <= most:
        return
    most = min(most, _SHOWN * least)
    axes.set_yscale("log")
    axes.set_ylim(0.93 * least, 1.07 * most)
    plain_log_ticks(axes, most / least)


def plain_log_ticks(axes: Axes, ratio: float) -> None:
    """Numbers as one writes them, at as many places as fit a range of that ratio."""
    places = (1, 1.5, 2, 3, 4, 5, 7) if ratio < 6 else (1, 2, 3, 5) if ratio < 40 else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=places))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())


def budget(epsilon: float) -> str:
    """As the paper writes it."""
    return r"non-private" if math.isinf(epsilon) else rf"$\varepsilon$ = {epsilon:g}"


def legend_below(figure: Figure, all_axes: Iterable[Axes], columns: int) -> None:
    """One legend for all drawings, each label once."""
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
