"""Who asked a site for what, and what it answered: a trail that cannot be changed unseen."""

import json
from dataclasses import replace

import pytest
from site_folders import make_sites
from site_requests import AGREED, asked, first_request

from silodp.base.errors import SilodpError
from silodp.privacy.ledger.storage import read_ledger
from silodp.sites.trail import FILE, Trail, check_against, read_trail


def test_a_trail_says_what_was_asked_answered_refused_and_charged(tmp_path, cli):
    site = make_sites(tmp_path / "sites", AGREED)["north"]
    request = first_request(tmp_path)
    join = replace(request, kind="join")
    asked(site, join, request, replace(request, round=1), request)
    asked(site, replace(join, proposal=replace(AGREED, seed=4).text, job="x" * 200))
    asked(site, replace(join, version="0.0.1"))
    asked(site, join, replace(join, job=AGREED.job(2)))
    lines = read_trail(site)
    said = [(line.kind, line.round, line.outcome) for line in lines]
    assert said == [
        ("join", 0, "answered"),
        ("train", 0, "answered"),
        ("train", 1, "answered"),  # of another block: these three rounds have one each
        ("train", 0, "refused"),
        ("join", 0, "refused"),
        ("join", 0, "refused"),
        ("join", 0, "answered"),
        ("join", 0, "refused"),
    ]
    assert "silodp '0.0.1'" in lines[5].reason
    assert lines[7].reason == "budget spent"
    assert [line.federation for line in lines[:2]] == ["test", "test"]
    assert len({line.ledger for line in lines[:3]}) == 3
    assert max(len(line.job) for line in lines) <= 80
    entries = read_ledger(site / "ledger", "north").entries
    check_against(lines, entries, site)
    done = cli("site", "trail", site)
    assert done.exit_code == 0, done.stderr
    assert "refused" in done.stdout
    # Nothing of it is secret to the site, and nothing of a record is in it.
    assert len(json.loads(cli("site", "trail", site, "--json").stdout)) == 8


def test_rounds_of_one_block_are_one_line(tmp_path):
    trail = Trail(tmp_path)
    for number in range(1000):
        trail.note("key", "fed", "job", "train", number, "answered", ledger="block 1")
    trail.note("key", "fed", "job", "train", 1000, "answered", ledger="block 2")
    assert [line.round for line in read_trail(tmp_path)] == [0, 1000]
    # Another process goes on with it.
    Trail(tmp_path).note("key", "fed", "job", "finish", 1001, "answered", ledger="block 2")
    trail.note("key", "fed", "job 2", "join", 0, "refused", "budget spent")
    assert [line.seq for line in read_trail(tmp_path)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [lines[0], lines[1].replace(b"refused", b"answered"), lines[2]],
        lambda lines: [lines[0], lines[2]],
        lambda lines: [lines[1], lines[0], lines[2]],
        lambda lines: [*lines[:2], b"{}"],
        lambda lines: [*lines[:2], b"["],
        lambda lines: [*lines[:2], lines[2][:50]],
    ],
)
def test_a_trail_that_was_changed_is_refused(tmp_path, change):
    for number in range(3):
        Trail(tmp_path).note("key", "fed", "job", "train", number, "refused", str(number))
    path = tmp_path / FILE
    path.write_bytes(b"\n".join(change(path.read_bytes().splitlines())) + b"\n")
    with pytest.raises(SilodpError, match=r"trail\.jsonl"):
        read_trail(tmp_path)


def test_a_trail_that_cannot_be_read_stops_no_site(tmp_path, caplog):
    trail = Trail(tmp_path)
    trail.note("key", "fed", "job", "join", 0, "answered")
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes() + b'{"seq": 2, "ti')  # the power went
    Trail(tmp_path).note("key", "fed", "job", "train", 0, "answered")
    assert "is put aside as" in caplog.text
    assert [line.kind for line in read_trail(tmp_path)] == ["train"]
    assert len(list(tmp_path.iterdir())) == 2


def test_nobody_fills_the_disk_with_refusals(tmp_path):
    trail = Trail(tmp_path)
    for number in range(1000):
        trail.note("key", "fed", "job", "train", number, "refused", str(number))
    trail.note("key", "fed", "job", "train", 0, "answered")
    assert len(read_trail(tmp_path)) == 201


def test_a_trail_that_was_cut_short_is_noticed_by_the_ledger(tmp_path):
    site = make_sites(tmp_path / "sites", AGREED)["north"]
    text = (site / "site.toml").read_text().replace("epsilon = 4", "epsilon = 1")
    (site / "site.toml").write_text(f"{text}lifetime_epsilon = 50\nlifetime_delta = 0.1\n")
    request = first_request(tmp_path)
    asked(site, request)
    asked(site, replace(request, kind="join", job=AGREED.job(2)))
    path = site / FILE
    path.write_bytes(path.read_bytes().splitlines()[0][:0])
    entries = read_ledger(site / "ledger", "north").entries
    check_against(read_trail(site), entries, site)  # empty: not known to be this one's
    asked(site, replace(request, round=1))
    lines = read_trail(site)
    assert len(lines) == 1
    # Cut after the second job was reserved: the ledger holds the line before it.
    asked(site, replace(request, kind="join", job=AGREED.job(3)))
    asked(site, replace(request, kind="join", job=AGREED.job(4)))
    whole = path.read_bytes().splitlines()
    path.write_bytes(whole[0] + b"\n")
    entries = read_ledger(site / "ledger", "north").entries
    with pytest.raises(SilodpError, match="has lost lines which the ledger knows of"):
        check_against(read_trail(site), entries, site)
