"""Ledgers for tests: small reservations, and short words for what is done with them."""

import contextlib
import sqlite3

from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)

from silodp.privacy.ledger import chain
from silodp.privacy.ledger import storage as ledger
from silodp.privacy.ledger.account import Account, Allowance, account_of
from silodp.privacy.ledger.charging import Reservation, charge_all, close_all, reserve_all
from silodp.privacy.ledger.storage import ledger_path, read_ledger
from silodp.privacy.mechanisms.queries import PREPARATION

A = "North clinic"
DELTA = 1e-5
AMPLE = Allowance(20.0, DELTA)


def sampled(rounds, noise=2.0, rate=0.2, steps=3) -> DpEvent:
    """Steps of DP-SGD on Poisson samples."""
    step = PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
    return SelfComposedDpEvent(step, rounds * steps)


def unsampled(rounds, noise=2.0) -> DpEvent:
    """Gaussian mechanisms on all records."""
    return SelfComposedDpEvent(GaussianDpEvent(noise), rounds)


def reservation(event_of_rounds, rounds=1, overflow=0.0, blocks=4, **about) -> Reservation:
    """Of a run whose rounds release `event_of_rounds(number of rounds)`."""

    def event_of(first, last):
        trained = max(0, min(last, rounds) - max(first, 0))
        return ComposedDpEvent([event_of_rounds(trained)] if trained else [])

    return Reservation(overflow, about, rounds, event_of, blocks)


def gaussian(noise=2.0, rounds=1, **more) -> Reservation:
    """One Gaussian mechanism a round."""
    return reservation(lambda count: unsampled(count, noise), rounds, **more)


def reserve(folder, what, run="run", allowance=AMPLE, silo=A, **how):
    """Of one silo."""
    reserve_all(folder, {silo: what}, {silo: allowance}, run, **how)


def charge(folder, what, first=PREPARATION, last=None, run="run", silo=A):
    """Some rounds of one silo; by default, all there are."""
    charge_all(folder, {silo: what}, run, first, what.rounds + 1 if last is None else last)


def close(folder, run="run", reason="finished", silo=A):
    """Of one silo."""
    close_all(folder, [silo], run, reason)


def spend(folder, what, run="run", allowance=AMPLE, silo=A, **how):
    """Reserves, charges all of it, and closes."""
    reserve(folder, what, run, allowance, silo, **how)
    charge(folder, what, run=run, silo=silo)
    close(folder, run, silo=silo)


def account(folder, silo=A) -> Account:
    """Where the silo stands."""
    return account_of(read_ledger(folder, silo))


def kinds(folder, silo=A):
    """Of all entries."""
    return [entry.kind for entry in read_ledger(folder, silo).entries]


def tamper(path, *statements):
    """Changes the file as somebody would who knows it: the triggers are put back afterwards."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")  # for speed
        find = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        triggers = connection.execute(find).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(*((statement,) if isinstance(statement, str) else statement))
        for _, sql in triggers:
            connection.execute(sql)


def rewritten(path, change):
    """A ledger whose chain is whole, but whose entries say something else."""
    last, rows = None, []
    for entry in ledger.read_path(path).entries:
        content = change(entry.seq, {"kind": entry.kind, "run": entry.run, "body": entry.body})
        last = chain.next_entry(last, content["kind"], content["run"], content["body"])
        rows.append(("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", last.as_row()))
    head = ("UPDATE head SET hash = ?", (last.hash,))
    tamper(path, "DELETE FROM entries", *rows, head)


def old_ledger(folder, entries, silo=A, relation="add-remove"):
    """A ledger of the first format, written row by row as the code of then did."""
    path = ledger_path(folder, silo)
    folder.mkdir(parents=True, exist_ok=True)
    first = {"silo": silo, "format": 1, "relation": relation, "unit": "record"}
    last = chain.next_entry(None, "opened", "", first)
    ledger._make(path, last)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for kind, run, body in entries:
            last = chain.next_entry(last, kind, run, body)
            ledger._insert(connection, last)
    return path


def old_charge(event, rounds=10, overflow=0.0, **about):
    """The body of a charge, or of a settlement, in the first format."""
    from silodp.privacy.accounting import events

    return {
        "event": events.to_json(event),
        "overflow": float(overflow),
        "rounds": rounds,
        "about": about,
    }
