"""Charts with a mark per silo: named rows for few, thin bars for many, a map of pairs."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from silodp.base.text import shown
from silodp.figures.looks import Look
from silodp.models.metrics import get_metric
from silodp.report import drawing
from silodp.report.charts import figure, in_frame
from silodp.report.drawing import Frame, Scale, both_widths, svg, words
from silodp.report.html import Html, joined, tag
from silodp.report.numbers import measured

MOST_ROWS = 40  # most silos that get a row and a name of their own
_ROW = 26
_TOP = 8  # pixels above the first row
_LONGEST_NAME = 24
_LEAST_ROW = 14  # pixels between two names
NOT_TOLD = "not told by what was released"


class Bar(NamedTuple):
    """One silo's bar: its name, its parts in order (class of colour, value), and its words."""

    name: str
    parts: Sequence[tuple[str, float]]
    label: str


class Dot(NamedTuple):
    """A silo's metric with one method."""

    look: Look
    value: float
    label: str


def rows_of_dots(
    title: str, rows: Sequence[tuple[str, Sequence[Dot]]], metric: str, alt: str
) -> Html:
    """One row per silo, with a mark per method: their distance is what the silo gained."""
    values = [dot.value for _, dots in rows for dot in dots]
    low, high = min(values), max(values)
    log = get_metric(metric).by_ratio and 0 < 4 * low < high
    pad = 0.04 * (high - low)
    low, high = (low / 1.1, high * 1.1) if log else (low - pad, high + pad)

    def draw(width: int) -> Html:
        left = rows_room([name for name, _ in rows], width)
        bottom = _TOP + _ROW * len(rows)
        x = Scale(low, high, left, width - 14, log)
        y = Scale(0, len(rows), bottom, _TOP)
        frame = Frame(width, bottom + 44, x, y)
        ticks = [(t, measured(t, metric)) for t in x.ticks(7 if width == drawing.WIDE else 4)]
        about = get_metric(metric)
        label = drawing.fitting((about.brief, about.label), width - left)
        shape = [drawing.axes(frame, label, "", ticks, [])]
        groups: dict[int, list[Html]] = {}
        for number, (name, dots) in enumerate(rows):
            at = _TOP + _ROW * (number + 0.5)
            ends = [x(dot.value) for dot in dots]
            shape.append(words(left - 10, at + 4, row_name(name, width), "name", "end"))
            shape.append(tag("line", x1=min(ends), x2=max(ends), y1=at, y2=at, class_="between"))
            for place, (dot, end) in enumerate(zip(dots, ends, strict=True)):
                groups.setdefault(place, []).append(
                    joined(drawing.marker(dot.look, end, at), drawing.point(end, at, dot.label))
                )
        looks = [dot.look for dot in rows[0][1]]
        drawn = [
            tag("g", groups[n], class_=f"series {drawing.colour_of(look)}", data_series=n)
            for n, look in enumerate(looks)
        ]
        return svg(width, frame.height, alt, *shape, *drawn)

    return figure(title, both_widths(draw), looks=[dot.look for dot in rows[0][1]])


def sorted_gains(title: str, gains: Sequence[tuple[float, str]], metric: str, alt: str) -> Html:
    """One thin bar per silo, the largest gain first: for too many silos to name them."""
    gains = sorted(gains, key=lambda pair: -pair[0])
    values = np.array([gain for gain, _ in gains])
    # A silo that lost a hundredfold would hide all others.
    low, high = min(0.0, max(values.min(), -1.0)), max(0.0, min(values.max(), 1.0))
    low, high = (low, high) if high > low else (-0.1, 0.1)

    def draw(width: int) -> Html:
        frame = in_frame(width, 240, Scale(0, len(gains), 0, 1), Scale(low, high, 0, 1))
        zero = frame.y(0.0)
        wide = frame.x(1.0) - frame.x(0.0)
        up, down, targets = [], [], []
        for number, (gain, label) in enumerate(gains):
            x, y = frame.x(number), frame.y.inside(gain)
            (up if gain >= 0 else down).append(
                f"M{x:.2f} {zero:.1f}V{y:.1f}h{max(0.85 * wide, 0.4):.2f}V{zero:.1f}z"
            )
            targets.append(drawing.point(x + wide / 2, y, label))
        about = get_metric(metric)
        ticks = [(tick, about.gain_tick(tick)) for tick in frame.y.ticks(5)]
        label_y = about.gained
        label_y += f" (bars are cut at {about.gain_tick(-1.0)})" if values.min() < -1 else ""
        shape = drawing.axes(frame, "silos, the largest gain first", label_y, [], ticks)
        return svg(
            width,
            frame.height,
            alt,
            shape,
            tag("path", d="".join(up) or None, class_="bar c-green"),
            tag("path", d="".join(down) or None, class_="bar c-vermillion"),
            tag("line", x1=frame.x.start, x2=frame.x.end, y1=zero, y2=zero, class_="rule"),
            tag("g", targets, class_="series", data_series=0),
        )

    return figure(title, both_widths(draw))


