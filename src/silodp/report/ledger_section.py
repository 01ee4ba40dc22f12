"""The part of a report about a silo's ledger, in the words of a data protection officer."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from silodp.base.errors import SilodpError, meant
from silodp.base.text import count, percent, shown
from silodp.privacy.ledger.account import Account, Run, account_of
from silodp.privacy.ledger.standing import standing
from silodp.privacy.ledger.storage import Ledger, ledger_paths, read_path
from silodp.privacy.ledger.words import about_in_words, in_words
from silodp.report import meaning, tables
from silodp.report.html import Html, joined, tag
from silodp.report.numbers import budget, small
from silodp.report.privacy_part import lifetime_bars
from silodp.report.tables import Cell, folded

MOST_IN_FULL = 20  # ledgers shown entry by entry
_MOST_OPEN = 3  # ledgers shown unfolded: many say much the same


def read_ledgers(directory: Path, silo: str | None) -> list[Ledger]:
    """Ledgers of all silos or of one, in the order of names; refuses a damaged ledger."""
    ledgers = sorted(
        (read_path(p, None) for p in ledger_paths(directory)), key=lambda one: one.silo
    )
    if silo is None:
        return ledgers
    chosen = [ledger for ledger in ledgers if ledger.silo == silo]
    if not chosen:
        silos = [ledger.silo for ledger in ledgers]
        raise SilodpError(f"Silo {silo!r} has no ledger in {directory}: {meant(silo, silos)}")
    return chosen


def what_is_left(
    directory: Path, ledgers: Sequence[Ledger], step: Callable[[], None]
) -> dict[str, dict[str, Any]]:
    """What was spent and is left, by silo."""
    left = {}
    for ledger in ledgers:
        left[ledger.silo] = standing(ledger)
        step()
    return left


def ledgers_section(
    ledgers: Sequence[Ledger], left: Mapping[str, Mapping[str, Any]], with_bars: bool
) -> Html:
    """The section on ledgers: bars (unless a run shows them), then each in full if few."""
    title = "Privacy ledger" if len(ledgers) == 1 else "Privacy ledgers"
    intro = (
        "A ledger notes what is charged to it for releases from a silo's records, before they are "
        "made, and refuses what would exceed the silo's allowance. It knows of nothing else. Its "
        "entries are chained by hashes: one that was changed or taken out shows; an older copy of "
        "the whole file shows against a head that was noted elsewhere."
    )
    parts: list[Html] = [tag("h2", title, id="ledgers"), tag("p", intro)]
    if with_bars:
        parts.append(lifetime_bars([left[ledger.silo] for ledger in ledgers]))
    if len(ledgers) > MOST_IN_FULL:
        parts.append(
            tag(
                "p",
                f"These are {len(ledgers):,} ledgers: --silo NAME writes the report of one silo, "
                "with its entries in words.",
            )
        )
    else:
        unfolded = len(ledgers) <= _MOST_OPEN
        parts += [_ledger(ledger, left[ledger.silo], unfolded) for ledger in ledgers]
    return tag("section", parts, aria_labelledby="ledgers")


def _ledger(ledger: Ledger, left: Mapping[str, Any], unfolded: bool) -> Html:
    account = account_of(ledger)
    name = f"Silo {shown(ledger.silo)}"
    if account.allowance is None:
        state = tag("p", "No allowance was set yet, so nothing could be spent.")
    else:
        one = "person" if ledger.unit == "subject" else "record"
        state = tag("p", _state(left, one), class_="headline" if unfolded else None)
    details = _details(ledger, account, left)
    if not unfolded:
        details = folded(f"{name}: what that could tell an attacker, runs and entries", details)
    return tag("article", tag("h3", name), state, details)


def _details(ledger: Ledger, account: Account, left: Mapping[str, Any]) -> Html:
    parts: list[Html] = []
    if account.allowance is not None:
        parts.append(tag("h4", "What all of it together could tell an attacker"))
        parts.append(
            meaning.explained(
                left["spent_epsilon"], left["lifetime_delta"], ledger.unit, ledger.relation
            )
            if left["runs"]
            else tag(
                "p",
                "Nothing was charged to this ledger yet: it knows of no release.",
            )
        )
        if not left["runs"] or budget(left["spent_epsilon"]) != budget(left["lifetime_epsilon"]):
            whole = meaning.explained(
                left["lifetime_epsilon"], left["lifetime_delta"], ledger.unit, ledger.relation
            )
            parts.append(folded("What it could be if the whole allowance is spent", whole))
    parts.append(_runs(ledger, account))
    parts.append(folded("Every entry", _entries(ledger)))
    parts.append(
        tag(
            "p",
            "The chain of entries is intact. Note its head elsewhere: it shows later that nothing "
            "was altered (silodp ledger verify --head ...). Head: ",
            tag("code", ledger.head),
        )
    )
    return joined(parts)


def _state(left: Mapping[str, Any], one: str) -> str:
    """What is spent and left of the lifetime, in a few sentences."""
    lifetime, spent = left["lifetime_epsilon"], left["spent_epsilon"]
    allowed = f"the {budget(lifetime)} that this silo allows in its lifetime, for each {one}"
    delta = f"(delta {small(left['lifetime_delta'])})"
    runs = count(left["runs"], "run")
    if left["broken"]:
        return (
            f"{runs} spent MORE than can be promised of {allowed} {delta}, unless all of them were "
            f"planned beforehand: however they were chosen, it is epsilon {budget(spent)}."
        )
    text = f"{runs} spent epsilon {budget(spent)} of {allowed} {delta}, however they were chosen. "
    if left["changed"]:
        text += (
            "The lifetime was changed after something had been charged, and holds if the change "
            "did not depend on what was released; what was spent is measured by the one before. "
        )
    if left["given_to"] is not None:
        return f"{text}The lifetime was given to one run alone, and nothing else fits."
    text += f"{percent(left['spent_share'])} of the lifetime is spent"
    if left["reserved_share"] > 0:
        text += f", {percent(left['reserved_share'])} is reserved by runs that are open"
    text += f" and {percent(left['left_share'])} is left"
    if left["given_back_share"] > 0:
        text += (
            f" ({percent(left['given_back_share'])} was reserved once, never answered, and given "
            "back)"
        )
    text += f": room for one more release of epsilon {budget(left['remaining_epsilon'])}."
    again = left["same_again"]
    if again is not None and again["runs"] is not None:
        text += (
            f" One more run like the last would take {percent(again['share'])}; "
            f"{count(again['runs'], 'such run')} would fit."
        )
    return text


def _runs(ledger: Ledger, account: Account) -> Html:
    rows = []
    begun = {e.seq: e.time for e in ledger.entries}
    for name, run in account.runs.items():
        share, alone = 0.0, False
        if account.promises:
            filtered = account.promises[-1].lifetime
            alone = account.given_to(account.promises[-1]) == name
            share = sum(cost.taken(filtered) for cost in run.spent) / filtered.budget
        rows.append(
            [
                _time(begun[run.since]),
                about_in_words(run.about),
                Cell(f"{run.charged} of {run.rounds}", run.charged),
                Cell("all" if alone else percent(share), share),
                _standing(run),
            ]
        )
    columns = ["begun", "what", "rounds charged", "of the lifetime", "state"]
    if not rows:
        return tag("p", "No runs were charged yet.")
    return tables.table("What was released, run by run", columns, rows)


def _standing(run: Run) -> str:
    if run.closed is None:
        return "open; holds what is not charged yet"
    given_back = run.rounds - run.charged
    if not run.blocks:
        return f"{run.closed}; released nothing, does not count"
    if given_back > 0:
        return f"{run.closed}; {given_back} rounds were never answered and are given back"
    return f"{run.closed}; counts in full"


def _entries(ledger: Ledger) -> Html:
    rows = [
        [Cell(str(entry.seq), entry.seq), _time(entry.time), in_words(entry), entry.hash[:16]]
        for entry in ledger.entries
    ]
    return tables.table("Every entry", ["entry", "time", "what", "hash begins"], rows)


def _time(time: str) -> str:
    return time[:19].replace("T", " ") + (" UTC" if time.endswith(("Z", "+00:00")) else "")
