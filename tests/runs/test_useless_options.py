"""An option that another one makes void is refused, or told of where a file is shared."""

import math

import pytest
from federations import small

import silodp
from silodp.config.data_options import DataOptions
from silodp.config.options import OPTIONS, RunRequest
from silodp.methods import METHODS
from silodp.models.model import get_model
from silodp.runs.prepare import load
from silodp.runs.requests import requests_of, without_effect

OPTIONS_OF_RUNS = {"rounds": 4, "lr": 0.1, "batch_size": 10, "epsilon": 2.0, "delta": 1e-4}
VOID = [
    ({"method": "local", "lam": 2}, "--lam: method 'local' does not use it"),
    ({"method": "local", "lam": 1.0}, "--lam: method 'local' does not use it"),  # its default
    ({"method": "fedavg", "lam": [1, 2]}, "--lam: method 'fedavg' does not use it"),
    ({"method": "mrmtl", "clusters": 3}, "--clusters: method 'mrmtl' does not use it"),
    ({"method": "local", "server_lr": 0.5}, "--server-lr: method 'local' does not use it"),
    ({"method": "fedavg", "regulariser": "inside"}, "--regulariser: method 'fedavg' does not use"),
    ({"method": "meanpull", "regulariser": "inside"}, "--regulariser: method 'meanpull' does not"),
    ({"method": "mrmtl", "select_share": 0.1}, "--select-share: method 'mrmtl' makes no private"),
    ({"method": "mrmtl", "select_score": "loss"}, "--select-score: method 'mrmtl' makes no"),
    (
        {"method": "ifca", "select_fraction": 0.0, "select_bound": 2.0},
        "--select-bound: method 'ifca' makes no private selections here",
    ),
    (
        {"method": "mrmtl", "server_momentum": 0.5},
        "--server-momentum does nothing without --server-optimiser: give --server-optimiser too",
    ),
    ({"lifetime_epsilon": 4.0}, "--lifetime-epsilon does nothing without --ledger"),
    ({"lifetime_delta": 1e-3}, "--lifetime-delta does nothing without --ledger"),
    ({"lifetime_filter": "gaussian"}, "--lifetime-filter does nothing without --ledger"),
    ({"metric_bound": 2.0}, "--metric-bound does nothing without --metric-share"),
]
USED = [
    {"method": "ditto", "lam": 2, "regulariser": "inside", "personal_passes": 2},
    {"method": "ifca", "select_share": 0.1, "select_bound": 2.0, "clusters": 3},
    {"method": "ifca+mrmtl", "lam": 2, "select_mechanism": "permute-and-flip"},
    {"method": "fedavg", "server_optimiser": "fedadam", "server_momentum": 0.5, "server_lr": 0.1},
    {"method": "fedavg", "server_lr": 0.5},
    {"metric_share": 0.1, "metric_bound": 2.0},
    {"method": "local", "lam": None},
]


@pytest.mark.parametrize(("options", "said"), VOID)
def test_what_does_nothing_is_refused(options, said):
    with pytest.raises(silodp.SilodpError, match=said):
        requests_of(OPTIONS_OF_RUNS | options)


@pytest.mark.parametrize("options", USED)
def test_what_does_something_is_taken(options):
    (request,) = requests_of(OPTIONS_OF_RUNS | options)
    assert isinstance(request, RunRequest)


def test_what_is_left_out_is_never_refused():
    for method in METHODS:
        assert without_effect({"method": method}, ()) == {}
        requests_of({"method": method})


def test_tuning_uses_the_bound_of_scores():
    (request,) = requests_of({"method": "mrmtl", "metric_bound": 2.0}, uses=("metric_bound",))
    assert request.metric_bound == 2.0


@pytest.mark.parametrize("name", ["data", "test_fraction", "preprocess", "silos", "no_cache"])
def test_data_options_beside_records_from_python(name):
    value = {"data": "school", "test_fraction": 0.2, "preprocess": "norm", "silos": 3}
    with pytest.raises(silodp.SilodpError, match="records were given from Python: leave it out"):
        silodp.plan(federation=small(), **OPTIONS_OF_RUNS, **{name: value.get(name, True)})


def test_a_model_beside_one_from_python():
    model = get_model("linear", "regression", (4,), 0)
    with pytest.raises(silodp.SilodpError, match="--model names a model, but another was given"):
        silodp.plan(federation=small(), custom_model=model, model="linear", **OPTIONS_OF_RUNS)


@pytest.mark.parametrize("flag", ["resume", "overwrite"])
def test_folders_of_which_there_is_none(flag):
    for train in (silodp.run, silodp.sweep):
        with pytest.raises(silodp.SilodpError, match=f"--{flag} is about what a folder holds"):
            train(federation=small(), **OPTIONS_OF_RUNS, **{flag: True})


def test_a_run_takes_no_lists():
    with pytest.raises(silodp.SilodpError, match="A run is of one setting"):
        silodp.run(federation=small(), **OPTIONS_OF_RUNS | {"lr": [0.1, 0.2]})


