"""What results say of several metrics: values, no skill, intervals, and who may see them."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import get_sigma_gaussian
from federations import small
from scipy.stats import norm
from sklearn.metrics import mean_absolute_error, roc_auc_score

import silodp
from silodp import Federation, Records, Silo, SilodpError
from silodp.models.metrics import get_metric, wilson
from silodp.report.measured_part import interval_of, release_words, silos_with_noise
from silodp.results.result import read_result

SHORT = {"method": "fedavg", "rounds": 4, "batch_size": 16, "lr": 0.2, "evaluate_every": 2}
EXACT = SHORT | {"epsilon": math.inf}


@pytest.fixture(scope="module")
def federation():
    return small(sizes=(40, 50, 60))


@pytest.fixture(scope="module")
def result(federation):
    return silodp.run(federation=federation, keep_models=True, seeds=2, **EXACT)


def outputs_of(result, federation, seed, place):
    weights = np.asarray(result.models, np.float64)[seed, place]
    return federation.silos[place].test.x @ weights[:-1] + weights[-1]


def entry(result, name):
    (found,) = [one for one in result.metrics if one["metric"] == name]
    return found


def of_two_classes(yes=(0.5, 0.2, 0.0), size=60):
    """Silos with these shares of the second class; features say something about it."""
    rng = np.random.default_rng(3)

    def records(share, count):
        y = np.where(np.arange(count) < share * count, 1.0, -1.0)
        return Records(rng.normal(size=(count, 3)) + y[:, None], y)

    silos = tuple(
        Silo(f"silo {n}", records(max(share, 0.05), size), records(share, size))
        for n, share in enumerate(yes)
    )
    return Federation("classes", silos, "binary")


def test_several_metrics_are_those_of_the_models(result, federation):
    assert [one["metric"] for one in result.metrics] == ["mse", "mae", "rmse", "r2"]
    assert result.metrics[0]["test"]["mean"] == pytest.approx(result.mean)
    mae = entry(result, "mae")
    by_hand = [
        [
            mean_absolute_error(silo.test.y, outputs_of(result, federation, seed, place))
            for place, silo in enumerate(federation.silos)
        ]
        for seed in range(2)
    ]
    assert [silo["mean"] for silo in mae["per_silo"]] == pytest.approx(np.mean(by_hand, 0).tolist())
    counts = federation.test_counts
    assert mae["test"]["per_seed"] == pytest.approx(np.average(by_hand, axis=1, weights=counts))


def test_no_skill_is_measured_on_the_same_records(result, federation):
    own = [((s.test.y - s.train.y.mean()) ** 2).mean() for s in federation.silos]
    none = entry(result, "mse")["no_skill"]
    assert none["mean"] == pytest.approx(np.average(own, weights=federation.test_counts), rel=1e-5)
    assert [one["no_skill"] for one in entry(result, "mse")["per_silo"]] == pytest.approx(own)
    assert none["gain"]["mean"] == pytest.approx(1 - result.mean / none["mean"], rel=1e-4)


def test_intervals_are_about_as_wide_as_they_should_be():
    """Of a mean they are those of the normal distribution; and more records make them narrower."""
    widths = []
    for count in (100, 1600):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(count, 2)).astype(np.float32)
        y = rng.normal(size=count).astype(np.float32)
        federation = Federation("f", (Silo("a", Records(x, y), Records(x, y)),), "regression")
        found = silodp.run(federation=federation, **EXACT | {"lr": 1e-6, "method": "local"})
        low, high = found.metrics[0]["test"]["interval"]
        assert low < found.mean < high
        expected = 2 * norm.ppf(0.975) * (y**2).std() / math.sqrt(count)
        assert high - low == pytest.approx(expected, rel=0.25)
        widths.append(high - low)
    assert widths[0] > 3 * widths[1]


def test_a_silo_of_one_class_has_no_auc_and_is_no_error():
    federation = of_two_classes()
    found = silodp.run(federation=federation, keep_models=True, metrics="auc,accuracy", **EXACT)
    assert found.metric == "auc"
    assert found.unmeasured == ["silo 2"]
    auc = entry(found, "auc")
    assert auc["per_silo"][2] == {
        **{"silo": "silo 2", "mean": None, "std": None},
        **{"interval": None, "no_skill": None},
    }
    by_hand = [
        roc_auc_score(silo.test.y > 0, outputs_of(found, federation, 0, place))
        for place, silo in enumerate(federation.silos[:2])
    ]
    assert [one["mean"] for one in auc["per_silo"][:2]] == pytest.approx(by_hand, rel=1e-5)
    assert auc["no_skill"]["mean"] == 0.5
    accuracy = entry(found, "accuracy")
    assert [one["no_skill"] for one in accuracy["per_silo"]] == pytest.approx([0.5, 0.8, 1.0])
    low, high = accuracy["per_silo"][2]["interval"]
    assert 0.9 < low < high == 1.0  # Wilson's: never of no width


def test_the_interval_of_a_mean_of_shares_goes_by_what_silos_weigh():
    """A recall of few positives is unsure, and the mean over silos with it."""
    federation = of_two_classes(yes=(0.5, 0.05))  # of 60 records 30, and 3
    found = silodp.run(federation=federation, metrics="recall,accuracy", **EXACT)
    recall, accuracy = entry(found, "recall"), entry(found, "accuracy")
    unsure = 1 / (0.5**2 / 30 + 0.5**2 / 3)
    for one, count in ((recall, unsure), (accuracy, 120)):
        assert one["test"]["interval"] == pytest.approx(wilson(one["test"]["mean"], count))
    counts = [30, 3]
    for silo, count in zip(recall["per_silo"], counts, strict=True):
        assert silo["interval"] == pytest.approx(wilson(silo["mean"], count))


def test_a_seed_without_the_metric_leaves_the_others_theirs():
    """Of two seeds one has no test record of the second class in any silo; of none, there is none.

    Without that the recall of a rare class is "not a number", between 0 and 100 %.
    """
    seeds = [of_two_classes(), of_two_classes(yes=(0.0, 0.0, 0.0))]
    options = EXACT | {"federation": lambda seed: seeds[seed], "metrics": "accuracy,recall,auc"}
    both = silodp.run(**options, seeds=2)
    for name in ("recall", "auc"):
        own = entry(both, name)
        first, second = own["test"]["per_seed"]
        assert second is None
        assert own["test"]["mean"] == first == entry(both, name)["test"]["mean"]
        assert own["no_skill"]["per_seed"][1] is None
        assert own["test"]["interval"][0] < first
    never = silodp.run(**options | {"federation": lambda seed: seeds[1]}, seeds=2)
    for name in ("recall", "auc"):
        assert entry(never, name)["test"]["mean"] is None
        assert entry(never, name)["test"]["interval"] is None
        assert entry(never, name)["no_skill"]["gain"]["mean"] is None


def test_one_record_of_a_class_says_too_little_for_an_interval():
    """A third of resamples leave it out: the others are all of one AUC, and would look sure."""
    federation = of_two_classes(yes=(0.05, 0.05, 0.05), size=20)
    found = silodp.run(federation=federation, **EXACT | {"metrics": "accuracy,auc"})
    auc = entry(found, "auc")
    assert auc["test"]["mean"] is not None
    assert auc["test"]["interval"] is None
    assert auc["no_skill"]["gain"]["low"] is None
    assert all(silo["interval"] is None for silo in auc["per_silo"])
    assert entry(found, "accuracy")["test"]["interval"] is not None


def test_a_model_that_is_compiled_is_measured_alike(federation):
    import jax.numpy as jnp

    model = silodp.custom_model(
        lambda key: jnp.zeros(federation.input_shape[0]), lambda w, x: x @ w, "regression"
    )
    found = silodp.run(federation=federation, custom_model=model, keep_models=True, **EXACT)
    silo, weights = federation.silos[1], np.asarray(found.models)[0, 1]
    expected = np.abs(silo.test.x @ weights - silo.test.y).mean()
    assert entry(found, "mae")["per_silo"][1]["mean"] == pytest.approx(expected, rel=1e-4)


def test_nothing_exact_stands_beside_a_noisy_metric(federation):
    """The difference would be the noise."""
    private = SHORT | {"epsilon": 4, "metric_share": 0.3, "metrics": "mae,r2"}
    found = silodp.run(federation=federation, **private)
    noisy, other = found.metrics
    assert (noisy["metric"], noisy["release"], noisy["share"]) == ("mae", "noisy", 0.3)
    assert noisy["test"]["per_seed"] == pytest.approx(found.test["per_seed"])
    assert noisy["no_skill"] is None
    assert noisy["test"]["interval"] is None
    assert (other["metric"], other["release"]) == ("r2", "none")
    assert other["test"]["mean"] is None
    assert other["per_silo"] == []
    exact = silodp.run(federation=federation, metric="mae", **SHORT | {"epsilon": 4})
    assert str(exact.metrics[0]["no_skill"]["mean"]) not in json.dumps(found.as_json())


def with_tests(federation, *counts):
    """The federation with so many test records in each silo."""
    rng = np.random.default_rng(1)
    silos = [
        replace(silo, test=silo.test.take(rng.integers(0, len(silo.test), count)))
        for silo, count in zip(federation.silos, counts, strict=True)
    ]
    return replace(federation, silos=tuple(silos))


def test_it_says_what_noise_would_hide(federation):
    federation = with_tests(federation, 15, 20, 25)
    tight, loose = (
        silodp.run(federation=federation, **SHORT | {"epsilon": epsilon}) for epsilon in (1, 1000)
    )
    private = [one.metrics[0]["private"] for one in (tight, loose)]
    assert private[0]["noise"] > 10 * private[1]["noise"]
    assert [one["useful"] for one in private] == [False, True]
    by_hand = get_sigma_gaussian(0.1 * 1.0, tight.privacy[1]["delta"]) / 20
    assert private[0]["noise"] == pytest.approx(by_hand, rel=1e-2)
    own = [silo["private"] for silo in tight.metrics[0]["per_silo"]]
    assert [one["test_records"] for one in own] == federation.test_counts.tolist()
    assert own[0]["noise"] > own[1]["noise"] > own[2]["noise"]
    assert (private[0]["noise"], private[0]["reason"]) == (own[1]["noise"], None)
    never = entry(tight, "r2")["private"]
    assert (never["noise"], never["useful"]) == (None, False)
    assert never["reason"] == "it is no mean over records"


def test_each_metric_says_in_words_who_may_see_it(federation, result):
    def words(found, name):
        return release_words(entry(found, name), get_metric(name))

    tight, loose = (
        silodp.run(federation=federation, **SHORT | {"epsilon": epsilon}) for epsilon in (1, 1000)
    )
    count = federation.silos[1].public_test_count
    assert words(result, "mse") == "exact: stays in the silo"  # nothing is private there
    hidden = f"exact: stays in the silo; cannot be had privately at {count} test records: noise of"
    assert words(tight, "mse").startswith(hidden)
    assert "can be had privately, with noise of ±" in words(loose, "mse")
    assert words(tight, "r2").endswith("cannot be had privately: it is no mean over records")


def test_a_noisy_metric_says_what_it_cost_and_how_noisy_it_is(federation):
    private = SHORT | {"metric_share": 0.3, "metrics": "mae,r2"}
    tight, loose = (
        silodp.run(federation=federation, **private | {"epsilon": epsilon})
        for epsilon in (1, 10_000)
    )
    first, other = loose.metrics
    own = first["per_silo"][0]["private"]
    evaluations = len(loose.history)
    delta = loose.privacy[0]["delta"]
    alone = get_sigma_gaussian(0.3 * 10_000, delta) * math.sqrt(evaluations)
    assert own["noise"] == pytest.approx(alone / own["test_records"], rel=1e-2)
    assert "noisy: it took 30 % of epsilon, noise of ±" in release_words(first, get_metric("mae"))
    hidden = release_words(tight.metrics[0], get_metric("mae"))
    assert "noisy: it took 30 % of epsilon; cannot be had privately at" in hidden
    assert release_words(other, get_metric("r2")).startswith("not released")
    assert interval_of(first) == interval_of(other) == ""  # none, and not for want of records


def test_silos_in_which_noise_hides_the_metric_are_named():
    federation = with_tests(small(sizes=(40, 50)), 12, 4000)
    found = silodp.run(federation=federation, **SHORT | {"epsilon": 10, "method": "local"})
    own = [silo["private"]["useful"] for silo in found.metrics[0]["per_silo"]]
    assert own == [False, True]
    said = silos_with_noise(found.metrics[0], get_metric("mse"))
    assert said.startswith("It cannot be had privately in silo 0 (± ")
    assert "at 12 records" in said


def test_what_is_measured_is_read_again_and_older_results_are(result, tmp_path):
    path = result.write(tmp_path)
    again = read_result(tmp_path)
    assert again.metrics == result.metrics
    assert again.problem == result.problem
    content = json.loads(path.read_text())
    assert content.pop("format") == 2
    del content["metrics"], content["problem"]
    path.write_text(json.dumps(content))
    older = read_result(tmp_path)
    assert (older.metrics, older.problem, older.mean) == ([], None, result.mean)


def test_what_was_learned_from_what_is_said(result, federation):
    assert result.problem["task"] == "regression"
    assert len(result.problem["columns"]) == federation.input_shape[0]
    silos = tuple(replace(silo, preparation=None) for silo in of_two_classes().silos)
    secret = Federation("f", silos, "binary", uncovered=("Classes were taken from records.",))
    found = silodp.run(federation=secret, **EXACT)
    assert found.problem["classes"] == []  # what is not public is not said


def test_the_command_line_measures_several(cli, tmp_path):
    told = ("run", "--data", "synthetic", "--silos", "2", "--method", "local", "--rounds", "2")
    said = cli(*told, "--epsilon", "3", "--metrics", "mae,r2", "--purpose", "a test").stdout
    assert "test MAE (lower is better)" in said
    assert "the constant prediction" in " ".join(said.replace("│", " ").split())
    assert "Exact metrics, the prediction without features among them, stay" in said
    assert "MAE is exact: stays in the silo; can" in said
    assert "R² is exact: stays in the silo; cannot be had privately: it is no mean over" in said


def test_what_does_not_fit_is_refused_before_training(federation):
    with pytest.raises(SilodpError, match=r"--metrics: 'auc' is no metric of a regression task"):
        silodp.run(federation=federation, metrics="mse,auc", **EXACT)
    with pytest.raises(SilodpError, match="'bleu' is no metric of a regression task: use 'mse'"):
        silodp.run(federation=federation, metrics="bleu", **EXACT)
