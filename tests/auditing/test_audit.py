"""The audit: its bounds, honest runs, and planted faults that it must catch."""

import json
import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import audit_faults as faults
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from federations import images, small
from scipy import stats

from silodp.auditing import audit as audit_module
from silodp.auditing.audit import audit
from silodp.auditing.bounds import (
    Attack,
    choose_attack,
    epsilon_bound,
    largest_bound,
    noise_bound,
    rate_limits,
    separation,
    trials_for,
)
from silodp.auditing.checks import Check, judged
from silodp.auditing.many_canaries import Bound, Guessed
from silodp.auditing.noise_checks import check_noise
from silodp.auditing.watch import Adversary
from silodp.data.registry import DataOptions, resolve
from silodp.models import model as models
from silodp.privacy.accounting.accountant import deltas_of

BASE = {"epsilon": 3.0, "delta": 1e-3, "rounds": 4, "lr": 0.1, "clip": 1.0, "method": "local"}
# All records in every step: the plain Gaussian mechanism, where a fault shows with fewest trials.
WHOLE = BASE | {"batch_size": 30}
SAMPLED = BASE | {"batch_size": 10, "trials": 1500}


def audited(task="regression", **options):
    return audit(federation=small(task, sizes=(30, 30), test=5), **options)


@pytest.fixture(autouse=True)
def _the_same_secret(monkeypatch):
    """Releases are audited, and their noise is the same in every run of the tests."""
    honest = audit_module.new_secret
    monkeypatch.setattr(
        audit_module, "new_secret", lambda entropy: bytes(range(32)) if honest(entropy) else b""
    )


@pytest.fixture
def attack_alone(monkeypatch):
    """An audit whose checks and many canaries are made up: for what has nothing to do with them."""
    rng = np.random.default_rng(0)
    guessed = Guessed(rng.normal(size=(60, 8)), rng.random((60, 8)) < 0.5)
    check = Check("made up", "1", "1", 0.5, kind="noise")
    monkeypatch.setattr(audit_module, "direct_checks", lambda *_: (check,))
    monkeypatch.setattr(audit_module, "guess_canaries", lambda *_: guessed)


# Bounds.


def test_rate_limits_at_the_ends():
    """No hits in n trials: 1 - error^(1/n), in closed form."""
    low, high = rate_limits([0, 50], 50, 0.025)
    assert low.tolist() == [0.0, pytest.approx(0.025 ** (1 / 50))]
    assert high.tolist() == [pytest.approx(1 - 0.025 ** (1 / 50)), 1.0]


def test_rate_limits_are_those_of_the_binomial_test():
    low, high = rate_limits(7, 40, 0.05)
    assert stats.binom.sf(6, 40, low) == pytest.approx(0.05)
    assert stats.binom.cdf(7, 40, high) == pytest.approx(0.05)


@pytest.mark.parametrize("rate", [0.003, 0.1, 0.5, 0.97])
def test_rate_limits_hold_as_often_as_they_should(rate):
    hits = np.arange(201)
    chance = stats.binom.pmf(hits, 200, rate)
    low, high = rate_limits(hits, 200, 0.025)
    assert chance[low > rate].sum() <= 0.025
    assert chance[high < rate].sum() <= 0.025


def test_a_perfect_attack_proves_what_the_closed_form_says():
    missed = 0.025 ** (1 / 1000)
    expected = math.log((missed - 1e-3) / (1 - missed))
    assert float(epsilon_bound(1000, 0, 1000, 1e-3, 0.95)) == pytest.approx(expected)
    assert largest_bound(1500, 1e-3, 0.95) == pytest.approx(expected)


def test_the_bound_goes_both_ways():
    """Ruling the canary out is worth as much as finding it."""
    found = epsilon_bound(100, 0, 1000, 1e-3, 0.95)
    ruled_out = epsilon_bound(1000, 900, 1000, 1e-3, 0.95)
    assert float(found) == pytest.approx(float(ruled_out))
    assert float(epsilon_bound(500, 500, 1000, 1e-3, 0.95)) == 0.0


