"""What a site answers to an honest and to a hostile coordinator, and what it keeps."""

import json
import shutil
from contextlib import closing
from dataclasses import replace

import jax
import numpy as np
import pytest
from site_folders import (
    make_coordinator,
    make_sites,
    proposal,
    run_in_one_process,
    site_text,
)
from site_requests import AGREED, asked, first_request, kinds, same

from silodp.privacy.ledger.account import account_of
from silodp.privacy.ledger.storage import read_ledger
from silodp.sites import worker
from silodp.sites.consents import consent
from silodp.sites.coordinator import Coordinator
from silodp.sites.job_at_site import STATE
from silodp.sites.job_ledger import STATE_FILE
from silodp.sites.last_error import last_error
from silodp.sites.proposal import read_proposal as read
from silodp.sites.protocol import Request
from silodp.sites.refusals import OTHER_LEDGER, SPENT
from silodp.sites.shown_ledger import accept_other
from silodp.sites.site_files import read_site
from silodp.sites.worker import SiteWorker

pytestmark = pytest.mark.usefixtures("kept_programs")

RICH = "epsilon = 1\ndelta = 1e-3\nlifetime_epsilon = 90\nlifetime_delta = 0.1"


@pytest.fixture
def site(tmp_path):
    """The folder of one site of three, and the request of its first round."""
    return make_sites(tmp_path, AGREED)["north"]


def test_a_round_is_charged_before_it_is_answered_and_only_once(tmp_path, site):
    request = first_request(tmp_path)
    (first,) = asked(site, request)
    assert first.status == "ok"
    assert first.about == {"round": 0, "ledger": first.about["ledger"]}
    assert kinds(site) == ["opened", "policy", "reserve", "charge"]
    # A process that comes later gives the answer that was given, whatever it is told.
    changed = replace(request, arrays=[a + 1 for a in request.arrays])
    again, other = asked(site, request, changed)
    assert same(first, again)
    assert same(first, other)
    assert kinds(site) == ["opened", "policy", "reserve", "charge"]
    second, back = asked(site, replace(request, round=1), request)
    assert second.status == "ok"
    assert not same(first, second)
    assert kinds(site) == ["opened", "policy", "reserve", "charge", "charge"]
    assert back.status == "refused"
    assert "answered" in back.reason


def test_rounds_may_be_missed(tmp_path, site):
    request = first_request(tmp_path)
    last, earlier = asked(site, replace(request, round=2), replace(request, round=1))
    assert last.status == "ok"
    assert earlier.status == "refused"


def hostile(change):
    return replace(AGREED, training={**AGREED.training, **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rounds": 30}, "training.rounds is 30, not 3"),
        ({"clip": 100.0}, "training.clip is 100.0, not 1.0"),
        ({"batch_size": 1}, "training.batch_size is 1, not 16"),
        ({"method": "fedavg"}, "training.method is 'fedavg', not 'mrmtl'"),
        ({"metric_share": 0.5}, "training.metric_share is 0.5"),
        ({"metric": "r2"}, "training.metric is 'r2', not None"),
    ],
)
def test_what_was_not_agreed_on_is_refused_by_name(tmp_path, site, change, words):
    other = hostile(change)
    request = first_request(tmp_path)
    joined, trained = asked(
        site,
        replace(request, kind="join", proposal=other.text, job=other.job()),
        replace(request, proposal=other.text, job=other.job()),
    )
    for reply in (joined, trained):
        assert reply.status == "refused"
        assert words in reply.reason
        assert not reply.arrays
    assert not (site / "ledger").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"round": 3}, "no round left"),
        ({"round": -1}, "not a whole number"),
        ({"round": True}, "not a whole number"),
        ({"job": "../../elsewhere-1"}, "not one of this proposal"),
        ({"job": "0123456789abcdef-1"}, "not one of this proposal"),
        ({"proposal": "{}"}, "name"),
        ({"proposal": "nothing"}, "not valid JSON"),
        ({"kind": "tell me"}, "the kind of the request is unknown"),
        ({"arrays": []}, "0 arrays"),
    ],
)
def test_odd_requests_are_refused(tmp_path, site, change, words):
    request = replace(first_request(tmp_path), **change)
    (reply,) = asked(site, request)
    assert reply.status == "refused"
    assert words in reply.reason
    assert not reply.arrays
    runs = account_of(read_ledger(site / "ledger", "north")).runs if "arrays" in change else {}
    assert not any(run.blocks for run in runs.values())
    if "arrays" not in change:  # it is not even reserved for
        assert not (site / "ledger").exists()


