"""The privacy ledger: what it counts, what it refuses, and that nothing can be changed unseen."""

import contextlib
import csv
import functools
import io
import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from hypothesis import strategies

from silodp.errors import SilodpError
from silodp.privacy import chain, ledger, spending
from silodp.privacy.accounting import epsilon_of
from silodp.privacy.charging import (
    Charge,
    allow,
    charge_all,
    finish_all,
    resume_all,
    settle_all,
    void_all,
    would_exceed,
)
from silodp.privacy.ledger import ledger_path, read_ledger
from silodp.privacy.spending import Allowance, account_of, remaining, spent

A = "North clinic"
DELTA = 1e-5
AMPLE = Allowance(20.0, DELTA)
STRANGE = (
    "a/../../b",
    "..",
    "",
    "nul\0l",
    "Ünïcode",
    "病院",
    "x" * 5000,
    "a\nb\x1b[31m",
    "\udc80",
    ":",
)


def sampled(rounds, noise=2.0, rate=0.2, steps=3):
    step = PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
    return SelfComposedDpEvent(step, rounds * steps)


def unsampled(rounds, noise=2.0):
    return SelfComposedDpEvent(GaussianDpEvent(noise), rounds)


def charge_of(event_of_rounds, rounds=1, overflow=0.0, **about):
    return Charge(event_of_rounds(rounds), overflow, about, rounds, event_of_rounds)


def gaussian(noise=2.0, rounds=1, **more):
    return charge_of(functools.partial(unsampled, noise=noise), rounds, **more)


def charge(folder, charge, run="run", allowance=AMPLE, silo=A):
    charge_all(folder, {silo: charge}, {silo: allowance}, run)


def account(folder, silo=A):
    return account_of(read_ledger(folder, silo))


def spent_by(folder, allowance=AMPLE):
    return spent(account(folder).live, allowance)


def kinds(folder, silo=A):
    return [entry.kind for entry in read_ledger(folder, silo).entries]


# --- what is counted


def test_costs_are_composed_not_added(tmp_path):
    events = [sampled(10, 2.0), sampled(20, 3.0, 0.3), unsampled(1, 5.0)]
    for number, event in enumerate(events):
        charge(tmp_path, charge_of(lambda _, event=event: event), f"run {number}")
    expected = epsilon_of(ComposedDpEvent(events), DELTA, "pld")
    assert spent_by(tmp_path) == pytest.approx(expected, rel=1e-12)
    assert spent_by(tmp_path) < 0.9 * sum(epsilon_of(event, DELTA, "pld") for event in events)
    assert remaining(tmp_path, A)["spent_epsilon"] == pytest.approx(expected, rel=1e-12)


def test_overflow_is_taken_off_delta_at_the_lifetime_epsilon(tmp_path):
    allowance = Allowance(5.0, DELTA)
    for run in "ab":
        charge(tmp_path, gaussian(overflow=1e-9), run, allowance)
    aside = (1 + math.exp(5.0)) * 2e-9
    told = remaining(tmp_path, A)
    assert told["set_aside_delta"] == pytest.approx(aside)
    assert told["spent_epsilon"] == pytest.approx(epsilon_of(unsampled(2), DELTA - aside, "pld"))


def test_overflow_beyond_delta_is_refused(tmp_path):
    with pytest.raises(SilodpError, match=r"to inf; draws that may not fit take .* of its delta"):
        charge(tmp_path, gaussian(overflow=DELTA), allowance=Allowance(5.0, DELTA))
    assert not os.listdir(tmp_path)


def test_what_a_run_says_of_itself_is_not_believed(tmp_path):
    charge(tmp_path, gaussian(epsilon=0.0, delta=0.0))
    assert spent_by(tmp_path) == pytest.approx(epsilon_of(unsampled(1), DELTA, "pld"))


@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(
    strategies.lists(
        strategies.tuples(
            strategies.floats(1.0, 20.0), strategies.sampled_from([1.0, 0.3]), strategies.booleans()
        ),
        min_size=1,
        max_size=5,
    )
)
def test_spent_never_falls_with_charges(tmp_path_factory, runs):
    folder = tmp_path_factory.mktemp("ledger")
    allowance = Allowance(1000.0, DELTA)
    before = 0.0
    for number, (noise, rate, finished) in enumerate(runs):
        event_of_rounds = functools.partial(sampled, noise=noise, rate=rate)
        charge(folder, charge_of(event_of_rounds), f"run {number}", allowance)
        after = spent_by(folder, allowance)
        assert after >= before * (1 - 1e-3)  # each is an upper bound, on a grid of its own
        if finished:
            finish_all(folder, [A], f"run {number}")
            assert spent_by(folder, allowance) == after
        before = after


