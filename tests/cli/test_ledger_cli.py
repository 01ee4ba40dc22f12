"""`silodp ledger`: what it shows, checks, copies, closes and converts, and what it refuses."""

import csv
import io
import json
import os
import shutil
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
    kinds,
    old_charge,
    old_ledger,
    reserve,
    spend,
    tamper,
    unsampled,
)

from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.ledger import lifetime
from silodp.privacy.ledger.charging import charge_all, reserve_all
from silodp.privacy.ledger.standing import remaining
from silodp.privacy.ledger.storage import ledger_path, read_ledger, read_path

EVIL = "=1+1 [red]\x1b[31m\n:warning:"


def words_of(text):
    """Without the lines of tables."""
    return " ".join(text.translate(dict.fromkeys(map(ord, "│┃"), " ")).split())


@pytest.fixture
def folder(tmp_path):
    """Two silos, one of them with a name that wants to do harm."""
    folder = tmp_path / "ledgers"
    wanted = {A: gaussian(rounds=6, data="school"), EVIL: gaussian(rounds=6)}
    reserve_all(folder, wanted, dict.fromkeys(wanted, AMPLE), "first")
    charge_all(folder, {A: wanted[A]}, "first", 0, 4)
    close(folder, "first", "refused", silo=EVIL)
    return folder


def test_show(cli, folder):
    close(folder, "first")
    done = cli("ledger", "show", folder)
    assert done.exit_code == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert r"[red]\x1b[31m\n:warning:" in done.stdout.replace("\n", " ")
    words = words_of(done.stdout)
    for part in ("data", "school", "Closed: refused", "given back", read_ledger(folder, A).head):
        assert part in words
    assert f"{epsilon_of(unsampled(6), DELTA, 'pld'):.4g}, however runs were chosen" in words


def test_show_json(cli, folder):
    done = cli("ledger", "show", folder, "--silo", A, "--json")
    (silo,) = json.loads(done.stdout)["silos"]
    assert silo["silo"] == A
    found = [entry["kind"] for entry in silo["entries"]]
    assert found == ["opened", "policy", "reserve", "charge"]
    opened = AMPLE.opened()
    whole = lifetime.cost(unsampled(6), opened) / opened.budget
    reserved, charged = silo["entries"][2:]
    assert reserved["share"] == reserved["reserved_share"] == pytest.approx(whole)
    assert (reserved["spent_share"], charged["share"]) == (0, charged["spent_share"])
    assert charged["spent_share"] == pytest.approx(whole * 4 / 6)
    assert charged["reserved_share"] == pytest.approx(whole * 2 / 6)


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
    assert "with --silo" in sentence(cli("ledger", "verify", folder, "--head", "0" * 64))


def test_export(cli, folder, tmp_path):
    lines = cli("ledger", "export", folder).stdout.splitlines()
    entries = [json.loads(line) for line in lines]
    assert len(entries) == 8
    assert {entry["silo"] for entry in entries} == {A, EVIL}
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
    assert one == remaining(folder, A)
    assert (one["lifetime_epsilon"], one["lifetime_delta"]) == (20.0, DELTA)
    assert (one["relation"], one["unit"], one["runs"]) == ("add-remove", "record", 1)
    assert one["spent_share"] + one["reserved_share"] + one["left_share"] == pytest.approx(1)
    assert (other["spent_epsilon"], other["remaining_epsilon"]) == (0.0, 20.0)
    assert other["given_back_share"] == pytest.approx(one["spent_share"] + one["reserved_share"])
    done = cli("ledger", "remaining", folder)
    assert done.exit_code == 0
    for name in ("spent_share", "reserved_share", "left_share"):
        assert any(f"{one[name]:.{digits}%}" in done.stdout for digits in (0, 1))
    assert "holding what is reserved: first" in words_of(done.stdout)
    assert "\x1b" not in done.stdout


def test_close(cli, sentence, folder):
    assert "no ledger" in sentence(cli("ledger", "close", folder, "first", "--silo", "South"))
    assert "holds an open run 'second'" in sentence(cli("ledger", "close", folder, "second"))
    done = cli("ledger", "close", folder, "first", "--reason", "the power went")
    assert done.exit_code == 0, done.stderr
    assert "closed in 1 ledger:" in done.stdout
    run = account(folder).runs["first"]
    assert (run.closed, run.charged) == ("the power went", 4)
    left = remaining(folder, A)
    assert left["spent_share"] + left["left_share"] == pytest.approx(1)
    # Closed once: what is shown still says why, and no round can follow.
    assert "holds an open run 'first'" in sentence(cli("ledger", "close", folder, "first"))
    with pytest.raises(ValueError, match="the power went"):
        charge(folder, gaussian(rounds=6), 4, 6, "first")