def test_no_round_beyond_those_that_were_agreed_on(tmp_path, site):
    first, beyond = asked(site, first_request(tmp_path), first_request(tmp_path, number=3))
    assert first.status == "ok"
    assert (beyond.status, beyond.arrays) == ("refused", [])
    assert "round 4 is asked for, but 3 were agreed on" in beyond.reason
    assert kinds(site).count("charge") == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_broadcast_that_is_not_finite_is_refused(tmp_path, site, bad):
    request = first_request(tmp_path)
    arrays = [np.full_like(a, bad) if a.dtype.kind == "f" else a for a in request.arrays]
    wrong = [a[None] for a in request.arrays]
    other = [a.astype(np.float64) for a in request.arrays]
    replies = asked(site, *(replace(request, arrays=a) for a in (arrays, wrong, other)))
    for reply, words in zip(replies, ("not finite", "shape", "type float64"), strict=True):
        assert reply.status == "refused"
        assert words in reply.reason
    assert kinds(site) == ["opened", "policy", "reserve"]


def test_a_budget_that_is_spent_is_an_answer(tmp_path, site):
    request = first_request(tmp_path)
    second = replace(request, job=AGREED.job(2))
    first, other = asked(site, request, second)
    assert first.status == "ok"
    assert (other.status, other.reason) == ("refused", SPENT)
    runs = account_of(read_ledger(site / "ledger", "north")).runs
    assert list(runs) == [AGREED.job()]


def test_nothing_private_is_in_what_a_site_says(tmp_path, site):
    """Neither epsilon, nor paths, nor values, nor seeds: also where something is wrong."""
    request = first_request(tmp_path)
    text = (site / "records.csv").read_text().replace("ward", "secret ward", 1)
    (site / "records.csv").write_text(text)
    (reply,) = asked(site, request)
    assert reply.status == "refused"
    for word in ("secret", str(site), "epsilon", "ward"):
        assert word not in reply.reason
    joined = asked(make_sites(tmp_path / "more", AGREED)["north"], replace(request, kind="join"))
    assert joined[0].about == {"finished": False, "ledger": joined[0].about["ledger"]}


def test_counts_are_told_only_where_public_and_asked_for(tmp_path):
    agreed = proposal(method="mrmtl", weights="records")
    folders = make_sites(tmp_path, agreed)
    request = first_request(tmp_path, agreed, kind="join")
    (reply,) = asked(folders["north"], request)
    assert reply.about["records"] == 48
    secret = "epsilon = 4\ndelta = 1e-3\npublic = ['feature bounds', 'label range']\nrecords = 50"
    (folders["south"] / "site.toml").write_text(site_text("south", policy=secret))
    (reply,) = asked(folders["south"], request)
    assert reply.status == "refused"
    assert "records" not in reply.about


def test_noise_is_told_only_where_the_policy_allows_it(tmp_path):
    agreed = proposal(method="ebmtl")
    policy = "epsilon = 4\ndelta = 1e-3\ntell_noise = false"
    open_site = make_sites(tmp_path / "open", agreed)["north"]
    closed = make_sites(tmp_path / "closed", agreed, policy=policy)["north"]
    request = first_request(tmp_path, agreed)
    told, untold = asked(open_site, request)[0], asked(closed, request)[0]
    assert np.isfinite(told.arrays[-4]).all()
    assert [float(a) for a in untold.arrays[-4:]] == [np.inf, 0, 0, 0]
    # And all is merged without it.
    folders = make_sites(tmp_path / "mixed", agreed)
    (folders["north"] / "site.toml").write_text(site_text("north", policy=policy))
    coordinator = run_in_one_process(make_coordinator(tmp_path / "f", agreed), folders, agreed)
    assert set(coordinator.status.values()) == {"finished"}


def test_two_processes_never_answer_for_one_job(tmp_path, site, monkeypatch):
    monkeypatch.setattr("silodp.sites.job_lock.PATIENCE", 0.5)
    request = first_request(tmp_path)
    with closing(SiteWorker(site)) as one, closing(SiteWorker(site)) as other:
        assert one.answer(request).status == "ok"
        reply = other.answer(request)
    assert reply.status == "refused"
    assert "another process" in reply.reason


def test_a_job_whose_state_is_lost_is_not_begun_again(tmp_path, site):
    """It would answer its rounds a second time, with other noise."""
    request = first_request(tmp_path)
    asked(site, request)
    (site / STATE / AGREED.job() / STATE_FILE).unlink()
    (reply,) = asked(site, request)
    assert reply.status == "refused"
    assert "lost" in reply.reason


def test_a_damaged_state_is_refused(tmp_path, site):
    request = first_request(tmp_path)
    asked(site, request)
    path = site / STATE / AGREED.job() / STATE_FILE
    path.write_bytes(path.read_bytes()[:100])
    (reply,) = asked(site, request)
    assert reply.status == "refused"
    assert not reply.arrays


def test_a_new_proposal_needs_a_new_consent(tmp_path, site):
    other = proposal(method="fedavg", rounds=3)
    request = first_request(tmp_path, other)
    assert asked(site, request)[0].status == "refused"
    consent(site, other)
    assert asked(site, request)[0].status == "ok"


