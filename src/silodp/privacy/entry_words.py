"""What the entries of a ledger say, in words: on the terminal and in reports."""

from collections.abc import Mapping
from typing import Any

from silodp.privacy.chain import Entry, canonical


def in_words(entry: Entry) -> str:
    """What an entry says."""
    body = entry.body
    if entry.kind == "opened":
        return f"Ledger opened, counts {body['relation']} per {body['unit']}"
    if entry.kind == "policy":
        return f"Lifetime allowance set: epsilon {body['epsilon']:g} at delta {body['delta']:g}"
    if entry.kind == "resume":
        return f"Run goes on from round {body['round']}; costs nothing more"
    if entry.kind == "finish":
        return "Run finished as charged"
    if entry.kind == "void":
        return f"Run released nothing and does not count: {body.get('reason', '')}"
    about = about_in_words(body["about"])
    told = "Charged for" if entry.kind == "charge" else "Ended early, counts for"
    return f"{told} {body['rounds']} rounds{': ' if about else ''}{about}"


def about_in_words(about: Mapping[str, Any]) -> str:
    """What was charged for."""
    said = about.get("summary")
    if isinstance(said, str) and said:
        return said
    return ", ".join(f"{name} {_value(value)}" for name, value in about.items())


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else canonical(value)
