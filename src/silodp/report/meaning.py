"""What epsilon means: what an attacker could learn, in words and a chart."""

import math
from collections.abc import Sequence

from silodp.figures.looks import BLUE, GREY, Look
from silodp.privacy.attacker import guessed_right, hit_rate
from silodp.report import charts, drawing
from silodp.report.html import Html, joined, tag
from silodp.report.numbers import budget, of_hundred, small

FALSE_ALARMS = 0.01
_PEOPLE = {"record": "record", "subject": "person"}


def explained(epsilon: float, delta: float, unit: str, relation: str) -> Html:
    """Explains what one budget promises."""
    one = _PEOPLE.get(unit, "record")
    if math.isinf(epsilon):
        return tag(
            "p",
            f"Nothing is promised (no epsilon bounds it). Whoever sees what was "
            f"released may find out with certainty whether a {one} took part.",
        )
    asks = (
        f"whether one given {one} took part"
        if relation == "add-remove"
        else f"which of two given versions of a {one} took part"
    )
    right = guessed_right(epsilon, delta)
    hits = hit_rate(epsilon, delta, FALSE_ALARMS)
    hits_text = (
        f"An attacker who accuses 1 of 100 wrongly finds at most {of_hundred(hits)} of 100 who "
        "did take part (with no release at all, guessing finds 1)."
    )
    if relation != "add-remove":
        hits_text = (
            "An attacker who takes the first version for the second 1 time of 100 recognises the "
            f"second at most {of_hundred(hits)} times of 100 (with no release at all, 1 time)."
        )
    if hits > 0.9:
        hits_text += (
            " That is no protection against this attacker in the worst case: the promise at this "
            "budget is weak, and rests on attackers who know less."
        )
    return joined(
        tag(
            "p",
            f"Suppose an attacker sees everything that was released, knows the method, and knows "
            f"every other {one}. The one thing left to find out is {asks}; before looking, it is "
            "as likely as not.",
        ),
        tag(
            "p",
            tag(
                "strong",
                f"Guessing blindly is right 50 times of 100. With epsilon "
                f"{budget(epsilon)} and delta {small(delta)}, the best possible attack is right "
                f"at most {of_hundred(right)} times of 100.",
            ),
            " ",
            hits_text,
        ),
        tag(
            "p",
            "This holds for every attacker, whatever it computes and learns later. It is a limit "
            "on the worst case: attacks that are known today usually do worse. It does not hide "
            f"what is true of people in general, and could be learned without the {one}.",
        ),
    )


def guessing_chart(budgets: Sequence[float], delta: float) -> Html:
    """Charts how often the best attack is right over epsilon, and marks the given budgets."""
    finite = sorted({round(b, 2) for b in budgets if math.isfinite(b)})
    most = max(8.0, *(b * 1.15 for b in finite)) if finite else 8.0
    grid = [most * n / 60 for n in range(61)]

    def point_at(epsilon: float) -> drawing.Point:
        right = guessed_right(epsilon, delta)
        label = f"epsilon {budget(epsilon)}: right at most {of_hundred(right)} times of 100"
        return drawing.Point(epsilon, right, 0, 0, label)

    curve = drawing.Line(
        Look("best attack", GREY, "-", "o"), [point_at(e) for e in grid], marked=False
    )
    marks = [point_at(b) for b in finite]

    def draw(width: int) -> Html:
        frame = drawing.Frame(
            width,
            230,
            drawing.Scale(0, most, 58, width - 14),
            drawing.Scale(0.5, 1.0, 230 - 46, 28),
        )
        x_ticks = [(t, f"{t:g}") for t in frame.x.ticks(8 if width == drawing.WIDE else 5)]
        y_ticks = [(t, f"{100 * t:.0f}") for t in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)]
        shape = drawing.axes(frame, "epsilon", "right guesses of 100, at most", x_ticks, y_ticks)
        look = Look("this budget", BLUE, "-", "D")
        dots = [
            joined(
                drawing.marker(look, frame.x(m.x), frame.y(m.y)),
                drawing.point(frame.x(m.x), frame.y(m.y), m.label),
            )
            for m in marks[:_MOST_MARKS]
        ]
        group = tag("g", dots, class_="series c-blue", data_series=1)
        alt = "The best attack's share of right guesses, from 50 of 100 at epsilon 0 towards 100"
        return drawing.svg(width, 230, alt, shape, drawing.series(frame, 0, curve), group)

    return charts.figure(
        "What an attacker could guess, at most (diamonds: budgets in this report)",
        drawing.both_widths(draw),
    )


_MOST_MARKS = 40