def test_state_and_secret_are_for_the_site_alone(tmp_path, site):
    asked(site, first_request(tmp_path))
    folder = site / STATE / AGREED.job()
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / STATE_FILE).stat().st_mode & 0o077 == 0
    progress = json.loads((folder / "progress.json").read_text())
    assert progress["round"] == 1
    assert "secret" not in progress


def test_finishing_without_a_round_is_refused(tmp_path, site):
    request = first_request(tmp_path, kind="finish")
    assert asked(site, request)[0].status == "refused"
    assert read_site(site).site == "north"
    assert jax.tree.leaves(request.arrays)


def test_requests_of_a_stranger_kind(tmp_path, site):
    reply = asked(site, Request("join", AGREED.job(), AGREED.text))[0]
    assert reply.status == "ok"


def test_an_agreement_is_read_once_and_consent_is_looked_for_in_every_round(
    tmp_path, site, monkeypatch
):
    request = first_request(tmp_path, kind="join")
    reads = []
    monkeypatch.setattr(worker, "read_proposal", lambda text: reads.append(1) or read(text))
    with closing(SiteWorker(site)) as own:
        assert own.answer(request).status == "ok"
        assert own.answer(replace(request, kind="train")).status == "ok"
        assert len(reads) == 1
        other = replace(request, kind="train", round=1, proposal=hostile({"clip": 9.0}).text)
        assert own.answer(other).status == "refused"
        assert own.answer(request).status == "ok"
        (consent_file,) = (site / "consented").iterdir()
        consent_file.rename(site / "elsewhere")
        reply = own.answer(replace(request, kind="train", round=1))
        assert (reply.status, "did not consent" in reply.reason) == ("refused", True)
    assert kinds(site) == ["opened", "policy", "reserve", "charge"]


def test_a_superseded_proposal_has_only_the_jobs_that_were_begun(tmp_path, site):
    """A coordinator cannot go back to what was agreed on before, whoever it is."""
    request = first_request(tmp_path)
    assert asked(site, request)[0].status == "ok"
    consent(site, replace(AGREED, seed=5), supersede=True)
    (goes_on,) = asked(site, replace(request, round=1))
    assert goes_on.status == "ok"
    (downgraded,) = asked(site, replace(request, kind="join", job=AGREED.job(2)))
    assert downgraded.status == "refused"
    assert "consented to a newer proposal since" in downgraded.reason
    assert kinds(site) == ["opened", "policy", "reserve", "charge", "charge"]


def test_a_ledger_that_begins_anew_is_refused_before_anything_is_charged(tmp_path, site):
    """Set up again with a new and empty ledger, or with an older copy of it."""
    fed = make_coordinator(tmp_path / "fed", AGREED)

    def begun(run):
        coordinator = Coordinator(fed, AGREED.job(run))
        coordinator.next_request()
        return coordinator

    def joined(coordinator):
        with closing(SiteWorker(site)) as own:
            request = coordinator._request("join", [])
            reply = own.answer(request)
        coordinator._keep_shown({"north": reply} if reply.status == "ok" else {})
        return reply

    ledger = site / "ledger"
    (site / "site.toml").write_text(site_text("north", policy=RICH))
    assert joined(begun(1)).status == "ok"
    shutil.copytree(ledger, tmp_path / "older")
    (trained,) = asked(site, first_request(tmp_path))
    assert trained.status == "ok"
    begun(1)._keep_shown({"north": trained})
    # What is shown says nothing of what else the ledger holds: it is that of the job's own entry.
    shown = json.loads((fed / "shown.json").read_text())["sites"]
    assert shown == {"north": trained.about["ledger"]}
    ledger.rename(tmp_path / "newest")
    for copy in (None, tmp_path / "older"):
        if copy is not None:
            shutil.copytree(copy, ledger)
        reply = joined(begun(2))
        assert (reply.status, reply.reason) == ("refused", OTHER_LEDGER)
        before = [] if copy is None else ["opened", "policy", "reserve"]
        assert (kinds(site) if ledger.exists() else []) == before
        shutil.rmtree(ledger, ignore_errors=True)
    noted = last_error(site)
    assert noted is not None
    assert "put back the newest copy" in noted.words
    (tmp_path / "newest").rename(ledger)
    assert joined(begun(2)).status == "ok"
    # Other records, with a ledger of their own: a person says so, of that very ledger.
    ledger.rename(tmp_path / "of other records")
    assert joined(begun(3)).reason == OTHER_LEDGER
    assert accept_other(site)
    assert not accept_other(site)
    assert joined(begun(3)).status == "ok"
    # Another federation's is no more than made up: it does not tell whose ledger is whose.
    with closing(SiteWorker(site, "another coordinator")) as own:
        assert own.answer(begun(3)._request("join", [])).reason == OTHER_LEDGER
    # A coordinator that makes one up is refused, and no more.
    hostile = replace(begun(4)._request("join", []), shown={"north": "0" * 64, "south": "x"})
    assert asked(site, hostile)[0].reason == OTHER_LEDGER
