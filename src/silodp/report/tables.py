"""Tables that can be sorted and searched with page.js, and read without it."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from silodp.report.html import Child, Html, tag, text

_BREAKS = re.compile(r" (?=\(|to |±)")
_MOST_WITHOUT_SEARCH = 12


class Cell(NamedTuple):
    """A cell with its content and the number that it is sorted by."""

    content: Child
    value: float


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[Child | Cell]]) -> Html:
    """Makes a table; columns of numbers are aligned right, and long tables can be searched."""
    numeric = [bool(rows) and isinstance(rows[0][n], Cell) for n in range(len(columns))]
    head = [
        tag(
            "th",
            tag("button", name, type="button", class_="sort"),
            scope="col",
            class_="number" if number else None,
            data_column=name,
        )
        for name, number in zip(columns, numeric, strict=True)
    ]
    body = [
        tag("tr", [_cell(cell, name, n == 0) for n, (name, cell) in enumerate(named)])
        for named in (list(zip(columns, row, strict=True)) for row in rows)
    ]
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
    # A group and not a region: each region would be one more landmark to step through.
    scrolls = {"tabindex": 0, "role": "group", "aria_label": caption, "class_": "scroll"}
    return tag("div", search, tag("div", whole, **scrolls), class_="table")


def _cell(cell: Child | Cell, column: str, first: bool) -> Html:
    """A cell; on a narrow screen a row is a block, and each cell says its column's name."""
    if isinstance(cell, Cell):
        value = cell.value if not math.isnan(cell.value) else None
        sorted_by = None if value is None else f"{value:.9g}"
        content, whole = text(cell.content), False
        if type(cell.content) is str:
            content, whole = _unbroken(cell.content)
        class_ = "number whole" if whole else "number"
        class_ += " spread" if "±" in content else ""
        return tag("td", content, class_=class_, data_v=sorted_by, data_column=column)
    return tag("th", cell, scope="row") if first else tag("td", cell, data_column=column)


def _unbroken(content: str) -> tuple[Html, bool]:
    """The text with line breaks only where they do no harm, and whether there is none at all.

    "5 %" stays whole, and so does "± 0.2": by spaces that do not break, since an element for each
    would be thousands in a table of a thousand silos.
    """
    parts = [text(part).replace(" ", "&nbsp;") for part in _BREAKS.split(content)]
    return Html(" ".join(parts)), len(parts) == 1


def pairs(rows: Sequence[tuple[str, Child]]) -> Html:
    """A list of names and values."""
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in rows])


def folded(summary: str, *content: Html) -> Html:
    """Content that a reader can unfold."""
    return tag("details", tag("summary", summary), *content)