def test_close_wants_a_reason(cli, sentence, folder):
    sentence(cli("ledger", "close", folder, "first", "--reason", ""))


def test_only_a_run_itself_says_that_it_finished(cli, sentence, folder):
    said = sentence(cli("ledger", "close", folder, "first", "--reason", "finished"))
    assert "give another" in said
    assert account(folder).runs["first"].closed is None


def test_allow(cli, folder):
    more = ("--silo", A, "--lifetime-epsilon", "30")
    done = cli("ledger", "allow", folder, *more)
    assert "may spend epsilon 30 at delta 1e-05" in done.stdout
    assert "RAISED" in words_of(cli("ledger", "show", folder, "--silo", A).stdout)


@pytest.mark.parametrize("what", ["show", "verify", "export", "remaining", "backup", "convert"])
def test_what_is_not_there(cli, sentence, folder, tmp_path, what):
    more = ("--out", tmp_path / "copies") if what == "backup" else ()
    assert "cannot be read" in sentence(cli("ledger", what, tmp_path / "nowhere", *more))
    (tmp_path / "empty").mkdir()
    assert "holds no ledgers" in sentence(cli("ledger", what, tmp_path / "empty", *more))
    told = sentence(cli("ledger", what, folder, *more, "--silo", "South"))
    assert "'South' has no ledger" in told


@pytest.mark.parametrize("what", ["show", "export", "remaining", "close", "backup"])
def test_nothing_is_told_of_a_damaged_ledger(cli, sentence, folder, tmp_path, what):
    tamper(ledger_path(folder, A), "UPDATE entries SET time = '' WHERE seq = 3")
    out = tmp_path / "out"
    more = {"backup": ("--silo", A, "--out", out), "close": ("first",)}.get(what, ())
    assert "row 3 was changed" in sentence(cli("ledger", what, folder, *more))
    if what == "export":
        sentence(cli("ledger", what, folder, "--out", out / "out.jsonl"))
    assert not out.exists() or not os.listdir(out)


# --- copies


def test_backup(cli, folder, tmp_path):
    out = tmp_path / "a" / "copies"
    done = cli("ledger", "backup", folder, "--out", out)
    assert done.exit_code == 0, done.stderr
    assert "2 ledgers copied" in done.stdout
    # One file each, and nothing beside it.
    assert sorted(os.listdir(out)) == sorted(path.name for path in folder.glob("*.ledger"))
    for silo in (A, EVIL):
        assert read_ledger(out, silo) == read_ledger(folder, silo)
    # It is a ledger like any other; an older copy is replaced by one that continues it.
    spend(folder, gaussian(30.0), "second")
    told = json.loads(cli("ledger", "backup", folder, "--out", out, "--json").stdout)
    assert {one["silo"]: one["head"] for one in told["silos"]}[A] == read_ledger(folder, A).head
    assert read_ledger(out, A) == read_ledger(folder, A)
    assert cli("ledger", "verify", out).exit_code == 0
    spend(out, gaussian(30.0), "put back")


def test_a_copy_that_says_something_else_is_not_replaced(cli, sentence, folder, tmp_path):
    out = tmp_path / "copies"
    cli("ledger", "backup", folder, "--out", out)
    spend(out, gaussian(30.0), "elsewhere")  # a ledger of its own by now
    spend(folder, gaussian(30.0), "here")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert "cut short or rewritten" in sentence(cli("ledger", "backup", folder, "--out", out))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    # Nor is one that is damaged, or somebody's own file.
    path = ledger_path(out, A)
    path.write_bytes(b"my own words")
    sentence(cli("ledger", "backup", folder, "--out", out, "--silo", A))
    assert path.read_bytes() == b"my own words"


