"""Trials within silos: they hear what the pivot's server says, and send nothing."""

import math
from dataclasses import replace

import jax
import numpy as np
import pytest
from federations import small
from sessions import free_session

from silodp import run, tune
from silodp.base.progress import Reporter
from silodp.engines import execution
from silodp.engines.execution import execute
from silodp.engines.job import Setting
from silodp.runs.prepare import prepare
from silodp.runs.requests import requests_of
from silodp.runs.run import job_of

pytestmark = pytest.mark.usefixtures("kept_programs")

FEDERATION = small(sizes=(40, 70, 55))
LR, ROUNDS = 0.1, 5


def trained(lams, trials=None, method="mrmtl", lr=None, pivot=True, seeds=1, **options):
    """Models and metrics of settings with these lambdas, the first of which is the pivot's."""
    asked = {"epsilon": 4.0, "delta": 1e-3, "rounds": ROUNDS, "lr": LR, "batch_size": 35}
    asked |= {"method": method, "seeds": seeds} | options
    prepared = prepare(requests_of(asked), FEDERATION, None, Reporter())
    job = replace(job_of(prepared), pivot=pivot)
    values = job.method.traced_values(prepared.specs[0].values)
    settings = [
        Setting(rate, prepared.plans[0], values | {"lam": lam}, trial=trial)
        for lam, trial, rate in zip(
            lams, trials or range(len(lams)), lr or [LR] * len(lams), strict=True
        )
    ]
    how = {"evaluate_every": ROUNDS, "engine": "simulation", "keep_models": True}
    done = execute(
        job,
        list(range(seeds)),
        [FEDERATION] * seeds,
        settings,
        **how,
        place=None,
        at=None,
        session=free_session(ROUNDS),
        reporter=Reporter(),
    )
    return [np.asarray(model) for model in done.models], done.metrics[-1]


def test_trials_against_plain_numpy():
    """Full batches without noise, written from the pseudo-code of the paper's appendix."""
    lams = [0.6, 0.0, 2.0, 5.0]
    rates = [0.1, 0.1, 0.05, 0.1]
    models, _ = trained(lams, lr=rates, epsilon=math.inf, batch_size=1000, small_silos="full-batch")
    data = [(np.c_[s.train.x, np.ones(len(s.train))], s.train.y) for s in FEDERATION.silos]
    weights = FEDERATION.train_counts / FEDERATION.train_counts.sum()
    lists = [[np.zeros(5)] * len(lams) for _ in data]
    mean = np.zeros(5)
    for _ in range(ROUNDS):
        updates = []
        for own, (x, y) in zip(lists, data, strict=True):
            before = own[0]
            for j, w in enumerate(own):
                own[j] = w - rates[j] * (x.T @ (x @ w - y) / len(y) + lams[j] * (w - mean))
            updates.append(own[0] - before)
        mean = mean + weights @ np.array(updates)
    for j in range(len(lams)):
        plain = [own[j] for own in lists]
        np.testing.assert_allclose(models[j][0], plain, rtol=2e-4, atol=2e-5)


@pytest.fixture(scope="module")
def alone():
    """The pivot's run with no trial beside it, as any run is."""
    return trained([0.6], pivot=False, seeds=2)


def test_the_pivot_is_a_run_as_any_other_whatever_is_tried(alone):
    models, metrics = trained([0.6, 0.0, 100.0], seeds=2, lr=[LR, LR, 0.001])
    np.testing.assert_allclose(models[0], alone[0][0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(metrics[:, 0], alone[1][:, 0], rtol=1e-5)
    others, same = trained([0.6, 3.0, 0.1], seeds=2, lr=[LR, 1.0, LR])
    np.testing.assert_array_equal(models[0], others[0])
    np.testing.assert_array_equal(metrics[:, 0], same[:, 0])


def test_trials_have_noise_of_their_own_and_keep_it_in_any_company(monkeypatch):
    lams = [0.6, 0.3, 0.3, 1.0, 0.3]
    models, metrics = trained(lams)
    assert len({models[j].tobytes() for j in (1, 2, 4)}) == 3
    # In parts, each of which trains the pivot again; and in other company.
    monkeypatch.setattr(execution, "MOST_TRIALS", 3)
    in_parts, same = trained(lams)
    for one, other in zip(models, in_parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(metrics, same, rtol=1e-6)
    some, _ = trained([0.6, 0.3, 0.3], trials=[0, 4, 1])
    np.testing.assert_allclose(some[1], models[4], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(some[2], models[1], rtol=1e-6, atol=1e-7)


def test_settings_of_one_trial_share_noise():
    models, _ = trained([0.6, 0.6], trials=[0, 0], pivot=False)
    np.testing.assert_array_equal(models[0], models[1])
    models, _ = trained([0.6, 0.6], trials=[0, 1], pivot=False)
    assert not np.array_equal(models[0], models[1])


def test_finetuning_in_trials_follows_the_trials_own_fraction():
    """Silos adopt the pivot's model for as long as they themselves federate."""
    options = {"federation": FEDERATION, "method": "finetune", "rounds": 4, "batch_size": 1000}
    options |= {"small_silos": "full-batch", "epsilon": math.inf, "lr": LR}
    tuned = tune(
        **options,
        grid={"finetune_fraction": [0.5]},
        finetune_fraction=1.0,
        trials=1,
        score_fraction=0.025,  # one record of 40 is expected
        keep_models=True,
    )
    expected = run(**options, finetune_fraction=0.5, keep_models=True)
    moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), tuned.models, expected.models)
    assert max(jax.tree.leaves(moved)) < 0.05  # so few records make little difference
    fedavg = run(**options, finetune_fraction=1.0, keep_models=True)
    moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), tuned.models, fedavg.models)
    assert max(jax.tree.leaves(moved)) > 0.05
