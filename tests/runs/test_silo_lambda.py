"""`--silo-lam`: silos with a lambda of their own."""

import json
import math

import jax.numpy as jnp
import numpy as np
import pytest
from federations import small

import silodp
from silodp.base.progress import Reporter
from silodp.cli.run import describe

pytestmark = pytest.mark.usefixtures("kept_programs")

OPTIONS = {"method": "meanpull", "rounds": 3, "batch_size": 16, "lr": 0.1, "epsilon": 4}
ENDS = {"silo 0": math.inf, "silo 1": 0, "silo 2": math.inf}
SMALL = ("--data", "synthetic", "--silos", "2", "--rounds", "2", "--epsilon", "3")


def federation():
    return small(sizes=(40, 40, 40, 40))


def run(**options):
    return silodp.run(federation=federation(), keep_models=True, **OPTIONS | options)


@pytest.fixture(scope="module")
def result():
    return run(silo_lam=ENDS, lam=0.5)


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "lambdas.toml"
        path.write_text(text)
        return path

    return write


def test_each_silo_has_its_own(result):
    models = result.models[0]
    # Infinite: the mean of the run, the same for all of them.
    np.testing.assert_array_equal(models[0], models[2])
    # Zero: from its own model in each round, as if alone.
    np.testing.assert_allclose(models[1], run(method="local").models[0][1], rtol=1e-6, atol=1e-7)
    # Those that are not named have the usual one, and lie in between.
    assert not np.array_equal(models[3], models[0])


def test_an_infinite_lambda_gives_the_mean():
    """After one round, in which all started from one place, that of all silos' own models."""
    alone = run(method="local", rounds=1).models[0]
    models = run(rounds=1, silo_lam=ENDS, lam=1).models[0]
    np.testing.assert_allclose(models[0], alone.mean(0), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(models[1], alone[1])
    np.testing.assert_allclose(models[3], (alone[3] + alone.mean(0)) / 2, rtol=1e-5, atol=1e-7)


def test_the_debug_engine_gives_each_silo_its_own_too(monkeypatch):
    """With a training that adds to a silo's model what is known, the rest is done by hand."""

    def adding(model, shape, regulariser, optimiser, records, noise, lr, drawn, params, *pull):
        return params + jnp.mean(records.y)

    monkeypatch.setattr("silodp.engines.job.training_pass", adding)
    monkeypatch.setattr("silodp.engines.one_silo.draw_pass", lambda *_: None)
    models = run(silo_lam=ENDS, lam=1, engine="debug").models[0]
    step = np.array([silo.train.y.mean() for silo in federation().silos])
    keep = np.array([0, 1, 0, 0.5])
    own, mean = np.zeros(4), 0.0
    for _ in range(3):
        own = keep * own + (1 - keep) * mean + step
        mean = own.mean()
    expected = keep * own + (1 - keep) * mean
    np.testing.assert_allclose(models, np.repeat(expected[:, None], 5, axis=1), rtol=1e-4)


def own_values(prepared):
    return [spec.own_values for spec in prepared.specs]


def test_unnamed_silos_follow_a_sweep(file):
    path = file('"silo 0" = 3\n"silo 2" = inf\n')
    swept = {"lam": [0.1, 2], "silo_lam": path}
    prepared = silodp.plan(federation=federation(), **OPTIONS | swept)
    assert [own["lam"] for own in own_values(prepared)] == [
        (3.0, 0.1, math.inf, 0.1),
        (3.0, 2.0, math.inf, 2.0),
    ]


def test_a_warm_start_takes_it_too():
    prepared = silodp.plan(federation=federation(), **OPTIONS | {"method": "ifca+meanpull"})
    assert own_values(prepared) == [{}]
    given = {"method": "ifca+meanpull", "silo_lam": {"silo 3": np.float32(2)}}
    prepared = silodp.plan(federation=federation(), **OPTIONS | given)
    assert own_values(prepared) == [{"lam": (1.0, 1.0, 1.0, 2.0)}]


def test_an_audit_attacks_what_would_be_run(monkeypatch):
    def listen(job, world, settings, *_):
        raise RuntimeError(str([setting.of_silos for setting in settings]))

    monkeypatch.setattr("silodp.auditing.audit.direct_checks", lambda *_: ())
    monkeypatch.setattr("silodp.auditing.audit.run_trials", listen)
    lambdas = ENDS | {"silo 3": 7}
    with pytest.raises(RuntimeError, match=r"'lam': \(inf, 7.0\)"):  # silo 3 and one other
        silodp.audit(federation=federation(), silo="silo 3", silo_lam=lambdas, **OPTIONS)


class Interrupting(Reporter):
    def trained(self, done, total, metric):
        raise KeyboardInterrupt


def test_an_interrupted_run_goes_on_only_with_the_same(tmp_path, result):
    options = OPTIONS | {"lam": 0.5, "out": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        silodp.run(federation=federation(), silo_lam=ENDS, reporter=Interrupting(), **options)
    options |= {"resume": True}
    for other in (None, ENDS | {"silo 1": 0.1}):
        with pytest.raises(silodp.SilodpError, match="with other options"):
            silodp.run(federation=federation(), silo_lam=other, **options)
    resumed = silodp.run(federation=federation(), silo_lam=ENDS, **options)
    assert resumed.test == result.test
    written = json.loads((tmp_path / "result.json").read_text())
    assert written["options"]["silo_lam"] == {
        "silo 0": "inf",
        "silo 1": 0.0,
        "silo 2": "inf",
        "silo 3": 0.5,
    }


def test_the_table_says_that_silos_differ(result):
    assert describe(result) == "meanpull (lambda 0.5, silos' own 0 to inf)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("silo-1 = 1", "silo 'silo-1' is unknown: did you mean 'silo-01'"),
        ("silo-01 = -1", "is -1: give a number of at least 0"),
        ("silo-01 = -inf", "is -inf: give a number"),
        ("silo-01 = nan", "is nan: give a number"),
        ('silo-01 = "much"', "is 'much': give a number"),
        ("silo-01 = true", "is True: give a number"),
        ("silo-01 = [1]", "is [1]: give a number"),
        ("silo-01 = 1e31", "below 1e+30, or inf"),
        (f"silo-01 = 1{'0' * 400}", "below 1e+30, or inf"),
        ("silo-01: 1", "is not valid TOML: fix line"),
        ("silo-01 = 1\nsilo-01 = 2", "is not valid TOML: fix line"),
    ],
)
def test_wrong_files(cli, sentence, file, text, said):
    refusal = sentence(cli("plan", *SMALL, "--method", "meanpull", "--silo-lam", file(text)))
    assert "--silo-lam" in refusal
    assert said in refusal


