"""The page itself: one file, with its looks and its script inside, that asks nobody for anything.

A policy in its head allows this one script and this one style sheet, by their hashes. Text that
somehow became a script would not run, and no address outside can be asked.
"""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from silodp.report.html import Html, joined, tag

_DOCTYPE = Html("<!DOCTYPE html>\n")
GENERATOR = tag("meta", name="generator", content="silodp report")


class Part(NamedTuple):
    """A section of the page: its address within, its name in the list of contents, itself."""

    id: str
    name: str
    content: Html


def page(title: str, about: str, parts: Sequence[Part], live: Html | None = None) -> str:
    """The whole page.

    Args:
      title: of the page.
      about: when and by what it was made.
      parts: its sections.
      live: what changes while a run goes on; the page then asks its own server how it goes.
    """
    style, script = asset("page.css"), asset("page.js")
    if live is not None:
        script = joined(script, asset("live.js"))
    contents = tag(
        "nav",
        tag("ul", [tag("li", tag("a", part.name, href=f"#{part.id}")) for part in parts]),
        aria_label="Contents",
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag(
            "meta",
            http_equiv="Content-Security-Policy",
            content=policy(style, script, live is not None),
        ),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        GENERATOR,
        tag("title", title),
        tag("style", style),
    )
    body = tag(
        "body",
        tag("a", "To the content", href="#content", class_="skip"),
        tag("header", tag("h1", title), tag("p", about, class_="about")),
        contents if len(parts) > 1 else None,
        live,
        tag("p", id="announced", role="status", class_="unseen") if live is not None else None,
        tag("main", [part.content for part in parts], id="content", tabindex=-1),
        tag("script", script),
    )
    return joined(_DOCTYPE, tag("html", head, body, lang="en"), Html("\n"))


def policy(style: str, script: str, live: bool) -> str:
    """What a browser may do for the page: show it."""
    allowed = [
        "default-src 'none'",
        f"style-src '{_hash(style)}'",
        f"script-src '{_hash(script)}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    allowed += ["connect-src 'self'"] if live else []
    return "; ".join(allowed)


@cache
def asset(name: str) -> Html:
    """A file that comes with the package."""
    return Html((files("silodp.report") / name).read_text(encoding="utf-8"))


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
