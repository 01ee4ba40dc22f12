"""How each method looks, the same in all figures and reports: its name, colour, line and marker."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

EVERY_ROUND = "ifca every round"
TUNED = r"($\lambda^*$)"
LineStyle = str | tuple[int, tuple[float, ...]]


@dataclass(frozen=True)
class Look:
    """How a curve is drawn. Line and marker tell methods apart in grey as well."""

    label: str
    colour: str
    line: LineStyle
    marker: str
    tuned: bool = False  # lambda is chosen
    hollow: bool = False
    width: float = 1.4

    def line_style(self, **more: Any) -> dict[str, Any]:
        """Arguments for `Axes.plot`."""
        style = {"color": self.colour, "linestyle": self.line, "marker": self.marker}
        style |= {"markersize": 7 if self.marker == "*" else 5, "linewidth": self.width}
        style |= {"markerfacecolor": "white"} if self.hollow else {}
        return style | more


# Okabe and Ito's colours. Related methods share one: mean-pull and MR-MTL, warm starts and what
# follows them.
BLACK, GREY, BLUE, SKY = "#000000", "#8A8A8A", "#0072B2", "#56B4E9"
VERMILLION, GREEN, PURPLE, ORANGE = "#D55E00", "#009E73", "#CC79A7", "#E69F00"
LOOKS = {
    "local": Look("Local", BLACK, "-", "o"),
    "fedavg": Look("FedAvg", BLUE, "--", "s"),
    "finetune": Look("Local finetuning", SKY, "-.", "^"),
    "ditto": Look("Ditto", GREEN, "--", "v", tuned=True),
    "mocha": Look("Mocha", GREY, ":", "P", tuned=True),
    "ifca": Look("IFCA", ORANGE, "-.", "X"),
    EVERY_ROUND: Look("IFCA (every round)", ORANGE, ":", "X", hollow=True),
    "mrmtl": Look("MR-MTL", VERMILLION, "-", "D", tuned=True, width=2.0),
    "meanpull": Look("Mean-pull", VERMILLION, (0, (4, 1, 1, 1)), "d", tuned=True, hollow=True),
    "ebmtl": Look("EB-MTL (ours)", PURPLE, "-", "*", width=2.0),
    "fewround": Look("FewRound (ours)", PURPLE, "--", "p", width=2.0),
}
_ORDER = list(LOOKS)


def curve_name(method: str, select_fraction: float = math.nan) -> str:
    """The curve that a run is a point of: IFCA is two, by how long silos choose.

    Such as "mrmtl", "ifca 10%", "ifca every round" and "ifca 5%+mrmtl".
    """
    first, plus, then = method.partition("+")
    if first != "ifca" or math.isnan(select_fraction):
        return method
    if not plus and select_fraction >= 1:
        return EVERY_ROUND
    return f"ifca {100 * select_fraction:g}%{plus}{then}"


def look_of(curve: str) -> Look:
    """How a curve is drawn. Warm starts are hollow and dotted, in the colour of what follows."""
    if curve in LOOKS:
        return LOOKS[curve]
    first, _, then = curve.partition("+")
    share = first.removeprefix("ifca").strip()
    if first.startswith("ifca") and not then:
        return replace(LOOKS["ifca"], label=f"IFCA ({share})" if share else "IFCA")
    if then in LOOKS:
        base = LOOKS[then]
        label = f"{base.label} (IFCA {share})" if share else f"{base.label} (after IFCA)"
        return replace(base, label=label, line=(0, (1, 1)), hollow=True)
    return Look(curve, GREY, "-", "x")  # a method from an extension


def label_of(curve: str, tuned: bool = True) -> str:
    """A curve's name in legends; with lambda* if tuned, unless lambda is the x axis."""
    look = look_of(curve)
    return f"{look.label} {TUNED}" if tuned and look.tuned else look.label


def in_order(curves: Iterable[str]) -> list[str]:
    """Curves in the order of legends, the same in all figures."""

    def place(curve: str) -> tuple[int, int, str]:
        first, _, then = curve.partition("+")
        if curve in _ORDER:
            return 0, _ORDER.index(curve), curve
        if then:
            return 1, _ORDER.index(then) if then in _ORDER else len(_ORDER), curve
        return 0, _ORDER.index("ifca") if first.startswith("ifca") else len(_ORDER), curve

    return sorted(dict.fromkeys(curves), key=place)
