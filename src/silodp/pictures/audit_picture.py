"""The picture of an audit: scores in both worlds, the bounds they prove, and the checks."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from silodp.auditing.audit import Audit
from silodp.base.text import count, in_picture
from silodp.pictures.pictures import COLOURS, new_figure, save

# Quantiles of the scores that the histogram spans; a diverged model may score anything.
_QUANTILES = (0.001, 0.999)
_BINS = 60
# Smaller p-values are drawn here.
_LEAST = 1e-12


def draw_audit(audit: Audit, path: Path) -> Path:
    """Draws three panels: the attack's scores in both worlds; bounds and claim; p-values."""
    figure, (left, middle, right) = new_figure(14.4, 4.0, panels=3)
    silo, data = in_picture(audit.silo), in_picture(audit.data)
    rounds = count(audit.rounds, audit.round_name)
    figure.suptitle(f"Audit of silo {silo}: {audit.method} on {data}, {rounds}", fontsize=11)
    _draw_worlds(audit, left)
    _draw_bound(audit, middle)
    _draw_checks(audit, right)
    return save(figure, path)


def _draw_worlds(audit: Audit, axes: Axes) -> None:
    both = np.concatenate([audit.present, audit.absent])
    low, high = np.quantile(both, _QUANTILES)
    threshold = audit.sign * audit.threshold
    if abs(threshold) < 1e30:
        low, high = min(low, threshold), max(high, threshold)
    margin = 0.02 * (high - low) or 1.0
    bins = np.linspace(low - margin, high + margin, _BINS)
    other = "with its opposite" if audit.relation == "replace-one" else "without the canary"
    for scores, colour, style, label in (
        (audit.absent, COLOURS[0], "-", other),
        (audit.present, COLOURS[1], "--", "with the canary"),
    ):
        # Scores beyond the bins are counted in the first or last one, so that none is hidden.
        clipped = np.clip(scores, bins[0], bins[-1])
        weights = np.full(len(clipped), 1 / len(clipped))
        axes.hist(clipped, bins, weights=weights, color=colour, alpha=0.25)
        axes.hist(
            clipped,
            bins,
            weights=weights,
            color=colour,
            histtype="step",
            linewidth=1.6,
            linestyle=style,
            label=label,
        )
    side = "right" if audit.sign > 0 else "left"
    axes.axvline(threshold, color="black", linewidth=1.2, label=f'says "canary" to the {side}')
    axes.set(xlabel=audit.attack.replace("$", r"\$"), ylabel="part of the runs")
    axes.set_title(f"{len(audit.present):,} runs in each world", fontsize=10)
    axes.set_ylim(top=1.45 * axes.get_ylim()[1])
    axes.legend(frameon=False, fontsize="small", loc="upper left")


def _draw_bound(audit: Audit, axes: Axes) -> None:
    claimed, most = audit.claimed_epsilon, audit.largest_bound
    bounds = (audit.lower_bound, audit.curve_bound)
    colour = COLOURS[2] if audit.passed else COLOURS[1]
    axes.axhline(claimed, color="black", linewidth=1.6, label=f"claimed: {claimed:.3g}")
    bars = axes.bar(
        [0, 1],
        bounds,
        width=0.5,
        color=colour,
        hatch="" if audit.passed else "//",
        edgecolor="white",
        label=f"proven with confidence {audit.confidence:g}",
    )
    axes.bar_label(bars, [f"{bound:.3g}" for bound in bounds])
    axes.axhline(
        most, color="grey", linestyle=":", linewidth=1.6, label=f"most it could prove: {most:.3g}"
    )
    axes.set(xlim=(-0.6, 1.6), ylabel=f"epsilon at delta {audit.delta:g}")
    axes.set_xticks([0, 1], ["whatever\nit does", "by the plan's\nwhole curve"])
    axes.set_ylim(0, 1.5 * max(claimed, *bounds, most))
    broken = max(bounds) > claimed
    verdict = "THE CLAIM IS BROKEN" if broken else "no bound is above the claim"
    axes.set_title(verdict, fontsize=10, fontweight="bold" if broken else "normal")
    axes.legend(frameon=False, fontsize="small", loc="upper center")


def _draw_checks(audit: Audit, axes: Axes) -> None:
    """Draws the p-value of each check by kind, and the limit that honest runs rarely go below."""
    limit = audit.false_alarm / max(1, len(audit.checks))
    kinds = list(dict.fromkeys(check.kind for check in audit.checks))
    for passed, colour, marker in ((True, COLOURS[2], "o"), (False, COLOURS[1], "x")):
        checks = [check for check in audit.checks if check.passed == passed]
        axes.scatter(
            [max(check.p_value, _LEAST) for check in checks],
            [kinds.index(check.kind) for check in checks],
            color=colour,
            marker=marker,
            alpha=0.7,
            label=f"{len(checks)} {'as planned' if passed else 'not so'}",
        )
    axes.axvline(limit, color="black", linewidth=1.2, label=f"limit: {limit:.1g}")
    axes.set_xscale("log")
    axes.set(xlabel="p-value", xlim=(_LEAST / 3, 3.0), ylim=(len(kinds) + 0.3, -0.7))
    axes.set_yticks(range(len(kinds)), kinds)
    failed = len(audit.failed)
    verdict = f"{failed} CHECKS FAILED" if failed else "all checks passed"
    axes.set_title(verdict, fontsize=10, fontweight="bold" if failed else "normal")
    axes.legend(frameon=False, fontsize="small", loc="lower left")
