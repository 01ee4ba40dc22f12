"""SVG that needs no script: scales, axes, lines with bands, bars, and pictures of matrices.

Every drawing is made twice, for wide and for narrow screens, so that text is never shrunk. Colours
are classes (see page.css), which differ between light and dark. A point that a reader can query is
an element of class `pt` with its words in `data-label`: page.js shows them, by mouse or keyboard.
"""

import base64
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from PIL import Image

from silodp.figures import looks
from silodp.report.html import Html, joined, tag

WIDE, NARROW = 720, 340
COLOURS = {
    looks.BLACK: "black",
    looks.GREY: "grey",
    looks.BLUE: "blue",
    looks.SKY: "sky",
    looks.VERMILLION: "vermillion",
    looks.GREEN: "green",
    looks.PURPLE: "purple",
    looks.ORANGE: "orange",
}
_DASHES = {"-": None, "--": "6 3", "-.": "7 3 2 3", ":": "2 3"}
_SHAPES = {
    "s": "M-3.5-3.5h7v7h-7z",
    "^": "M0-4.5L4.5 3.5H-4.5z",
    "v": "M0 4.5L4.5-3.5H-4.5z",
    "D": "M0-5L5 0 0 5-5 0z",
    "d": "M0-5.5L3.5 0 0 5.5-3.5 0z",
    "P": "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "X": "M-4-2.5L-2.5-4 0-1.5 2.5-4 4-2.5 1.5 0 4 2.5 2.5 4 0 1.5-2.5 4-4 2.5-1.5 0z",
    "x": "M-4-3L-3-4 0-1 3-4 4-3 1 0 4 3 3 4 0 1-3 4-4 3-1 0z",
    "*": "M0-6L1.6-2.1 5.7-1.9 2.6 .8 3.5 4.9 0 2.6-3.5 4.9-2.6 .8-5.7-1.9-1.6-2.1z",
}
_UNKNOWN = (190, 194, 199)
_LETTER = 7.0  # about the width of a letter
_CIRCLE = "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z"


class Point(NamedTuple):
    """A mean, its standard deviation and error over seeds (0 where unknown), and its words."""

    x: float
    y: float
    std: float
    error: float
    label: str


@dataclass(frozen=True)
class Line:
    """A curve: its look, its points, and whether points have markers."""

    look: looks.Look
    points: Sequence[Point]
    marked: bool = True  # with a marker at each point

    @property
    def name(self) -> str:
        """Name in the legend."""
        return name_of(self.look)


def name_of(look: looks.Look) -> str:
    """A method's name, without "(ours)"."""
    return look.label.removesuffix(" (ours)")


