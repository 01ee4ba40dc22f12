"""HTML that others' text cannot break out of: whatever is not `Html` is escaped.

Silo names, columns, classes and paths are written by people whom the reader need not trust.
"""

import html
from collections.abc import Iterable
from typing import Any

from silodp.base.text import shown

_EMPTY = frozenset({"meta", "img", "br", "input", "path", "rect", "line", "circle", "polygon"})


class Html(str):
    """Text that is HTML already; made by `tag`, `joined` and `text` alone."""

    __slots__ = ()


Child = Html | str | float | int | None


def text(value: Child) -> Html:
    """Escaped, and with the codes of characters that cannot be seen (or that turn others round)."""
    if isinstance(value, Html):
        return value
    if value is None:
        return Html("")
    return Html(html.escape(shown(str(value), None), quote=True))


def tag(element: str, /, *children: Child | Iterable[Child], **attributes: Any) -> Html:
    """An element. `class_` and `for_` lose the underscore; others turn into a dash.

    Attributes that are None or False are left out; True is one without a value.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if element in _EMPTY and not children:
        return Html(f"<{element}{written}/>")
    return Html(f"<{element}{written}>{joined(*children)}</{element}>")


def joined(*children: Child | Iterable[Child]) -> Html:
    """One after the other."""
    parts: list[str] = []
    for child in children:
        if child is None or isinstance(child, str | float | int):
            parts.append(text(child))
        else:
            parts.extend(text(one) for one in child)
    return Html("".join(parts))


def _attribute(key: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{text(_short(value))}"'


def _short(value: Any) -> Any:
    """Coordinates need no more than a hundredth of a point."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
