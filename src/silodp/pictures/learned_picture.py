"""Pictures of what `ebmtl` learned: who keeps how much, who is alike, how silos differ."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter

from silodp.base.errors import SilodpError
from silodp.base.text import in_picture
from silodp.pictures.pictures import COLOURS, new_figure, save
from silodp.results.learned import by_budget, in_order, is_summed_up
from silodp.results.result import Result

KEPT, RELATIONS, DIFFERS = PICTURES = ("kept.png", "relations.png", "differs.png")
_MOST_LINES = 8  # most silos that get a line of their own
_MOST_NAMED = 25  # most silos whose names fit at an axis
_MOST_BARS = 15
_LONGEST = 22
_SMOOTHED = 20  # a running mean spans the rounds divided by this
_STYLES = ("-", "--", ":", "-.")
# The ends differ in grey as well: one is light, the other dark.
_OPPOSITE_TO_ALIKE = LinearSegmentedColormap.from_list(
    "opposite to alike", ["#E69F00", "#FFFFFF", "#00456B"]
)


def draw_learned(result: Result, folder: Path | str) -> list[Path]:
    """Draws what `ebmtl` learned: kept.png, relations.png and differs.png in the folder.

    Examples:
      >>> result = silodp.run(data="synthetic", silos=3, method="ebmtl", epsilon=3, rounds=2)
      >>> [picture.name for picture in silodp.draw_learned(result, "pictures")]
      ['kept.png', 'relations.png', 'differs.png']
    """
    folder = Path(folder)
    if not is_summed_up(result):
        raise SilodpError(
            f"The result of {result.method!r} holds nothing learned about the silos that could be "
            "drawn: run a method that learns it, such as ebmtl."
        )
    learned: dict[str, Any] = result.learned or {}
    pictures = [_draw_kept(result, learned, folder / KEPT)]
    if "relations" in learned:
        pictures.append(_draw_relations(result, learned, folder / RELATIONS))
    pictures.append(_draw_differs(result, learned, folder / DIFFERS))
    return pictures


def _draw_kept(result: Result, learned: dict[str, Any], path: Path) -> Path:
    """Draws one line per silo, or (for many) the median and a band for each budget."""
    figure, (axes,) = new_figure(7.4, 4.4)
    names = [silo["silo"] for silo in learned["silos"]]
    parts, kept, window = _smoothed(np.array(learned["kept"], float))
    # A part is one round, or several if there are many rounds.
    long = result.options["rounds"] / len(learned["kept"])
    rounds, window = parts * long - (long - 1) / 2, round(window * long)
    what = "how much silos keep of their own"
    if len(names) <= _MOST_LINES:
        for place, name in enumerate(names):
            axes.plot(rounds, kept[:, place], label=in_picture(name, _LONGEST), **_style(place))
    else:
        what += " (median, 10 and 90 % of silos)"
        _draw_budgets(axes, rounds, kept, [silo["epsilon"] for silo in learned["silos"]])
    mean = f"\n(mean over {window} rounds)" if window > 1 else ""
    axes.set(xlabel="round", ylabel=f"kept of its own{mean}")
    axes.set_ylim(min(-0.02, kept.min()), max(1.02, kept.max()))
    axes.set_title(f"{in_picture(result.data)}: {what}", fontsize=11)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    ends = axes.secondary_yaxis("right")
    ends.set_yticks([0, 1], ["FedAvg", "local\ntraining"])
    ends.tick_params(length=0)
    ends.spines["right"].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize="small")
    return save(figure, path)


def _draw_budgets(axes: Axes, rounds: np.ndarray, kept: np.ndarray, epsilons: list[float]) -> None:
    for number, (budget, places) in enumerate(by_budget(epsilons).items()):
        low, middle, high = np.quantile(kept[:, places], (0.1, 0.5, 0.9), axis=1)
        style = _style(number)
        axes.plot(rounds, middle, label=f"epsilon {budget} ({len(places)} silos)", **style)
        axes.fill_between(rounds, low, high, color=style["color"], alpha=0.15, linewidth=0)
        for edge in (low, high):
            axes.plot(rounds, edge, **_style(number, 0.6))


def _smoothed(kept: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Centres of windows, running means [windows, silos], and the parts in a window."""
    window = max(1, len(kept) // _SMOOTHED)
    sums = np.cumsum(np.concatenate([np.zeros((1, kept.shape[1])), kept]), axis=0)
    means = (sums[window:] - sums[:-window]) / window
    return np.arange(len(means)) + (window + 1) / 2, means, window


def _draw_relations(result: Result, learned: dict[str, Any], path: Path) -> Path:
    """Draws the cosines of all pairs, with groups next to each other and framed."""
    figure, (axes,) = new_figure(7.2, 6.2)
    names = [silo["silo"] for silo in learned["silos"]]
    relations = np.array(learned["relations"], float)
    place_of = {name: place for place, name in enumerate(names)}
    groups = [[place_of[name] for name in group] for group in learned["groups"]]
    order = _by_group(in_order(relations), groups)
    image = axes.imshow(
        relations[np.ix_(order, order)],
        cmap=_OPPOSITE_TO_ALIKE,
        vmin=-1,
        vmax=1,
        interpolation="nearest",
    )
    axes.grid(False)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, ticks=[-1, -0.5, 0, 0.5, 1])
    bar.set_label("cosine (1: differ from the mean alike; -1: as opposites)")
    start = 0
    for number, group in enumerate(groups, start=1):
        corner = (start - 0.5, start - 0.5)
        frame = {"fill": False, "edgecolor": "black", "linewidth": 2.5}
        axes.add_patch(Rectangle(corner, len(group), len(group), **frame))
        start += len(group)
        axes.annotate(
            f"group {number}",
            (1, 1 - (start - len(group) / 2) / len(names)),
            (4, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            va="center",
            fontsize="small",
        )
    if len(names) <= _MOST_NAMED:
        texts = [in_picture(names[place], _LONGEST) for place in order]
        axes.set_xticks(range(len(names)), texts, rotation=90, fontsize="small")
        axes.set_yticks(range(len(names)), texts, fontsize="small")
    else:
        axes.set_xlabel("silos, those alike next to each other")
        axes.set_xticks([])
        axes.set_yticks([])
    if not groups:
        note = "blocks without a frame: the same way, but by more or less, without gaps"
        axes.set_xlabel(f"{axes.get_xlabel()}\n{note}".strip())
    groups_text = (
        f"{len(groups)} groups" if len(groups) > 1 else "1 group" if groups else "no groups"
    )
    axes.set_title(f"{in_picture(result.data)}: {len(names)} silos, {groups_text}", fontsize=11)
    return save(figure, path)


def _by_group(order: list[int], groups: list[list[int]]) -> list[int]:
    """Sorts silos by group, ungrouped ones last; keeps the given order within a group."""
    number_of = {place: number for number, group in enumerate(groups) for place in group}
    return sorted(order, key=lambda place: number_of.get(place, len(groups)))


def _draw_differs(result: Result, learned: dict[str, Any], path: Path) -> Path:
    """Draws bars of the features or layers that differ most."""
    part = "feature" if "features" in learned else "layer"
    parts = learned[f"{part}s"]
    most = parts[:_MOST_BARS]
    figure, (axes,) = new_figure(7.4, 1.4 + 0.28 * len(most))
    sizes = [one["differs"] for one in most]
    axes.barh(range(len(most)), sizes, color=COLOURS[0])
    axes.set_yticks(range(len(most)), [in_picture(one[part], 2 * _LONGEST) for one in most])
    axes.set_ylim(len(most) - 0.4, -0.6)
    axes.set_axisbelow(True)
    axes.grid(False, axis="y")
    axes.set(
        xlabel=f"how far silos differ in its weight{'s' * (part == 'layer')} (root mean square)"
    )
    of_all = f"the largest {len(most)} of {len(parts)}" if len(most) < len(parts) else "all"
    title = f"{in_picture(result.data)}: in what silos differ ({of_all} {part}s)"
    axes.set_title(title, fontsize=11)
    return save(figure, path)


def _style(number: int, width: float = 1.8) -> dict[str, Any]:
    """A colour and a kind of line, which can be told apart without colour."""
    colour, style = COLOURS[number % len(COLOURS)], _STYLES[number % len(_STYLES)]
    return {"color": colour, "linestyle": style, "linewidth": width}
