"""What a method found out about the silos reaches the result."""

import json
import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from federations import small
from sessions import free_session

import silodp
from silodp.base.progress import Reporter
from silodp.engines import checkpoint, execution
from silodp.engines.execution import execute
from silodp.engines.job import Setting
from silodp.methods import METHODS
from silodp.methods.base import Method, add, difference, one_pass_a_round, weighted_mean
from silodp.results.result import read_result
from silodp.runs.prepare import prepare
from silodp.runs.requests import requests_of
from silodp.runs.run import job_of

pytestmark = pytest.mark.usefixtures("kept_programs")

FEDERATION, ROUNDS, LR = small(sizes=(40, 70)), 3, 0.1
OPTIONS = {"method": "listening", "rounds": ROUNDS, "lr": LR, "epsilon": 4.0, "delta": 1e-4}
OPTIONS |= {"batch_size": 1000, "small_silos": "full-batch", "seeds": 1}


def listening(trains):
    """FedAvg whose server notes how long updates were, and shows its model among other things.

    Without training (for slow engines), a silo sends its number, from 1, in each entry.
    """

    def local(own, told, queries):
        return own, difference(queries.train(told), told) if trains else own

    def build(rounds, lam):
        def merge(server, updates, weights):
            model, norms, done = server
            norms = norms.at[done].set(jnp.linalg.norm(updates, axis=-1))
            return add(model, weighted_mean(updates, weights)), norms, done + 1

        def learned(server):
            model, norms, done = server
            return {"norms": norms, "models": ({"scaled": lam * model, "plain": model}, done)}

        return Method(
            schedule=one_pass_a_round,
            init=lambda start: (
                (start.params, jnp.zeros((rounds, start.silos)), jnp.int32(0)),
                jnp.full_like(start.params, start.place + 1),
            ),
            broadcast=lambda server: server[0],
            local=local,
            merge=merge,
            personal=lambda own, told: told,
            learned=learned,
        )

    summary = f"FedAvg{'' if trains else ' without training'}, and what it heard"
    return silodp.MethodEntry(summary, "1 pass", build, options=("lam",))


@pytest.fixture(autouse=True)
def methods(monkeypatch):
    monkeypatch.setitem(METHODS, "listening", listening(trains=True))
    monkeypatch.setitem(METHODS, "idle", listening(trains=False))


def run(**options):
    return silodp.run(federation=FEDERATION, **OPTIONS | options)


def check_close(one, other):
    """Learned of two results."""
    assert one.keys() == other.keys()
    np.testing.assert_allclose(one["norms"], other["norms"], rtol=1e-4)
    for name in ("scaled", "plain"):
        a, b = (learned["models"][0][name] for learned in (one, other))
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    assert one["models"][1] == other["models"][1] == ROUNDS


@pytest.mark.usefixtures("debug_in_pieces")
def test_both_engines_learn_the_same():
    # Of one size, so that the engine without compiling meets each shape once.
    how = OPTIONS | {"method": "idle", "lam": 2.0, "federation": small(sizes=(40, 40))}
    fast, slow = (silodp.run(engine=engine, **how) for engine in ("simulation", "debug"))
    check_close(fast.learned, slow.learned)
    np.testing.assert_allclose(slow.learned["norms"], [[5**0.5, 20**0.5]] * ROUNDS, rtol=1e-5)


def test_what_is_learned_is_so():
    exact = run(lam=2.0, epsilon=math.inf, keep_models=True)
    for place, silo in enumerate(FEDERATION.silos):
        x, y = np.c_[silo.train.x, np.ones(len(silo.train))], silo.train.y
        first = LR * np.linalg.norm(x.T @ y / len(y))
        assert exact.learned["norms"][0][place] == pytest.approx(first, rel=1e-4)
    models, _ = exact.learned["models"]
    np.testing.assert_allclose(models["plain"], exact.models[0, 0], rtol=1e-5)
    np.testing.assert_allclose(models["scaled"], 2 * exact.models[0, 0], rtol=1e-5)


def test_each_setting_of_a_sweep_has_learned_its_own():
    """Three settings or seeds, so that something is filled up on two devices."""
    swept = silodp.sweep(federation=FEDERATION, **OPTIONS | {"lam": [0.5, 1.0, 2.0], "seeds": 3})
    for result, lam in zip(swept, (0.5, 1.0, 2.0), strict=True):
        models, _ = result.learned["models"]
        np.testing.assert_allclose(models["scaled"], lam * np.array(models["plain"]), rtol=1e-4)
    alone = [run(lam=2.0, first_seed=seed).learned["norms"] for seed in range(3)]
    np.testing.assert_allclose(swept[2].learned["norms"], np.mean(alone, axis=0), rtol=1e-4)


def test_trials_show_what_the_pivot_learned():
    prepared = prepare(requests_of(OPTIONS | {"lam": 1.0}), FEDERATION, None, Reporter())
    job = replace(job_of(prepared), pivot=True)
    lams, plans = [3.0, 1.0, 1.0, 1.0], prepared.plans[0]
    settings = [Setting(LR, plans, {"lam": lam}, trial=n) for n, lam in enumerate(lams)]
    how = {"evaluate_every": ROUNDS, "engine": "simulation", "keep_models": False}
    how |= {"place": None, "at": None, "session": free_session(ROUNDS), "reporter": Reporter()}
    done = execute(job, [0], [FEDERATION], settings, **how)
    assert [own["norms"].shape for own in done.learned] == [(1, ROUNDS, 2)] * len(lams)
    for own in done.learned:
        models, _ = own["models"]
        np.testing.assert_allclose(models["scaled"], 3 * models["plain"], rtol=1e-6)
        np.testing.assert_array_equal(own["norms"], done.learned[0]["norms"])


class StopAt(Reporter):
    def __init__(self, rounds):
        self.rounds = rounds

    def trained(self, done, total, metric):
        if done >= self.rounds:
            raise KeyboardInterrupt


def test_it_outlives_interruptions_and_files(tmp_path, monkeypatch):
    """In parts of one seed each, of which two are finished when it is interrupted."""
    asked = {"seeds": 3, "lam": 2.0}
    whole = run(**asked)
    monkeypatch.setattr(execution, "MEMORY_FOR_RECORDS", 1.0)
    with pytest.raises(KeyboardInterrupt):
        run(**asked, out=tmp_path, reporter=StopAt(1))
    with pytest.raises(KeyboardInterrupt):
        run(**asked, out=tmp_path, resume=True, reporter=StopAt(2 * ROUNDS + 1))
    saved = checkpoint.load(tmp_path)
    assert (saved.chunk, len(saved.learned), len(saved.models)) == (2, 2, 2)
    resumed = run(**asked, out=tmp_path, resume=True)
    check_close(resumed.learned, whole.learned)
    assert read_result(tmp_path).learned == resumed.learned

    numbers = np.array(resumed.learned["norms"])
    assert numbers.shape == (ROUNDS, 2)
    assert all(value == float(f"{value:.6g}") for value in numbers.flat)
    # As results were written before methods learned anything.
    content = json.loads((tmp_path / "result.json").read_text())
    del content["learned"]
    (tmp_path / "result.json").write_text(json.dumps(content))
    assert read_result(tmp_path).learned is None
