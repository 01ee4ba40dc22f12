"""Checks of what is released: honest runs pass, and planted faults are found out."""

from dataclasses import replace

import audit_faults as faults
import jax
import jax.numpy as jnp
import pytest
from federations import small

from silodp import models
from silodp.engines import layout, simulation
from silodp.prepare import grid, prepare
from silodp.privacy import plan as plans
from silodp.privacy import selection
from silodp.privacy.audit.checks import FALSE_ALARM, Check, judged
from silodp.privacy.audit.claim import check_claim
from silodp.privacy.audit.direct import direct_checks
from silodp.privacy.audit.draw_checks import check_draws
from silodp.privacy.audit.noise_checks import check_low_bits, check_noise
from silodp.privacy.audit.select_checks import check_selections
from silodp.privacy.audit.sensitivity import check_own_noise, check_sensitivity
from silodp.reporting import Reporter
from silodp.runs import job_of

OPTIONS = {"epsilon": 3.0, "delta": 1e-3, "rounds": 4, "lr": 0.1, "clip": 2.0, "method": "local"}
OPTIONS |= {"batch_size": 10}
SEEDS = range(7000, 8000)


def prepared(federation=None, model=None, **options):
    federation = federation or small(sizes=(30, 30), test=5)
    return prepare(grid(OPTIONS | options), federation, model, Reporter())


def of_noise(**options):
    found = prepared(**options)
    return judged(check_noise(job_of(found), found.plans[0], 0, SEEDS))


def of_batches(**options):
    found = prepared(**options)
    return judged(check_draws(job_of(found), found.plans[0], 0, SEEDS))


def of_clip(**options):
    found = prepared(**options)
    args = job_of(found), found.federations[0], 0, found.plans[0][0], SEEDS
    return judged(check_sensitivity(*args))


def of_selections(**options):
    found = prepared(small("binary", sizes=(40, 40), test=5), method="ifca", **options)
    return judged(check_selections(job_of(found), found.plans[0], 0, SEEDS))


def failed(checks):
    return [check.name for check in checks if not check.passed]


# Honest runs.


def honest_checks(seeds=SEEDS, secret=b"", **options):
    found = prepared(**options)
    job = replace(job_of(found), secret=secret)
    federation = found.federations[0]
    return direct_checks(job, federation, found.plans[0], 0, seeds, lambda _: None)


HONEST = {
    "a full batch": {"batch_size": 30},
    "sampled, replace-one": {"relation": "replace-one"},
    "gaps, unlike silos": {
        "federation": small("multiclass", sizes=(120, 90), test=5),
        "batch_size": 8,
        "method": "ditto",
    },
    "hardly any noise": {"epsilon": 60.0, "batch_size": 30, "rounds": 1},
    "selections": {"federation": small("binary", sizes=(40, 60), test=5), "method": "ifca"},
}


@pytest.mark.parametrize("options", HONEST.values(), ids=list(HONEST))
def test_honest_runs_pass(options):
    checks = honest_checks(**options)
    assert failed(checks) == []
    assert {"claim", "noise", "batches", "clip"} <= {check.kind for check in checks}


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


@pytest.mark.xfail(reason="releases still have noise of single precision", strict=True)
def test_a_release_has_fair_low_bits():
    found = prepared()
    job = replace(job_of(found), secret=b"s" * 32)
    assert failed(judged(check_low_bits(job, found.plans[0][0], SEEDS))) == []


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


@pytest.mark.parametrize("fault", faults.NOISE)
def test_faults_of_noise(fault, monkeypatch):
    fault(monkeypatch)
    assert failed(of_noise())


@pytest.mark.parametrize("fault", faults.BATCHES)
def test_faults_of_batches(fault, monkeypatch):
    fault(monkeypatch)
    assert failed(of_batches())


@pytest.mark.parametrize("fault", faults.CLIP)
def test_faults_of_the_clip(fault, monkeypatch):
    fault(monkeypatch)
    assert failed(of_batches() + of_clip())


def test_shuffling_called_poisson(monkeypatch):
    monkeypatch.setattr(plans, "draw_of", lambda *args: "shuffle")
    found = prepared()
    drawn = [replace(plan, draw="shuffle") for plan in found.plans[0]]
    assert failed(judged(check_draws(job_of(found), drawn, 0, SEEDS)))


def test_a_model_that_mixes_records():
    """Whose outputs depend on the whole batch: clipping each record then means nothing."""

    def init(key):
        return {"w": jnp.zeros(4)}

    model = models.custom_model(init, lambda p, x: x @ p["w"], "regression")
    honest = model.clipped_sum

    def mixed(params, features, y, mask, clip, offset=None):
        weight = mask / jnp.maximum(mask.sum(), 1.0)
        return honest(params, features - weight @ features, y - weight @ y, mask, clip, offset)

    assert failed(of_clip(model=model)) == []
    assert failed(of_clip(model=model._replace(clipped_sum=mixed)))


def test_noise_that_a_model_of_several_parts_uses_twice(monkeypatch):
    def init(key):
        return {"a": jax.random.normal(key, (4, 3)), "b": jnp.zeros((4, 3))}

    def apply(p, x):
        return jnp.sum(jnp.tanh(x @ p["a"]) + x @ p["b"], axis=1)

    model = models.custom_model(init, apply, "regression")

    def own():
        found = prepared(model=model)
        args = job_of(found), found.federations[0], found.plans[0], 0, SEEDS
        return failed(judged(check_own_noise(*args)))

    assert own() == []

    def twice(vector, like):
        half = vector.shape[-1] // 2
        return honest(jnp.concatenate([vector[..., :half]] * 2, axis=-1), like)

    honest = faults.training.as_params
    monkeypatch.setattr(faults.training, "as_params", twice)
    assert own()


def no_noise_in_selections(patch):
    honest = selection._exponential
    patch.setattr(selection, "_exponential", lambda words: jnp.ones_like(honest(words)))


def twice_the_sharpness(patch):
    honest = layout.sharpness
    patch.setattr(layout, "sharpness", lambda *args: 2 * honest(*args))


def the_same_selection_noise_in_every_round(patch):
    keys = simulation.selection_keys
    patch.setattr(
        simulation, "selection_keys", lambda key, silos, number, *more: keys(key, silos, 0, *more)
    )


def the_same_selection_noise_in_every_silo(patch):
    keys = simulation.selection_keys
    patch.setattr(
        simulation,
        "selection_keys",
        lambda key, silos, *more: keys(key, jnp.zeros_like(silos), *more),
    )


@pytest.mark.parametrize(
    "fault",
    [
        no_noise_in_selections,
        twice_the_sharpness,
        the_same_selection_noise_in_every_round,
        the_same_selection_noise_in_every_silo,
    ],
)
def test_faults_of_selections(fault, monkeypatch):
    fault(monkeypatch)
    assert failed(of_selections())


def test_noise_that_is_not_enough_for_the_claim():
    """Calibrated as if one record replaced were one added, or with a tenth less noise."""
    (plan, _) = prepared(relation="replace-one").plans[0]
    (other, _) = prepared().plans[0]
    assert check_claim(plan).p_value == 1.0
    assert check_claim(other).p_value == 1.0
    assert check_claim(replace(plan, noise_multiplier=other.noise_multiplier)).p_value == 0.0
    assert (
        check_claim(replace(other, noise_multiplier=0.95 * other.noise_multiplier)).p_value == 0.0
    )