def test_what_is_left_fits_and_more_does_not(tmp_path):
    allowance = Allowance(4.0, DELTA)
    charge(tmp_path, charge_of(sampled, 20), "first", allowance)
    left = remaining(tmp_path, A)["remaining_epsilon"]
    assert allowance.epsilon - spent_by(tmp_path, allowance) < left < allowance.epsilon

    def noise_for(epsilon):
        return spending.get_sigma_gaussian(epsilon, DELTA)

    would_exceed(tmp_path, {A: gaussian(noise_for(left * 0.999))}, {A: allowance})
    with pytest.raises(SilodpError, match="does not fit"):
        would_exceed(tmp_path, {A: gaussian(noise_for(left * 1.01))}, {A: allowance})


def test_what_is_left_of_nothing_spent_and_of_everything(tmp_path):
    tight = Allowance(epsilon_of(unsampled(1), DELTA, "pld"), DELTA)
    charge(tmp_path, gaussian(), "void", tight)
    void_all(tmp_path, [A], "void", "it failed")
    assert remaining(tmp_path, A)["remaining_epsilon"] == tight.epsilon
    charge(tmp_path, gaussian(), "whole", tight)
    told = remaining(tmp_path, A)
    assert told["remaining_epsilon"] == 0.0
    assert told["spent_epsilon"] == tight.epsilon
    assert (told["runs"], told["open_runs"], told["void_runs"]) == (1, 1, 1)


# --- what does not fit


def test_refusal_says_how_many_rounds_fit(tmp_path):
    allowances = {A: Allowance(3.0, DELTA), "ample": AMPLE, "tighter": Allowance(2.0, DELTA)}
    event = functools.partial(sampled, noise=4.0)
    charge_all(tmp_path, dict.fromkeys(allowances, charge_of(event, 10)), allowances, "first")
    wanted = dict.fromkeys(allowances, charge_of(event, 200))
    with pytest.raises(SilodpError) as refused:
        charge_all(tmp_path, wanted, allowances, "second")
    text = str(refused.value)
    assert text.startswith("Silo 'tighter': ")
    assert "1 other silo" in text
    live = account(tmp_path, "tighter").live
    assert f"{spent(live, allowances['tighter']):.4g} of epsilon 2 at delta 1e-05 is spent" in text
    total = epsilon_of(ComposedDpEvent([event(10), event(200)]), DELTA, "pld")
    assert f"would bring it to {total:.4g}" in text
    fit = int(text.split(" of its 200 rounds")[0].split()[-1])
    assert 0 < fit < 200
    assert all(kinds(tmp_path, silo) == ["opened", "policy", "charge"] for silo in allowances)
    more = dict.fromkeys(allowances, charge_of(event, fit + 1))
    with pytest.raises(SilodpError, match=f"with the same noise {fit} of its {fit + 1} rounds"):
        charge_all(tmp_path, more, allowances, "third")
    charge_all(tmp_path, dict.fromkeys(allowances, charge_of(event, fit)), allowances, "fourth")


def test_refused_run_leaves_nothing_behind(tmp_path):
    folder = tmp_path / "ledgers"
    charges = {"a": gaussian(), "b": gaussian(0.1)}
    allowances = dict.fromkeys(charges, Allowance(3.0, DELTA))
    for refuse in (
        lambda: charge_all(folder, charges, allowances, "run"),
        lambda: would_exceed(folder, charges, allowances),
        lambda: charge_all(folder, charges, {"a": AMPLE}, "run"),
        lambda: charge_all(folder, {"a": gaussian()}, allowances, ""),
        lambda: charge_all(folder, {"a": gaussian(x=object())}, allowances, "run"),
        lambda: charge_all(folder, {"a": gaussian(x=math.nan)}, allowances, "run"),
        lambda: charge_all(folder, {"a": gaussian(overflow=-1.0)}, allowances, "run"),
    ):
        with pytest.raises(SilodpError):
            refuse()
        assert not folder.exists()


