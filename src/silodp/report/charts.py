"""Charts (title, legend, words for those who do not see them), and charts of lines."""

import math
from collections.abc import Sequence

from silodp.figures.looks import Look
from silodp.models.metrics import get_metric
from silodp.report import drawing
from silodp.report.drawing import Frame, Line, Scale, both_widths, svg
from silodp.report.html import Html, tag

NO_PRIVACY = "no privacy"
# Errors above this multiple of the least are cut off at the top: they would squeeze the rest.
_MOST_OF_LEAST = 3.0


def figure(
    title: str,
    drawn: Html,
    *,
    looks: Sequence[Look] = (),
    bands: bool = False,
    below: Html | None = None,
) -> Html:
    """A chart with its title, buttons that switch series off, and a choice of bands."""
    tools = []
    if len(looks) > 1:
        buttons = [
            tag(
                "button",
                drawing.swatch(look),
                drawing.name_of(look),
                type="button",
                aria_pressed="true",
                data_toggle=number,
            )
            for number, look in enumerate(looks)
        ]
        tools.append(tag("div", buttons, class_="legend", role="group", aria_label="Shown"))
    if bands:
        choices = (("std", "standard deviation"), ("error", "standard error"), ("none", "none"))
        options = [tag("option", label, value=value) for value, label in choices]
        tools.append(tag("label", "Bands over seeds: ", tag("select", options, data_bands=True)))
    plot = tag(
        "div",
        drawn,
        tag("div", class_="tip", role="status", hidden=True),
        class_="plot",
        tabindex=0,
        role="group",
        aria_label=f"{title}: arrow keys read the points one by one",
    )
    caption = tag("figcaption", title)
    return tag("figure", caption, tag("div", tools, class_="tools"), plot, below, class_="chart")


def lines_chart(title: str, lines: Sequence[Line], metric: str, x_label: str, alt: str) -> Html:
    """A chart of lines over rounds, with bands."""
    low, high, log = _range(lines, metric)
    rounds = [p.x for line in lines for p in line.points]

    def draw(width: int) -> Html:
        frame = in_frame(
            width, 300, Scale(min(rounds), max(rounds), 0, 1), Scale(low, high, 0, 1, log)
        )
        most = 8 if width == drawing.WIDE else 5
        x_ticks = [(tick, f"{tick:g}") for tick in frame.x.ticks(most)]
        drawn = [drawing.series(frame, n, line) for n, line in enumerate(lines)]
        y_label = axis_label(metric, width)
        shape = drawing.axes(frame, x_label, y_label, x_ticks, _y_ticks(frame, metric))
        return svg(width, frame.height, alt, shape, drawing.inside(frame, *drawn))

    several = any(p.std > 0 for line in lines for p in line.points)
    looks = [line.look for line in lines]
    return figure(title, both_widths(draw), looks=looks, bands=several, below=_beyond(lines, high))


def tradeoff_chart(title: str, lines: Sequence[Line], metric: str, alt: str) -> Html:
    """A chart of the metric over budgets, on a log axis; runs without privacy at the right."""
    points = [p for line in lines for p in line.points]
    low, high, log = _range(lines, metric)
    budgets = sorted({p.x for p in points})
    finite = [b for b in budgets if math.isfinite(b)]
    # Half a step beyond the largest budget, so that nothing seems to be measured in between.
    beyond = (finite[-1] if finite else 1.0) * 2.5
    lines = [
        Line(line.look, [p._replace(x=min(p.x, beyond)) for p in line.points]) for line in lines
    ]
    least = finite[0] if finite else beyond
    most = beyond if math.inf in budgets else max(finite)

    def draw(width: int) -> Html:
        x = Scale(least * 0.9, most * 1.1, 0, 1, log=True)
        frame = in_frame(width, 360, x, Scale(low, high, 0, 1, log))
        fit = 10 if width == drawing.WIDE else 5
        named = finite if len(finite) <= fit else frame.x.ticks(fit)
        ticks = [(tick, f"{tick:g}") for tick in named if tick <= most]
        ticks += [(beyond, NO_PRIVACY)] if math.inf in budgets else []
        drawn = [drawing.series(frame, n, line) for n, line in enumerate(lines)]
        label = "epsilon, the privacy budget (to the left: more private)"
        label = drawing.fitting((label, "epsilon (to the left: more private)"), width - 90)
        y_label = axis_label(metric, width)
        shape = drawing.axes(frame, label, y_label, ticks, _y_ticks(frame, metric))
        return svg(width, frame.height, alt, shape, drawing.inside(frame, *drawn))

    several = any(p.std > 0 for line in lines for p in line.points)
    looks = [line.look for line in lines]
    return figure(title, both_widths(draw), looks=looks, bands=several, below=_beyond(lines, high))


def _beyond(lines: Sequence[Line], high: float) -> Html | None:
    """Says how many points lie above the drawing; None if none does."""
    number = sum(p.y > high for line in lines for p in line.points)
    if not number:
        return None
    words = "point lies above the drawing and is" if number == 1 else "points lie above it and are"
    return tag("p", f"{number} {words} read at its upper edge.", class_="note")


def axis_label(metric: str, room: float) -> str:
    """The label of a metric's axis that fits the room."""
    about = get_metric(metric)
    return drawing.fitting((about.title, about.brief, about.label), room)


def in_frame(width: int, height: int, x: Scale, y: Scale, room: float = 0) -> Frame:
    """A frame with room for numbers (or longer words) at the left, and for labels of the axes."""
    left, right, top, bottom = max(58, room + 10), width - 14, 28, height - 46
    return Frame(
        width,
        height,
        Scale(x.low, x.high, left, right, x.log),
        Scale(y.low, y.high, bottom, top, y.log),
    )


def _range(lines: Sequence[Line], metric: str) -> tuple[float, float, bool]:
    """Ends of the metric's axis, and whether it is a log axis.

    The best point of every line is inside.
    """
    points = [p for line in lines for p in line.points]
    low = min(p.y - p.std for p in points)
    high = max(p.y + p.std for p in points)
    about = get_metric(metric)
    if not about.by_ratio:
        pad, (least, most) = max(0.04 * (high - low), 0.005), about.limits
        return max(least, low - pad), min(most, high + pad), False
    least = min(p.y for p in points)
    low = max(low, 0.5 * least)
    worst = max(min(p.y for p in line.points) for line in lines)
    high = min(high, max(_MOST_OF_LEAST * least, 1.2 * low, 1.1 * worst))
    if not high > low:
        return 0.9 * low - 1e-12, 1.1 * high + 1e-12, False
    log = low > 0 and high > 1.6 * low
    pad = 0.05 * (high - low)
    return (low / 1.05, high * 1.05, True) if log else (max(0.0, low - pad), high + pad, False)


def _y_ticks(frame: Frame, metric: str) -> list[tuple[float, str]]:
    ticks = frame.y.ticks(6)
    return list(zip(ticks, get_metric(metric).ticks(ticks), strict=True))