def bars_chart(
    title: str,
    bars: Sequence[Bar],
    x_label: str,
    alt: str,
    legend: Sequence[tuple[str, str]] = (),
    ends: tuple[str, str] | None = None,
    largest: float | None = None,
) -> Html:
    """One bar per silo: lying and named, or (for many) standing and thin, in the given order.

    Args:
      title: title of the chart.
      bars: one per silo.
      x_label: what the length of bars means.
      alt: what the chart shows, in words.
      legend: (class of colour, name) of the parts.
      ends: what 0 and the largest mean, in words.
      largest: the end of the axis; else the longest bar.
    """
    longest = max(math.fsum(v for _, v in bar.parts) for bar in bars)
    largest = largest or 1.04 * longest or 1.0
    draw = _lying if len(bars) <= MOST_ROWS else _standing
    keys = [
        tag("span", tag("span", class_=f"key {colour}"), name, class_="item")
        for colour, name in legend
    ]
    drawn = both_widths(lambda width: draw(width, bars, x_label, alt, largest, ends))
    below = tag("div", keys, class_="keys") if keys else None
    return figure(title, drawn, below=below)


def _lying(width, bars, x_label, alt, largest, ends) -> Html:
    left = rows_room([bar.name for bar in bars], width)
    bottom = _TOP + _ROW * len(bars)
    x = Scale(0, largest, left, width - 14)
    frame = Frame(width, bottom + 44, x, Scale(0, len(bars), bottom, _TOP))
    ticks = [(t, f"{t:g}") for t in x.ticks(7 if width == drawing.WIDE else 4)]
    if ends:
        ticks = [(0.0, ends[0]), (largest, ends[1])]
    parts = [drawing.axes(frame, x_label, "", ticks, [])]
    targets = []
    for number, bar in enumerate(bars):
        y = _TOP + _ROW * number + 5
        parts.append(words(left - 10, y + 12, row_name(bar.name, width), "name", "end"))
        for colour, begin, end in _stacked(bar, largest):
            size = {"x": x(begin), "y": float(y), "width": x(end) - x(begin), "height": _ROW - 10}
            parts.append(tag("rect", **size, class_=f"bar {colour}"))
        whole = min(math.fsum(v for _, v in bar.parts), largest)
        targets.append(drawing.point(x(whole), y + 8, bar.label))
    return svg(width, frame.height, alt, *parts, tag("g", targets, class_="series", data_series=0))


def _standing(width, bars, x_label, alt, largest, ends) -> Html:
    room = drawing.room_of(max(ends, key=len)) if ends else 0
    frame = in_frame(width, 240, Scale(0, len(bars), 0, 1), Scale(0, largest, 0, 1), room)
    wide = frame.x(1.0) - frame.x(0.0)
    ticks = [(t, f"{t:g}") for t in frame.y.ticks(5)]
    if ends:
        ticks = [(0.0, ends[0]), (largest, ends[1])]
    drawn: dict[str, list[str]] = {}
    targets = []
    for number, bar in enumerate(bars):
        left = frame.x(number)
        for colour, begin, end in _stacked(bar, largest):
            shape = f"M{left:.2f} {frame.y(begin):.1f}V{frame.y(end):.1f}h{0.85 * wide:.2f}"
            drawn.setdefault(colour, []).append(f"{shape}V{frame.y(begin):.1f}z")
        whole = min(math.fsum(v for _, v in bar.parts), largest)
        targets.append(drawing.point(left + wide / 2, frame.y(whole), bar.label))
    paths = [tag("path", d="".join(d), class_=f"bar {colour}") for colour, d in drawn.items()]
    shape = drawing.axes(frame, "silos", x_label, [], ticks)
    dots = tag("g", targets, class_="series", data_series=0)
    return svg(width, frame.height, alt, shape, *paths, dots)


