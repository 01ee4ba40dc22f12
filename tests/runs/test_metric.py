"""Runs that measure something else than what is usual for their task."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from federations import small
from sklearn.metrics import mean_absolute_error, r2_score

import silodp
from silodp import Federation, Records, SilodpError
from silodp.data.federation import ExpectedCounts
from silodp.figures import style
from silodp.models.model import MOST_SCORED
from silodp.pictures import pictures
from silodp.report.write import write_report
from silodp.results.result import read_result
from silodp.runs.requests import requests_of
from silodp.sweeps.best import best_by_method
from silodp.sweeps.grid import sweep_of
from silodp.sweeps.sweeping import run_sweep

pytestmark = pytest.mark.usefixtures("kept_programs")

SHORT = {"method": "fedavg", "rounds": 2, "batch_size": 16, "lr": 0.2, "evaluate_every": 1}
EXACT = SHORT | {"epsilon": math.inf}


def with_test(federation, place, rows):
    """The federation with these test records of one silo alone."""
    silos = list(federation.silos)
    silos[place] = replace(silos[place], test=silos[place].test.take(np.asarray(rows)))
    return replace(federation, silos=tuple(silos))


@pytest.fixture(scope="module")
def federation():
    return small(sizes=(40, 40, 40))


def outputs_of(result, federation, place):
    weights = np.asarray(result.models)[0, place]
    return federation.silos[place].test.x @ weights[:-1] + weights[-1]


@pytest.mark.parametrize(("metric", "elsewhere"), [("r2", r2_score), ("mae", mean_absolute_error)])
def test_a_run_measures_what_was_asked(federation, metric, elsewhere):
    result = silodp.run(federation=federation, metric=metric, keep_models=True, **EXACT)
    assert result.metric == metric
    assert result.options["metric"] == metric
    by_hand = [
        elsewhere(silo.test.y, outputs_of(result, federation, place))
        for place, silo in enumerate(federation.silos)
    ]
    assert [silo["mean"] for silo in result.per_silo] == pytest.approx(by_hand, rel=1e-4)
    assert result.mean == pytest.approx(np.mean(by_hand), rel=1e-4)
    assert [card["noisy_metric"] for card in result.cards] == [False] * 3


def test_what_is_measured_changes_no_model(federation):
    one, other = (
        silodp.run(federation=federation, keep_models=True, metric=metric, **SHORT, epsilon=3)
        for metric in (None, "r2")
    )
    np.testing.assert_array_equal(one.models, other.models)
    assert one.metric == "mse"
    assert "metric" not in one.options


@pytest.mark.usefixtures("debug_in_pieces")
@pytest.mark.parametrize("engine", ["simulation", "debug"])
def test_a_silo_without_the_metric_is_left_out_and_said(federation, engine, tmp_path):
    odd = with_test(federation, 1, [0])
    result = silodp.run(
        federation=odd, metric="r2", engine=engine, out=tmp_path / "run", **EXACT, seeds=2
    )
    assert result.per_silo[1]["mean"] is None
    assert result.per_silo[1]["per_seed"] == [None, None]
    assert result.unmeasured == ["silo 1"]
    known = [result.per_silo[place]["mean"] for place in (0, 2)]
    assert result.mean == pytest.approx(np.mean(known))
    again = read_result(tmp_path / "run")
    assert again.per_silo == result.per_silo
    page = write_report([tmp_path / "run"], tmp_path / "report.html").read_text("utf-8")
    assert "Without a test R², which needs two test records with different targets: silo 1." in page


def test_a_silo_may_lack_it_in_one_seed_alone(federation):
    def of_seed(seed):
        return with_test(federation, 0, [0]) if seed else federation

    result = silodp.run(federation=of_seed, metric="r2", seeds=2, **EXACT)
    first = result.per_silo[0]
    assert first["per_seed"][1] is None
    assert first["mean"] == first["per_seed"][0]
    assert math.isfinite(result.mean)


def test_a_silo_without_test_records_is_trained_and_has_no_metric(federation):
    """Coins may give a silo none, and to refuse that would tell how they fell."""
    silos = list(federation.silos)
    empty = silos[2].test.take(np.array([], int))
    silos[2] = replace(silos[2], test=empty, expected=ExpectedCounts(40, 1, 40))
    result = silodp.run(federation=replace(federation, silos=tuple(silos)), **EXACT)
    assert result.unmeasured == ["silo 2"]
    assert math.isfinite(result.mean)


def test_what_diverged_is_refused_with_any_metric(federation):
    with pytest.raises(SilodpError, match="not finite any more"):
        silodp.run(federation=federation, metric="r2", **EXACT | {"lr": 1e20})


def test_a_model_that_diverged_is_seen_where_it_is_not_measured(federation):
    odd = with_test(federation, 1, [0])
    silos = list(odd.silos)
    far = silos[1].train
    silos[1] = replace(silos[1], train=replace(far, x=1e11 * far.x))
    odd = replace(odd, silos=tuple(silos))
    with pytest.raises(SilodpError, match="Silo 'silo 1': the model is not finite any more"):
        silodp.run(federation=odd, metric="r2", **EXACT | {"method": "local"})


def test_a_metric_that_no_silo_has_is_refused_before_training(federation):
    flat = Federation(
        "flat",
        tuple(
            replace(silo, test=Records(silo.test.x, np.zeros(len(silo.test))))
            for silo in federation.silos
        ),
        "regression",
    )
    with pytest.raises(SilodpError, match=r"--metric r2: it needs two test records with different"):
        silodp.run(federation=flat, metric="r2", **EXACT)


def test_a_metric_of_another_task_is_refused(federation):
    with pytest.raises(SilodpError, match=r"--metric accuracy: .*choose mse or mae or rmse or r2"):
        silodp.run(federation=federation, metric="accuracy", **EXACT)
    with pytest.raises(SilodpError, match="--metric is 'rmsle': choose one of mse, mae, "):
        silodp.run(federation=federation, metric="rmsle", **EXACT)


def test_noise_is_known_for_means_alone(federation):
    private = SHORT | {"epsilon": 4, "metric_share": 0.3}
    with pytest.raises(SilodpError, match=r"--metric-share takes a mean .*choose --metric mse or"):
        silodp.run(federation=federation, metric="r2", **private)
    noisy = silodp.run(federation=federation, metric="mae", metric_bound=2.0, **private)
    assert noisy.metric == "mae"
    assert math.isfinite(noisy.mean)


def test_a_sum_that_could_start_over_is_no_noisy_metric(federation):
    """32 bits hold the scores of so many records: of more, one could turn a sum around."""
    first, *others = federation.silos
    large = replace(first, expected=ExpectedCounts(train=32, test=8, max_count=MOST_SCORED + 1))
    federation = replace(federation, silos=(large, *others))
    silodp.plan(federation=federation, **SHORT, epsilon=4)
    with pytest.raises(SilodpError, match="over which a noisy metric can be summed"):
        silodp.plan(federation=federation, **SHORT, epsilon=4, metric_share=0.3)


def test_a_noisy_metric_is_bounded_where_it_was_asked(federation):
    """Without privacy there is no noise, and the bound alone is seen."""
    options = EXACT | {"metric": "mae", "metric_share": 0.3, "lr": 1e-6}
    free = silodp.run(federation=federation, **options, metric_bound=10.0)
    tight = silodp.run(federation=federation, **options, metric_bound=0.01)
    by_hand = np.mean([np.abs(silo.test.y).mean() for silo in federation.silos])
    assert free.mean == pytest.approx(by_hand, rel=0.01)
    assert tight.mean == pytest.approx(0.01, rel=0.05)


def test_tuning_scores_by_a_mean(federation):
    options = {"method": "mrmtl", "rounds": 2, "batch_size": 16, "epsilon": 4, "trials": 2}
    with pytest.raises(SilodpError, match=r"Tuning \(silodp tune\) takes a mean .*r2 is none"):
        silodp.tune(grid={"lam": [0.1, 1]}, federation=federation, metric="r2", **options)
    tuned = silodp.tune(grid={"lam": [0.1, 1]}, federation=federation, metric="mae", **options)
    assert tuned.metric == "mae"


def test_a_report_of_r2_reads_right(federation, tmp_path):
    run = {"federation": federation, "metric": "r2", "seeds": 3, "baselines": True} | EXACT
    result = silodp.run(**run | {"method": "mrmtl"}, lam=0.1, out=tmp_path / "run")
    page = write_report([tmp_path / "run"], tmp_path / "report.html").read_text("utf-8")
    assert "Over all silos its test R² is" in page
    assert "R², the part of the variance that is explained (higher is better)" in page
    assert "Each silo&#x27;s test R²" in page or "Each silo's test R²" in page
    assert "test error" not in page
    better = result.mean > read_result(tmp_path / "run" / "baselines" / "fedavg").mean
    assert ("higher (better)" if better else "lower (worse)") in page


def test_a_card_tells_of_the_metric(federation, tmp_path):
    silodp.run(federation=federation, metric="r2", keep_models=True, out=tmp_path, **EXACT)
    (path, *_) = sorted((tmp_path / "models").glob("*/card.json"))
    card = json.loads(path.read_text("utf-8"))
    assert card["test"]["metric"] == "r2"
    assert card["test"]["meaning"].startswith("R², the part of the target's variance")


def test_a_model_is_scored_by_the_metric_of_its_card(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"silo": ["a", "b"] * 60, "x": rng.normal(size=120)})
    frame["y"] = 3 * frame["x"] + rng.normal(size=120)
    frame.to_csv(tmp_path / "table.csv", index=False)
    own = {"data": str(tmp_path / "table.csv"), "silo_column": "silo", "target": "y"}
    options = EXACT | {"preprocess": "none", "metric": "r2"}
    silodp.run(**own, **options, keep_models=True, out=tmp_path / "run")
    (path, *_) = sorted((tmp_path / "run" / "models").glob("*"))
    model = silodp.load_model(path)
    said = np.array(model.predict(frame).values)
    score = model.score(frame)
    assert score.metric == "r2"
    assert score.value == pytest.approx(r2_score(frame["y"], said), rel=1e-4)
    assert score.error == pytest.approx(float(np.sqrt(np.mean((frame["y"] - said) ** 2))), rel=1e-4)
    assert model.score(frame[:1]).metric == "mse"  # of one record there is no R²


def test_pictures_and_figures_name_it(federation, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(pictures, "save", lambda figure, path: drawn.append(figure) or path)
    result = silodp.run(federation=federation, metric="r2", **EXACT)
    pictures.draw_history([result], tmp_path / "history.png")
    (axes,) = drawn[0].axes
    assert axes.get_ylabel() == style.metric_label("r2") == "test R² (higher is better)"
    means = pd.DataFrame({"mean": [0.1, 0.9], "metric": "r2"})
    style.scale_metric(axes, means)
    assert axes.get_yscale() == "linear"
    style.scale_metric(axes, means.assign(metric="mae"))
    assert axes.get_yscale() == "log"


def test_the_command_line_says_which_way_is_better(cli):
    said = cli(
        *("run", "--data", "synthetic", "--silos", "2", "--method", "fedavg"),
        *("--rounds", "2", "--epsilon", "inf", "--metric", "r2"),
    )
    assert "test R² (higher is better)" in said.stdout


def test_a_sweep_measures_it_and_takes_the_highest(tmp_path):
    content = {"data": "synthetic", "silos": 3, "method": "mrmtl", "metric": "r2", "seeds": 1}
    content |= {"epsilon": math.inf, "rounds": 3, "lr": [0.001, 0.3]}
    sweep = sweep_of(content, "here", tmp_path)
    assert "metric" not in sweep.columns
    table = run_sweep(sweep, tmp_path)
    assert set(table["metric"]) == {"r2"}
    (best,) = best_by_method(table)
    assert best["mean"] == table["value"].max()
    with pytest.raises(SilodpError, match="metric is a list: give one value"):
        sweep_of(content | {"metric": ["r2", "mae"]}, "here", tmp_path)


def test_it_is_no_axis_of_a_grid():
    (request,) = requests_of({"metric": "mae"})
    assert request.metric == "mae"