def test_as_many_trials_as_are_needed():
    enough = trials_for(3.0, 1e-3, 0.95)
    assert largest_bound(enough, 1e-3, 0.95) > 3.0 >= largest_bound(enough // 2, 1e-3, 0.95)


def test_the_bound_of_a_known_mechanism_holds_and_is_not_idle():
    """Randomised response: epsilon is log(p / (1 - p)), and the attack is to believe the answer."""
    rng, epsilon, above, bounds = np.random.default_rng(0), 1.5, 0, []
    truth = 1 / (1 + math.exp(-epsilon))
    for _ in range(200):
        hits, alarms = rng.binomial(500, [truth, 1 - truth])
        bounds.append(float(epsilon_bound(hits, alarms, 500, 0.0, 0.9)))
        above += bounds[-1] > epsilon
    assert above <= stats.binom.isf(1e-4, 200, 0.1)
    assert np.mean(bounds) > 0.8 * epsilon


@pytest.mark.parametrize("sign", [1, -1])
def test_the_better_statistic_is_chosen(sign):
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(2, 2, 2000))
    present = {"idle": noise[0, 0], "telling": noise[0, 1] + 3 * sign}
    absent = {"idle": noise[1, 0], "telling": noise[1, 1]}
    for worth in (partial(epsilon_bound, delta=1e-3), separation):
        chosen = choose_attack(present, absent, worth, 0.95)
        assert (chosen.statistic, chosen.sign) == ("telling", sign)


def test_the_whole_curve_tells_how_much_noise_there_is():
    """A Gaussian mechanism attacked by its likelihood ratio: its noise is bounded closely."""
    epsilons = np.linspace(0, 8, 100)

    def deltas_with(multiple):
        return epsilons, deltas_of(GaussianDpEvent(1.0 * multiple), epsilons)

    trials = 4000
    rng = np.random.default_rng(0)
    found = []
    for noise in (1.0, 0.5):
        present, absent = rng.normal(1, noise, trials), rng.normal(0, noise, trials)
        hits, alarms = (int(np.sum(s > 0.5)) for s in (present, absent))
        found.append(noise_bound(hits, alarms, trials, 0.95, deltas_with))
    assert 1.0 <= found[0] < 1.25  # no more noise than it says is refuted
    assert 0.5 <= found[1] < 0.6  # half of it is found out


def test_the_curve_bound_holds_with_its_confidence():
    epsilons = np.linspace(0, 8, 100)
    curves = {}

    def deltas_with(multiple):
        key = round(math.log(multiple), 6)
        if key not in curves:
            curves[key] = deltas_of(GaussianDpEvent(multiple), epsilons)
        return epsilons, curves[key]

    rng = np.random.default_rng(1)
    true_rates = stats.norm.sf([0.2 - 1, 0.2])
    broken = 0
    for _ in range(200):
        hits, alarms = rng.binomial(500, true_rates)
        broken += noise_bound(hits, alarms, 500, 0.9, deltas_with) < 1.0
    assert broken <= stats.binom.isf(1e-4, 200, 0.1)


def test_what_is_not_finite_is_an_alarm():
    assert Attack("any", 1, 5.0).alarms(np.array([1e300, 4.0, 5.0])) == 2


# Honest runs.


@pytest.mark.parametrize(
    ("task", "method", "relation"),
    [
        ("regression", "local", "add-remove"),
        pytest.param("regression", "fedavg", "replace-one", marks=pytest.mark.slow),
        pytest.param("binary", "mrmtl", "replace-one", marks=pytest.mark.slow),
        pytest.param("binary", "ditto", "add-remove", marks=pytest.mark.slow),
        pytest.param("multiclass", "ifca+mrmtl", "add-remove", marks=pytest.mark.slow),
    ],
)
def test_honest_runs_pass(task, method, relation):
    few = {"method": method, "relation": relation, "trials": 500}
    found = audited(task, **(SAMPLED | few))
    assert found.passed
    assert found.lower_bound <= found.claimed_epsilon <= 3.0
    assert found.relation == relation


@pytest.mark.slow
def test_the_bound_is_not_idle():
    """With a full batch, where the mechanism gives the adversary all that is claimed.

    The lower bound is 0.58 to 0.69 of the claim, from one secret to another.
    """
    found = audited(**WHOLE)
    assert found.trials == audit_module.MOST_TRIALS
    assert 0.5 * found.claimed_epsilon < found.lower_bound <= found.claimed_epsilon
    assert 0.85 * found.claimed_epsilon < found.curve_bound <= found.claimed_epsilon
    assert found.largest_bound > found.claimed_epsilon
    assert not found.warnings