@dataclass(frozen=True)
class Scale:
    """A map from values to places on an axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value."""
        low, high = self._at(self.low), self._at(self.high)
        share = (self._at(value) - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def inside(self, value: float) -> float:
        """The place of a value, moved to the end of the axis if it lies beyond."""
        return self(min(max(value, self.low), self.high))

    def ticks(self, most: int) -> list[float]:
        """Round values, at most `most` of them."""
        return (_log_ticks if self.log else _plain_ticks)(self.low, self.high, most)

    def _at(self, value: float) -> float:
        return math.log(value) if self.log else value


def _plain_ticks(low: float, high: float, most: int) -> list[float]:
    if not high > low:
        return [low]
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    # Two decades of steps: rounding may leave the first one step short.
    step = next(step * f for f in (1, 2, 5, 10, 20, 50) if (high - low) / (step * f) <= most)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    for places in ((1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [m * 10.0**d for d in decades for m in places]
        ticks = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if len(ticks) <= most:
            return ticks if len(ticks) > 1 else _plain_ticks(low, high, most)
    return ticks[:: -(-len(ticks) // most)]


def both_widths(draw: Callable[[int], Html]) -> Html:
    """Draws for wide and for narrow screens; page.css shows one of the two."""
    return joined(tag("div", draw(WIDE), class_="wide"), tag("div", draw(NARROW), class_="narrow"))


def svg(width: float, height: float, alt: str, *children: Html) -> Html:
    """A drawing, with `alt` as words for those who cannot see it."""
    box = f"0 0 {width:g} {height:g}"
    # Screen readers do not read the children: they have `alt` and the tables.
    return tag("svg", *children, viewBox=box, width=width, role="img", aria_label=alt)


def words(x: float, y: float, text: str, class_: str = "tick", anchor: str = "start") -> Html:
    """A piece of text."""
    return tag("text", text, x=float(x), y=float(y), class_=class_, text_anchor=anchor)


def upright(x: float, y: float, text: str) -> Html:
    """A piece of text that reads from below to above."""
    return tag("text", text, transform=f"translate({x:.1f} {y:.1f}) rotate(-90)", class_="name")


def point(x: float, y: float, label: str) -> Html:
    """A point that a reader can query: its label is shown by page.js."""
    return tag("circle", cx=float(x), cy=float(y), r=9, class_="pt", data_label=label)


def marker(look: looks.Look, x: float, y: float) -> Html:
    """A method's marker."""
    shape = _SHAPES.get(look.marker, _CIRCLE)
    place = f"translate({x:.1f} {y:.1f})"
    return tag("path", d=shape, transform=place, class_="mark hollow" if look.hollow else "mark")


def colour_of(look: looks.Look) -> str:
    """The class of a method's colour."""
    return f"c-{COLOURS[look.colour]}"


def dash_of(look: looks.Look) -> str | None:
    """A method's dashes; None for a solid line."""
    if isinstance(look.line, str):
        return _DASHES[look.line]
    return " ".join(f"{1.5 * part:g}" for part in look.line[1])


def swatch(look: looks.Look) -> Html:
    """A method's line and marker, for a legend."""
    line = tag("path", d="M0 7H28", class_="line", stroke_dasharray=dash_of(look))
    mark = marker(look, 14, 7)
    box = {"viewBox": "0 0 28 14", "width": 28, "height": 14, "aria_hidden": "true"}
    return tag("svg", line, mark, class_=colour_of(look), **box)


class Frame(NamedTuple):
    """Size and axes of a drawing."""

    width: int
    height: int
    x: Scale
    y: Scale


def axes(
    frame: Frame,
    x_label: str,
    y_label: str,
    x_ticks: Iterable[tuple[float, str]],
    y_ticks: Iterable[tuple[float, str]],
) -> Html:
    """Grid lines, tick labels and axis labels."""
    left, right, bottom = frame.x.start, frame.x.end, frame.y.start
    parts = [words(0, 14, y_label, "axis")]
    taken: list[tuple[float, float]] = []
    for value, text in y_ticks:
        y = frame.y(value)
        parts.append(tag("line", x1=left, x2=right, y1=y, y2=y, class_="grid"))
        if _is_free(taken, y - 7, y + 7):
            parts.append(words(left - 6, y + 4, text, anchor="end"))
    taken = []
    # Those at the ends first: words there (such as "no privacy") say what numbers do not.
    ticks = list(x_ticks)
    for value, text in [*ticks[-1:], *ticks[:-1]]:
        x, half = frame.x(value), _LETTER * len(text) / 2
        parts.append(tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="rule"))
        # Long words at the right end would be cut.
        at_end = x + half > frame.width
        ends = (x - 2 * half, x) if at_end else (x - half, x + half)
        if _is_free(taken, ends[0] - 3, ends[1] + 3):
            parts.append(words(x, bottom + 17, text, anchor="end" if at_end else "middle"))
    parts.append(tag("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="rule"))
    parts.append(words((left + right) / 2, bottom + 36, x_label, "axis", "middle"))
    return joined(parts)


def _is_free(taken: list[tuple[float, float]], low: float, high: float) -> bool:
    """Whether no label stands there yet; if so, it is taken from now on."""
    free = all(high <= start or low >= end for start, end in taken)
    if free:
        taken.append((low, high))
    return free


def room_of(text: str) -> float:
    """About the width of a text."""
    return _LETTER * len(text)


def fitting(labels: Sequence[str], room: float) -> str:
    """The first label that fits the room, else the last."""
    return next((label for label in labels if _LETTER * len(label) <= room), labels[-1])


def series(frame: Frame, number: int, line: Line) -> Html:
    """A line with bands and markers; values beyond the frame are queried at its edge."""
    places = [(frame.x(p.x), frame.y(max(p.y, _least(frame)))) for p in line.points]
    bands = [
        tag("path", d=_band(frame, line.points, kind), class_=f"band {kind}")
        for kind in ("std", "error")
        if len(line.points) > 1
    ]
    marks = [marker(line.look, x, y) for x, y in places] if line.marked else []
    targets = [point(frame.x(p.x), frame.y.inside(p.y), p.label) for p in line.points]
    return tag(
        "g",
        bands,
        tag("path", d=path(places), class_="line", stroke_dasharray=dash_of(line.look)),
        marks,
        targets,
        class_=f"series {colour_of(line.look)}",
        data_series=number,
    )


def _band(frame: Frame, points: Sequence[Point], kind: str) -> str:
    def place(p: Point, spread: float) -> tuple[float, float]:
        return frame.x(p.x), frame.y(max(p.y + spread, _least(frame)))

    up = [place(p, getattr(p, kind)) for p in points]
    down = [place(p, -getattr(p, kind)) for p in reversed(points)]
    return path([*up, *down]) + "Z"


def _least(frame: Frame) -> float:
    """Least value that can be drawn: a log axis has no zero."""
    return frame.y.low / 10 if frame.y.log else -math.inf


def inside(frame: Frame, *drawn: Html) -> Html:
    """Clips drawings to the frame, but keeps markers at its edge whole."""
    x, y = frame.x.start - 8, frame.y.end - 8
    wide, high = frame.x.end - frame.x.start + 16, frame.y.start - frame.y.end + 16
    box = f"{x:g} {y:g} {wide:g} {high:g}"
    return tag("svg", *drawn, x=x, y=y, width=wide, height=high, viewBox=box)


def path(places: Iterable[tuple[float, float]]) -> str:
    """A path of straight lines from place to place."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def matrix_picture(values: np.ndarray) -> str:
    """Data address of a picture of numbers from -1 to 1, a pixel each: orange, white, blue.

    Both ends differ in grey as well, as in relations.png. NaN is grey: nothing is known.
    """
    ends = {-1: (230, 159, 0), 0: (255, 255, 255), 1: (0, 69, 107)}
    unknown = np.isnan(values)
    values = np.clip(np.where(unknown, 0.0, values), -1, 1)[..., None]
    low, middle, high = (np.array(ends[at], float) for at in (-1, 0, 1))
    mixed = np.where(
        values < 0, middle + values * (middle - low), middle + values * (high - middle)
    )
    mixed[unknown] = _UNKNOWN
    content = io.BytesIO()
    Image.fromarray(mixed.round().astype(np.uint8)).save(content, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