def test_check_writes_nothing(tmp_path):
    would_exceed(tmp_path / "new", {A: gaussian()}, {A: AMPLE})
    assert not (tmp_path / "new").exists()
    charge(tmp_path, gaussian())
    before = read_ledger(tmp_path, A).head
    would_exceed(tmp_path, {A: gaussian()}, {A: AMPLE})
    assert read_ledger(tmp_path, A).head == before


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (Allowance(20.0, DELTA, relation="replace-one"), "relation to 'add-remove'"),
        (Allowance(20.0, DELTA, unit="subject"), "unit to 'record'"),
    ],
)
def test_ledger_is_bound_to_how_it_counts(tmp_path, other, told):
    charge(tmp_path, gaussian())
    for refuse in (
        lambda: charge(tmp_path, gaussian(), "second", other),
        lambda: would_exceed(tmp_path, {A: gaussian()}, {A: other}),
    ):
        with pytest.raises(SilodpError, match=told):
            refuse()
    assert kinds(tmp_path) == ["opened", "policy", "charge"]


@pytest.mark.parametrize(
    "fields",
    [
        {"epsilon": 0.0},
        {"epsilon": math.inf},
        {"epsilon": math.nan},
        {"delta": 0.0},
        {"delta": 1.0},
        {"relation": "swap"},
        {"unit": "house"},
    ],
)
def test_allowance_that_is_not_sound(fields):
    with pytest.raises(SilodpError, match=next(iter(fields))):
        Allowance(**{"epsilon": 3.0, "delta": DELTA, **fields})


def test_changes_of_the_allowance_are_seen(tmp_path):
    for number, epsilon in enumerate((5.0, 5.0, 9.0)):
        charge(tmp_path, gaussian(20.0), f"run {number}", Allowance(epsilon, DELTA))
    assert kinds(tmp_path) == ["opened", "policy", "charge", "charge", "policy", "charge"]
    set_to = [e.body["epsilon"] for e in read_ledger(tmp_path, A).entries if e.kind == "policy"]
    assert set_to == [5.0, 9.0]
    assert account(tmp_path).allowance == Allowance(9.0, DELTA)


def test_of_several_that_charge_none_loosens_what_another_relies_on(tmp_path):
    """The least of each number, whoever comes first; and refused by it."""

    def charged(run, epsilon, delta, noise=20.0):
        how = ({A: gaussian(noise)}, {A: Allowance(epsilon, delta)})
        would_exceed(tmp_path, *how, strictest=True)
        charge_all(tmp_path, *how, run, strictest=True)

    charged("a", 5.0, 1e-5)
    charged("b", 9.0, 1e-6)
    charged("c", 9.0, 1e-4)
    assert account(tmp_path).allowance == Allowance(5.0, 1e-6)
    assert kinds(tmp_path).count("policy") == 2
    alone = spent([spending.cost_of(read_ledger(tmp_path, A).entries[2].body)], Allowance(9, 1e-5))
    assert alone < 1
    with pytest.raises(SilodpError, match="of epsilon 5 at delta 1e-06 is spent"):
        charged("d", 50.0, 1e-4, noise=0.7)
    assert spent_by(tmp_path, Allowance(5.0, 1e-6)) <= 5


def test_an_allowance_is_changed_in_so_many_words(tmp_path):
    charge(tmp_path, gaussian(20.0), allowance=Allowance(5.0, DELTA))
    assert allow(tmp_path, A, 9.0) == Allowance(9.0, DELTA)
    assert allow(tmp_path, A, 9.0) == Allowance(9.0, DELTA)  # nothing new to write
    assert allow(tmp_path, A, 3.0, 1e-6) == Allowance(3.0, 1e-6)
    assert account(tmp_path).allowance == Allowance(3.0, 1e-6)
    assert kinds(tmp_path) == ["opened", "policy", "charge", "policy", "policy"]
    for wrong in (0.0, math.inf, math.nan):
        with pytest.raises(SilodpError, match="lifetime epsilon"):
            allow(tmp_path, A, wrong)
    with pytest.raises(SilodpError, match="has no ledger"):
        allow(tmp_path, "another", 9.0)
    assert account(tmp_path).allowance == Allowance(3.0, 1e-6)


# --- the life of a run


def test_a_run_is_charged_once(tmp_path):
    charge(tmp_path, gaussian())
    for end in (lambda: None, lambda: void_all(tmp_path, [A], "run", "it failed")):
        end()
        with pytest.raises(SilodpError, match="charged for run 'run' already: resume"):
            charge(tmp_path, gaussian())


def test_resuming_costs_nothing(tmp_path):
    charge(tmp_path, gaussian(rounds=10))
    before = spent_by(tmp_path)
    resume_all(tmp_path, [A], "run", 4)
    assert spent_by(tmp_path) == before
    assert read_ledger(tmp_path, A).entries[-1].body == {"round": 4}


