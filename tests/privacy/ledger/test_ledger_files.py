"""The ledger's file: that nothing in it can be changed unseen, whatever happens to the file."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from ledgers import (
    AMPLE,
    DELTA,
    A,
    account,
    charge,
    close,
    gaussian,
    reserve,
    rewritten,
    spend,
    tamper,
    unsampled,
)

from silodp.base.errors import SilodpError
from silodp.privacy.accounting import events
from silodp.privacy.ledger import chain, lifetime
from silodp.privacy.ledger import storage as ledger
from silodp.privacy.ledger.account import Allowance, account_of
from silodp.privacy.ledger.charging import close_all, reserve_all, would_exceed
from silodp.privacy.ledger.standing import remaining
from silodp.privacy.ledger.storage import ledger_path, read_ledger

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


# --- names


def test_strange_names(tmp_path):
    folder = tmp_path / "ledgers"
    charges = {name: gaussian(records=i) for i, name in enumerate(STRANGE)}
    reserve_all(folder, charges, dict.fromkeys(STRANGE, AMPLE), "run")
    assert os.listdir(tmp_path) == ["ledgers"]
    paths = ledger.ledger_paths(folder)
    assert len(paths) == len(os.listdir(folder)) == len(STRANGE)
    assert {ledger.read_path(path).silo for path in paths} == set(STRANGE)
    assert all(len(path.name) < 100 for path in paths)
    for i, name in enumerate(STRANGE):
        assert account(folder, name).runs["run"].about == {"records": i}


def test_ledger_under_another_silos_name(tmp_path):
    reserve(tmp_path, gaussian(50.0))
    spend(tmp_path, gaussian(), silo="other")
    shutil.copy(ledger_path(tmp_path, A), ledger_path(tmp_path, "other"))
    for refuse in (
        lambda: reserve(tmp_path, gaussian(), "second", silo="other"),
        lambda: ledger.read_path(ledger_path(tmp_path, "other")),
    ):
        with pytest.raises(SilodpError, match="is that of silo 'North clinic'"):
            refuse()


# --- tampering


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    first, second = gaussian(rounds=5, data="school"), gaussian(rounds=6)
    reserve(folder, first, "first")
    charge(folder, first, 0, 2, "first")
    charge(folder, first, 2, 5, "first")
    close(folder, "first")
    reserve(folder, second, "second", Allowance(30.0, DELTA))
    charge(folder, second, 0, 4, "second")
    close(folder, "second", "abandoned")
    return ledger_path(folder, A)


@pytest.fixture
def copy(sound, tmp_path):
    return Path(shutil.copy(sound, tmp_path / sound.name))


def refused_everywhere(path, match="is damaged"):
    """Nothing reads or writes it, and it is still there as it was."""
    before = path.read_bytes()
    for use in (
        lambda: read_ledger(path.parent, A),
        lambda: reserve(path.parent, gaussian(), "new"),
        lambda: charge(path.parent, gaussian(rounds=6), 4, 5, "second"),
        lambda: would_exceed(path.parent, {A: gaussian()}, {A: AMPLE}),
        lambda: close_all(path.parent, [A], "second", "again"),
        lambda: remaining(path.parent, A),
    ):
        with pytest.raises(SilodpError, match=match):
            use()
    assert path.read_bytes() == before


def test_every_change_of_every_value_is_found(sound, tmp_path):
    entries = ledger.read_path(sound).entries
    assert len(entries) == 10
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
    tamper(copy, "UPDATE entries SET body = replace(body, '2.0', '9.0') WHERE seq = 3")
    refused_everywhere(copy, r"damaged \(row 3 was changed")


def test_entry_with_a_new_hash_breaks_the_chain(copy):
    entries = ledger.read_path(copy).entries
    forged = chain.next_entry(entries[1], "reserve", "first", {})
    change = ("UPDATE entries SET body = ?, time = ?, hash = ? WHERE seq = 3",)
    tamper(copy, (*change, (chain.canonical(forged.body), forged.time, forged.hash)))
    refused_everywhere(copy, r"damaged \(row 4 does not follow")


@pytest.mark.parametrize(
    ("statements", "row"),
    [
        (["DELETE FROM entries WHERE seq = 3"], 3),
        (["DELETE FROM entries WHERE seq = 1"], 1),
        (["DELETE FROM entries WHERE seq > 2"], 3),
        (["DELETE FROM entries WHERE seq = 10"], 10),
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
                "UPDATE head SET entries = 9",
            ],
            3,
        ),
        (["UPDATE head SET entries = 9"], 10),
        (["UPDATE head SET entries = 11"], 11),
        (["UPDATE head SET entries = 'many'"], None),
        (["UPDATE head SET hash = (SELECT hash FROM entries WHERE seq = 9)"], 10),
        (["UPDATE head SET hash = 3"], 10),
        (["DELETE FROM head"], None),
        (["INSERT INTO head SELECT * FROM head"], None),
        (
            ["INSERT INTO entries VALUES (11, '', 'close', 'second', '{}', '', '')"],
            11,
        ),
    ],
)
def test_rows_moved_or_taken_out_are_found(copy, statements, row):
    tamper(copy, *statements)
    refused_everywhere(copy, "head" if row is None else rf"damaged \(row {row} ")


def test_rows_cut_with_their_head_are_found_by_a_noted_head(copy):
    whole = ledger.read_path(copy)
    head = "(SELECT hash FROM entries WHERE seq = 9)"
    tamper(
        copy, "DELETE FROM entries WHERE seq = 10", f"UPDATE head SET entries = 9, hash = {head}"
    )
    cut = ledger.read_path(copy)
    assert ledger.check_head(cut, whole.entries[8].hash.upper() + " ").seq == 9
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


@pytest.mark.parametrize(
    ("row", "change", "told"),
    [
        (1, lambda c: {**c, "body": {**c["body"], "format": 3}}, "format 3, but this version"),
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


FILTER = lifetime.to_json(AMPLE.opened())


def said(**body):
    """The same entry, which says something else."""
    return lambda content: {**content, "body": {**content["body"], **body}}


@pytest.mark.parametrize(
    ("row", "change"),
    [
        (2, said(epsilon="inf")),
        (2, said(epsilon=-1)),
        (2, said(filter=None)),
        (2, said(filter={**FILTER, "kind": "magic"})),
        (2, said(filter={**FILTER, "budget": FILTER["budget"] * 1.01})),
        (2, said(filter={**FILTER, "overflow": FILTER["overflow"] * 1.01})),
        (2, said(filter={**FILTER, "order": 1.5})),
        (2, said(filter={**FILTER, "order": 1.0})),
        (2, said(filter={name: FILTER[name] for name in ("kind", "order", "budget")})),
        (2, lambda c: {**c, "kind": "converted", "body": {"format": 2}}),
        (3, lambda c: {**c, "body": {}}),
        (3, said(event={"kind": "magic"})),
        (3, said(event=None)),
        (3, said(overflow="none")),
        (3, said(rounds=-1)),
        (3, said(rounds=True)),
        (3, said(alone=1)),
        (3, said(about=None)),
        (4, lambda c: {**c, "run": "another"}),
        (4, said(first=-2)),
        (4, said(first=0.0)),
        (4, said(last=True)),
        (4, said(last=0)),
        (4, said(overflow=0.5)),  # more than was reserved
        (5, said(first=1)),  # charged twice
        (5, said(last=7)),  # the final evaluation is round 5
        (5, said(event=events.to_json(unsampled(4)))),  # three were left
        (6, said(reason="")),
        (6, said(reason=None)),
        (6, lambda c: {**c, "kind": "finish", "body": {}}),
        (6, lambda c: {**c, "kind": "void"}),
        (8, lambda c: {**c, "run": "first"}),
        (9, lambda c: {**c, "run": "first"}),
        (10, lambda c: {**c, "run": "first"}),
    ],
)
def test_entry_that_cannot_be_understood(copy, row, change):
    rewritten(copy, lambda seq, content: change(content) if seq == row else content)
    for use in (
        lambda: reserve(copy.parent, gaussian(), "new"),
        lambda: charge(copy.parent, gaussian(rounds=6), 4, 5, "second"),
        lambda: would_exceed(copy.parent, {A: gaussian()}, {A: AMPLE}),
        lambda: remaining(copy.parent, A),
        lambda: close_all(copy.parent, [A], "second", "again"),
    ):
        with pytest.raises(SilodpError, match=f"entry {row} of its ledger cannot be understood"):
            use()


def test_link_that_leads_nowhere_is_no_new_silo(tmp_path):
    ledger_path(tmp_path, A).symlink_to(tmp_path / "gone")
    with pytest.raises(SilodpError, match="cannot be used"):
        reserve(tmp_path, gaussian())


def test_folder_in_place_of_a_ledger(tmp_path):
    ledger_path(tmp_path, A).mkdir()
    with pytest.raises(SilodpError, match="cannot be used"):
        reserve(tmp_path, gaussian())


def test_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SilodpError, match="Not a directory"):
        reserve(tmp_path / "file", gaussian())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_folder_that_may_not_be_read(tmp_path):
    folder = tmp_path / "locked"
    reserve(folder, gaussian())
    folder.chmod(0)
    try:
        with pytest.raises(SilodpError, match="permissions"):
            reserve(folder, gaussian(), "second")
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
    reserve(tmp_path, gaussian())
    assert ledger.ledger_paths(tmp_path) == [path]


def test_a_ledger_that_is_not_whole_is_not_put_into_place(tmp_path, monkeypatch):
    """Such as on a full disk: what was written waits in the log, and the log is not kept."""
    insert, readers = ledger._insert, []

    def watched(connection, entry):
        (path,) = tmp_path.glob("*.part")
        reader = sqlite3.connect(path)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM sqlite_master").fetchall()  # holds the file as it was
        readers.append(reader)
        insert(connection, entry)

    monkeypatch.setattr(ledger, "_insert", watched)
    with pytest.raises(SilodpError, match="no ledger can be made"):
        ledger.create(tmp_path, A, "add-remove", "record")
    for reader in readers:
        reader.close()
    assert list(tmp_path.iterdir()) == []


def test_ledger_held_by_another(tmp_path, monkeypatch):
    reserve(tmp_path, gaussian())
    monkeypatch.setattr(ledger, "_PATIENCE", 0.05)
    with (
        ledger.locked(tmp_path, [A]),
        pytest.raises(SilodpError, match="another process has held it"),
    ):
        reserve(tmp_path, gaussian(), "second")
    reserve(tmp_path, gaussian(), "second")


# --- several processes


def processes(what, folder):
    """The answer of `ledger_processes.py`."""
    script = Path(__file__).parents[2] / "support" / "ledger_processes.py"
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
        assert "lifetime allowance" in lost
        winners = set()
        for silo in ("silo 0", "silo 1", "silo 2"):
            runs = set(account(tmp_path / str(repeat), silo).runs) - {"before"}
            assert len(runs) == 1
            winners |= runs
        assert len(winners) == 1


def test_ten_at_once_never_take_more_than_the_lifetime(tmp_path):
    """They reserve, charge a part, and close; what is given back is used by others."""
    told = processes("many", tmp_path)
    assert sum(told["charged"]) > 10  # more than would fit without what is given back
    assert told["most_counted"] <= 1
    assert told["refused"] > 0
    known = account(tmp_path, "shared")
    (promise,) = known.promises
    taken = sum(cost.taken(promise.lifetime) for cost in known.counted)
    assert taken <= promise.lifetime.budget
    assert sum(len(run.blocks) for run in known.runs.values()) == sum(told["charged"])
    assert all(run.closed for run in known.runs.values())


def test_whatever_was_released_is_charged_though_killed_at_any_moment(tmp_path):
    announced = processes("killed", tmp_path)
    assert {kind for kind, *_ in announced} == {"released", "closed"}
    assert len(announced) > 20
    accounts = {
        content.silo: account_of(content)
        for content in map(ledger.read_path, ledger.ledger_paths(tmp_path))
    }
    released = {}
    for kind, silo, run, number in announced:
        known = accounts[silo].runs[run]
        if kind == "released":
            assert any(block.first <= number < block.last for block in known.blocks)
            released.setdefault((silo, run), set()).add(number)
        else:
            assert known.closed == "done"
    for silo, one in accounts.items():
        for name, run in one.runs.items():
            charged = {n for block in run.blocks for n in range(block.first, block.last)}
            assert released.get((silo, name), set()) <= charged
            if run.closed is not None:  # what counts is what was charged, and no less
                assert run.counted == run.spent
    # The next one is not hindered by what the killed left behind.
    reserve(tmp_path, gaussian(), "next", Allowance(1000.0, DELTA), "steady")
