"""The picture of an advice: what joining does for each silo, and what another tau changes."""

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from silodp.advice.advise import METHODS, Advice
from silodp.base.text import in_picture
from silodp.pictures.pictures import COLOURS, new_figure, save
from silodp.theory import errors, lambda_stars

_STYLES: dict[str, dict[str, Any]] = {
    "local": {"color": COLOURS[1], "linestyle": ":", "label": "alone (local)"},
    "fedavg": {"color": COLOURS[0], "linestyle": "--", "label": "one model for all (FedAvg)"},
    "mrmtl": {"color": COLOURS[2], "linestyle": "-", "label": "MR-MTL at the silo's best lambda"},
}
_GAIN = "#B7DFCF"
_LEGEND: dict[str, Any] = {"fontsize": "small", "framealpha": 0.9, "edgecolor": "none"}
_MOST_NAMED = 8
# The axis of tau reaches from tau divided by this to tau times this.
_TAU_REACH = 6.0


def draw_advice(advice: Advice, path: Path) -> Path:
    """Draws two panels: predicted error of each silo by records, and mean error by tau."""
    figure, (left, right) = new_figure(10.4, 4.4, panels=2)
    budgets = sorted({silo["epsilon"] for silo in advice.silos})
    span = " to ".join(f"{budget:g}" for budget in dict.fromkeys((budgets[0], budgets[-1])))
    whose = in_picture(advice.data) if advice.data else "Silos"
    figure.suptitle(
        f"{whose}, epsilon {span}: {advice.joining} of {len(advice.silos)} silos gain by joining",
        fontsize=11,
    )
    _draw_silos(advice, left)
    _draw_other_taus(advice, right)
    return save(figure, path)


def _draw_silos(advice: Advice, axes: Axes) -> None:
    """Draws each silo's errors; a bar spans from MR-MTL up to the better of both ends."""
    records = np.array([silo["records"] for silo in advice.silos], float)
    local, fedavg, mrmtl = (np.array([silo[m] for silo in advice.silos]) for m in METHODS)
    axes.vlines(records, mrmtl, np.minimum(local, fedavg), color=_GAIN, linewidth=5, zorder=1)
    axes.scatter(records, fedavg, s=60, color=COLOURS[0], marker="_", linewidth=1.8, zorder=2)
    axes.scatter(records, local, s=22, facecolors="none", edgecolors=COLOURS[1], zorder=3)
    axes.scatter(records, mrmtl, s=16, color=COLOURS[2], marker="D", zorder=4)
    if len(records) <= _MOST_NAMED:
        for silo, x, y in zip(advice.silos, records, local, strict=True):
            name = in_picture(silo["silo"], 16)
            axes.annotate(name, (x, y), (5, 5), textcoords="offset points", fontsize="small")
    if len(set(records)) > 1:
        _in_logs(axes, "x")
    if min(local.min(), fedavg.min(), mrmtl.min()) > 0:
        _in_logs(axes, "y")
    axes.set(xlabel="records of the silo", ylabel="predicted error above the unavoidable")
    axes.set_title("each silo", fontsize=10)
    marks = {"local": ("o", "none"), "fedavg": ("_", None), "mrmtl": ("D", None)}
    handles: list[Line2D | Patch] = [
        Line2D(
            [],
            [],
            color=_STYLES[method]["color"],
            marker=marker,
            markerfacecolor=face,
            linestyle="",
            markersize=8 if marker == "_" else 5,
            markeredgewidth=1.8 if marker == "_" else 1.0,
            label=_STYLES[method]["label"],
        )
        for method, (marker, face) in marks.items()
    ]
    handles.append(Patch(color=_GAIN, label="gain over the better of both"))
    axes.legend(handles=handles, **_LEGEND)


def _draw_other_taus(advice: Advice, axes: Axes) -> None:
    """Draws mean errors over tau: where the order of the methods would change."""
    shares = np.array([silo["records"] for silo in advice.silos], float)
    shares /= shares.sum()
    weights = shares if advice.weights == "records" else np.ones_like(shares)
    variances = np.array([silo["local"] for silo in advice.silos])
    tau = advice.spread.tau
    if tau > 0:
        taus = np.geomspace(tau / _TAU_REACH, tau * _TAU_REACH, 120)
        _in_logs(axes, "x")
    else:
        taus = np.linspace(0, 2 * math.sqrt(variances.mean()) or 1.0, 120)

    def mean_error(lams: float | np.ndarray, t: float) -> float:
        return float(shares @ errors(lams, variances, t, weights))

    by_method = {
        "local": [mean_error(0.0, t) for t in taus],
        "fedavg": [mean_error(math.inf, t) for t in taus],
        "mrmtl": [mean_error(lambda_stars(variances, t, weights), t) for t in taus],
    }
    better = np.minimum(by_method["local"], by_method["fedavg"])
    axes.fill_between(taus, by_method["mrmtl"], better, color=_GAIN, linewidth=0)
    for method, values in by_method.items():
        axes.plot(taus, values, linewidth=1.8, **_STYLES[method])
    if min(map(min, by_method.values())) > 0:
        _in_logs(axes, "y")
    if advice.spread.tau_range is not None:
        axes.axvspan(
            *advice.spread.tau_range,
            color="grey",
            alpha=0.15,
            linewidth=0,
            label="two standard errors",
        )
    origin = "estimate" if advice.spread.releases else "guess"
    axes.axvline(tau, color="black", linewidth=1.0, label=f"the {origin}: tau {tau:.3g}")
    axes.set(xlabel="tau: how far silos differ", ylabel="mean predicted error (by records)")
    axes.set_title("if silos differ less or more", fontsize=10)
    axes.set_xlim(taus[0], taus[-1])
    axes.legend(**_LEGEND)


def _in_logs(axes: Axes, which: Literal["x", "y"]) -> None:
    """Sets a logarithmic scale with plain numbers, so that short ranges can be read as well."""
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