@pytest.mark.parametrize("end", ["finish", "void", "settle", "unknown"])
def test_nothing_follows_a_run_that_is_not_open(tmp_path, end):
    charge(tmp_path, gaussian(rounds=10))
    run = "other" if end == "unknown" else "run"
    if end == "finish":
        finish_all(tmp_path, [A], run)
    elif end == "void":
        void_all(tmp_path, [A], run, "it failed")
    elif end == "settle":
        settle_all(tmp_path, {A: gaussian(rounds=5)}, run)
    before = read_ledger(tmp_path, A).head
    for refuse in (
        lambda: resume_all(tmp_path, [A], run, 1),
        lambda: finish_all(tmp_path, [A], run),
        lambda: void_all(tmp_path, [A], run, "again"),
        lambda: settle_all(tmp_path, {A: gaussian(rounds=1)}, run),
    ):
        with pytest.raises(SilodpError, match="never charged" if run == "other" else "start a new"):
            refuse()
    assert read_ledger(tmp_path, A).head == before


def test_void_run_does_not_count(tmp_path):
    charge(tmp_path, gaussian(), "first")
    before = spent_by(tmp_path)
    charge(tmp_path, gaussian(), "second")
    void_all(tmp_path, [A], "second", "the data could not be read")
    assert spent_by(tmp_path) == before


def test_run_that_went_on_cannot_be_void(tmp_path):
    charge(tmp_path, gaussian(rounds=10))
    resume_all(tmp_path, [A], "run", 4)
    with pytest.raises(SilodpError, match="went on from round 4"):
        void_all(tmp_path, [A], "run", "it failed")
    with pytest.raises(SilodpError, match="released at least 4"):
        settle_all(tmp_path, {A: gaussian(rounds=3)}, "run")
    with pytest.raises(SilodpError, match="cannot go on from round 11"):
        resume_all(tmp_path, [A], "run", 11)
    settle_all(tmp_path, {A: gaussian(rounds=4)}, "run")


def test_settled_run_counts_for_less(tmp_path):
    charge(tmp_path, charge_of(sampled, 100))
    settle_all(tmp_path, {A: charge_of(sampled, 40)}, "run")
    assert spent_by(tmp_path) == epsilon_of(sampled(40), DELTA, "pld")


def test_run_settled_for_nothing(tmp_path):
    charge(tmp_path, gaussian(rounds=10))
    settle_all(tmp_path, {A: charge_of(lambda _: NoOpDpEvent(), 0)}, "run")
    assert spent_by(tmp_path) == 0.0


@pytest.mark.parametrize(
    "dearer", [gaussian(1.9, 10), gaussian(2.0, 11), gaussian(2.0, 10, overflow=1e-12)]
)
def test_run_is_never_settled_for_more(tmp_path, dearer):
    charge(tmp_path, gaussian(2.0, 10))
    with pytest.raises(SilodpError, match="cannot be settled"):
        settle_all(tmp_path, {A: dearer}, "run")
    assert kinds(tmp_path) == ["opened", "policy", "charge"]


def test_all_silos_or_none(tmp_path):
    charge_all(tmp_path, dict.fromkeys("ab", gaussian()), dict.fromkeys("ab", AMPLE), "run")
    finish_all(tmp_path, ["b"], "run")
    for refuse in (
        lambda: finish_all(tmp_path, ["a", "b"], "run"),
        lambda: void_all(tmp_path, ["a", "c"], "run", "it failed"),
    ):
        with pytest.raises(SilodpError):
            refuse()
    assert kinds(tmp_path, "a") == ["opened", "policy", "charge"]


# --- names


def test_strange_names(tmp_path):
    folder = tmp_path / "ledgers"
    charges = {name: gaussian(records=i) for i, name in enumerate(STRANGE)}
    charge_all(folder, charges, dict.fromkeys(STRANGE, AMPLE), "run")
    assert os.listdir(tmp_path) == ["ledgers"]
    paths = ledger.ledger_paths(folder)
    assert len(paths) == len(os.listdir(folder)) == len(STRANGE)
    assert {ledger.read_path(path).silo for path in paths} == set(STRANGE)
    assert all(len(path.name) < 100 for path in paths)
    for i, name in enumerate(STRANGE):
        assert account(folder, name).runs["run"].cost.about == {"records": i}


def test_ledger_under_another_silos_name(tmp_path):
    charge(tmp_path, gaussian(50.0))
    charge(tmp_path, gaussian(), silo="other")
    shutil.copy(ledger_path(tmp_path, A), ledger_path(tmp_path, "other"))
    for refuse in (
        lambda: charge(tmp_path, gaussian(), "second", silo="other"),
        lambda: ledger.read_path(ledger_path(tmp_path, "other")),
    ):
        with pytest.raises(SilodpError, match="is that of silo 'North clinic'"):
            refuse()


