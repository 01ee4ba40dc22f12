"""The picture of `silodp theory`: error against lambda, with and without privacy."""

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from silodp.pictures.pictures import COLOURS, new_figure, save
from silodp.theory import closed_forms, errors, lambda_stars
from silodp.theory.setting import Setting
from silodp.theory.simulation import Simulation, errors_of_trials, mean_and_standard_error

_POINTS = 13


def draw_theory(setting: Setting, simulation: Simulation | None, path: Path) -> Path:
    """Draws lines for the closed forms, points for the simulation, stars at the best lambda.

    The ends 0 and infinity, which a log axis cannot show, stand beside the lines.
    """
    figure, (axes,) = new_figure(7.2, 4.8)
    plain = setting.without_privacy
    views = {
        "private": (setting, COLOURS[0], "-", "o"),
        "not private": (plain, COLOURS[1], "--", "s"),
    }
    if not np.isfinite(setting.epsilon).any():
        del views["private"]
    stars = [_star(view) for view, *_ in views.values()]
    low = math.floor(min(-3.0, math.log10(min(stars)) - 1))
    high = math.ceil(max(2.0, math.log10(max(stars)) + 1))
    for name, (view, colour, line, marker) in views.items():
        _draw(axes, name, view, simulation, (low, high), colour, line, marker)
    if not setting.equal:
        variances = setting.local_variances
        own = errors(lambda_stars(variances, setting.tau), variances, setting.tau).mean()
        label = "private: each silo with its own lambda_k*"
        axes.axhline(own, color=COLOURS[2], linestyle=":", linewidth=2, label=label)
    axes.plot(
        [], [], "*", color="grey", markeredgecolor="black", markersize=12, label="best lambda"
    )
    _label_ends(axes, low, high)
    axes.set(ylabel="mean squared error", xlabel="lambda (to the right: federate more)")
    axes.set_title(_title(setting), fontsize=10)
    axes.margins(y=0.12)
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize="small"
    )
    return save(figure, path)


def _star(setting: Setting) -> float:
    return float(setting.local_variances.mean()) / setting.tau**2


def _draw(
    axes: Axes,
    name: str,
    setting: Setting,
    simulation: Simulation | None,
    decades: tuple[int, int],
    colour: str,
    line: str,
    marker: str,
) -> None:
    variance, silos = float(setting.local_variances.mean()), setting.silos

    def error(lam):
        return closed_forms.error(lam, variance, setting.tau, silos)

    fine = np.logspace(*decades, 400)
    axes.loglog(fine, error(fine), color=colour, linestyle=line, label=f"{name}: closed form")
    ends = 10.0 ** (decades[0] - 0.5), 10.0 ** (decades[1] + 0.5)
    axes.plot(ends, error(np.array([0.0, math.inf])), marker, color=colour, fillstyle="none", ms=8)
    if simulation is not None:
        means = simulation.means(setting.sigma_dp)
        lams = np.logspace(*decades, _POINTS)
        all_lams = np.array([0.0, *lams, math.inf])
        mean, spread = mean_and_standard_error(
            errors_of_trials(all_lams, means, simulation.centres)
        )
        axes.errorbar(
            [ends[0], *lams, ends[1]],
            mean,
            yerr=2 * spread,
            color=colour,
            marker=marker,
            markersize=4,
            linestyle="none",
            capsize=2,
            label=f"{name}: simulated, ± 2 standard errors",
        )
    star = _star(setting)
    axes.plot(star, error(star), "*", color=colour, markeredgecolor="black", markersize=15)
    axes.annotate(
        f"lambda* {star:.3g}",
        (star, error(star)),
        xytext=(0, 11 if name == "private" else -17),  # the side where no line is
        textcoords="offset points",
        ha="center",
        fontsize="small",
    )


def _label_ends(axes: Axes, low: int, high: int) -> None:
    decades = range(low, high + 1, max(1, (high - low) // 6))
    places = [10.0 ** (low - 0.5), *(10.0**decade for decade in decades), 10.0 ** (high + 0.5)]
    names = ["0\nlocal", *(f"$10^{{{decade}}}$" for decade in decades), "∞\nFedAvg"]
    axes.set_xticks(places, names)
    axes.minorticks_off()
    axes.set_xlim(10.0 ** (low - 0.9), 10.0 ** (high + 0.9))


def _title(setting: Setting) -> str:
    def shown(values: np.ndarray) -> str:
        least, most = values.min(), values.max()
        return f"{least:g}" if least == most else f"{least:g} to {most:g}"

    return (
        f"{setting.silos} silos, records {shown(setting.records)}, sigma {shown(setting.sigma)}, "
        f"tau {setting.tau:g}, epsilon {shown(setting.epsilon)}, delta {setting.delta:g}"
    )
