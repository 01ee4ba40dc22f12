"""Tables that can be sorted and searched (page.js), and read without."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from silodp.report.html import Child, Html, joined, tag

_MOST_WITHOUT_SEARCH = 12


class Cell(NamedTuple):
    """A cell that is sorted by a number."""

    said: Child
    value: float


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[Child | Cell]]) -> Html:
    """Cells with numbers stand at the right; long tables can be searched."""
    numeric = [bool(rows) and isinstance(rows[0][n], Cell) for n in range(len(columns))]
    head = [
        tag(
            "th",
            tag("button", name, type="button", class_="sort"),
            scope="col",
            class_="number" if number else None,
        )
        for name, number in zip(columns, numeric, strict=True)
    ]
    body = [tag("tr", [_cell(cell, n == 0) for n, cell in enumerate(row)]) for row in rows]
    search = None
    if len(rows) > _MOST_WITHOUT_SEARCH:
        box = tag("input", type="search", data_filter=True, autocomplete="off")
        label = tag("label", "Search: ", box)
        left = tag("span", class_="note", role="status", data_found=True)
        search = tag("div", label, " ", left, class_="search")
    whole = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", head)),
        tag("tbody", body),
        class_="sortable",
    )
    # A group and not a region: a page of many tables would have as many landmarks to step through.
    scrolls = {"tabindex": 0, "role": "group", "aria_label": caption, "class_": "scroll"}
    return tag("div", search, tag("div", whole, **scrolls), class_="table")


def _cell(cell: Child | Cell, first: bool) -> Html:
    if isinstance(cell, Cell):
        value = cell.value if not math.isnan(cell.value) else None
        sorted_by = None if value is None else f"{value:.9g}"
        return tag("td", cell.said, class_="number", data_v=sorted_by)
    return tag("th", cell, scope="row") if first else tag("td", cell)


def pairs(rows: Sequence[tuple[str, Child]]) -> Html:
    """Names and values."""
    return tag("dl", [joined(tag("dt", name), tag("dd", value)) for name, value in rows])


def folded(summary: str, *content: Html) -> Html:
    """What is there for those who ask for it."""
    return tag("details", tag("summary", summary), *content)
