"""How each method looks, the same in all figures, and what all drawings share."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from silodp.experiments.pictures import METRIC_NAMES

EVERY_ROUND = "ifca every round"
TUNED = r"($\lambda^*$)"
_SHOWN = 2.5  # times the least error
LineStyle = str | tuple[int, tuple[float, ...]]


@dataclass(frozen=True)
class Look:
    """Of one curve. Line and marker tell methods apart in grey as well."""

    label: str
    colour: str
    line: LineStyle
    marker: str
    tuned: bool = False  # lambda is chosen
    hollow: bool = False
    width: float = 1.4

    def line_style(self, **more: Any) -> dict[str, Any]:
        """For `Axes.plot`."""
        style = {"color": self.colour, "linestyle": self.line, "marker": self.marker}
        style |= {"markersize": 7 if self.marker == "*" else 5, "linewidth": self.width}
        style |= {"markerfacecolor": "white"} if self.hollow else {}
        return style | more


# Okabe and Ito's colours. Kin share one: mean-pull and MR-MTL, warm starts and what follows them.
_BLACK, _GREY, _BLUE, _SKY = "#000000", "#8A8A8A", "#0072B2", "#56B4E9"
_VERMILLION, _GREEN, _PURPLE, _ORANGE = "#D55E00", "#009E73", "#CC79A7", "#E69F00"
LOOKS = {
    "local": Look("Local", _BLACK, "-", "o"),
    "fedavg": Look("FedAvg", _BLUE, "--", "s"),
    "finetune": Look("Local finetuning", _SKY, "-.", "^"),
    "ditto": Look("Ditto", _GREEN, "--", "v", tuned=True),
    "mocha": Look("Mocha", _GREY, ":", "P", tuned=True),
    "ifca": Look("IFCA", _ORANGE, "-.", "X"),
    EVERY_ROUND: Look("IFCA (every round)", _ORANGE, ":", "X", hollow=True),
    "mrmtl": Look("MR-MTL", _VERMILLION, "-", "D", tuned=True, width=2.0),
    "meanpull": Look("Mean-pull", _VERMILLION, (0, (4, 1, 1, 1)), "d", tuned=True, hollow=True),
    "ebmtl": Look("EB-MTL (ours)", _PURPLE, "-", "*", width=2.0),
}
_ORDER = list(LOOKS)


def curve_name(method: str, select_fraction: float = math.nan) -> str:
    """The curve that a run is a point of: IFCA is two, by how long silos choose.

    Such as "mrmtl", "ifca 10%", "ifca every round" and "ifca 5%+mrmtl".
    """
    first, plus, then = method.partition("+")
    if first != "ifca" or math.isnan(select_fraction):
        return method
    if not plus and select_fraction >= 1:
        return EVERY_ROUND
    return f"ifca {100 * select_fraction:g}%{plus}{then}"


def look_of(curve: str) -> Look:
    """How a curve is drawn. Warm starts are hollow and dotted, in the colour of what follows."""
    if curve in LOOKS:
        return LOOKS[curve]
    first, _, then = curve.partition("+")
    share = first.removeprefix("ifca").strip()
    if first.startswith("ifca") and not then:
        return replace(LOOKS["ifca"], label=f"IFCA ({share})" if share else "IFCA")
    if then in LOOKS:
        base = LOOKS[then]
        label = f"{base.label} (IFCA {share})" if share else f"{base.label} (after IFCA)"
        return replace(base, label=label, line=(0, (1, 1)), hollow=True)
    return Look(curve, _GREY, "-", "x")  # a method of somebody else's


def label_of(curve: str, tuned: bool = True) -> str:
    """In legends; with lambda* where lambda is chosen, unless the drawing goes along lambda."""
    look = look_of(curve)
    return f"{look.label} {TUNED}" if tuned and look.tuned else look.label


def in_order(curves: Iterable[str]) -> list[str]:
    """Curves in the order of legends, the same in all figures."""

    def place(curve: str) -> tuple[int, int, str]:
        first, _, then = curve.partition("+")
        if curve in _ORDER:
            return 0, _ORDER.index(curve), curve
        if then:
            return 1, _ORDER.index(then) if then in _ORDER else len(_ORDER), curve
        return 0, _ORDER.index("ifca") if first.startswith("ifca") else len(_ORDER), curve

    return sorted(dict.fromkeys(curves), key=place)


def draw_band(axes: Axes, x: Sequence[float], points: pd.DataFrame, colour: str) -> None:
    """One standard deviation over seeds, to both sides of the mean."""
    low, high = points["mean"] - points["std"], points["mean"] + points["std"]
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def metric_label(metric: str) -> str:
    """Of an axis, with the direction that is better."""
    return METRIC_NAMES.get(metric, f"test {metric}")


def scale_metric(axes: Axes, points: pd.DataFrame) -> None:
    """A log axis for errors that differ by more than their half; a plain one for shares.

    Errors far above the best leave the drawing at its top: they would squeeze what matters.
    """
    means = points["mean"].to_numpy(float)
    means = means[np.isfinite(means)]
    if not len(means) or points["metric"].iloc[0] != "mse":
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