def test_the_attack_by_itself_is_not_idle(attack_alone):
    found = audited(**WHOLE, trials=4000)
    assert 0.4 * found.claimed_epsilon < found.lower_bound <= found.claimed_epsilon
    assert 0.75 * found.claimed_epsilon < found.curve_bound <= found.claimed_epsilon
    assert not found.warnings


def test_subjects_are_attacked_whole(attack_alone):
    options = DataOptions(silos=2, records=(120, 120), records_per_subject=3, num_features=4)
    federation = resolve("synthetic", options).load(0, options)
    found = audit(federation=federation, **SAMPLED)
    assert found.unit == "subject"
    assert 0.25 < found.lower_bound <= found.claimed_epsilon


def test_images_are_attacked(attack_alone):
    """The canary reaches the model."""
    found = audit(
        federation=images(),
        **{"method": "local", "model": "softmax", "rounds": 1, "batch_size": 30, "lr": 0.1},
        **{"epsilon": 60, "delta": 1e-3, "trials": 100, "entropy": "seed"},
    )
    assert found.passed
    attack = next(bound for bound in found.bounds if bound.name == "attack")
    assert attack.epsilon > 1


def test_sampling_by_gaps(attack_alone):
    federation = small(sizes=(100, 100), test=5)
    found = audit(federation=federation, **(SAMPLED | {"rounds": 2, "trials": 100}))
    assert found.passed


def test_a_model_that_is_not_linear(attack_alone):
    """Without models to start from, passes start where the method asks."""

    def init(key):
        first, second = jax.random.split(key)
        return {"a": jax.random.normal(first, (4, 3)), "b": jax.random.normal(second, (3,))}

    model = models.custom_model(
        init, lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"], "regression", name="small net"
    )
    found = audited(custom_model=model, **(SAMPLED | {"trials": 100, "rounds": 2}))
    assert found.passed
    assert found.attack.startswith("as asked")


def test_any_silo_in_any_company(attack_alone):
    federation = small(sizes=(30, 40, 50), test=5)
    few = SAMPLED | {"trials": 20, "rounds": 1}
    found = audit(federation=federation, silo="silo 2", others=2, **few)
    assert found.silo == "silo 2"
    assert found.silos == ("silo 0", "silo 1", "silo 2")


# Planted faults that the attack by itself must find out; `test_audit_faults` has many more.


# Half the noise, or twice the sensitivity, takes more trials than what is plain to see.
PLAIN, SUBTLE = 1000, 6000
FAULTS = [
    (faults.half_the_noise, "regression", SUBTLE, SAMPLED),
    (faults.the_same_noise_in_every_round, "regression", PLAIN, WHOLE),
]


AGAIN = [  # the same faults, met in another way
    (faults.no_noise, "regression", PLAIN, WHOLE),
    (faults.half_the_noise, "regression", SUBTLE, WHOLE),
    (faults.half_the_noise, "binary", SUBTLE, SAMPLED),
    (faults.no_clipping, "regression", PLAIN, WHOLE),
    (faults.no_clipping, "binary", PLAIN, WHOLE),
    (faults.clipping_the_sum, "regression", SUBTLE, SAMPLED),
    (faults.noise_shared_between_silos, "regression", PLAIN, WHOLE),
]


def named(fault, marks=()):
    planted, task, _, sampling = fault
    name = f"{planted.__name__}, {task}, {sampling['batch_size']}"
    return pytest.param(*fault, id=name, marks=marks)


@pytest.mark.parametrize(
    ("fault", "task", "trials", "sampling"),
    [*map(named, FAULTS), *(named(fault, pytest.mark.slow) for fault in AGAIN)],
)
def test_faults_are_caught(fault, task, trials, sampling, monkeypatch, attack_alone):
    fault(monkeypatch)
    found = audited(task, **(sampling | {"method": "fedavg", "trials": trials}))
    assert not found.passed
    attacks = [bound.epsilon for bound in found.bounds if bound.name.startswith("attack")]
    assert len(attacks) == 2
    assert max(attacks) > found.claimed_epsilon


# The command line.

