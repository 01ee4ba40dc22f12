"""Audits of few messages: honest releases pass, and planted faults are found out."""

import json
from dataclasses import replace

import message_faults as faults
import numpy as np
import pytest
from federations import small

import silodp
from silodp.auditing import audit as audit_module
from silodp.auditing import message_attack, message_checks
from silodp.auditing.audit import audit
from silodp.auditing.checks import judged
from silodp.auditing.message_checks import (
    check_message_noise,
    check_message_sums,
    check_messages_claim,
)
from silodp.base.progress import Reporter
from silodp.models.unit_vectors import unit_vectors_of
from silodp.runs.prepare import prepare
from silodp.runs.requests import requests_of
from silodp.runs.run import job_of

SECRET = bytes(range(32))
OPTIONS = {"method": "fewround", "epsilon": 3.0, "delta": 1e-3, "entropy": "os"}
SEEDS = range(5000, 9000)


@pytest.fixture(autouse=True)
def _the_same_secret(monkeypatch):
    monkeypatch.setattr(audit_module, "new_secret", lambda _: SECRET)


@pytest.fixture(autouse=True)
def _fewer_samples(monkeypatch):
    monkeypatch.setattr(message_checks, "_SAMPLES", 240)
    monkeypatch.setattr(message_attack, "_MOST_RUNS", 400)


def by_subject(federation):
    """Three records a person."""
    silos = tuple(
        silodp.Silo(
            s.name, silodp.Records(s.train.x, s.train.y, np.arange(len(s.train)) // 3), s.test
        )
        for s in federation.silos
    )
    return replace(federation, silos=silos)


def planned(task="regression", federation=None, **options):
    """What checks are made of: job, federation, vectors and plans."""
    federation = federation or small(task, sizes=(30, 30), test=5)
    found = prepare(requests_of(OPTIONS | options), federation, None, Reporter())
    job, shown = replace(job_of(found), secret=SECRET), found.federations[0]
    return job, shown, unit_vectors_of(shown), found.plans[0]


def noise_checks(*asked, **options):
    job, shown, vectors, plans = planned(**options)
    return judged(
        [
            check
            for question in asked
            for check in check_message_noise(job, shown, vectors, plans, 0, SEEDS, question)
        ]
    )


def sum_checks(**options):
    job, shown, vectors, plans = planned(**options)
    return judged(check_message_sums(job, shown, vectors, 0, plans[0], SEEDS))


def failed(checks):
    return [check.name for check in checks if not check.passed]


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("regression", {}),
        ("regression", {"relation": "replace-one", "messages": 1}),
        ("binary", {"epsilon": 50.0}),
        ("multiclass", {"messages": 3, "epsilon": 0.1}),
    ],
)
def test_honest_messages_pass(task, options):
    asked = ("moments", "gradient", *(["gradient of log-odds"] if task == "binary" else []))
    assert failed(noise_checks(*asked, task=task, **options)) == []
    assert failed(sum_checks(task=task, **options)) == []


def test_honest_messages_about_subjects_pass():
    people = by_subject(small(sizes=(30, 30), test=5))
    assert failed(noise_checks("gradient", federation=people)) == []
    assert failed(sum_checks(federation=people)) == []


@pytest.mark.parametrize("fault", faults.NOISE)
def test_faults_of_noise(fault, monkeypatch):
    fault(monkeypatch)
    assert failed(noise_checks("moments"))


@pytest.mark.parametrize("fault", faults.SUMS)
def test_faults_of_sums(fault, monkeypatch):
    fault(monkeypatch)
    assert failed(sum_checks())


def test_records_of_a_subject_that_add_up(monkeypatch):
    faults.records_of_a_subject_that_add_up(monkeypatch)
    found = failed(sum_checks(federation=by_subject(small(sizes=(30, 30), test=5))))
    assert "one record adds at most what is paid for" in found


def test_noise_that_is_not_enough_for_the_claim():
    plan = silodp.plan(federation=small(), **OPTIONS).plans[0][0]
    other = silodp.plan(federation=small(), **OPTIONS, relation="replace-one").plans[0][0]
    assert check_messages_claim(plan).p_value == 1.0
    assert check_messages_claim(other).p_value == 1.0
    for wrong in (
        replace(other, noise_multiplier=plan.noise_multiplier),
        replace(plan, noise_multiplier=0.99 * plan.noise_multiplier),
    ):
        assert check_messages_claim(wrong).p_value == 0.0


@pytest.fixture
def attack_alone(monkeypatch):
    """Without checks, and with the fastest attack."""
    monkeypatch.setattr(audit_module, "direct_checks", lambda *_: ())
    monkeypatch.setattr(message_attack, "STRATEGIES", ("steady",))


@pytest.mark.slow
def test_an_honest_run_passes_the_attack_which_is_not_idle(attack_alone):
    federation = small(sizes=(20, 20), test=5)
    found = audit(federation=federation, **OPTIONS, relation="replace-one", trials=900)
    assert found.passed
    attacks = [bound.epsilon for bound in found.bounds if bound.name.startswith("attack")]
    assert 0.1 * found.claimed_epsilon < max(attacks) <= found.curve_bound <= found.claimed_epsilon
    assert found.curve_bound > 0.4 * found.claimed_epsilon
    assert found.relation == "replace-one"


def test_the_attack_by_itself_finds_noise_that_is_too_small(monkeypatch, attack_alone):
    faults.noise_too_small_by_the_root_of_two(monkeypatch)
    federation = small(sizes=(20, 20), test=5)
    found = audit(federation=federation, **OPTIONS, messages=1, trials=700)
    assert not found.passed
    assert found.curve_bound > found.claimed_epsilon


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_every_strategy_is_tried(task, attack_alone, monkeypatch):
    monkeypatch.setattr(message_attack, "STRATEGIES", ("steady", "turning", "as asked"))
    options = OPTIONS | {"messages": 3}
    run = audit(federation=small(task, sizes=(20, 20), test=5), **options, trials=20)
    assert run.passed
    assert run.attack.split(":")[0] in message_attack.STRATEGIES


def test_the_attack_sees_subjects_whole(attack_alone):
    federation = by_subject(small(sizes=(30, 30), test=5))
    found = audit(federation=federation, **OPTIONS, trials=20)
    assert found.passed
    assert found.unit == "subject"


def test_through_the_command_line(cli, attack_alone, tmp_path):
    done = cli(
        *("audit", "--data", "synthetic", "--silos", 2, "--density", 0.2, "--method", "fewround"),
        *("--epsilon", 3, "--delta", 1e-3, "--trials", 20, "--out", tmp_path),
    )
    assert done.exit_code == 0, done.stderr
    assert "3 messages" in done.stdout
    assert "Nothing speaks against the claim" in done.stdout
    content = json.loads((tmp_path / "audit.json").read_text())
    assert (content["method"], len(content["bounds"])) == ("fewround", 6)
    assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")
