"""Attacks on a site by its coordinator, by accidents and by time; on a coordinator by its sites."""

import errno
from contextlib import closing
from dataclasses import replace

import jax
import numpy as np
import pytest
from site_folders import SITES, make_coordinator, make_sites, proposal, site_text, table
from site_requests import AGREED, asked, first_request, kinds, same

from silodp.base.errors import SilodpError
from silodp.privacy.ledger.account import account_of
from silodp.privacy.ledger.charging import close_all
from silodp.privacy.ledger.storage import read_ledger
from silodp.sites import job_at_site as job_module
from silodp.sites.consents import consent
from silodp.sites.coordinator import Coordinator, QuorumError
from silodp.sites.job_at_site import STATE
from silodp.sites.job_ledger import STATE_FILE
from silodp.sites.proposal import Proposal
from silodp.sites.protocol import Reply, Request
from silodp.sites.refusals import CANNOT, CHANGED, CLOSED, LOST
from silodp.sites.worker import SiteWorker

pytestmark = pytest.mark.usefixtures("kept_programs")

MEASURED = proposal(method="mrmtl", rounds=2, metric_share=0.2)


@pytest.fixture
def site(tmp_path):
    return make_sites(tmp_path, AGREED)["north"]


def state_path(folder, agreed=AGREED):
    return folder / STATE / agreed.job() / STATE_FILE


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


# What a job was charged for is what goes on


def test_noise_that_anyone_can_draw_is_not_gone_on_with_as_private(tmp_path):
    """A trial with keys = "test" has no secret; the job must not go on so when it is earnest."""
    folder = make_sites(tmp_path, AGREED, keys="test")["north"]
    request = first_request(tmp_path)
    asked(folder, request)
    (folder / "site.toml").write_text(site_text("north", keys="os"))
    (reply,) = asked(folder, replace(request, round=1))
    assert (reply.status, reply.reason) == ("refused", CHANGED)
    assert not (folder / "ledger").exists()


@pytest.mark.parametrize(
    "policy", ["epsilon = 0.5\ndelta = 1e-3", "epsilon = 50\ndelta = 1e-3\nrelation='replace-one'"]
)
def test_a_policy_that_changes_stops_what_was_charged_under_another(tmp_path, site, policy):
    request = first_request(tmp_path)
    asked(site, request)
    (site / "site.toml").write_text(site_text("north", policy=policy))
    (reply,) = asked(site, replace(request, round=1))
    assert (reply.status, reply.reason) == ("refused", CHANGED)


@pytest.mark.parametrize("rows", [30, 60])
def test_records_that_change_stop_what_was_charged_for_others(tmp_path, site, rows):
    """Fewer are drawn more often than was paid for; others would meet noise that is used up."""
    request = first_request(tmp_path)
    asked(site, request)
    records = table(0, rows)
    records.loc[0, "first"] = 9.5
    records.to_csv(site / "records.csv", index=False)
    (reply,) = asked(site, replace(request, round=1))
    assert (reply.status, reply.reason) == ("refused", CHANGED)
    assert not reply.arrays


def test_what_was_refused_before_it_was_charged_may_be_mended(tmp_path, site):
    first, second = first_request(tmp_path), replace(first_request(tmp_path), job=AGREED.job(2))
    asked(site, first, second)
    more = "epsilon = 4\ndelta = 1e-3\nlifetime_epsilon = 20"
    (site / "site.toml").write_text(site_text("north", policy=more))
    (reply,) = asked(site, second)
    assert reply.status == "ok"


def test_two_proposals_whose_jobs_have_one_name(tmp_path, site, monkeypatch):
    """Sixteen digits in common can be found by search: the one must not go on as the other."""
    other = proposal(method="mrmtl", rounds=30)
    consent(site, other)
    digest = Proposal.digest.fget
    monkeypatch.setattr(Proposal, "digest", property(lambda p: "0" * 16 + digest(p)[16:]))
    request = first_request(tmp_path)
    swapped = replace(request, proposal=other.text, round=1)
    first, at_work = asked(site, request, swapped)
    (later,) = asked(site, swapped)
    assert first.status == "ok"
    for reply in (at_work, later):
        assert (reply.status, reply.reason) == ("refused", CHANGED)


# No noise is used twice


