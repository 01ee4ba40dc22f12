"""What a site pays for is what it answers: late, cut off, refused, abandoned, killed.

An independent count stands beside the ledger in every test: the rounds that came back from the
worker, and the blocks that these rounds are in.
"""

import itertools
import json
import math
import pkgutil
import random
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from site_folders import at_work, make_coordinator, make_sites, proposal, site_text
from site_requests import first_request

from silodp.privacy.ledger.account import account_of
from silodp.privacy.ledger.charging import close_all
from silodp.privacy.ledger.standing import remaining
from silodp.privacy.ledger.storage import read_ledger
from silodp.report.write import write_report
from silodp.results.result import read_result
from silodp.sites import job_at_site as job_module
from silodp.sites.consents import consent
from silodp.sites.coordinator import Coordinator
from silodp.sites.job_at_site import RESULTS, STATE
from silodp.sites.job_ledger import STATE_FILE
from silodp.sites.refusals import (
    CLOSED,
    LEDGER,
    LOST,
    NEVER_BEGUN,
    NONE_LEFT,
    NOT_FINITE,
    SPENT,
    WAITING,
)
from silodp.sites.site_setup import site_models, site_status
from silodp.sites.worker import INTERNAL, SiteWorker

# Blocks of three rounds: 6.1 blocks of 60 rounds are as 61 of 600.
LONG = proposal(method="fedavg", rounds=60)
# Every round is a block; statistics come first and a metric last, each in a block of its own.
MEASURED = proposal(
    method="fedavg", rounds=3, statistics_share=0.1, metric_share=0.1, metric_bound=100.0
)
ROOM = "epsilon = 4\ndelta = 1e-3\nlifetime_epsilon = 30"


