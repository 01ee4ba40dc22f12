"""Charts of intervals: a row for each name, with a mark and a line for each look."""

from collections.abc import Sequence
from typing import NamedTuple

from silodp.figures.looks import Look
from silodp.report import drawing
from silodp.report.charts import figure
from silodp.report.drawing import Frame, Scale, both_widths, svg, words
from silodp.report.html import Html, tag
from silodp.report.silo_charts import row_name, rows_room

_ROW, _TOP = 28, 8  # pixels of a row, and above the first


class Interval(NamedTuple):
    """A value with the ends of its interval, how it looks, and its words."""

    look: Look
    value: float
    low: float
    high: float
    label: str


Rows = Sequence[tuple[str, Sequence[Interval]]]


def ends_of(rows: Rows) -> tuple[float, float]:
    """Ends of an axis that holds all intervals and 0, with some room where they are not 0."""
    every = [one for _, intervals in rows for one in intervals]
    low = min(0.0, *(one.low for one in every))
    high = max(0.0, *(one.high for one in every))
    room = 0.04 * (high - low) or 1.0
    return (low - room if low < 0 else 0.0), (high + room if high > 0 or low == 0 else 0.0)


def interval_chart(
    title: str,
    rows: Rows,
    x_label: str,
    alt: str,
    ends: tuple[float, float] | None = None,
    below: Html | None = None,
) -> Html:
    """One row per name; all rows have intervals of the same looks, in the same order.

    Args:
      title: of the chart.
      rows: names with their intervals.
      x_label: what values are.
      alt: what the chart shows, in words.
      ends: of the axis, so that charts can be compared; else what the rows need.
      below: what stands below the chart.
    """
    low, high = ends or ends_of(rows)
    looks = [one.look for one in rows[0][1]]

    def draw(width: int) -> Html:
        left = rows_room([name for name, _ in rows], width)
        bottom = _TOP + _ROW * len(rows)
        x, y = Scale(low, high, left, width - 14), Scale(0, len(rows), bottom, _TOP)
        frame = Frame(width, bottom + 44, x, y)
        ticks = [(tick, f"{tick:g}") for tick in x.ticks(8 if width == drawing.WIDE else 5)]
        shape = [drawing.axes(frame, x_label, "", ticks, [])]
        shape.append(tag("line", x1=x(0.0), x2=x(0.0), y1=_TOP, y2=bottom, class_="rule"))
        drawn: list[list[Html]] = [[] for _ in looks]
        for number, (name, intervals) in enumerate(rows):
            middle = _TOP + _ROW * (number + 0.5)
            shape.append(words(left - 10, middle + 4, row_name(name, width), "name", "end"))
            for place, one in enumerate(intervals):
                # One below the other, so that none hides another.
                at = middle + (place - (len(intervals) - 1) / 2) * 8.0
                drawn[place] += [
                    tag("line", x1=x(one.low), x2=x(one.high), y1=at, y2=at, class_="line"),
                    drawing.marker(one.look, x(one.value), at),
                    drawing.point(x(one.value), at, one.label),
                ]
        groups = [
            tag("g", shapes, class_=f"series {drawing.colour_of(look)}", data_series=number)
            for number, (look, shapes) in enumerate(zip(looks, drawn, strict=True))
        ]
        return svg(width, frame.height, alt, *shape, *groups)

    return figure(title, both_widths(draw), looks=looks, below=below)