def test_a_round_that_failed_is_over(tmp_path):
    """Told something else, it would draw the noise that its failure told of."""
    agreed = proposal(method="mrmtl", rounds=3, lam=1e15)
    folder = make_sites(tmp_path, agreed)["north"]
    request = first_request(tmp_path, agreed)
    (beyond,) = asked(
        folder, replace(request, arrays=[np.full_like(a, 3e38) for a in request.arrays])
    )
    assert "too large" in beyond.reason  # before any record is used: the round can still be asked
    huge = replace(request, arrays=[np.full_like(a, 1e18) for a in request.arrays])
    replies = asked(folder, huge, request)
    replies += asked(folder, request)
    for reply in replies:
        assert (reply.status, reply.arrays) == ("refused", [])
        assert "not finite" in reply.reason
    (following,) = asked(folder, replace(request, round=1))
    assert following.status == "ok"


def test_an_older_copy_is_known_though_nothing_was_started_anew(tmp_path, site):
    """Put back while the ledger stays: the next round was answered, and its noise is used up."""
    request = first_request(tmp_path)
    with closing(SiteWorker(site)) as worker:
        worker.answer(request)
        older = state_path(site).read_bytes()
        first = worker.answer(replace(request, round=1))
        assert first.status == "ok"
    state_path(site).write_bytes(older)
    other = replace(
        request,
        round=1,
        arrays=[a + np.float32(0.5) if a.dtype.kind == "f" else a for a in request.arrays],
    )
    (again,) = asked(site, other)
    assert (again.status, again.arrays) == ("refused", [])
    for mark in (site / "ledger").glob("answered/*.json"):
        mark.write_text("{")
    (damaged,) = asked(site, request)
    assert damaged.status == "refused"


def test_an_older_copy_of_the_state_is_refused(tmp_path, site):
    request = first_request(tmp_path)
    asked(site, request)
    older = state_path(site).read_bytes()
    asked(site, replace(request, round=1))
    asked(site, replace(request, round=2))
    state_path(site).write_bytes(older)
    (reply,) = asked(site, replace(request, round=1))
    assert (reply.status, reply.reason) == ("refused", LOST)


def test_what_cannot_be_kept_is_not_answered(tmp_path, site, monkeypatch):
    request = first_request(tmp_path)
    with closing(SiteWorker(site)) as worker:
        first = worker.answer(request)
        with monkeypatch.context() as broken:
            broken.setattr(job_module, "save_state", full_disk)
            assert worker.answer(replace(request, round=1)).reason == CANNOT
            assert worker.answer(replace(request, round=1)).reason == CANNOT
        assert same(worker.answer(request), first)
        second = worker.answer(replace(request, round=1))
    assert second.status == "ok"
    assert not same(first, second)


def test_a_metric_that_cannot_be_kept_is_not_released(tmp_path, monkeypatch):
    """Asked for again after a restart, another model's would have the same noise."""
    folder = make_sites(tmp_path, MEASURED)["north"]
    request = first_request(tmp_path, MEASURED)
    end = replace(request, kind="finish")
    with closing(SiteWorker(folder)) as worker:
        assert worker.answer(request).status == "ok"
        with monkeypatch.context() as broken:
            broken.setattr(job_module, "save_state", full_disk)
            assert worker.answer(end).about == worker.answer(end).about == {}
    changed = replace(end, arrays=[a + np.float32(1) for a in end.arrays])
    first, again = asked(folder, end, changed)
    assert "metric" in first.about
    assert first.about == again.about


def test_nothing_is_trained_after_the_end(tmp_path, site):
    request = first_request(tmp_path)
    _, done, later, again = asked(
        site, request, replace(request, kind="finish"), replace(request, round=1), request
    )
    assert done.status == again.status == "ok"
    assert (later.status, later.arrays) == ("refused", [])


def test_a_job_that_is_closed_in_the_ledger_is_not_gone_on_with(tmp_path, site):
    request = first_request(tmp_path)
    asked(site, request)
    close_all(site / "ledger", ["north"], AGREED.job(), "abandoned")
    (reply,) = asked(site, replace(request, round=1))
    assert (reply.status, reply.reason, reply.arrays) == ("refused", CLOSED, [])


# Accidents