def blocks_of(answered, rounds, blocks=20):
    """Those that hold these rounds, counted by hand."""
    size = math.ceil(rounds / blocks)
    starts = sorted({number // size * size for number in answered})
    return [(first, min(rounds, first + size)) for first in starts]


def account(folder):
    return account_of(read_ledger(folder / "ledger", "north"))  # which also checks the chain


def run_in(folder, agreed=LONG, run=1):
    return account(folder).runs[agreed.job(run)]


def charged(folder, agreed=LONG, run=1):
    return [(block.first, block.last) for block in run_in(folder, agreed, run).blocks]


def site_of(tmp_path, agreed=LONG, policy=ROOM):
    return make_sites(tmp_path, agreed, policy=policy)["north"]


def rounds_answered(worker, request, numbers):
    """The answers to these rounds, by round."""
    replies = {number: worker.answer(replace(request, round=number)) for number in numbers}
    return {number: reply for number, reply in replies.items() if reply.status == "ok"}


def bytes_of(reply):
    return [array.tobytes() for array in reply.arrays]


def told_otherwise(request):
    """Something else is broadcast."""
    return replace(
        request, arrays=[a + np.float32(0.25) if a.dtype.kind == "f" else a for a in request.arrays]
    )


# Who comes late, and who cannot come


@pytest.mark.parametrize("first", [0, 7, 30, 59])
def test_who_comes_late_pays_for_what_it_answers(tmp_path, first):
    """Not for the blocks that it missed, but for the whole of the one that it came into."""
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    with closing(SiteWorker(folder)) as worker:
        assert worker.answer(replace(request, kind="join", round=first)).status == "ok"
        assert charged(folder) == []
        answered = rounds_answered(worker, request, range(first, min(60, first + 5)))
        assert charged(folder) == blocks_of(answered, 60)
        assert worker.answer(replace(request, kind="finish", round=60)).status == "ok"
    run = run_in(folder)
    assert (run.closed, charged(folder)) == ("finished", blocks_of(answered, 60))
    took_part = read_result(folder / RESULTS / LONG.job()).privacy[0]
    assert (took_part["rounds"], took_part["of_rounds"]) == (len(answered), 60)
    assert took_part["charged_rounds"] == run.charged
    told = remaining(folder / "ledger", "north")
    assert told["reserved_share"] == 0
    assert told["spent_share"] + told["left_share"] == pytest.approx(1)


@pytest.mark.parametrize("kind", ["join", "train", "finish"])
def test_who_comes_after_the_last_round_pays_nothing(tmp_path, kind):
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    with closing(SiteWorker(folder)) as worker:
        reply = worker.answer(replace(request, kind=kind, round=60))
    assert (reply.status, reply.reason) == ("refused", NONE_LEFT)
    assert not (folder / "ledger").exists()
    assert not (folder / STATE / LONG.job() / STATE_FILE).exists()


@pytest.mark.parametrize("kind", ["join", "train", "finish"])
def test_another_version_pays_nothing(tmp_path, kind):
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    with closing(SiteWorker(folder)) as worker:
        reply = worker.answer(replace(request, kind=kind, version="0.0.1"))
        assert reply.status == "refused"
        assert "'0.0.1'" in reply.reason
        assert "same version" in reply.reason
        assert not (folder / "ledger").exists()
        assert not (folder / STATE).exists()
        # Nor does it where the job is under way.
        assert worker.answer(request).status == "ok"
        assert worker.answer(replace(request, round=5, version="0.0.1")).status == "refused"
    assert charged(folder) == blocks_of([0], 60)


def test_what_is_told_must_fit_before_anything_is_charged(tmp_path):
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    odd = [[], [a[None] for a in request.arrays], [np.full_like(a, np.nan) for a in request.arrays]]
    with closing(SiteWorker(folder)) as worker:
        for arrays in odd:
            reply = worker.answer(replace(request, arrays=arrays))
            assert reply.status == "refused"
            assert "does not fit" in reply.reason
        assert charged(folder) == []
        assert run_in(folder).state == "reserved"


# Cut off


def words(page):
    return " ".join(page.split())


def test_a_site_that_is_cut_off_pays_for_its_blocks(tmp_path, cli, monkeypatch):
    """Seven of sixty rounds are two blocks and a third, as 61 of 600 are."""
    monkeypatch.setenv("COLUMNS", "250")
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    with closing(SiteWorker(folder)) as worker:
        answered = rounds_answered(worker, request, range(7))
    assert len(answered) == 7
    assert charged(folder) == blocks_of(answered, 60) == [(0, 3), (3, 6), (6, 9)]
    # The rest stays reserved: it may come back.
    cut_off = remaining(folder / "ledger", "north")
    assert cut_off["open_runs"] == [LONG.job()]
    share = cut_off["spent_share"] / (cut_off["spent_share"] + cut_off["reserved_share"])
    assert share == pytest.approx(9 / 60, rel=1e-3)
    (job,) = site_status(folder)["jobs"]
    assert (job["answered"], job["charged"], job["state"]) == (7, 9, "under way")
    # When it ends, only what was answered counts, and every page says so.
    with closing(SiteWorker(folder)) as worker:
        assert worker.answer(replace(request, kind="finish", round=60)).status == "ok"
    told = remaining(folder / "ledger", "north")
    assert charged(folder) == [(0, 3), (3, 6), (6, 9)]
    assert (told["open_runs"], told["reserved_share"]) == ([], 0)
    assert told["given_back_share"] == pytest.approx(cut_off["reserved_share"])
    result = read_result(folder / RESULTS / LONG.job())
    assert result.history[-1]["round"] == 7
    took_part = result.privacy[0]
    assert [took_part[n] for n in ("rounds", "of_rounds", "charged_rounds")] == [7, 60, 9]
    (model,) = site_models(folder)
    assert (model["rounds"], model["of_rounds"]) == (7, 60)
    assert "7 of 60 rounds" in cli("site", "models", folder).stdout
    (row,) = [r for r in cli("site", "status", folder).stdout.splitlines() if LONG.job() in r]
    assert [cell.strip() for cell in row.split("│")[3:-1]] == [
        "7 / 60",
        "7",
        "9 rounds",
        "finished",
    ]
    page = write_report([folder / RESULTS / LONG.job()], tmp_path / "report.html").read_text()
    assert "took part in 7 of 60 rounds and is charged for 9" in words(page)
    assert "given back to its lifetime" in words(page)


def test_a_site_that_missed_nothing_is_said_to_have_taken_part_in_all(tmp_path):
    agreed = proposal(method="fedavg", rounds=2)
    folder, request = site_of(tmp_path, agreed), first_request(tmp_path, agreed)
    with closing(SiteWorker(folder)) as worker:
        assert len(rounds_answered(worker, request, range(2))) == 2
        worker.answer(replace(request, kind="finish", round=2))
    page = write_report([folder / RESULTS / agreed.job()], tmp_path / "report.html").read_text()
    assert "took part in all of the 2 rounds" in words(page)


def test_a_site_that_is_cut_off_goes_on_in_the_block_that_it_paid_for(tmp_path):
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    answered = []
    for numbers in ([0], [1], [2], [3, 4], [11], [40, 41], [41]):
        with closing(SiteWorker(folder)) as worker:
            answered += rounds_answered(worker, request, numbers)
        assert charged(folder) == blocks_of(answered, 60)
    assert run_in(folder).charged == 12


def test_without_any_round_all_is_given_back(tmp_path):
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    end = replace(request, kind="finish", round=60)
    with closing(SiteWorker(folder)) as worker:
        assert worker.answer(replace(request, kind="join")).status == "ok"
        reply = worker.answer(end)
        assert (reply.status, reply.reason) == ("refused", "no round was trained at this site")
        for late in (end, request):
            assert worker.answer(late).reason == CLOSED
    with closing(SiteWorker(folder)) as worker:
        for late in (end, request, replace(request, kind="join")):
            assert worker.answer(late).reason == CLOSED
    assert charged(folder) == []
    told = remaining(folder / "ledger", "north")
    assert (told["spent_share"], told["reserved_share"], told["left_share"]) == (0, 0, 1)
    (job,) = site_status(folder)["jobs"]
    assert job["state"].startswith("closed: ended before any round")
    assert not (folder / RESULTS / LONG.job()).exists()


def test_a_lifetime_that_one_job_has_alone_is_said_so(tmp_path, cli, monkeypatch):
    """Shares of the filter would say that more than all is spent."""
    monkeypatch.setenv("COLUMNS", "250")
    folder = site_of(tmp_path, policy="epsilon = 4\ndelta = 1e-3")
    request = first_request(tmp_path, LONG)
    with closing(SiteWorker(folder)) as worker:
        answered = rounds_answered(worker, request, range(7))
        assert worker.answer(replace(request, kind="finish", round=60)).status == "ok"
        assert worker.answer(replace(request, job=LONG.job(2))).reason == SPENT
    assert charged(folder) == blocks_of(answered, 60)
    assert site_status(folder)["given_to"] == LONG.job()
    said = " ".join(cli("site", "status", folder).stdout.split())
    assert f"given to job {LONG.job()} alone" in said
    assert "%" not in said


# Refused, abandoned, failed


def test_what_the_budget_refused_may_begin_when_there_is_more(tmp_path):
    folder = site_of(tmp_path, policy="epsilon = 4\ndelta = 1e-3")
    request = first_request(tmp_path, LONG)
    second = replace(request, job=LONG.job(2))
    with closing(SiteWorker(folder)) as worker:
        assert worker.answer(request).status == "ok"
        before = read_ledger(folder / "ledger", "north").head
        for _ in range(2):
            assert worker.answer(replace(second, kind="join")).reason == SPENT
            assert worker.answer(second).reason == SPENT
    assert read_ledger(folder / "ledger", "north").head == before
    assert not (folder / STATE / LONG.job(2) / STATE_FILE).exists()
    close_all(folder / "ledger", ["north"], LONG.job(), "abandoned")
    # Its lifetime was given to the first run alone, which released something.
    (folder / "site.toml").write_text(site_text("north", policy=ROOM))
    with closing(SiteWorker(folder)) as worker:
        assert worker.answer(replace(second, kind="join")).status == "ok"
        answered = rounds_answered(worker, second, [3])
    assert charged(folder, run=2) == blocks_of(answered, 60)
    assert charged(folder) == blocks_of([0], 60)


def test_a_ledger_that_counts_otherwise_refuses_in_words(tmp_path):
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    with closing(SiteWorker(folder)) as worker:
        assert worker.answer(request).status == "ok"
    (folder / "site.toml").write_text(site_text("north", policy=ROOM + "\nrelation='replace-one'"))
    with closing(SiteWorker(folder)) as worker:
        reply = worker.answer(replace(request, job=LONG.job(2)))
    assert (reply.status, reply.reason) == ("refused", LEDGER)
    assert list(account(folder).runs) == [LONG.job()]


@pytest.mark.parametrize("restarted", [True, False])
def test_what_is_abandoned_is_not_gone_on_with(tmp_path, cli, restarted):
    """Not even within the block that it had paid for."""
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    with closing(SiteWorker(folder)) as worker:
        answered = rounds_answered(worker, request, [0, 1])
        done = cli("ledger", "close", folder / "ledger", LONG.job())
        assert done.exit_code == 0, done.stderr
        if restarted:
            worker.close()
        for late in (
            replace(request, round=2),
            replace(request, round=3),
            replace(request, kind="finish", round=60),
            replace(request, round=59),
        ):
            reply = worker.answer(late)
            assert (reply.status, reply.reason, reply.arrays) == ("refused", CLOSED, [])
    assert charged(folder) == blocks_of(answered, 60)
    told = remaining(folder / "ledger", "north")
    assert (told["reserved_share"], told["open_runs"]) == (0, [])
    (job,) = site_status(folder)["jobs"]
    assert (job["state"], job["answered"], job["charged"]) == ("closed: abandoned", 2, 3)
    assert "closed" in cli("site", "status", folder).stdout


def test_a_job_that_is_closed_while_it_ends_has_its_model(tmp_path, monkeypatch):
    """There is nothing more to give back, and nothing more is told."""
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    keep = job_module.JobAtSite._keep

    def kept(self, *given):
        released = keep(self, *given)
        close_all(folder / "ledger", ["north"], LONG.job(), "abandoned")
        return released

    monkeypatch.setattr(job_module.JobAtSite, "_keep", kept)
    with closing(SiteWorker(folder)) as worker:
        rounds_answered(worker, request, [0])
        reply = worker.answer(replace(request, kind="finish", round=60))
    assert (reply.status, reply.about) == ("ok", {})
    assert run_in(folder).closed == "abandoned"


def test_a_round_that_fails_is_charged_and_answered_once(tmp_path):
    """A refusal tells of the round's noise, too."""
    agreed = proposal(method="mrmtl", rounds=60, lam=1e15)
    folder, request = site_of(tmp_path, agreed), first_request(tmp_path, agreed)
    huge = replace(request, arrays=[np.full_like(a, 1e18) for a in request.arrays])
    with closing(SiteWorker(folder)) as worker:
        for told in (huge, request):
            reply = worker.answer(told)
            assert (reply.status, reply.reason, reply.arrays) == ("refused", NOT_FINITE, [])
        assert charged(folder, agreed) == [(0, 3)]
        assert worker.answer(replace(request, round=4)).status == "ok"
        assert worker.answer(replace(request, kind="finish", round=60)).status == "ok"
    assert charged(folder, agreed) == [(0, 3), (3, 6)]
    assert read_result(folder / RESULTS / agreed.job()).privacy[0]["rounds"] == 2


# Statistics first, a metric last


def test_preparation_and_metric_are_blocks_of_their_own(tmp_path):
    folder, request = site_of(tmp_path, MEASURED), first_request(tmp_path, MEASURED)
    end = replace(request, kind="finish", round=3)
    for number in (0, 0, 1):  # a process each, and the statistics are paid once
        with closing(SiteWorker(folder)) as worker:
            assert worker.answer(replace(request, round=number)).status == "ok"
    assert charged(folder, MEASURED) == [(-1, 0), (0, 1), (1, 2)]
    with closing(SiteWorker(folder)) as worker:
        first = worker.answer(end)
        assert "metric" in first.about
        assert worker.answer(told_otherwise(end)).about == first.about
    # Round 2 was never answered: what is charged for the metric does not pay for it.
    assert charged(folder, MEASURED) == [(-1, 0), (0, 1), (1, 2), (3, 4)]
    with closing(SiteWorker(folder)) as worker:
        assert worker.answer(told_otherwise(end)).about == first.about
        assert worker.answer(replace(request, round=2)).status == "refused"
    assert charged(folder, MEASURED) == [(-1, 0), (0, 1), (1, 2), (3, 4)]


def test_joining_does_not_pay_for_statistics(tmp_path):
    folder, request = site_of(tmp_path, MEASURED), first_request(tmp_path, MEASURED)
    with closing(SiteWorker(folder)) as worker:
        worker.answer(replace(request, kind="join"))
        worker.answer(replace(request, arrays=[]))
    assert charged(folder, MEASURED) == []


def test_a_metric_is_not_released_once_the_job_is_closed(tmp_path):
    folder, request = site_of(tmp_path, MEASURED), first_request(tmp_path, MEASURED)
    with closing(SiteWorker(folder)) as worker:
        rounds_answered(worker, request, [0])
        close_all(folder / "ledger", ["north"], MEASURED.job(), "abandoned")
        reply = worker.answer(replace(request, kind="finish", round=3))
    assert (reply.reason, reply.about) == (CLOSED, {})
    assert charged(folder, MEASURED) == [(-1, 0), (0, 1)]


# Killed, at every place


class Killed(BaseException):
    """As if the process ended here: nothing catches it."""


PLACES = {
    "state": "silodp.sites.job_at_site.save_state",
    "mark": "silodp.sites.job_ledger.write_file",
    "progress": "silodp.sites.job_at_site.write_file",
    "new ledger": "silodp.privacy.ledger.charging.create",
    "reserve": "silodp.privacy.session.reserve_all",
    "charge": "silodp.privacy.session.charge_all",
    "ledger": "silodp.privacy.ledger.storage.OpenLedger.commit",
    "compute": "silodp.sites.job_at_site.OneSilo.local",
    "result": "silodp.results.result.Result.write",
    "close": "silodp.privacy.session.close_all",
}


def killed_at(patch, place, when, call):
    """Ends the process at the n-th call of what is at this place; the list says whether it did."""
    original, calls, did = pkgutil.resolve_name(place), itertools.count(1), []

    def deadly(*args, **named):
        mine = next(calls) == call
        if mine:
            did.append(place)
        if mine and when == "before":
            raise Killed
        back = original(*args, **named)
        if mine:
            raise Killed
        return back

    patch.setattr(place, deadly)
    return did


def requests_of_a_life(folder):
    """It joins, answers, misses a round, answers, and has its model and its metric in the end."""
    request = first_request(folder, MEASURED)
    return [
        replace(request, kind="join"),
        request,
        replace(request, round=2),
        replace(request, kind="finish", round=3),
    ]


def a_life(folder, requests, answers, check):
    """Asks until all is answered, by a new process after each kill; told otherwise each time."""
    worker, kills = SiteWorker(folder), 0
    try:
        for place, request in enumerate(requests):
            while True:
                assert kills < 5
                try:
                    reply = worker.answer(request)
                    break
                except Killed:
                    kills += 1
                    worker.close()  # a lock ends with its process
                    check()
                    worker = SiteWorker(folder)
                    request = told_otherwise(request)
            assert reply.status == "ok", (place, reply)
            answers.setdefault(place, []).append((request.kind, request.round, reply))
            check()
            # Asked again, in other words, it says the same.
            again = worker.answer(told_otherwise(request))
            assert (again.about, bytes_of(again)) == (reply.about, bytes_of(reply))
    finally:
        worker.close()
    return kills


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", PLACES)
def test_killed_at_every_place_of_its_life(tmp_path, place, when):
    """Each call of each place where anything is written or worked out, one life for each."""
    requests = requests_of_a_life(tmp_path)
    paid = [(-1, 0), (0, 1), (2, 3), (3, 4)]
    for call in range(1, 100):
        folder = site_of(tmp_path / str(call), MEASURED)
        answers = {}

        def check(folder=folder, answers=answers):
            """What was answered is charged; the chain is whole."""
            answered = {n for given in answers.values() for kind, n, _ in given if kind == "train"}
            if not (folder / "ledger").exists() or not list((folder / "ledger").glob("*.ledger")):
                assert not answered
                return
            run = account(folder).runs.get(MEASURED.job())
            blocks = [] if run is None else [(b.first, b.last) for b in run.blocks]
            assert set(blocks) >= {(number, number + 1) for number in answered}
            assert blocks == [block for block in paid if block in blocks]
            assert len(blocks) <= len(answered) + 3  # statistics, the open block, the metric

        with pytest.MonkeyPatch.context() as patch:
            did = killed_at(patch, PLACES[place], when, call)
            kills = a_life(folder, requests, answers, check)
        assert kills == len(did)
        run = run_in(folder, MEASURED)
        assert (run.closed, charged(folder, MEASURED)) == ("finished", paid)
        took_part = read_result(folder / RESULTS / MEASURED.job()).privacy[0]
        assert (took_part["rounds"], took_part["charged_rounds"]) == (2, 2)
        if not did:
            break  # it has lived through all calls of this place
    assert call > 1, "it never came to that place"


KILLED = """
import os, pkgutil, signal, sys
from pathlib import Path
sys.path[:0] = {tests!r}
from test_site_blocks import MEASURED, requests_of_a_life
from silodp.sites.worker import SiteWorker
place, when, call = {place!r}, {when!r}, {call!r}
original, calls = pkgutil.resolve_name(place), []
def deadly(*args, **named):
    calls.append(1)
    if len(calls) == call and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    back = original(*args, **named)
    if len(calls) == call:
        os.kill(os.getpid(), signal.SIGKILL)
    return back
module, name = place.rsplit(".", 1)
setattr(pkgutil.resolve_name(module), name, deadly)
worker = SiteWorker(Path({folder!r}))
for request in requests_of_a_life(Path({fed!r})):
    assert worker.answer(request).status == "ok"
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "when", "call"),
    [
        ("state", "after", 1),
        ("ledger", "before", 1),
        ("ledger", "after", 1),
        ("ledger", "after", 3),
        ("compute", "after", 1),
        ("state", "after", 2),
        ("result", "after", 1),
        ("ledger", "before", 6),
    ],
)
def test_killed_for_real(tmp_path, place, when, call):
    """By SIGKILL, in a process of its own; another goes on from what is on the disk."""
    folder = site_of(tmp_path, MEASURED)
    code = KILLED.format(
        tests=[str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")],
        place=PLACES[place],
        when=when,
        call=call,
        folder=str(folder),
        fed=str(tmp_path / "killed"),
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    paid = [(-1, 0), (0, 1), (2, 3), (3, 4)]
    if list((folder / "ledger").glob("*.ledger")) and MEASURED.job() in account(folder).runs:
        blocks = charged(folder, MEASURED)
        assert blocks == paid[: len(blocks)]
    with closing(SiteWorker(folder)) as worker:
        replies = [worker.answer(request) for request in requests_of_a_life(tmp_path)]
    assert replies[-1].status == "ok"
    assert (run_in(folder, MEASURED).closed, charged(folder, MEASURED)) == ("finished", paid)


# A coordinator that asks as it likes


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_asked_in_whatever_order(tmp_path, seed):
    """Out of order, again, ahead, the last round first, restarts between: one answer a round."""
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    choice = random.Random(seed)
    given, last = {}, -1
    worker = SiteWorker(folder)
    try:
        for _ in range(40):
            step = choice.choice(["again", "next", "next", "ahead", "back", "restart", "odd"])
            if step == "restart":
                worker.close()
                worker = SiteWorker(folder)
                continue
            number = {
                "again": max(last, 0),
                "next": last + 1,
                "ahead": last + 1 + choice.randrange(12),
                "back": choice.randrange(max(last, 1)),
                "odd": choice.choice([60, 10**6]),
            }[step]
            asked = replace(request, round=number)
            reply = worker.answer(told_otherwise(asked) if choice.random() < 0.5 else asked)
            if number in given and number == last:
                assert bytes_of(reply) == given[number]
            elif last < number < 60:
                assert reply.status == "ok"
                given[number], last = bytes_of(reply), number
            else:
                assert (reply.status, reply.arrays) == ("refused", [])
            if given:
                assert charged(folder) == blocks_of(given, 60)
    finally:
        worker.close()
    assert len(given) == len({tuple(answer) for answer in given.values()})


def test_the_last_round_first_is_the_only_one(tmp_path):
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    with closing(SiteWorker(folder)) as worker:
        answered = rounds_answered(worker, request, [59, *range(59)])
        assert list(answered) == [59]
    assert charged(folder) == [(57, 60)]


def test_a_flood_of_runs_that_join_reserves_but_one(tmp_path):
    """Consent is to a proposal: each of its runs may join, and would reserve all that it takes."""
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    with closing(SiteWorker(folder)) as worker:
        for run in range(1, 10):
            join = replace(request, kind="join", job=LONG.job(run))
            assert worker.answer(join).status == "ok"
        told = remaining(folder / "ledger", "north")
        assert told["open_runs"] == [LONG.job(9)]
        assert told["reserved_share"] < 0.5
        assert worker.answer(request).reason == CLOSED  # as run 1
        assert run_in(folder, run=7).closed == NEVER_BEGUN
        # A run that has answered is not given up for another.
        assert worker.answer(replace(request, job=LONG.job(9))).status == "ok"
        assert worker.answer(replace(request, kind="join", job=LONG.job(10))).status == "ok"
        assert worker.answer(replace(request, round=1, job=LONG.job(9))).status == "ok"
    assert charged(folder, run=9) == [(0, 3)]


def test_a_run_that_another_process_has_joined_is_not_given_up(tmp_path):
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    with closing(SiteWorker(folder)) as one, closing(SiteWorker(folder)) as other:
        assert one.answer(replace(request, kind="join")).status == "ok"
        second = replace(request, job=LONG.job(2))
        assert other.answer(second).reason == WAITING
        assert list(account(folder).runs) == [LONG.job()]
        assert one.answer(request).status == "ok"
        assert other.answer(second).status == "ok"


def test_runs_of_other_proposals_are_left_alone(tmp_path):
    """One consortium cannot take from another what that has joined."""
    other = proposal(method="fedavg", rounds=40)
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    consent(folder, other)
    with closing(SiteWorker(folder)) as worker:
        for kind, agreed in (("join", LONG), ("join", other), ("train", LONG)):
            told = replace(request, kind=kind, job=agreed.job(), proposal=agreed.text)
            assert worker.answer(told).status == "ok"
    assert len(remaining(folder / "ledger", "north")["open_runs"]) == 2


def asked_by(coordinator, workers, answered, away=lambda site, number: False):
    """A job as far as it comes; `answered` grows by what each site was asked and did."""
    while (request := coordinator.next_request()) is not None:
        replies = {}
        for site in coordinator.targets:
            if away(site, request.round):
                continue
            replies[site] = workers[site].answer(request)
            if request.kind == "train" and replies[site].status == "ok":
                answered[site].append(request.round)
        coordinator.receive(replies)


def test_a_federation_in_which_sites_come_late_and_go_early(tmp_path):
    """One is away for the first rounds, another for the last: each pays for its own."""
    agreed = proposal(method="fedavg", rounds=8, rules={"quorum": 2})
    folders = make_sites(tmp_path, agreed, policy=ROOM)
    fed = make_coordinator(tmp_path / "fed", agreed)
    answered = {site: [] for site in agreed.sites}

    def away(site, number):
        return (site == "south" and number < 3) or (site == "north" and number >= 5)

    def lost(site, number):  # at round 3, whoever submits it stops
        if number == 3:
            raise KeyboardInterrupt
        return away(site, number)

    with at_work(folders) as workers:
        with pytest.raises(KeyboardInterrupt):
            asked_by(Coordinator(fed, agreed.job()), workers, answered, lost)
        assert not (folders["south"] / "ledger").exists()
        asked_by(Coordinator(fed, agreed.job()), workers, answered, away)
        assert answered == {"north": [*range(5)], "south": [*range(3, 8)], "east": [*range(8)]}
        assert run_in(folders["north"], agreed).closed is None
        asked_by(Coordinator(fed, agreed.job()), workers, answered)
    for site, folder in folders.items():
        run = account_of(read_ledger(folder / "ledger", site)).runs[agreed.job()]
        assert [(block.first, block.last) for block in run.blocks] == blocks_of(answered[site], 8)
        assert run.closed == "finished"
        took_part = read_result(folder / RESULTS / agreed.job()).privacy[0]
        assert (took_part["rounds"], took_part["of_rounds"]) == (len(answered[site]), 8)


# Copies and older files


def on_one_source(tmp_path):
    """A site's folder whose ledger is elsewhere, so that a copy of the folder shares it."""
    folder = site_of(tmp_path)
    text = site_text("north", policy=ROOM).replace("records.csv", str(folder / "records.csv"))
    (folder / "site.toml").write_text(f'{text}\n[ledger]\npath = "{folder / "ledger"}"\n')
    return folder


def test_a_copy_of_the_folder_answers_no_round_a_second_time(tmp_path, monkeypatch):
    """It has the same secret: told otherwise, its answer would show the noise of the other."""
    monkeypatch.setattr("silodp.sites.job_lock.PATIENCE", 0.1)
    folder, request = on_one_source(tmp_path), first_request(tmp_path, LONG)
    with closing(SiteWorker(folder)) as worker:
        assert worker.answer(request).status == "ok"
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("ledger"))
    with closing(SiteWorker(copy)) as twin, closing(SiteWorker(folder)) as worker:
        # Both at once: whoever is second finds the noise claimed.
        assert twin.answer(request).status == "ok"
        assert "another process" in worker.answer(replace(request, round=1)).reason
        second = twin.answer(replace(request, round=1))
        assert second.status == "ok"
    with closing(SiteWorker(folder)) as worker:
        for number in (1, 2):
            reply = worker.answer(told_otherwise(replace(request, round=number)))
            assert (reply.status, reply.reason, reply.arrays) == ("refused", LOST, [])


def test_a_copy_that_is_made_while_the_job_is_begun(tmp_path, monkeypatch):
    """The process that began it holds its noise, too."""
    monkeypatch.setattr("silodp.sites.job_lock.PATIENCE", 0.1)
    folder, request = on_one_source(tmp_path), first_request(tmp_path, LONG)
    copy = tmp_path / "copy"
    with closing(SiteWorker(folder)) as worker:
        assert worker.answer(request).status == "ok"
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("ledger"))
        with closing(SiteWorker(copy)) as twin:
            assert "another process" in twin.answer(told_otherwise(request)).reason
        assert worker.answer(replace(request, round=1)).status == "ok"