# --- tampering


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


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    charge(folder, gaussian(rounds=5, data="school"), "first")
    resume_all(folder, [A], "first", 2)
    finish_all(folder, [A], "first")
    charge(folder, gaussian(rounds=5), "second", Allowance(30.0, DELTA))
    settle_all(folder, {A: gaussian(rounds=3)}, "second")
    return ledger_path(folder, A)


@pytest.fixture
def copy(sound, tmp_path):
    return Path(shutil.copy(sound, tmp_path / sound.name))


def refused_everywhere(path, match="is damaged"):
    """Nothing reads or writes it, and it is still there as it was."""
    before = path.read_bytes()
    for use in (
        lambda: read_ledger(path.parent, A),
        lambda: charge(path.parent, gaussian(), "new"),
        lambda: would_exceed(path.parent, {A: gaussian()}, {A: AMPLE}),
        lambda: finish_all(path.parent, [A], "first"),
        lambda: remaining(path.parent, A),
    ):
        with pytest.raises(SilodpError, match=match):
            use()
    assert path.read_bytes() == before


def test_every_change_of_every_value_is_found(sound, tmp_path):
    entries = ledger.read_path(sound).entries
    assert len(entries) == 8
    path = tmp_path / sound.name
    changes = ("{} || 'x'", "{} || ' '", "''", "substr({}, 2) || 'y'", "1", "x'00'", "x'ff'")
    for entry in entries:
        for column in chain.COLUMNS:
            values = ("seq + 100", "-seq") if column == "seq" else changes
            for value in values:
                if getattr(entry, column) == "" and value == "''":
                    continue  # no change
                shutil.copy(sound, path)
                changed = value.format(column)
                tamper(path, f"UPDATE entries SET {column} = {changed} WHERE seq = {entry.seq}")
                with pytest.raises(SilodpError, match=r"is damaged \(row \d+ "):
                    ledger.read_path(path)


def test_changed_number_is_found(copy):
    tamper(copy, "UPDATE entries SET body = replace(body, '2.0', '9.0') WHERE kind = 'charge'")
    refused_everywhere(copy, r"damaged \(row 3 was changed")


def test_entry_with_a_new_hash_breaks_the_chain(copy):
    entries = ledger.read_path(copy).entries
    forged = chain.next_entry(entries[1], "charge", "first", {})
    change = ("UPDATE entries SET body = ?, time = ?, hash = ? WHERE seq = 3",)
    tamper(copy, (*change, (chain.canonical(forged.body), forged.time, forged.hash)))
    refused_everywhere(copy, r"damaged \(row 4 does not follow")


@pytest.mark.parametrize(
    ("statements", "row"),
    [
        (["DELETE FROM entries WHERE seq = 3"], 3),
        (["DELETE FROM entries WHERE seq = 1"], 1),
        (["DELETE FROM entries WHERE seq > 2"], 3),
        (["DELETE FROM entries WHERE seq = 8"], 8),
        (["DELETE FROM entries"], 1),
        (
            [
                "UPDATE entries SET seq = 100 WHERE seq = 3",
                "UPDATE entries SET seq = 3 WHERE seq = 4",
                "UPDATE entries SET seq = 4 WHERE seq = 100",
            ],
            3,
        ),
        (
            [
                "DELETE FROM entries WHERE seq = 3",
                "UPDATE entries SET seq = seq - 1 WHERE seq > 3",
                "UPDATE head SET entries = 7",
            ],
            3,
        ),
        (["UPDATE head SET entries = 7"], 8),
        (["UPDATE head SET entries = 9"], 9),
        (["UPDATE head SET entries = 'many'"], None),
        (["UPDATE head SET hash = (SELECT hash FROM entries WHERE seq = 7)"], 8),
        (["UPDATE head SET hash = 3"], 8),
        (["DELETE FROM head"], None),
        (["INSERT INTO head SELECT * FROM head"], None),
        (
            ["INSERT INTO entries VALUES (9, '', 'void', 'second', '{}', '', '')"],
            9,
        ),
    ],
)
def test_rows_moved_or_taken_out_are_found(copy, statements, row):
    tamper(copy, *statements)
    refused_everywhere(copy, "head" if row is None else rf"damaged \(row {row} ")


