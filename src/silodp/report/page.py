"""The HTML page: one file with its style and script inside, which loads nothing else.

A policy in its head allows this one script and this one style sheet, by their hashes. Text that
somehow became a script would not run, and no other address can be reached.
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
    """A section of the page: its anchor, its name in the contents, and its HTML."""

    id: str
    name: str
    content: Html


def page(title: str, about: str, parts: Sequence[Part], live: Html | None = None) -> str:
    """The whole page.

    Args:
      title: of the page.
      about: when and by what it was made.
      parts: its sections.
      live: what changes while a run goes on; the page then polls its own server.
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
    """The content security policy of the page: a browser may show it, and nothing else."""
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