def test_a_crash_between_the_end_and_the_ledger(tmp_path, site, monkeypatch):
    request = first_request(tmp_path)
    end = replace(request, kind="finish")
    with monkeypatch.context() as broken:
        broken.setattr("silodp.privacy.session.close_all", full_disk)
        asked(site, request, end)
    assert kinds(site)[-1] == "charge"
    for _ in range(2):
        (reply,) = asked(site, end)
        assert reply.status == "ok"
    assert kinds(site) == ["opened", "policy", "reserve", "charge", "close"]


@pytest.mark.parametrize("place", ["reserve_all", "charge_all"])
def test_a_crash_between_the_secret_and_the_charge(tmp_path, site, monkeypatch, place):
    request = first_request(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(f"silodp.privacy.session.{place}", full_disk)
        assert asked(site, request)[0].reason == CANNOT
    assert asked(site, request)[0].status == "ok"
    assert kinds(site) == ["opened", "policy", "reserve", "charge"]


def test_a_crash_between_the_charge_and_the_first_round(tmp_path, site, monkeypatch):
    request = first_request(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(job_module.OneSilo, "local", full_disk)
        assert asked(site, request)[0].reason == CANNOT
    assert asked(site, request)[0].status == "ok"
    assert kinds(site) == ["opened", "policy", "reserve", "charge"]


def test_a_ledger_does_not_grow_by_being_asked(tmp_path, site):
    more = "epsilon = 4\ndelta = 1e-3\nlifetime_epsilon = 20"
    (site / "site.toml").write_text(site_text("north", policy=more))
    request = first_request(tmp_path)
    one, other = request, replace(request, job=AGREED.job(2))
    asked(site, one, other, one, other, one, other)
    assert kinds(site) == ["opened", "policy", "reserve", "charge", "reserve", "charge"]
    assert len(account_of(read_ledger(site / "ledger", "north")).runs) == 2


# What a coordinator may find out by asking


def test_what_was_agreed_on_with_others_is_not_told(tmp_path, site):
    stranger = replace(AGREED, name="stranger")
    request = Request("join", stranger.job(), stranger.text)
    (reply,) = asked(site, request)
    assert reply.reason == "this site did not consent to this proposal"


@pytest.mark.parametrize("odd", [None, 7, [], b"", {}, float("nan"), np.zeros(3), "\ud800", object])
def test_no_request_is_too_odd_for_an_answer(tmp_path, site, odd):
    request = Request("train", AGREED.job(), AGREED.text)
    fields = ("kind", "job", "proposal", "round", "arrays")
    requests = [odd, *(replace(request, **{name: odd}) for name in fields)]
    for reply in asked(site, *requests):
        assert isinstance(reply, Reply)
        assert (reply.status, reply.about, reply.arrays) == ("refused", {}, [])


def test_deep_and_long_proposals_are_refused(tmp_path, site):
    for text in ("[" * 100_000, '{"name": 1e400}', '{"seed": ' + "9" * 5000 + "}"):
        (reply,) = asked(site, Request("join", AGREED.job(), text))
        assert reply.status == "refused"


# What a site may do to the others

FEDERATED = proposal(method="mrmtl", rounds=5, rules={"quorum": 2})
# Its messages end with four numbers on their noise.
NOISY = proposal(method="ebmtl", rounds=5, rules={"quorum": 2})


@pytest.fixture
def coordinator(tmp_path):
    """Asks for the first round; sites are played by `message`."""
    return joined(tmp_path, FEDERATED)


@pytest.fixture
def noisy(tmp_path):
    """A coordinator that is told of noise."""
    return joined(tmp_path, NOISY)


def joined(folder, agreed):
    coordinator = Coordinator(make_coordinator(folder / "fed", agreed), agreed.job())
    coordinator.receive({site: Reply("ok") for site in SITES})
    return coordinator


def message(coordinator, place=0, noise=(0.01, 0.05, 0.01, 1.0)):
    """What an honest site might send."""
    random = np.random.default_rng([place, coordinator.round])
    states_noise = coordinator.proposal.training["method"] == NOISY.training["method"]
    told = [np.asarray(value, np.float32) for value in noise if states_noise]
    leaves = jax.tree.leaves(coordinator._message_like)
    leaves = leaves[: len(leaves) - len(told)]
    update = [random.normal(0, 0.1, leaf.shape).astype(leaf.dtype) for leaf in leaves]
    return Reply("ok", about={"round": coordinator.round}, arrays=[*update, *told])


def replies(coordinator, **changed):
    honest = {site: message(coordinator, place) for place, site in enumerate(SITES)}
    return honest | changed


def broadcast_is_finite(coordinator):
    return all(np.isfinite(a).all() for a in coordinator.next_request().arrays)


@pytest.mark.parametrize("odd", [7, [], b"", np.zeros(3), float("nan"), "x", {"round": 0}, object])
def test_no_answer_is_so_odd_that_it_stops_the_others(coordinator, odd):
    honest = message(coordinator)
    for number, name in enumerate(("status", "reason", "about", "arrays", None)):
        south = odd if name is None else replace(honest, **{name: odd})
        coordinator.targets = list(SITES)
        coordinator.receive(replies(coordinator, south=south))
        assert coordinator.round == number + 1


@pytest.mark.parametrize("said", [True, 0.0, "0", None, np.zeros(2), [0]])
def test_a_round_is_a_number(coordinator, said):
    odd = replace(message(coordinator), about={"round": said})
    coordinator.receive(replies(coordinator, south=odd))
    assert "another round" in coordinator.status["south"]


@pytest.mark.parametrize("metric", [10**400, True, "0.5", np.zeros(2), float("nan"), [0.5], None])
def test_a_metric_is_a_number(coordinator, metric):
    coordinator._about["round"] = coordinator.rounds
    assert coordinator.next_request().kind == "finish"
    told = {site: Reply("ok", about={"metric": 0.5}) for site in SITES}
    coordinator.receive(told | {"south": Reply("ok", about={"metric": metric})})
    assert coordinator._about["metrics"] == {"north": 0.5, "east": 0.5}
    assert Coordinator(coordinator._folder.parent.parent, FEDERATED.job()).rounds == 5


@pytest.mark.parametrize("noise", [(0, 0, 0, 3e38), (3e38, 3e38, 0, 1), (1e-30, 3e38, 3e38, 3e38)])
def test_a_lie_about_noise_does_not_stop_the_others(noisy, noise):
    coordinator = noisy
    for _ in range(coordinator.rounds):
        lie = message(coordinator, 1, noise)
        coordinator.receive(replies(coordinator, south=lie))
        if coordinator.round < coordinator.rounds:
            assert broadcast_is_finite(coordinator)
    assert coordinator.round == coordinator.rounds
    assert (
        "in a row were dropped, lastly: the noise that it states is larger"
        in coordinator.status["south"]
    )


def test_whoever_spoils_what_is_merged_is_dropped(noisy):
    """Also where no check knows why."""
    coordinator, merge = noisy, noisy._merge

    def spoiled(server, sent, weights):
        merged = merge(server, sent, weights)
        (new, example), bad = merged, np.where(sent.noise.clip[1] == 7, np.inf, 0)
        return new._replace(wbar=new.wbar + bad, w=new.w + bad), example

    coordinator._merge = spoiled
    odd = message(coordinator, 1, (0.01, 0.05, 0.01, 7.0))
    coordinator.receive(replies(coordinator, south=odd))
    assert "not finite" in coordinator.status["south"]
    assert broadcast_is_finite(coordinator)
    coordinator._merge = lambda *given: jax.tree.map(lambda a: a * np.nan, merge(*given))
    with pytest.raises(SilodpError, match="agree on a smaller lr"):
        coordinator.receive(replies(coordinator))
    assert Coordinator(coordinator._folder.parent.parent, NOISY.job()).round == 1


def test_a_round_that_is_asked_for_again_may_be_answered_in_the_same_words(coordinator):
    alone = {"north": message(coordinator)}
    with pytest.raises(QuorumError):
        coordinator.receive(alone)
    coordinator.targets = list(SITES)
    coordinator.receive(replies(coordinator, **alone))
    assert coordinator.round == 1
    assert coordinator.status["north"] == "taking part"


def test_a_reason_has_no_power_over_a_terminal(coordinator):
    coordinator.receive(replies(coordinator, south=Reply("refused", "no\x1b[2J\u202e more")))
    assert coordinator.status["south"] == "refused: no?[2J? more"


def test_a_job_is_no_path(tmp_path, coordinator):
    fed = coordinator._folder.parent.parent
    for name in ("/../../elsewhere", "-1/../../elsewhere", "", "-0", "-1\n"):
        with pytest.raises(SilodpError, match="not one of the proposal"):
            Coordinator(fed, FEDERATED.digest[:16] + name)
