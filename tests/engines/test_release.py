"""Runs that are releases, end to end: by each engine, and with all that a run may ask for."""

from dataclasses import replace

import numpy as np
import pytest
from federations import small
from sessions import free_session

import silodp
from silodp.engines.debug import run_debug
from silodp.engines.job import Setting
from silodp.engines.simulation import Simulation
from silodp.privacy.session import free_rounds
from silodp.runs.run import job_of

SECRET = bytes(range(32))
COMMON = {"rounds": 4, "batch_size": 16, "epsilon": 4, "delta": 1e-4, "lr": 0.1, "entropy": "os"}


def made(federation, **options):
    prepared = silodp.plan(federation=federation, **(COMMON | options))
    job = replace(job_of(prepared), secret=SECRET)
    spec = prepared.specs[0]
    return job, Setting(spec.lr, spec.plans, spec.method.traced_values(spec.values))


def by_simulation(job, federation, setting, steps=((0, 4),)):
    simulation = Simulation(job, [3], [federation], [setting])
    state = simulation.initial_state()
    for start, stop in steps:
        state, metric = simulation.advance(state, free_rounds(start, stop))
    return np.asarray(simulation.personal_models(state))[0, 0], metric[0, 0]


@pytest.mark.usefixtures("debug_in_pieces")
@pytest.mark.parametrize(
    "options", [{"method": "mrmtl", "lam": 0.5}, {"method": "ifca", "select_fraction": 0.5}]
)
def test_both_engines_release_the_same(options):
    """Silos with flags and with slots, padded and not: the same draws, and so the same models."""
    federation = small(sizes=(20, 100))
    job, setting = made(federation, **options, rounds=2, batch_size=12)
    assert [plan.draw for plan in setting.plans] == ["every", "gaps"]
    models, metric = by_simulation(job, federation, setting, [(0, 2)])
    heard = {}
    plain, _ = run_debug(
        job, 3, federation, setting, [2], free_session(2), lambda n, m: heard.update({n: m})
    )
    np.testing.assert_allclose(models, plain, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(metric, heard[2], rtol=1e-4)


@pytest.mark.as_shipped
def test_rounds_that_are_done_again_are_the_same():
    """However many rounds are trained at once, and from wherever they are taken up again."""
    federation = small(sizes=(40, 90))
    job, setting = made(federation, method="fedavg", rounds=20)
    at_once, _ = by_simulation(job, federation, setting, [(0, 20)])
    in_parts, _ = by_simulation(job, federation, setting, [(0, 1), (1, 18), (18, 20)])
    np.testing.assert_array_equal(at_once, in_parts)
    other, _ = by_simulation(replace(job, secret=SECRET[::-1]), federation, setting, [(0, 20)])
    assert np.abs(other - at_once).max() > 1e-3


@pytest.mark.as_shipped
def test_silos_without_privacy_stay_without():
    """Beside silos that are private: neither noise nor clip. (All records are in each batch.)"""
    federation = small(sizes=(40, 40, 40))
    job, setting = made(federation, method="local", batch_size=40)
    without = replace(setting.plans[1], epsilon=np.inf, noise_multiplier=0.0)
    mixed = setting._replace(plans=(setting.plans[0], without, setting.plans[2]))
    models, _ = by_simulation(job, federation, mixed)
    private, _ = by_simulation(job, federation, setting)
    np.testing.assert_array_equal(models[[0, 2]], private[[0, 2]])
    again, _ = by_simulation(replace(job, secret=SECRET[::-1]), federation, mixed)
    np.testing.assert_array_equal(again[1], models[1])
    assert np.abs(again[0] - models[0]).max() > 1e-3


def test_noise_is_that_of_the_plan():
    """No signal at all: what is left is noise, of the variance that the method is told of."""
    records = silodp.Records(np.zeros((40, 60)), np.zeros(40))
    silos = tuple(silodp.Silo(f"s{i}", records, records) for i in range(6))
    federation = silodp.Federation("nothing", silos, "regression")
    job, setting = made(federation, method="local", clip=2.0, lr=1.0)
    models, _ = by_simulation(job, federation, setting)
    plan = setting.plans[0]
    scale = 2.0 * plan.noise_multiplier / plan.expected_batch * np.sqrt(plan.total_steps)
    assert models.std() == pytest.approx(scale, rel=0.12)


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("regression", {"method": "local", "sampling": "shuffle"}),
        ("binary", {"method": "ditto", "lam": 1.0, "epsilon": [2.0, float("inf")]}),
        ("multiclass", {"method": "fedavg", "metric_share": 0.2, "evaluate_every": 2}),
        ("regression", {"method": "mrmtl", "lam": 1.0, "regulariser": "inside"}),
    ],
)
def test_all_that_a_run_may_ask_for_is_released(task, options):
    results = silodp.sweep(federation=small(task, sizes=(40, 90)), **(COMMON | options))
    for result in results:
        assert np.isfinite(result.mean)
        assert not result.experiment
        assert result.proven == (np.isfinite(result.epsilons[0]) and not result.unproven)


def test_subjects_are_released():
    federation = small(sizes=(60, 90))
    silos = tuple(
        replace(silo, train=replace(silo.train, subject=np.arange(len(silo.train)) // 3))
        for silo in federation.silos
    )
    federation = replace(federation, silos=silos)
    result = silodp.run(federation=federation, method="local", **(COMMON | {"batch_size": 8}))
    assert result.proven
    assert result.privacy[0]["unit"] == "subject"


def test_settings_of_one_release_share_no_noise():
    """One noise at two scales could be taken off: from two sums of one step, the sum itself."""
    rng = np.random.default_rng(0)
    records = silodp.Records(rng.normal(size=(40, 5)), rng.normal(size=40))
    federation = silodp.Federation("one", (silodp.Silo("s", records, records),), "regression")
    one_step = {"method": "local", "rounds": 1, "batch_size": 40, "lr": 1.0, "clip": 1.0}
    results = silodp.sweep(
        federation=federation, epsilon=[1.0, 2.0], delta=1e-3, entropy="os", keep_models=True,
        **one_step,
    )  # fmt: skip
    scales = [result.privacy[0]["noise_multiplier"] for result in results]
    sums = [-40 * np.asarray(result.models, np.float64).ravel() for result in results]
    solved = (scales[1] * sums[0] - scales[0] * sums[1]) / (scales[1] - scales[0])
    gradients = np.c_[records.x, np.ones(40)] * -records.y[:, None]
    gradients /= np.maximum(1, np.linalg.norm(gradients, axis=1, keepdims=True))
    # Two noises that have nothing to do with each other are far from the sum.
    assert np.linalg.norm(solved - gradients.sum(axis=0)) > scales[1]


def test_metrics_of_settings_of_one_release_share_no_noise():
    rng = np.random.default_rng(0)
    records = silodp.Records(rng.normal(size=(40, 5)), rng.normal(size=40))
    federation = silodp.Federation("one", (silodp.Silo("s", records, records),), "regression")
    common = {"method": "local", "rounds": 1, "batch_size": 40, "clip": 1.0, "entropy": "os"}
    # Without a learning rate, models are equal: what differs between their metrics is noise.
    first, second = silodp.sweep(
        federation=federation, lr=[1e-30, 2e-30], epsilon=3, delta=1e-3, metric_share=0.1, **common
    )
    assert first.per_silo[0]["mean"] != second.per_silo[0]["mean"]