def test_rows_cut_with_their_head_are_found_by_a_noted_head(copy):
    whole = ledger.read_path(copy)
    head = "(SELECT hash FROM entries WHERE seq = 7)"
    tamper(copy, "DELETE FROM entries WHERE seq = 8", f"UPDATE head SET entries = 7, hash = {head}")
    cut = ledger.read_path(copy)
    assert ledger.check_head(cut, whole.entries[6].hash.upper() + " ").seq == 7
    with pytest.raises(SilodpError, match="cut short or rewritten"):
        ledger.check_head(cut, whole.head)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET run = 'x'",
        "DELETE FROM entries",
        "DELETE FROM head",
        "UPDATE head SET entries = 3",
        "INSERT OR REPLACE INTO entries SELECT * FROM entries WHERE seq = 3",
        "INSERT INTO entries SELECT 10, time, kind, run, body, previous, hash FROM entries LIMIT 1",
    ],
)
def test_triggers_stop_mistakes(copy, statement):
    with (
        contextlib.closing(sqlite3.connect(copy)) as connection,
        pytest.raises(sqlite3.IntegrityError),
    ):
        connection.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER entries_stay",
        "DROP TABLE head",
        "DROP TABLE entries",
        "CREATE TABLE more (x)",
        "CREATE TRIGGER more AFTER INSERT ON entries BEGIN DELETE FROM entries; END",
        "ALTER TABLE entries RENAME COLUMN body TO bodies",
    ],
)
def test_other_tables_and_triggers_are_refused(copy, statement):
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        connection.executescript(statement)
    refused_everywhere(copy, "not those of a ledger")


# --- damage


@pytest.mark.parametrize("size", [0, 1, 100, 1000, 4096, 5000, 8192, -1])
def test_truncated_file(copy, size):
    content = copy.read_bytes()
    copy.write_bytes(content[:size])
    refused_everywhere(copy, "damaged|cannot be used")


def test_garbage(copy):
    copy.write_bytes(b"This is no database. " * 1000)
    refused_everywhere(copy)


def test_flipped_bits_never_go_unseen(copy):
    content = bytearray(copy.read_bytes())
    entries = ledger.read_path(copy).entries
    for place in range(0, len(content), 997):
        flipped = content.copy()
        flipped[place] ^= 0x40
        copy.write_bytes(flipped)
        with contextlib.suppress(SilodpError):
            assert ledger.read_path(copy).entries == entries  # bytes that hold nothing


def rewritten(path, change):
    """A ledger whose chain is whole, but whose entries say something else."""
    last, rows = None, []
    for entry in ledger.read_path(path).entries:
        content = change(entry.seq, {"kind": entry.kind, "run": entry.run, "body": entry.body})
        last = chain.next_entry(last, content["kind"], content["run"], content["body"])
        rows.append(("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", last.as_row()))
    head = ("UPDATE head SET hash = ?", (last.hash,))
    tamper(path, "DELETE FROM entries", *rows, head)


@pytest.mark.parametrize(
    ("row", "change", "told"),
    [
        (1, lambda c: {**c, "body": {**c["body"], "format": 2}}, "format 2, but this version"),
        (1, lambda c: {**c, "body": {**c["body"], "silo": 3}}, "row 1 does not say whose"),
        (1, lambda c: {**c, "body": {**c["body"], "relation": "x"}}, "row 1 does not say whose"),
        (1, lambda c: {**c, "kind": "policy"}, "row 1 does not open"),
        (2, lambda c: {**c, "kind": "bonus"}, "row 2 is of the unknown kind"),
        (2, lambda c: {**c, "kind": "opened"}, "row 2 is of the unknown kind"),
    ],
)
def test_chain_of_another_kind(copy, row, change, told):
    rewritten(copy, lambda seq, content: change(content) if seq == row else content)
    refused_everywhere(copy, told)


@pytest.mark.parametrize(
    ("row", "change"),
    [
        (2, lambda c: {**c, "body": {"epsilon": "inf", "delta": DELTA}}),
        (2, lambda c: {**c, "body": {"epsilon": -1, "delta": DELTA}}),
        (3, lambda c: {**c, "body": {}}),
        (3, lambda c: {**c, "body": {**c["body"], "event": {"kind": "magic"}}}),
        (3, lambda c: {**c, "body": {**c["body"], "event": None}}),
        (3, lambda c: {**c, "body": {**c["body"], "overflow": "none"}}),
        (3, lambda c: {**c, "body": {**c["body"], "rounds": -1}}),
        (4, lambda c: {**c, "run": "another"}),
        (6, lambda c: {**c, "kind": "resume", "run": "first", "body": {"round": 1}}),
    ],
)
def test_entry_that_cannot_be_understood(copy, row, change):
    rewritten(copy, lambda seq, content: change(content) if seq == row else content)
    for use in (
        lambda: charge(copy.parent, gaussian(), "new"),
        lambda: would_exceed(copy.parent, {A: gaussian()}, {A: AMPLE}),
        lambda: remaining(copy.parent, A),
        lambda: finish_all(copy.parent, [A], "first"),
    ):
        with pytest.raises(SilodpError, match=f"entry {row} of its ledger cannot be understood"):
            use()


