"""Checks of what is released: honest runs pass, and planted faults are found out."""

from dataclasses import replace

import audit_faults as faults
import experiment_faults
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from federations import small

from silodp.auditing import probes
from silodp.auditing.checks import FALSE_ALARM, Check, judged, of_variance
from silodp.auditing.claim import check_claim
from silodp.auditing.direct import direct_checks
from silodp.auditing.draw_checks import check_draws
from silodp.auditing.noise_checks import check_low_bits, check_noise
from silodp.auditing.select_checks import check_selections
from silodp.auditing.sensitivity import check_own_noise, check_sensitivity
from silodp.base.progress import Reporter
from silodp.engines.programs import Programs
from silodp.models import model as models
from silodp.privacy import plan as plans
from silodp.privacy.mechanisms import training
from silodp.runs.prepare import prepare
from silodp.runs.requests import requests_of
from silodp.runs.run import job_of

# Of tests that train thousands of runs: fast code is worth its wait.
many_runs = pytest.mark.as_shipped
OPTIONS = {"epsilon": 3.0, "delta": 1e-3, "rounds": 4, "lr": 0.1, "clip": 2.0, "method": "local"}
OPTIONS |= {"batch_size": 10, "entropy": "os"}
SEEDS = range(7000, 8000)
SECRET = bytes(range(32))  # of the releases that are audited: the same in every test


def prepared(federation=None, model=None, **options):
    """What is planned, and the job: a release, unless its entropy is a seed."""
    federation = federation or small(sizes=(30, 30), test=5)
    found = prepare(requests_of(OPTIONS | options), federation, model, Reporter())
    secret = SECRET if found.specs[0].entropy == "os" else b""
    return found, replace(job_of(found), secret=secret)


def of_noise(**options):
    found, job = prepared(**options)
    return judged(check_noise(job, found.plans[0], 0, SEEDS))


def of_low_bits(**options):
    found, job = prepared(**options)
    return judged(check_low_bits(job, found.plans[0][0], SEEDS))


def of_batches(seeds=SEEDS, **options):
    found, job = prepared(**options)
    return judged(check_draws(job, found.plans[0], 0, seeds))


def of_clip(**options):
    found, job = prepared(**options)
    return judged(check_sensitivity(job, found.federations[0], 0, found.plans[0][0], SEEDS))


def of_selections(**options):
    found, job = prepared(small("binary", sizes=(40, 40), test=5), method="ifca", **options)
    return judged(check_selections(job, found.plans[0], 0, SEEDS))


def failed(checks):
    return [check.name for check in checks if not check.passed]


@pytest.fixture(scope="module")
def compiled():
    """Programs by what is checked."""
    return {}


@pytest.fixture
def compiled_once(compiled, monkeypatch, request):
    """Tests of one function share programs: faults in what the host draws are not part of them."""
    kept = compiled.setdefault(request.function, Programs())
    monkeypatch.setattr(probes, "Programs", lambda: kept)


# Honest runs.


def honest_checks(seeds=SEEDS, **options):
    found, job = prepared(**options)
    return direct_checks(job, found.federations[0], found.plans[0], 0, seeds, lambda _: None)


HONEST = {
    "a full batch": {"batch_size": 30},
    "hardly any noise, replace-one": {"relation": "replace-one", "epsilon": 60.0, "rounds": 1},
    "gaps, unlike silos": {
        "federation": small("multiclass", sizes=(80, 64), test=5),
        "batch_size": 8,
        "method": "ditto",
    },
    "selections": {"federation": small("binary", sizes=(40, 60), test=5), "method": "ifca"},
}
# All their sums hold to the last bit in what XLA makes for users too.
AS_SHIPPED = ("a full batch", "gaps, unlike silos")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, id=name, marks=[many_runs] if name in AS_SHIPPED else [])
        for name, options in HONEST.items()
    ],
)
def test_honest_runs_pass(options):
    checks = honest_checks(**options)
    assert failed(checks) == []
    assert {"claim", "noise", "low bits", "batches", "clip"} <= {check.kind for check in checks}


@many_runs
@pytest.mark.slow
def test_an_honest_experiment_passes():
    """Its noise is of single precision, as it may be: low bits are not looked at."""
    checks = honest_checks(entropy="seed")
    assert failed(checks) == []
    assert "low bits" not in {check.kind for check in checks}


@many_runs
@pytest.mark.slow
def test_no_false_alarm_in_forty_honest_runs():
    """Their p-values, shared between all checks, are no smaller than chance makes them."""
    least = []
    for number in range(40):
        options = list(HONEST.values())[number % len(HONEST)]
        checks = honest_checks(range(1000 * number, 1000 * number + 1000), **options)
        assert failed(checks) == [], number
        least.append(min(check.p_value for check in checks) * len(checks))
    # By Bonferroni's bound at most one run in ten has a shared p-value below 0.1.
    assert sum(p < 0.1 for p in least) <= 10


def test_a_silo_alone_is_given_company():
    checks = honest_checks(federation=small(sizes=(30,), test=5))
    assert failed(checks) == []
    assert any("a copy of silo 0" in check.name for check in checks)


def test_the_chance_of_a_false_alarm_is_shared():
    limit = FALSE_ALARM / 2
    near = [Check("a", "", "", 1.01 * limit), Check("b", "", "", 0.99 * limit)]
    assert [check.passed for check in judged(near)] == [True, False]
    assert not judged([Check("c", "", "", float("nan"))])[0].passed


