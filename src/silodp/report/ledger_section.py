"""The part of a report about a silo's ledger, in the words of a data protection officer."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from silodp.errors import SilodpError
from silodp.names import shown
from silodp.privacy import spending
from silodp.privacy.entry_words import about_in_words, in_words
from silodp.privacy.ledger import Ledger, ledger_paths, read_path
from silodp.report import meaning, tables
from silodp.report.html import Html, joined, tag
from silodp.report.numbers import budget, count, small
from silodp.report.privacy_part import lifetime_bars
from silodp.report.tables import Cell, folded

MOST_IN_FULL = 20  # ledgers told entry by entry
_MOST_OPEN = 3  # of them unfolded: all have much the same to say
_STATES = {
    "open": "begun; counts in full",
    "finished": "finished; counts in full",
    "settled": "ended early; counts for what it released",
    "void": "released nothing; does not count",
}


def read_ledgers(directory: Path, silo: str | None) -> list[Ledger]:
    """Of all silos or of one, in the order of their names; refuses what is damaged."""
    ledgers = sorted(
        (read_path(p, None) for p in ledger_paths(directory)), key=lambda one: one.silo
    )
    if silo is None:
        return ledgers
    chosen = [ledger for ledger in ledgers if ledger.silo == silo]
    if not chosen:
        raise SilodpError(
            f"Silo {silo!r} has no ledger in {directory}: leave out --silo to see which have."
        )
    return chosen


def what_is_left(
    directory: Path, ledgers: Sequence[Ledger], step: Callable[[], None]
) -> dict[str, dict[str, Any]]:
    """By silo, what was spent and is left."""
    left = {}
    for ledger in ledgers:
        left[ledger.silo] = spending.remaining(directory, ledger.silo)
        step()
    return left


def ledgers_section(
    ledgers: Sequence[Ledger], left: Mapping[str, Mapping[str, Any]], with_bars: bool
) -> Html:
    """All ledgers: the bars (unless a run shows them), then each in full if they are not many."""
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
    account = spending.account_of(ledger)
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


def _details(ledger: Ledger, account: spending.Account, left: Mapping[str, Any]) -> Html:
    parts: list[Html] = []
    if account.allowance is not None:
        parts.append(tag("h4", "What all of it together could tell an attacker"))
        parts.append(
            meaning.explained(_true(left), left["lifetime_delta"], ledger.unit, ledger.relation)
            if left["runs"]
            else tag(
                "p",
                "Nothing was charged to this ledger yet: it knows of no release.",
            )
        )
        parts.append(
            folded(
                "What it could be if the whole allowance is spent",
                meaning.explained(
                    left["lifetime_epsilon"], left["lifetime_delta"], ledger.unit, ledger.relation
                ),
            )
        )
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


def _true(left: Mapping[str, Any]) -> float:
    """What was spent, where it is known: beyond the allowance no number is promised."""
    spent = left["spent_epsilon"]
    return spent if spent <= left["lifetime_epsilon"] else math.inf


def _state(left: Mapping[str, Any], one: str) -> str:
    lifetime, spent = left["lifetime_epsilon"], left["spent_epsilon"]
    allowed = f"the {budget(lifetime)} that this silo allows in its lifetime, for each {one}"
    delta = f"(delta {small(left['lifetime_delta'])})"
    if spent > lifetime:  # not by this program: it refuses
        return (
            f"{count(left['runs'], 'run')} spent MORE than {allowed} {delta}. How much more is not "
            "known. Ask who wrote this ledger."
        )
    return (
        f"{count(left['runs'], 'run')} spent epsilon {budget(spent)} of {allowed} {delta}. There "
        f"is room for one more run of epsilon {budget(left['remaining_epsilon'])}."
    )


def _runs(ledger: Ledger, account: spending.Account) -> Html:
    rows = []
    begun = {e.run: e.time for e in ledger.entries if e.kind == "charge"}
    for name, run in account.runs.items():
        alone = 0.0
        if account.allowance is not None and run.state != "void":
            alone = spending.spent([run.cost], account.allowance)
        rows.append(
            [
                _time(begun[name]),
                about_in_words(run.cost.about),
                Cell(str(run.cost.rounds), run.cost.rounds),
                Cell(budget(alone), alone),
                _STATES[run.state],
            ]
        )
    columns = ["begun", "what", "rounds", "epsilon alone", "state"]
    if not rows:
        return tag("p", "No runs were charged yet.")
    return tables.table("What was released, run by run", columns, rows)


def _entries(ledger: Ledger) -> Html:
    rows = [
        [Cell(str(entry.seq), entry.seq), _time(entry.time), in_words(entry), entry.hash[:16]]
        for entry in ledger.entries
    ]
    return tables.table("Every entry", ["entry", "time", "what", "hash begins"], rows)


def _time(time: str) -> str:
    return time[:19].replace("T", " ") + (" UTC" if time.endswith(("Z", "+00:00")) else "")
