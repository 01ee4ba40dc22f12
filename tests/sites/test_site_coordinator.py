"""What a coordinator does with answers, honest, late, wrong or hostile; and when interrupted."""

import json
import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from site_folders import (
    SITES,
    at_work,
    make_coordinator,
    make_sites,
    proposal,
    run_in_one_process,
)
from site_models import models_of

from silodp.base.errors import SilodpError
from silodp.base.progress_file import PROGRESS_FILE
from silodp.privacy.ledger.storage import read_ledger
from silodp.privacy.mechanisms.queries import PassNoise
from silodp.sites.arrays import largest_noise, norm_of, tree_of
from silodp.sites.connection import Connection
from silodp.sites.coordinator import STATE, STATE_FILE, Coordinator, QuorumError
from silodp.sites.flare import submission
from silodp.sites.protocol import Reply

AGREED = proposal(method="mrmtl", rounds=5, rules={"quorum": 2})
# Its messages state their noise, too.
NOISY = proposal(method="ebmtl", rounds=5, rules={"quorum": 2})


@pytest.fixture
def places(tmp_path):
    return make_coordinator(tmp_path / "fed", AGREED), make_sites(tmp_path, AGREED)


def only(site, kind, what):
    """Changes what one site answers to one kind of request."""

    def change(who, request, reply):
        return what(request, reply) if (who, request.kind) == (site, kind) else reply

    return change


def arrays_changed(change):
    return lambda request, reply: replace(
        reply, arrays=[np.asarray(change(a)) for a in reply.arrays]
    )


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (arrays_changed(lambda a: np.full_like(a, np.nan)), "not finite"),
        (arrays_changed(lambda a: a[None]), "shape"),
        (arrays_changed(lambda a: a.astype(np.float64)), "float64"),
        (arrays_changed(lambda a: a * np.float32(1e9)), "norm"),
        (lambda request, reply: replace(reply, arrays=[]), "0 arrays"),
        (lambda request, reply: replace(reply, about={"round": 0}), "another round"),
        (lambda request, reply: Reply("refused", "no\x1b[31m more\n\n"), "refused: no"),
        (lambda request, reply: None, "no answer within 30 s"),
    ],
)
def test_a_hostile_site_does_not_stop_the_others(places, what, words, caplog):
    fed, folders = places
    change = only("south", "train", what)
    coordinator = run_in_one_process(fed, folders, AGREED, change=change)
    assert coordinator.round == coordinator.rounds
    assert words in coordinator.status["south"]
    assert "'south'" in caplog.text
    assert coordinator.status["north"] == coordinator.status["east"] == "finished"
    models = models_of({site: folders[site] for site in ("north", "east")}, AGREED)
    assert all(np.isfinite(a).all() for own in models.values() for a in own.values())


def test_negative_noise_does_not_stop_the_others(tmp_path):
    fed, folders = make_coordinator(tmp_path / "fed", NOISY), make_sites(tmp_path, NOISY)
    change = only("south", "train", arrays_changed(lambda a: -np.abs(a)))
    coordinator = run_in_one_process(fed, folders, NOISY, change=change)
    assert "negative" in coordinator.status["south"]
    assert coordinator.status["north"] == coordinator.status["east"] == "finished"


def test_a_replayed_message_is_dropped(places):
    kept = {}

    def replayed(request, reply):
        kept.setdefault("first", reply)
        return replace(kept["first"], about=reply.about)

    coordinator = run_in_one_process(*places, AGREED, change=only("east", "train", replayed))
    assert "round before" in coordinator.status["east"]


def test_one_bad_message_costs_one_round(places):
    def once(request, reply):
        return replace(reply, arrays=[]) if request.round == 2 else reply

    coordinator = run_in_one_process(*places, AGREED, change=only("east", "train", once))
    assert set(coordinator.status.values()) == {"finished"}


def test_below_the_quorum_nothing_is_merged(places):
    fed, folders = places
    silent = {site: only(site, "train", lambda *_: None) for site in ("north", "south")}

    def change(site, request, reply):
        return silent[site](site, request, reply) if site in silent else reply

    with pytest.raises(QuorumError, match=r"1 of 3 sites .* round 1, but the quorum is 2 \(north"):
        run_in_one_process(fed, folders, AGREED, change=change)
    assert Coordinator(fed, AGREED.job()).round == 0
    # They are back: the same round is asked for again, and who answered answers the same.
    coordinator = run_in_one_process(fed, folders, AGREED)
    assert set(coordinator.status.values()) == {"finished"}


def test_an_interrupted_job_goes_on_as_if_nothing_had_happened(tmp_path):
    """With the same keys, so that both can be compared."""
    agreed = proposal(method="ditto", rounds=5)  # whose sites keep two models
    models = []
    for name, stops in (("whole", ()), ("parts", (0, 2, 2, 4))):
        folders = make_sites(tmp_path / name, agreed, keys="test")
        fed = make_coordinator(tmp_path / name / "fed", agreed)
        for stop in stops:
            run_in_one_process(fed, folders, agreed, until=stop)
        run_in_one_process(fed, folders, agreed)
        models.append(models_of(folders, agreed))
    for site in SITES:
        for name, array in models[0][site].items():
            np.testing.assert_array_equal(array, models[1][site][name])


