"""Pictures of a federation: how silos differ in size and labels, and what their images look like.

They show records as they are, so only for those who may see the records.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from silodp.base.text import in_picture
from silodp.data.federation import Federation, Records, Silo
from silodp.data.tasks import get_task
from silodp.pictures.pictures import COLOURS, new_figure, save

_MOST_NAMED = 45  # most silos whose names fit under an axis
_LETTERS = 110  # letters that fit side by side under an axis
_MOST_CLASSES_NAMED = 25
_LOG_FROM = 50  # a log axis from this ratio of the largest silo to the smallest
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

_ROWS = 12  # silos on a contact sheet
_EACH = 4  # images of a silo, for training and for testing
# In units of an image's side.
_GAP = 0.45
_NAME_WIDTH = 2.6
_ROW_HEIGHT = 1.34
_INCHES = 0.85


def draw_heterogeneity(federation: Federation, path: Path) -> Path:
    """Draws two panels: training and test records of each silo, and its training labels."""
    figure, (above, below) = new_figure(10, 7.2, panels=2, stacked=True)
    train, test = federation.train_counts.sum(), federation.test_counts.sum()
    figure.suptitle(
        f"{in_picture(federation.name)}: {_count(len(federation.silos), 'silo')}, {train:,} "
        f"training and {test:,} test records"
    )
    _draw_sizes(federation, above)
    if not get_task(federation.task).of_classes:
        _draw_targets(federation, below)
    elif _number_of_classes(federation) == 2:
        _draw_two_classes(federation, below)
    else:
        _draw_classes(federation, figure, below)
    return save(figure, path)


def _draw_sizes(federation: Federation, axes: Axes) -> None:
    train, test = federation.train_counts, federation.test_counts
    if len(train) <= _MOST_NAMED:
        at = _places(train)
        axes.bar(at - 0.2, train, 0.4, color=COLOURS[0], label="for training")
        axes.bar(at + 0.2, test, 0.4, color=COLOURS[4], hatch="///", label="for testing")
    else:
        _columns(axes, 0, train, COLOURS[0], "for training")
        _columns(axes, 0, test, COLOURS[4], "for testing (in front)")
    if train.max() > _LOG_FROM * train.min():
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7 * min(train.min(), test.min()))
    else:
        axes.yaxis.set_major_locator(_whole_numbers())
    axes.set(ylabel="records")
    _head(axes, f"Records per silo: {_extent(train)} for training, {_extent(test)} for testing")
    _name_silos(axes, federation.names)


def _draw_targets(federation: Federation, axes: Axes) -> None:
    numbers = get_task(federation.task).numbers
    nothing = np.full(len(_QUANTILES), np.nan)  # of a silo without training records
    quantiles = np.array(
        [
            np.quantile(numbers(silo.train.y), _QUANTILES) if len(silo.train) else nothing
            for silo in federation.silos
        ]
    )
    order = np.argsort(quantiles[:, 2], kind="stable")
    lowest, low, middle, high, highest = quantiles[order].T
    axes.use_sticky_edges = False  # else the lowest column would touch the frame
    _columns(axes, lowest, highest, "#a9cfe6", "5 to 95 % of the records")
    _columns(axes, low, high, COLOURS[0], "25 to 75 %")
    edges = np.append(_places(order), len(order) + 1) - 0.5
    if len(order) <= _MOST_NAMED:
        style = {"color": "black", "linewidth": 2}
        axes.hlines(middle, edges[:-1] + 0.1, edges[1:] - 0.1, label="median", **style)
    else:
        axes.stairs(middle, edges, baseline=None, color="black", linewidth=1.4, label="median")
    axes.set(ylabel="target")
    _head(axes, "Training targets, silos in the order of their medians")
    _name_silos(axes, [federation.names[index] for index in order], "silo, by median")


def _draw_two_classes(federation: Federation, axes: Axes) -> None:
    second = _class_shares(federation)[:, 1]
    labels = get_task(federation.task).labels_of(np.arange(2))
    names = [in_picture(federation.class_name(label), 20) for label in labels]
    _columns(axes, 0, second, COLOURS[0], names[1])
    _columns(axes, second, np.ones(len(second)), "#f3d9a4", names[0])
    axes.axhline(0.5, color="black", linestyle="--", linewidth=1)
    axes.set(ylabel="share of the silo's records", ylim=(0, 1))
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    _head(axes, "Training labels")
    _name_silos(axes, federation.names)


def _draw_classes(federation: Federation, figure: Figure, axes: Axes) -> None:
    shares = _class_shares(federation).T
    classes, silos = shares.shape
    image = axes.imshow(
        shares,
        aspect="auto",
        cmap="Blues",
        vmin=0,
        interpolation="nearest",
        extent=(0.5, silos + 0.5, classes - 0.5, -0.5),
    )
    bar = figure.colorbar(image, ax=axes, pad=0.01, aspect=14)
    bar.ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.3g}%")
    bar.set_label("share of the silo's records")
    axes.grid(False)
    axes.set(ylabel="class")
    axes.set_title("Training labels", fontsize=10, loc="left")
    ticks = range(0, classes, -(-classes // _MOST_CLASSES_NAMED))
    axes.set_yticks(ticks, [in_picture(federation.class_name(label), 16) for label in ticks])
    _name_silos(axes, federation.names)


def _columns(axes: Axes, bottom, top: np.ndarray, colour: str, label: str) -> None:
    """Draws one column per silo, apart where there is room; else as one outline."""
    if len(top) <= _MOST_NAMED:
        at = _places(top)
        axes.bar(at, top - bottom, 0.8, bottom, color=colour, linewidth=0, label=label)
        return
    edges = np.append(_places(top), len(top) + 1) - 0.5
    axes.stairs(top, edges, baseline=bottom, fill=True, color=colour, linewidth=0, label=label)


def _places(of_silos) -> np.ndarray:
    return np.arange(1, len(of_silos) + 1)


def _extent(counts: np.ndarray) -> str:
    low, high = counts.min(), counts.max()
    return f"{low:,} to {high:,}" if low < high else f"{low:,}"


def _class_shares(federation: Federation) -> np.ndarray:
    """Shares [silos, classes] of each silo's training records by class."""
    task, classes = get_task(federation.task), _number_of_classes(federation)
    shares = np.empty((len(federation.silos), classes))
    for row, silo in zip(shares, federation.silos, strict=True):
        y = silo.train.y
        row[:] = np.bincount(task.class_numbers(y), minlength=classes) / max(1, len(y))
    return shares