def test_link_that_leads_nowhere_is_no_new_silo(tmp_path):
    ledger_path(tmp_path, A).symlink_to(tmp_path / "gone")
    with pytest.raises(SilodpError, match="cannot be used"):
        charge(tmp_path, gaussian())


def test_folder_in_place_of_a_ledger(tmp_path):
    ledger_path(tmp_path, A).mkdir()
    with pytest.raises(SilodpError, match="cannot be used"):
        charge(tmp_path, gaussian())


def test_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SilodpError, match="Not a directory"):
        charge(tmp_path / "file", gaussian())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_folder_that_may_not_be_read(tmp_path):
    folder = tmp_path / "locked"
    charge(folder, gaussian())
    folder.chmod(0)
    try:
        with pytest.raises(SilodpError, match="permissions"):
            charge(folder, gaussian(), "second")
    finally:
        folder.chmod(0o700)


def test_folder_that_may_only_be_read(copy, monkeypatch):
    expected = read_ledger(copy.parent, A)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert read_ledger(copy.parent, A) == expected
    assert os.listdir(copy.parent) == [copy.name]


def test_half_made_files_do_not_block(tmp_path):
    path = ledger_path(tmp_path, A)
    (tmp_path / f".{path.name}.killed.tmp").write_bytes(b"")
    charge(tmp_path, gaussian())
    assert ledger.ledger_paths(tmp_path) == [path]


def test_ledger_held_by_another(tmp_path, monkeypatch):
    charge(tmp_path, gaussian())
    monkeypatch.setattr(ledger, "_PATIENCE", 0.05)
    with (
        ledger.locked(tmp_path, [A]),
        pytest.raises(SilodpError, match="another process has held it"),
    ):
        charge(tmp_path, gaussian(), "second")
    charge(tmp_path, gaussian(), "second")


# --- several processes