def test_a_coordinator_that_dies_between_asking_and_merging_asks_again(places):
    fed, folders = places
    for _ in range(3):
        coordinator = Coordinator(fed, AGREED.job())
        with at_work(folders) as workers:
            for _ in range(2):
                request = coordinator.next_request()
                replies = {site: workers[site].answer(request) for site in SITES}
                if request.kind == "join":
                    coordinator.receive(replies)
        # It dies here: the answers are lost, and given again.
    coordinator = run_in_one_process(fed, folders, AGREED)
    assert set(coordinator.status.values()) == {"finished"}
    for site, folder in folders.items():
        kinds = [entry.kind for entry in read_ledger(folder / "ledger", site).entries]
        assert kinds.count("reserve") == 1
        assert kinds.count("charge") == coordinator.rounds  # each is a block
        assert kinds[-1] == "close"


def test_a_site_that_missed_rounds_has_its_model_in_the_end(places):
    fed, folders = places

    def absent(request, reply):
        return None if request.round >= 2 else reply

    run_in_one_process(fed, folders, AGREED, change=only("east", "train", absent))
    coordinator = Coordinator(fed, AGREED.job())
    assert coordinator.round == coordinator.rounds
    coordinator = run_in_one_process(fed, folders, AGREED)
    assert coordinator.status["east"] == "finished"
    assert set(models_of(folders, AGREED)) == set(SITES)


def test_a_damaged_state_is_refused(places):
    fed, folders = places
    run_in_one_process(fed, folders, AGREED, until=2)
    path = fed / STATE / AGREED.job() / STATE_FILE
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(SilodpError, match="damaged"):
        Coordinator(fed, AGREED.job())


def test_a_metric_is_released_only_as_a_paid_query(tmp_path):
    for share in (0.0, 0.2):
        agreed = proposal(method="mrmtl", metric_share=share)
        folders = make_sites(tmp_path / str(share), agreed)
        fed = make_coordinator(tmp_path / str(share) / "fed", agreed)
        coordinator = run_in_one_process(fed, folders, agreed)
        assert len(coordinator._about["metrics"]) == (3 if share else 0)
        about = read_ledger(folders["north"] / "ledger", "north").entries[2].body["about"]
        assert ("metric" in about["queries"]) == bool(share)


def reported(coordinator):
    return json.loads((coordinator._folder / PROGRESS_FILE).read_text())


def test_who_is_waited_for_is_told_by_a_field_and_not_by_words(places, monkeypatch):
    """A refusal that speaks of no answer is none of a site that was lost; a lost one is."""
    fed, _ = places
    coordinator = Coordinator(fed, AGREED.job())
    coordinator.next_request()
    with pytest.raises(QuorumError):
        coordinator.receive({"north": Reply("ok"), "south": Reply("refused", "no answer, ever")})
    told = reported(coordinator)
    assert told["silent"] == ["east"]
    assert "no answer" in told["sites"]["south"]

    ended = []
    # Whatever the words are.
    told["sites"] = dict.fromkeys(SITES, "???") | {"south": "refused: no answer, ever"}
    told["time"] = time.time() + 60
    monkeypatch.setattr(submission, "_LOOK_FOR_SITES", 0.0)
    monkeypatch.setattr(submission, "progress_of", lambda *_: told)
    monkeypatch.setattr(submission, "submit", lambda *_: "flare job")
    monkeypatch.setattr(submission, "abort", lambda *_: ended.append("aborted"))
    monkeypatch.setattr(submission, "follow", lambda *_, look, **__: look())
    monkeypatch.setattr(submission, "registered", lambda _: ["south"])
    heard = dict.fromkeys(SITES, Connection(heard=time.time() + 60))
    monkeypatch.setattr(submission, "connections", lambda _: heard)
    submission._once(fed, AGREED.job(), SITES, SITES, {}, lambda _: None)
    assert not ended
    monkeypatch.setattr(submission, "registered", lambda _: ["south", "east"])
    with pytest.raises(SilodpError, match="east is back"):
        submission._once(fed, AGREED.job(), SITES, SITES, {}, lambda _: None)
    assert ended == ["aborted"]


class Named(NamedTuple):
    """A message that calls numbers of a model noise, and noise something else."""

    noise: Any
    unsure: Any


class Variance(NamedTuple):
    variance: Any


@pytest.mark.parametrize(
    ("model", "variance", "words"),
    [
        (-3.0, 0.5, None),
        (-3.0, np.inf, None),
        (np.inf, 0.5, "noise.variance is not finite"),
        (1.0, -0.5, "unsure.variance is negative"),
        (1.0, -np.inf, "unsure.variance is not finite"),
        (1.0, np.nan, "unsure.variance is not finite"),
    ],
)
def test_what_may_be_infinite_is_of_a_type_and_not_of_a_name(model, variance, words):
    one = np.float32(1)
    like = Named(Variance(one), PassNoise(one, one, one, one))
    arrays = [np.array(value, np.float32) for value in (model, variance, 2, 3, 4)]
    if words is None:
        assert tree_of(arrays, like).unsure.clip == 4
        assert norm_of(arrays, like) == abs(model)
        assert largest_noise(arrays, like) == 4
        return
    with pytest.raises(SilodpError, match=words):
        tree_of(arrays, like)


@pytest.mark.parametrize("field", ["sampling", "batches", "clip"])
def test_nothing_else_about_noise_may_be_infinite(field):
    one = np.float32(1)
    like = PassNoise(one, one, one, one)
    arrays = [np.array(value, np.float32) for value in like._replace(**{field: np.inf})]
    with pytest.raises(SilodpError, match=f"{field} is not finite"):
        tree_of(arrays, like)