@pytest.mark.parametrize("kept", ["reserve", "charge"])
def test_an_older_ledger_is_not_gone_on_with(tmp_path, kept):
    """A round was answered that the ledger which was put back does not hold."""
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    with closing(SiteWorker(folder)) as worker:
        worker.answer(replace(request, kind="join"))
        if kept == "charge":
            worker.answer(request)
        older = shutil.copytree(folder / "ledger", tmp_path / "older")
        assert len(rounds_answered(worker, request, [0, 3, 6])) >= 2
    shutil.rmtree(folder / "ledger")
    shutil.copytree(older, folder / "ledger")
    with closing(SiteWorker(folder)) as worker:
        for number in (6, 7):
            reply = worker.answer(replace(request, round=number))
            assert (reply.status, reply.reason, reply.arrays) == ("refused", LOST, [])


def test_a_state_of_the_version_before_is_not_gone_on_with(tmp_path):
    """It charged jobs as a whole, and did not count what was answered."""
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    with closing(SiteWorker(folder)) as worker:
        worker.answer(request)
    path = folder / STATE / LONG.job() / STATE_FILE
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    state = json.loads(str(arrays["state"]))
    del state["about"]["answered"]
    arrays["state"] = np.array(json.dumps(state))
    np.savez(path, **arrays)
    with closing(SiteWorker(folder)) as worker:
        assert worker.answer(replace(request, round=1)).reason == LOST


@pytest.mark.parametrize("place", ["charge_all", "close_all"])
def test_a_failure_after_the_ledger_was_written(tmp_path, monkeypatch, place):
    """Memory then goes by the disk: the same process can go on."""
    folder, request = site_of(tmp_path), first_request(tmp_path, LONG)
    original = pkgutil.resolve_name(f"silodp.privacy.session.{place}")
    failures = []

    def once(*args, **named):
        original(*args, **named)
        if not failures:
            failures.append(True)
            raise OSError("the disk is full")

    monkeypatch.setattr(f"silodp.privacy.session.{place}", once)
    with closing(SiteWorker(folder)) as worker:
        replies = [worker.answer(request), worker.answer(request)]
        end = replace(request, kind="finish", round=60)
        replies += [worker.answer(end), worker.answer(end)]
    assert [reply.reason for reply in replies].count(INTERNAL) == 1
    assert replies[1].status == replies[3].status == "ok"
    assert charged(folder) == [(0, 3)]
    assert run_in(folder).closed == "finished"