# Faults.


@many_runs
@pytest.mark.parametrize("fault", faults.NOISE)
def test_faults_of_noise(fault, monkeypatch, compiled_once):
    """With a method that asks for two passes a round."""
    fault(monkeypatch)
    assert failed(of_noise(method="ditto"))


@many_runs
@pytest.mark.parametrize("fault", faults.LOW_BITS)
def test_faults_of_low_bits(fault, monkeypatch, compiled_once):
    fault(monkeypatch)
    assert failed(of_low_bits())


@many_runs
@pytest.mark.parametrize("fault", faults.BATCHES)
def test_faults_of_batches(fault, monkeypatch, compiled_once):
    fault(monkeypatch)
    assert failed(of_batches())


@many_runs
@pytest.mark.parametrize("fault", faults.FEW_OF_MANY)
def test_faults_of_batches_that_are_few_of_many(fault, monkeypatch, compiled_once):
    fault(monkeypatch)
    # Each shows in a quarter of the trials that an audit makes.
    assert failed(of_batches(SEEDS[:16], federation=small(sizes=(100, 100), test=5)))


@pytest.mark.parametrize("fault", faults.CLIP)
def test_faults_of_the_clip(fault, monkeypatch):
    fault(monkeypatch)
    assert failed(of_clip()) or failed(of_batches())


@pytest.mark.parametrize("fault", faults.SELECTIONS)
def test_faults_of_selections(fault, monkeypatch):
    fault(monkeypatch)
    assert failed(of_selections())


@many_runs
@pytest.mark.slow
@pytest.mark.parametrize("fault", experiment_faults.NOISE)
def test_faults_of_an_experiments_noise(fault, monkeypatch):
    fault(monkeypatch)
    assert failed(of_noise(entropy="seed"))


@many_runs
@pytest.mark.slow
@pytest.mark.parametrize("fault", [*experiment_faults.BATCHES, *experiment_faults.CLIP])
def test_faults_of_an_experiments_sums(fault, monkeypatch):
    fault(monkeypatch)
    assert failed(of_batches(entropy="seed")) or failed(of_clip(entropy="seed"))


def test_shuffling_called_poisson(monkeypatch):
    monkeypatch.setattr(plans, "draw_of", lambda *args: "shuffle")
    found, job = prepared()
    drawn = [replace(plan, draw="shuffle") for plan in found.plans[0]]
    assert failed(judged(check_draws(job, drawn, 0, SEEDS)))


def test_a_model_that_mixes_records():
    """Whose outputs depend on the whole batch: clipping each record then means nothing."""

    def init(key):
        return {"w": jnp.zeros(4)}

    model = models.custom_model(init, lambda p, x: x @ p["w"], "regression")
    honest = model.whole_sum

    def mixed(params, features, y, mask, *more):
        weight = mask / jnp.maximum(mask.sum(), 1.0)
        return honest(params, features - weight @ features, y - weight @ y, mask, *more)

    assert failed(of_clip(model=model)) == []
    assert failed(of_clip(model=model._replace(whole_sum=mixed)))


def test_noise_that_a_model_of_several_parts_uses_twice(monkeypatch):
    def init(key):
        return {"a": jax.random.normal(key, (4, 3)), "b": jnp.zeros((4, 3))}

    def apply(p, x):
        return jnp.sum(jnp.tanh(x @ p["a"]) + x @ p["b"], axis=1)

    model = models.custom_model(init, apply, "regression")

    def own():
        found, job = prepared(model=model)
        args = job, found.federations[0], found.plans[0], 0, SEEDS
        return failed(judged(check_own_noise(*args)))

    assert own() == []

    def twice(vector, like):
        half = vector.shape[-1] // 2
        return honest(jnp.concatenate([vector[..., :half]] * 2, axis=-1), like)

    honest = training.as_params
    monkeypatch.setattr(training, "as_params", twice)
    assert own()


def test_noise_that_is_not_enough_for_the_claim():
    """Calibrated as if one record replaced were one added, or with a tenth less noise."""
    (plan, _) = prepared(relation="replace-one")[0].plans[0]
    (other, _) = prepared()[0].plans[0]
    assert check_claim(plan).p_value == 1.0
    assert check_claim(other).p_value == 1.0
    assert check_claim(replace(plan, noise_multiplier=other.noise_multiplier)).p_value == 0.0
    assert (
        check_claim(replace(other, noise_multiplier=0.95 * other.noise_multiplier)).p_value == 0.0
    )


@pytest.mark.parametrize("rate", [0.5, 0.49, 0.3])
def test_a_fair_coin_is_no_alarm(rate):
    """Squares of a record that is drawn half the time do not vary at all; biased draws show."""
    coins = np.random.default_rng(0).random(4000)
    excess = (1 - 6 * rate * (1 - rate)) / (rate * (1 - rate))

    def p_value(drawn):
        unit = (drawn - rate) / np.sqrt(rate * (1 - rate))
        return float(of_variance(np.sum(unit**2), len(unit), excess))

    assert p_value(coins < rate) > 1e-3
    assert p_value(2.0 * (coins < rate / 2)) < 1e-6  # pairs that come together