def processes(what, folder):
    """The answer of `ledger_processes.py`."""
    script = Path(__file__).with_name("ledger_processes.py")
    done = subprocess.run(
        [sys.executable, script, what, folder],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_of_two_that_race_for_the_budget_of_one_exactly_one_wins(tmp_path):
    for repeat, outcome in enumerate(processes("race", tmp_path)):
        won, lost = sorted(outcome, key=lambda told: told != "charged")
        assert won == "charged"
        assert "does not fit its lifetime allowance" in lost
        winners = set()
        for silo in ("silo 0", "silo 1", "silo 2"):
            runs = set(account(tmp_path / str(repeat), silo).runs) - {"before"}
            assert len(runs) == 1
            winners |= runs
        assert len(winners) == 1


def test_whatever_was_released_is_charged_though_killed_at_any_moment(tmp_path):
    announced = processes("killed", tmp_path)
    assert len(announced) > 5
    accounts = {
        content.silo: account_of(content)
        for content in map(ledger.read_path, ledger.ledger_paths(tmp_path))
    }
    for silo, run in announced:
        assert run in accounts[silo].runs
    # The next one is not hindered by what the killed left behind.
    charge(tmp_path, gaussian(), "next", Allowance(100.0, DELTA), "steady")


# --- the command line


@pytest.fixture
def folder(tmp_path):
    """Two silos, one of them with a name that wants to do harm."""
    folder = tmp_path / "ledgers"
    evil = "=1+1 [red]\x1b[31m\n:warning:"
    charges = {A: gaussian(rounds=5, data="school"), evil: gaussian()}
    charge_all(folder, charges, dict.fromkeys(charges, AMPLE), "first")
    void_all(folder, [evil], "first", "nothing was read")
    finish_all(folder, [A], "first")
    return folder


def test_show(cli, folder):
    done = cli("ledger", "show", folder)
    assert done.exit_code == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert r"[red]\x1b[31m\n:warning:" in done.stdout.replace("\n", " ")
    words = " ".join(done.stdout.replace("│", " ").split())
    for part in ("Charged for 5", "data school", "does not count", read_ledger(folder, A).head):
        assert part in words


def test_show_json(cli, folder):
    done = cli("ledger", "show", folder, "--silo", A, "--json")
    (silo,) = json.loads(done.stdout)["silos"]
    assert silo["silo"] == A
    assert [entry["kind"] for entry in silo["entries"]] == ["opened", "policy", "charge", "finish"]
    charged = silo["entries"][2]
    assert charged["epsilon"] == charged["spent_epsilon"] == epsilon_of(unsampled(5), DELTA, "pld")


def test_verify(cli, folder):
    done = cli("ledger", "verify", folder)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("intact") == 2
    told = json.loads(cli("ledger", "verify", folder, "--json").stdout)["silos"]
    assert [silo["intact"] for silo in told] == [True, True]
    whole = read_ledger(folder, A)
    (one,) = (silo for silo in told if silo["silo"] == A)
    assert (one["entries"], one["head"]) == (4, whole.head)
    noted = whole.entries[2].hash
    done = cli("ledger", "verify", folder, "--silo", A, "--head", noted, "--json")
    assert json.loads(done.stdout)["silos"][0]["noted_at"] == 3


def test_verify_finds_the_row(cli, folder):
    path = ledger_path(folder, A)
    tamper(path, "UPDATE entries SET time = '' WHERE seq = 3")
    for option in ((), ("--silo", A)):
        done = cli("ledger", "verify", folder, *option)
        assert done.exit_code == 2
        assert "row 3 was changed" in done.stderr
        assert path.name in done.stderr
        assert "NOT INTACT" in done.stdout
    done = cli("ledger", "verify", folder, "--json")
    assert done.exit_code == 2
    told = json.loads(done.stdout)["silos"]
    assert sorted(silo["intact"] for silo in told) == [False, True]


def test_verify_with_a_head_that_is_not_there(cli, sentence, folder):
    done = cli("ledger", "verify", folder, "--silo", A, "--head", "0" * 64)
    assert done.exit_code == 2
    assert "cut short or rewritten" in done.stderr
    assert "by --silo" in sentence(cli("ledger", "verify", folder, "--head", "0" * 64))


def test_export(cli, folder, tmp_path):
    lines = cli("ledger", "export", folder).stdout.splitlines()
    entries = [json.loads(line) for line in lines]
    assert len(entries) == 8
    assert {entry["silo"] for entry in entries} == {A, "=1+1 [red]\x1b[31m\n:warning:"}
    (last,) = (e for e in entries if e["silo"] == A and e["seq"] == 4)
    assert last["hash"] == read_ledger(folder, A).head
    assert json.loads(cli("ledger", "export", folder, "--json").stdout) == {"entries": entries}
    out = tmp_path / "out" / "entries.csv"
    done = cli("ledger", "export", folder, "--format", "csv", "--out", out)
    assert (done.exit_code, done.stdout) == (0, "")
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert len(rows) == 8
    assert {row["silo"] for row in rows} == {A, r"'=1+1 [red]\x1b[31m\n:warning:"}


def test_remaining(cli, folder):
    told = json.loads(cli("ledger", "remaining", folder, "--json").stdout)["silos"]
    one, other = sorted(told, key=lambda silo: silo["silo"] != A)
    assert one["spent_epsilon"] == epsilon_of(unsampled(5), DELTA, "pld")
    assert (one["lifetime_epsilon"], one["lifetime_delta"]) == (20.0, DELTA)
    assert (one["relation"], one["unit"], one["runs"]) == ("add-remove", "record", 1)
    assert (other["spent_epsilon"], other["remaining_epsilon"]) == (0.0, 20.0)
    done = cli("ledger", "remaining", folder)
    assert done.exit_code == 0
    assert f"{one['remaining_epsilon']:.4g}" in done.stdout


@pytest.mark.parametrize("what", ["show", "verify", "export", "remaining"])
def test_what_is_not_there(cli, sentence, folder, tmp_path, what):
    assert "cannot be read" in sentence(cli("ledger", what, tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    assert "holds no ledgers" in sentence(cli("ledger", what, tmp_path / "empty"))
    assert "'South' has no ledger" in sentence(cli("ledger", what, folder, "--silo", "South"))


@pytest.mark.parametrize("what", ["show", "export", "remaining"])
def test_nothing_is_told_of_a_damaged_ledger(cli, sentence, folder, tmp_path, what):
    tamper(ledger_path(folder, A), "UPDATE entries SET time = '' WHERE seq = 3")
    assert "row 3 was changed" in sentence(cli("ledger", what, folder))
    if what == "export":
        sentence(cli("ledger", what, folder, "--out", tmp_path / "out.jsonl"))
        assert not (tmp_path / "out.jsonl").exists()
