"""HTML that text from elsewhere cannot break: whatever is not `Html` is escaped.

Silo names, columns, classes and paths are written by people whom the reader need not trust.
"""

import html
import re
from collections.abc import Iterable
from typing import Any

from silodp.base.text import shown

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_PROSE = frozenset({"p", "li", "code", "strong"})
_EMPTY = frozenset({"meta", "img", "br", "input", "path", "rect", "line", "circle", "polygon"})


class Html(str):
    """Text that is HTML already; made by `tag`, `joined` and `text` alone."""

    __slots__ = ()


Child = Html | str | float | int | None


def text(value: Child) -> Html:
    """Escapes a value; characters that are invisible or change direction become codes."""
    if isinstance(value, Html):
        return value
    if value is None:
        return Html("")
    return Html(html.escape(shown(str(value), None), quote=True))


def tag(element: str, /, *children: Child | Iterable[Child], **attributes: Any) -> Html:
    """Makes an element. `class_` and `for_` lose the underscore; other underscores become dashes.

    Attributes that are None or False are left out; True gives one without a value.
    """
    if element in _PROSE:
        children = tuple(_options_whole(child) for child in children)
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if element in _EMPTY and not children:
        return Html(f"<{element}{written}/>")
    return Html(f"<{element}{written}>{joined(*children)}</{element}>")


def joined(*children: Child | Iterable[Child]) -> Html:
    """Joins pieces of HTML and text, escaping the text."""
    parts: list[str] = []
    for child in children:
        if child is None or isinstance(child, str | float | int):
            parts.append(text(child))
        else:
            parts.extend(text(one) for one in child)
    return Html("".join(parts))


def _options_whole(child: Child | Iterable[Child]) -> Child | Iterable[Child]:
    """Text whose command line options stay whole: browsers break lines after "--"."""
    if not isinstance(child, str) or isinstance(child, Html) or "--" not in child:
        return child
    return Html(_OPTION.sub(r'<span class="whole">\g<0></span>', text(child)))


def _attribute(key: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{text(_short(value))}"'


def _short(value: Any) -> Any:
    """Rounds coordinates to a hundredth of a point."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
