"""What the entries of a ledger say, in words: on the terminal and in reports."""

from collections.abc import Mapping
from typing import Any

from silodp.privacy.ledger.chain import Entry, canonical

QUESTION = "question"
"""The entry of what is charged that says it is a single answer (`runs.acceptance`), and no run."""


def in_words(entry: Entry) -> str:
    """What an entry says."""
    body = entry.body
    match entry.kind:
        case "opened":
            return f"Ledger opened, counts {body['relation']} per {body['unit']}"
        case "policy":
            return _policy(body)
        case "reserve" if QUESTION in body["about"]:
            return f"Reserved for one answer{_about(body)}"
        case "reserve":
            alone = " The lifetime is given to it alone." if body["alone"] else ""
            return f"Reserved for {body['rounds']} rounds{_about(body)}.{alone}"
        case "charge" if "first" in body:
            return f"Charged for {_rounds(body['first'], body['last'], body['of'])}"
        case "close":
            return f"Closed: {body['reason']}; whatever was not charged is given back"
        case "converted":
            return "Converted: from here on it holds however runs are chosen"
        # Of the first format.
        case "resume":
            return f"Run goes on from round {body['round']}; costs nothing more"
        case "finish":
            return "Run finished as charged"
        case "void":
            return f"Run released nothing and does not count: {body.get('reason', '')}"
    what = "Charged for" if entry.kind == "charge" else "Ended early, counts for"
    return f"{what} {body['rounds']} rounds{_about(body)}"


def _policy(body: Mapping[str, Any]) -> str:
    now = f"epsilon {body['epsilon']:g} at delta {body['delta']:g}"
    before = body.get("before")
    if before is None:
        return f"Lifetime allowance set: {now}"
    was = f"epsilon {before['epsilon']:g} at delta {before['delta']:g}"
    if body["epsilon"] <= before["epsilon"] and body["delta"] <= before["delta"]:
        return f"Lifetime allowance lowered to {now}; that of {was} holds too"
    return (
        f"Lifetime allowance RAISED to {now}. The promise of {was} ends here; this is a new one, "
        "about everything since the ledger was opened, and holds as far as raising it did not "
        "depend on what was released"
    )


def _rounds(first: int, last: int, rounds: int) -> str:
    """Round -1 is the preparation, the one after the last round the final evaluation."""
    if first < 0 and last > rounds:
        return "the whole run"
    begin, end = max(first, 0), min(last, rounds)
    parts = []
    if first < 0:
        parts.append("the preparation (statistics)")
    if end > begin:
        parts.append(f"round {end}" if end == begin + 1 else f"rounds {begin + 1} to {end}")
    if last > rounds:
        parts.append("the final evaluation")
    return " and ".join(parts)


def _about(body: Mapping[str, Any]) -> str:
    about = about_in_words(body["about"])
    return f": {about}" if about else ""


def about_in_words(about: Mapping[str, Any]) -> str:
    """What was charged for."""
    summary = about.get("summary")
    if isinstance(summary, str) and summary:
        return summary
    return ", ".join(f"{name} {_value(value)}" for name, value in about.items())


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else canonical(value)


def standing_notes(standing: Mapping[str, Any]) -> list[str]:
    """What else a person should know of where a ledger stands (see `account.standing`)."""
    notes = []
    if standing["format"] == 1:
        notes.append(
            "it is of the first format, which added runs up as if all had been planned beforehand: "
            "silodp ledger convert"
        )
    if standing["given_to"] is not None:
        notes.append(
            f"the lifetime was given to run {standing['given_to']} alone, so nothing else fits"
        )
    if standing["changed"]:
        notes.append(
            "its lifetime was changed after something had been charged, and holds as far as that "
            "did not depend on what was released; what was spent is said by the one before"
        )
    if standing["open_runs"]:
        names = ", ".join(standing["open_runs"])
        notes.append(
            f"open, and holding what is reserved: {names} (silodp ledger close gives back what is "
            "never answered)"
        )
    for promise in standing["broken"]:
        notes.append(
            f"NOT KEPT, unless all runs were planned beforehand: epsilon {promise['epsilon']:g} at "
            f"delta {promise['delta']:g}"
        )
    return notes