CALL = (
    *("audit", "--data", "synthetic", "--silos", 2, "--method", "local", "--rounds", 2),
    *("--epsilon", 3, "--delta", 1e-3, "--density", 0.3, "--batch-size", 30),
)
KEYS = {
    *("silo", "claimed_epsilon", "delta", "lower_bound", "curve_bound", "confidence", "trials"),
    *("attack", "curve_attack"),
    *("bounds", "checks", "false_alarm", "entropy"),
    *("passed", "method", "relation", "unit", "largest_bound", "warnings", "seconds"),
}


def test_a_command_and_its_files(cli, attack_alone, tmp_path):
    """The smallest silo is attacked; so few trials are said to be too few."""
    done = cli(*CALL, "--trials", 40, "--out", tmp_path)
    assert done.exit_code == 0, done.stderr
    assert "Nothing speaks against the claim: silo 'silo-01'" in done.stdout
    each = 1 - 0.05 / 6  # six bounds share what may go wrong
    most = largest_bound(40, 1e-3, each)
    assert f"40 trials can prove an epsilon of {most:.3g} at most" in done.stdout
    assert f"--trials {trials_for(3.0, 1e-3, each)} or more" in done.stdout
    content = json.loads((tmp_path / "audit.json").read_text())
    assert content.keys() >= KEYS
    assert content["passed"] is True
    assert (content["entropy"], content["proven"]) == ("os", True)
    assert content["checks"][0].keys() == {
        *("name", "kind", "measured", "expected", "p_value", "passed")
    }
    assert len(content["bounds"]) == 6
    assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")


def test_json_and_nothing_else(cli, attack_alone):
    done = cli(*CALL, "--trials", 40, "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["silo"] == "silo-01"
    assert 0 <= content["lower_bound"] <= content["claimed_epsilon"] <= 3
    assert done.stderr == ""


def test_a_broken_claim_is_exit_code_1(cli, attack_alone, monkeypatch):
    monkeypatch.setattr(audit_module, "bounds_of", lambda *_: [Bound("a guess", 9.0, True)])
    done = cli(*CALL, "--trials", 40)
    assert done.exit_code == 1
    assert (
        "The claim is broken: silo 'silo-01' claims epsilon 3, but it is at least 9" in done.stderr
    )
    assert "by: a guess" in done.stderr


def test_a_failed_check_is_exit_code_1(cli, attack_alone, monkeypatch):
    """The check that sees the fault is made, and no other."""

    def of_noise(job, _, plans, place, seeds, stage):
        found = check_noise(job, plans, place, seeds[:20])
        return judged([replace(check, kind="noise") for check in found])

    monkeypatch.setattr(audit_module, "direct_checks", of_noise)
    faults.no_noise_on_one_parameter(monkeypatch)
    done = cli(*CALL, "--trials", 40)
    assert done.exit_code == 1
    assert "Silo 'silo-01' does not do what is planned" in done.stderr
    assert "the first: noise of each parameter." in done.stderr
    assert "not so" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--silo", "silo-1"), "'silo-01'"),
        (("--epsilon", "inf"), "infinite"),
        (("--trials", 5), "--trials is 5"),
        (("--confidence", 1), "--confidence"),
        (("--canary-norm", 0), "--canary-norm"),
        (("--others", -1), "--others"),
        (("--seeds", 3), "--trials"),
        (("--engine", "debug"), "--engine debug"),
        (("--ledger", "here"), "--ledger"),
        (("--statistics-share", 0.1), "--statistics-share"),
    ],
)
def test_what_cannot_be_audited(cli, sentence, options, words):
    assert words in sentence(cli(*CALL, *options, "--quiet"))


@pytest.mark.parametrize("regulariser", ["outside", "proximal"])
def test_the_adversary_knows_what_the_pull_does(regulariser):
    """Three steps without records, written out."""
    known = Adversary(
        job=SimpleNamespace(regulariser=regulariser),  # type: ignore[arg-type]
        plan=SimpleNamespace(steps=3),  # type: ignore[arg-type]
        lr=0.5,
        canary=({}, np.zeros(1)),
        others=({}, np.zeros(1)),
        starts=None,
    )
    w, goal, lam = 2.0, 1.0, 0.8
    for _ in range(3):
        w = (w + 0.4 * goal) / 1.4 if regulariser == "proximal" else w - 0.4 * (w - goal)
    assert goal + known.kept(lam) * (2.0 - goal) == pytest.approx(w)