def test_ledgers_are_not_copied_over_themselves(cli, sentence, folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    before = ledger_path(folder, A).stat().st_ino
    for same in (folder, folder / ".." / folder.name, tmp_path / "link"):
        told = sentence(cli("ledger", "backup", folder, "--out", same))
        assert "give another folder" in told
    linked = tmp_path / "links"
    linked.mkdir()
    for silo in (A, EVIL):
        ledger_path(linked, silo).symlink_to(ledger_path(folder, silo))
    for source, out in ((linked, folder), (folder, linked)):
        assert "give another folder" in sentence(cli("ledger", "backup", source, "--out", out))
    assert ledger_path(folder, A).stat().st_ino == before
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


def test_a_copy_while_it_is_written_to_is_whole(tmp_path):
    script = Path(__file__).parents[1] / "support" / "ledger_processes.py"
    done = subprocess.run(
        [sys.executable, script, "copied", tmp_path],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    whole = read_path(ledger_path(tmp_path / "ledgers", "steady"))
    counts = [count for count, _ in told]
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]
    for count, head in told:  # each is what the ledger was at one moment
        assert whole.entries[count - 1].hash == head


# --- ledgers of the first format


@pytest.fixture
def old(tmp_path):
    folder = tmp_path / "old"
    policy = ("policy", "", {"epsilon": 8.0, "delta": DELTA})
    body = old_charge(unsampled(10, 8.0), data="school")
    old_ledger(folder, [policy, ("charge", "a", body), ("finish", "a", {})])
    full = epsilon_of(unsampled(2), DELTA, "pld") * 1.0001
    entries = [("policy", "", {"epsilon": full, "delta": DELTA})]
    for run in "ab":
        entries += [("charge", run, old_charge(unsampled(1), 1)), ("finish", run, {})]
    old_ledger(folder, entries, silo="full")
    return folder


def test_an_old_ledger_is_shown_and_verified(cli, old):
    assert cli("ledger", "verify", old).exit_code == 0
    told = words_of(cli("ledger", "show", old).stdout)
    assert "Charged for 10 rounds:" in told
    assert "school" in told
    told = words_of(cli("ledger", "remaining", old).stdout)
    assert "silodp ledger convert" in told
    assert json.loads(cli("ledger", "remaining", old, "--json").stdout)["silos"][0]["format"] == 1


def test_convert(cli, sentence, old):
    done = cli("ledger", "convert", old)
    assert done.exit_code == 0, done.stderr
    one, other = sorted(done.stdout.splitlines())
    assert one.startswith(f"{A} is converted. Its lifetime of epsilon 8 at delta 1e-05 holds")
    assert f"{remaining(old, A)['left_share']:.0%} is left" in one
    assert "only if all its runs were planned beforehand" in other
    assert f"it is epsilon {remaining(old, 'full')['spent_epsilon']:.4g}" in other
    assert kinds(old) == ["opened", "policy", "charge", "finish", "converted", "policy"]
    assert "leave them as they are" in sentence(cli("ledger", "convert", old))
    assert cli("ledger", "verify", old).exit_code == 0
    assert "Converted" in words_of(cli("ledger", "show", old, "--silo", A).stdout)
    assert "NOT KEPT" in words_of(cli("ledger", "remaining", old, "--silo", "full").stdout)


# --- for an authority


def test_summary(cli, sentence, tmp_path):
    folder, policies = tmp_path / "ledgers", tmp_path / "policies.toml"
    for silo in ("north", "south", "quiet"):
        spend(folder, gaussian(30.0), "the run", silo=silo)
    reserve(folder, gaussian(10.0), "another run", silo="south")
    lines = ["[default]", "epsilon = 3", "delta = 1e-5"]
    policies.write_text("\n".join(lines))
    asked = ("ledger", "summary", folder, "--policies", policies)
    assert "add 'ledger summary' to its public list" in sentence(cli(*asked))
    for silo in ("north", "south"):
        lines += [f'[silos."{silo}"]', 'public = ["record count", "ledger summary"]']
    policies.write_text("\n".join(lines))
    told = json.loads(cli(*asked, "--json").stdout)
    assert told["silos"] == 2
    (row,) = told["lifetimes"]
    north, south = remaining(folder, "north"), remaining(folder, "south")
    assert row["left_share"] == [round(south["left_share"], 2), round(north["left_share"], 2)]
    shown = cli(*asked).stdout
    for name in ("north", "south", "quiet", "run"):
        assert name not in json.dumps(told)
        assert name not in shown
    shutil.rmtree(folder)
    assert "cannot be read" in sentence(cli(*asked))