def _number_of_classes(federation: Federation) -> int:
    return get_task(federation.task).count_classes(federation.num_classes)


def _name_silos(axes: Axes, names: Sequence[str], else_title: str = "silo, in order") -> None:
    """Writes names under the axis where there is room, else numbers."""
    room = max(0, 4 - len(names)) / 2  # else a single silo would be as wide as the picture
    axes.set_xlim(0.4 - room, len(names) + 0.6 + room)
    if len(names) <= _MOST_NAMED:
        texts = [in_picture(name, 18) for name in names]
        turned = max(map(len, texts)) * max(4, len(names)) > _LETTERS
        axes.set_xticks(_places(names), texts, fontsize=8, rotation=90 if turned else 0)
        axes.grid(False, axis="x")
    else:
        axes.xaxis.set_major_locator(_whole_numbers())
        axes.set_xlabel(else_title)


def _whole_numbers() -> MaxNLocator:
    return MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True)


def _head(axes: Axes, title: str) -> None:
    """Puts title and legend side by side above the panel, where they hide nothing."""
    axes.set_title(title, fontsize=10, loc="left")
    axes.legend(
        frameon=False, fontsize="small", ncols=3, loc="lower right", bbox_to_anchor=(1, 0.98)
    )


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' * (number > 1)}"


# --- the contact sheet


def holds_images(federation: Federation) -> bool:
    """Whether records are images [height, width, channels], grey or in colours."""
    shape = federation.input_shape
    return len(shape) == 3 and shape[2] in (1, 3)


def draw_contact_sheet(federation: Federation, path: Path) -> Path:
    """Draws one row per silo: some training and some test images, each with its label."""
    rows = _spread(len(federation.silos), _ROWS)
    width = _NAME_WIDTH + 2 * _EACH * 1.08 + _GAP
    height = 0.7 + _ROW_HEIGHT * len(rows)
    figure = Figure(figsize=(_INCHES * width, _INCHES * height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    lowest, highest = _range(federation)
    left = {"train": _NAME_WIDTH, "test": _NAME_WIDTH + _EACH * 1.08 + _GAP}
    for part, start in left.items():
        axes.text(start, 0.35, part, weight="bold", va="center")
    axes.text(0.1, 0.35, in_picture(federation.name, 22), va="center", color="0.35")
    for number, index in enumerate(rows):
        silo, top = federation.silos[index], 0.6 + _ROW_HEIGHT * number
        axes.text(0.1, top + 0.5, in_picture(silo.name, 22), va="center")
        for part, start in left.items():
            records = _records_of(silo, part)
            for place, row in enumerate(_spread(len(records), _EACH)):
                corner = start + 1.08 * place
                _place_image(axes, (records.x[row] - lowest) / (highest - lowest), corner, top)
                (label,) = get_task(federation.task).numbers(records.y[[row]])
                text = _label(federation, float(label))
                axes.text(corner + 0.5, top + 1.04, text, fontsize=8, ha="center", va="top")
    return save(figure, path)


def _records_of(silo: Silo, part: str) -> Records:
    return silo.train if part == "train" else silo.test


def _spread(count: int, most: int) -> list[int]:
    """Up to `most` numbers below `count`, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()


def _range(federation: Federation) -> tuple[float, float]:
    """Values drawn black and white: the ends of the pixels' range, or of all features."""
    if federation.pixels is not None:
        return 0.0, 255.0
    parts = [records.x for silo in federation.silos for records in (silo.train, silo.test)]
    low, high = min(float(x.min()) for x in parts), max(float(x.max()) for x in parts)
    return low, high if high > low else low + 1


def _place_image(axes: Axes, image: np.ndarray, left: float, top: float) -> None:
    """Draws an image into the square of side 1 at this place, without distortion."""
    tall, wide = (side / max(image.shape[:2]) for side in image.shape[:2])
    left, top = left + (1 - wide) / 2, top + (1 - tall) / 2
    extent = (left, left + wide, top + tall, top)
    pixels = image[..., 0] if image.shape[2] == 1 else image
    axes.imshow(
        pixels, cmap="gray", vmin=0, vmax=1, extent=extent, interpolation="nearest", aspect="auto"
    )


def _label(federation: Federation, label: float) -> str:
    if not get_task(federation.task).of_classes:
        return f"{label:.2f}"
    return in_picture(federation.class_name(label), 12)
