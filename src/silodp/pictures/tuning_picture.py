"""The picture of a tuned run: what silos chose, and what that cost in noise."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from silodp.base.text import in_picture
from silodp.models.metrics import get_metric
from silodp.pictures.pictures import COLOURS, new_figure, save
from silodp.results.result import Result

_WAYS = {"untuned": "untuned", "tuned": "tuned (this run)", "naive": "naive search"}
_HATCHES = ("", "//", "..")  # differ in grey as well


def draw_tuning(result: Result, path: Path) -> Path:
    """Draws what silos chose, a panel per hyperparameter; then noise, and the runs compared."""
    tuning = result.tuning
    assert tuning is not None
    compared = "compared" in tuning
    number = len(tuning["grid"]) + 1 + compared
    figure, panels = new_figure(3.6 * number + 1, 4.2, panels=number)
    for axes, (name, values) in zip(panels, tuning["grid"].items(), strict=False):
        _draw_chosen(axes, name, values, tuning["chosen"])
    noise, *more = panels[len(tuning["grid"]) :]
    budgets = [f"epsilon {cost['epsilon']:g}" for cost in tuning["costs"]]
    _draw_ways(noise, budgets, {way: [c["noise"][way] for c in tuning["costs"]] for way in _WAYS})
    noise.set(title="noise at equal epsilon", ylabel="noise multiplier")
    if compared:
        trained = tuning["compared"] | {"tuned": result.test}
        _draw_ways(more[0], [""], {way: [trained[way]["mean"]] for way in _WAYS})
        more[0].set(title="at equal epsilon", ylabel=get_metric(result.metric).label)
    figure.legend(*noise.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.suptitle(f"{in_picture(result.data)}, {result.method}", fontsize=11)
    return save(figure, path)


def _draw_chosen(
    axes: Axes, name: str, values: Sequence[float], chosen: Sequence[Mapping[str, Any]]
) -> None:
    """Draws how many silos chose which value."""
    points = [point for silo in chosen for point in silo["per_seed"]]
    counts = Counter(f"{point[name]:g}" if point else "pivot's" for point in points)
    labels = [f"{value:g}" for value in values] + (["pivot's"] if counts["pivot's"] else [])
    axes.bar(labels, [counts[label] for label in labels], color="0.45")
    seeds = len(chosen[0]["per_seed"])
    of_seeds = f" ({seeds} seeds together)" if seeds > 1 else ""
    axes.set(title=f"{name} chosen", xlabel=name, ylabel=f"silos{of_seeds}")


def _draw_ways(axes: Axes, groups: Sequence[str], heights: Mapping[str, Sequence[float]]) -> None:
    """Draws the bars of the three ways side by side, group by group."""
    width = 0.8 / len(heights)
    for number, (way, values) in enumerate(heights.items()):
        bars = axes.bar(
            [group + (number - 1) * width for group in range(len(groups))],
            values,
            width,
            color=COLOURS[number],
            hatch=_HATCHES[number],
            edgecolor="white",
            label=_WAYS[way],
        )
        axes.bar_label(bars, fmt="%.3g", fontsize=8)
    axes.set_xticks(range(len(groups)), groups)
    axes.margins(y=0.1)