def _stacked(bar: Bar, largest: float) -> list[tuple[str, float, float]]:
    """Parts of a bar (class, begin, end), cut at the end of the axis."""
    sums = [0.0, *itertools.accumulate(value for _, value in bar.parts)]
    return [
        (colour, min(begin, largest), min(end, largest))
        for (colour, _), begin, end in zip(bar.parts, sums[:-1], sums[1:], strict=True)
    ]


def map_chart(
    title: str,
    values: np.ndarray,
    names: Sequence[str],
    alt: str,
    below: Html,
    ends: tuple[str, str, str] = ("opposite", "nothing in common", "alike"),
) -> Html:
    """A map of a matrix [silos, silos] of numbers from -1 to 1, in the given order: who is alike.

    NaN stands for what is not known.
    `ends` says what -1, 0 and 1 mean, beside the scale.
    """
    many = len(names) > MOST_ROWS

    def draw(width: int) -> Html:
        left = rows_room(names, width)
        side = min(width - left - 4, 420)
        cell = side / len(names)
        top = rows_room(names, drawing.NARROW) - 14  # the columns' names stand above, upright
        picture = tag(
            "image",
            href=drawing.matrix_picture(values),
            x=left,
            y=top,
            width=side,
            height=side,
            class_="pixels",
        )
        # Where there is no room for all names, every so many silos have theirs.
        step = math.ceil(_LEAST_ROW / cell)
        some = range(0, len(names), step)
        named = [
            words(left - 8, top + cell * (n + 0.5) + 4, row_name(names[n], width), "name", "end")
            for n in some
        ]
        named += [
            drawing.upright(
                left + cell * (n + 0.5) + 4, top - 8, row_name(names[n], drawing.NARROW)
            )
            for n in some
        ]
        targets = (
            []
            if many
            else [
                drawing.point(
                    left + cell * (j + 0.5),
                    top + cell * (i + 0.5),
                    f"{shown(one)} and {shown(other)}: {_told(values[i, j])}",
                )
                for i, one in enumerate(names)
                for j, other in enumerate(names)
                if j <= i
            ]
        )
        frame = tag("rect", x=left, y=top, width=side, height=side, class_="frame")
        dots = tag("g", targets, class_="series", data_series=0)
        scale = _scale(left, top + side + 12, side, ends)
        return svg(width, top + side + 52, alt, picture, frame, *named, scale, dots)

    # A large picture is in the page once: one drawing fits both widths.
    return figure(title, draw(drawing.NARROW + 90) if many else both_widths(draw), below=below)


def _told(value: float) -> str:
    return NOT_TOLD if math.isnan(value) else f"{value:.2f}"


def _scale(left: float, top: float, wide: float, ends: tuple[str, str, str]) -> Html:
    """The colours from -1 to 1, with their numbers and what these mean."""
    colours = drawing.matrix_picture(np.linspace(-1, 1, 64)[None])
    marks = [
        words(left + wide * share, top + 24, f"{number:+.0f}" if number else "0", "tick", anchor)
        for number, share, anchor in ((-1, 0, "start"), (0, 0.5, "middle"), (1, 1, "end"))
    ]
    said = [
        words(left + wide * share, top + 37, text, "tick", anchor)
        for text, share, anchor in zip(ends, (0, 0.5, 1), ("start", "middle", "end"), strict=True)
    ]
    bar = tag(
        "image",
        href=colours,
        x=left,
        y=top,
        width=wide,
        height=10,
        preserveAspectRatio="none",
    )
    border = tag("rect", x=left, y=top, width=wide, height=10, class_="frame")
    return joined(bar, border, *marks, *said)


def row_name(name: str, width: int) -> str:
    """The name at the left of a row, no longer than there is room for."""
    return shown(name, _LONGEST_NAME if width == drawing.WIDE else 15)


def rows_room(names: Sequence[str], width: int) -> int:
    """Room for the longest name at the left."""
    return 24 + math.ceil(7.6 * max(len(row_name(name, width)) for name in names))