def test_what_was_typed_is_refused_and_what_a_file_holds_is_told(cli, sentence, tmp_path):
    config = tmp_path / "shared.toml"
    config.write_text("lam = 2\nlifetime-epsilon = 4\nselect-share = 0.1\nrounds = 2\n", "utf-8")
    common = ("plan", "--silos", "2", "--epsilon", "2", "--method", "local")
    done = cli(*common, "--config", config)
    assert done.exit_code == 0, done.stderr
    for said in ("--lam: method 'local' does not", "--lifetime-epsilon does nothing without"):
        assert said in " ".join(done.stderr.split())
    assert "local, 2 rounds" in " ".join(done.stdout.split())
    text = sentence(cli(*common, "--lam", "2"))
    assert "--lam: method 'local' does not use it: leave it out, or use one of mrmtl" in text
    done = cli(*common, "--config", config, "--lam", "3")
    assert done.exit_code == 2
    assert "Error: --lam: method 'local' does not use it" in done.stderr


# --- a budget beside policies: the stricter of both holds


@pytest.fixture
def policies(tmp_path):
    def write(text):
        path = tmp_path / "policies.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def planned(path, **options):
    prepared = silodp.plan(
        federation=small(sizes=(40, 40)), method="local", rounds=4, policies=path, **options
    )
    return prepared.specs[0].policies, prepared.plans[0]


FILE = """
[default]
epsilon = 3
delta = 1e-4
[silos."silo 1"]
epsilon = 1
delta = 1e-6
"""


def test_the_stricter_budget_holds_for_each_silo(policies):
    own, plans = planned(policies(FILE), epsilon=2.0)
    assert [(p.epsilon, p.delta) for p in own] == [(2.0, 1e-4), (1.0, 1e-6)]
    assert all(plan.epsilon <= policy.epsilon for plan, policy in zip(plans, own, strict=True))
    own, _ = planned(policies(FILE), epsilon=0.5, delta=1e-5)
    assert [(p.epsilon, p.delta) for p in own] == [(0.5, 1e-5), (0.5, 1e-6)]
    own, _ = planned(policies(FILE), epsilon=math.inf, delta=0.5)
    assert [(p.epsilon, p.delta) for p in own] == [(3.0, 1e-4), (1.0, 1e-6)]


def test_without_one_each_silo_has_its_own(policies):
    own, _ = planned(policies(FILE))
    assert [(p.epsilon, p.delta) for p in own] == [(3.0, 1e-4), (1.0, 1e-6)]


def test_what_a_silo_leaves_out_is_what_was_asked_for(policies):
    own, _ = planned(policies('[silos."silo 1"]\nepsilon = 1\n'), epsilon=2.0, delta=1e-3)
    assert [(p.epsilon, p.delta) for p in own] == [(2.0, 1e-3), (1.0, 1e-3)]


def test_a_lifetime_is_held_to_what_was_asked_for(policies, tmp_path):
    text = "[default]\nepsilon = 1\ndelta = 1e-4\nlifetime_epsilon = 9\n"
    own, _ = planned(policies(text), ledger=tmp_path / "ledgers", lifetime_epsilon=5.0)
    assert [p.lifetime for p in own] == [(5.0, 1e-4)] * 2


def test_another_relation_than_a_silo_has_is_refused(policies):
    stated = policies(FILE.replace("[silos", 'relation = "add-remove"\n[silos'))
    with pytest.raises(silodp.SilodpError, match="Silo 'silo 0': its policy has relation 'add-re"):
        planned(stated, relation="replace-one")
    stricter = policies(FILE.replace("[silos", 'relation = "replace-one"\n[silos'))
    own, _ = planned(stricter, relation="add-remove")
    assert [p.relation for p in own] == ["replace-one"] * 2


def test_what_is_planned_is_what_was_asked_for_with_nothing_left_open():
    spec = silodp.plan(federation=small(), **OPTIONS_OF_RUNS).specs[0]
    assert spec.request == RunRequest(**OPTIONS_OF_RUNS, method="ebmtl")
    assert spec.values.keys() == OPTIONS.keys()
    left_open = {name for name, value in spec.values.items() if value is None}
    assert left_open <= {name for name, one in OPTIONS.items() if one.default is None}
    resolved = {"model", "rounds", "clip", "lr", "delta", "preprocess", "small_silos", "entropy"}
    assert not left_open & resolved
    assert spec.values["model"] == spec.model_name == "linear"
    assert spec.values["method"] == "ebmtl"


def test_a_source_is_asked_what_the_request_says():
    request = RunRequest(silos=2, ignore="a, b")
    seen = []

    class Source:
        defaults, said = None, ()

        def load(self, seed, options):
            seen.append(options)
            return small()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("silodp.runs.prepare.datasets.resolve", lambda *_: Source())
        load(request, None, silodp.base.progress.Reporter())
    assert seen == [DataOptions(silos=2, ignore=["a", "b"])]
