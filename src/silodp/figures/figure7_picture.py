"""Figure 7, drawn: three panels, one legend below them."""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from silodp.figures.figure7 import EPSILON, MEAN_TRIALS, RECORDS, SILOS, Errors, Panel
from silodp.pictures.pictures import COLOURS, new_figure, save_both

_HETEROGENEITY = ("low", "moderate", "high")
# Markers of tuned curves, the cheapest first: from dark to light, an order in grey as well.
_MARKERS = "osD^vPX"
_EVERY = 6


def draw_figure7(panels: list[Panel], out: Path) -> list[Path]:
    """Writes figure7.png and, for print, figure7.pdf."""
    figure, all_axes = new_figure(11.5, 5.4, panels=len(panels))
    for axes, panel, words in zip(all_axes, panels, _HETEROGENEITY, strict=True):
        _draw(axes, panel)
        title = f"({panel.letter}) {words} heterogeneity, tau {panel.tau:g}"
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("lambda (to the right: federate more)")
    all_axes[0].set_ylabel("mean squared error")
    figure.suptitle(
        f"Tuning lambda costs privacy: {SILOS} silos of {RECORDS} records, epsilon {EPSILON:g}, "
        f"{MEAN_TRIALS} trials on average",
        fontsize=11,
    )
    handles, names = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize="small")
    return save_both(figure, out, "figure7")


def _draw(axes: Axes, panel: Panel) -> None:
    shades = matplotlib.colormaps["cividis"](np.linspace(0, 0.75, len(panel.tuned) - 1))
    _draw_curve(axes, panel.without, "non-private", color="black", linestyle="--", linewidth=1.2)
    _draw_curve(axes, panel.private, "private, no tuning", color=COLOURS[2], linewidth=2.8)
    for number, tuned in enumerate(panel.tuned):
        draw = tuned.curve.trials
        assert draw is not None
        style: dict[str, Any] = {"marker": _MARKERS[number], "markersize": 4, "linewidth": 1.0}
        style["markevery"] = (number % _EVERY, _EVERY)
        if draw.poisson:
            label, colour = f"tuned, Poisson, mu {draw.mean:g}", COLOURS[3]
            style["linestyle"] = "-."
        else:
            gamma = f"{draw.gamma:.2g}"
            label, colour = f"tuned, TNB, eta {draw.shape:g}, gamma {gamma}", shades[number]
        _draw_curve(axes, tuned, label, color=colour, **style)
    styles = {"local": (":", "untuned local training"), "FedAvg": ((0, (6, 2)), "untuned FedAvg")}
    for name, value in panel.private.ends.items():
        style, label = styles[name]
        axes.axhline(value, color=COLOURS[2], linestyle=style, linewidth=1.3, label=label)
    _draw_estimate(axes, panel)
    axes.set_xscale("log")
    axes.set_yscale("log")


def _draw_curve(axes: Axes, errors: Errors, label: str, **style: Any) -> None:
    drawable = (errors.lams > 0) & np.isfinite(errors.lams)
    lams, mean = errors.lams[drawable], errors.mean[drawable]
    axes.plot(lams, mean, label=label, **style)
    if errors.standard_error is not None:
        spread = errors.standard_error[drawable]
        band = {"color": style["color"], "alpha": 0.2, "linewidth": 0}
        axes.fill_between(lams, mean - spread, mean + spread, **band)


def _draw_estimate(axes: Axes, panel: Panel) -> None:
    """Draws a star at the median estimate, or at the border where that is FedAvg."""
    finite = panel.private.lams[np.isfinite(panel.private.lams)]
    axes.plot(
        np.clip(panel.estimated.lams, finite[finite > 0].min(), finite.max()),
        panel.estimated.mean,
        "*",
        color=COLOURS[1],
        markeredgecolor="black",
        markersize=16,
        zorder=5,
        clip_on=False,
        linestyle="none",
        label="private, lambda estimated for free",
    )