def test_no_file(cli, sentence, tmp_path):
    call = ("plan", *SMALL, "--method", "meanpull", "--silo-lam")
    assert "does not exist" in sentence(cli(*call, tmp_path / "none.toml"))
    assert "cannot be read" in sentence(cli(*call, tmp_path))


@pytest.mark.parametrize("method", ["fedavg", "local", "finetune", "ifca", "ifca+finetune"])
def test_methods_without_lambda(cli, sentence, file, method):
    call = ("plan", *SMALL, "--method", method, "--silo-lam", file("silo-01 = 1"))
    assert f"--silo-lam: method '{method}' has no lambda" in sentence(cli(*call))


@pytest.mark.parametrize("method", ["mrmtl", "ditto", "mocha", "ifca+mrmtl"])
def test_infinite_where_it_would_stop_training(cli, sentence, file, method):
    call = ("plan", *SMALL, "--method", method, "--silo-lam", file("silo-01 = inf"))
    assert f"--silo-lam of silo 'silo-01' is infinite, with which method '{method}'" in sentence(
        cli(*call)
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"silo 9": 1.0}, "silo 'silo 9' is unknown"),
        ({0: 1.0}, "silo 0 is unknown"),
        ({"silo 0": None}, "is None"),
        (3.0, "is 3.0: give a TOML file, or a dictionary"),
    ],
)
def test_wrong_dictionaries(given, said):
    with pytest.raises(silodp.SilodpError, match=said):
        silodp.plan(federation=federation(), silo_lam=given, **OPTIONS)
