"""Metrics are what other programs say they are, know when they have no value, and their words."""

import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from federations import small
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    brier_score_loss,
    cohen_kappa_score,
    log_loss,
    mean_absolute_error,
    mean_poisson_deviance,
    mean_squared_error,
    precision_score,
    r2_score,
    recall_score,
    roc_auc_score,
    root_mean_squared_error,
)

from silodp import SilodpError
from silodp.data.tasks import TASKS, get_task
from silodp.data.tasks.hazard import labels_of_times
from silodp.models.metrics import (
    METRICS,
    MeanMetric,
    get_metric,
    mean_metric,
    metric_for,
    metrics_for,
    wilson,
)

MEANS = [metric for metric in METRICS.values() if isinstance(metric, MeanMetric)]
ELSEWHERE = {
    "mse": mean_squared_error,
    "mae": mean_absolute_error,
    "rmse": root_mean_squared_error,
    "r2": r2_score,
    "accuracy": accuracy_score,
}


def value(name, outputs, y, present=None, task="regression"):
    present = np.ones(len(y), bool) if present is None else present
    metric = get_metric(name)
    return float(metric.value(get_task(task), *map(jnp.asarray, (outputs, y, present))))


@pytest.mark.parametrize("name", ["mse", "mae", "rmse", "r2"])
def test_metrics_of_numbers_are_those_of_scikit_learn(name):
    rng = np.random.default_rng(0)
    for count in (2, 3, 50, 1000):
        y = rng.normal(5, 2, count).astype(np.float32)
        outputs = (y + rng.normal(0, 1, count)).astype(np.float32)
        assert value(name, outputs, y) == pytest.approx(ELSEWHERE[name](y, outputs), rel=1e-4)


def test_metrics_of_numbers_by_hand():
    outputs, y = np.array([1.0, 2.0, 5.0]), np.array([1.0, 3.0, 2.0])
    assert value("mse", outputs, y) == pytest.approx(10 / 3)
    assert value("mae", outputs, y) == pytest.approx(4 / 3)
    assert value("r2", outputs, y) == pytest.approx(1 - 10 / 2)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_accuracy_is_that_of_scikit_learn(task):
    rng = np.random.default_rng(1)
    outputs = rng.normal(size=200 if task == "binary" else (200, 4))
    guessed = np.sign(outputs) if task == "binary" else outputs.argmax(1)
    y = np.where(rng.random(200) < 0.3, guessed, np.roll(guessed, 1))
    found = value("accuracy", outputs, y, task=task)
    assert found == pytest.approx(accuracy_score(y, guessed))


def chances(outputs):
    return 1 / (1 + np.exp(-outputs))


# Of labels 0 and 1 and log-odds.
OF_TWO_CLASSES = {
    "auc": roc_auc_score,
    "average_precision": average_precision_score,
    "recall": lambda y, outputs: recall_score(y, outputs > 0),
    "precision": lambda y, outputs: precision_score(y, outputs > 0, zero_division=0),
    "brier": lambda y, outputs: brier_score_loss(y, chances(outputs)),
    "log_loss": lambda y, outputs: log_loss(y, chances(outputs)),
}


def of_two_classes(count, seed, ties):
    """Outputs and labels of which both classes are there; `ties` outputs are equal to others."""
    rng = np.random.default_rng(seed)
    outputs = rng.normal(size=count)
    y = np.where(rng.random(count) < chances(outputs), 1.0, -1.0)
    y[:2] = 1.0, -1.0
    return np.round(outputs, 0 if ties else 12), y


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("name", OF_TWO_CLASSES)
def test_metrics_of_two_classes_are_those_of_scikit_learn(name, ties):
    task, metric = get_task("binary"), get_metric(name)
    for seed, count in enumerate((2, 5, 40, 1000)):
        outputs, y = of_two_classes(count, seed, ties)
        expected = OF_TWO_CLASSES[name](y > 0, outputs)
        assert float(metric.value(task, outputs, y, np.ones(count))) == pytest.approx(expected)
    # In single precision, as within the compiled program.
    assert value(name, outputs, y, task="binary") == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["brier", "log_loss"])
def test_metrics_of_several_classes_are_those_of_scikit_learn(name):
    rng = np.random.default_rng(4)
    outputs, y = rng.normal(size=(60, 4)), rng.integers(0, 4, 60)
    shares = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    expected = (brier_score_loss if name == "brier" else log_loss)(y, shares, labels=range(4))
    assert value(name, outputs, y, task="multiclass") == pytest.approx(expected, rel=1e-5)


def test_calibration_by_hand():
    """Two bins: 0.25, of which none happens, and 0.75, of which half does."""
    outputs = np.log(np.array([0.25, 0.25, 0.75, 0.75]) / (1 - np.array([0.25, 0.25, 0.75, 0.75])))
    y = np.array([-1.0, -1.0, 1.0, -1.0])
    assert value("calibration", outputs, y, task="binary") == pytest.approx(0.25)
    sure = np.array([-50.0, 50.0])
    assert value("calibration", sure, np.array([-1.0, 1.0]), task="binary") == pytest.approx(0)


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_a_weight_counts_a_record_so_often(metric):
    """Resamples are weights: each row of them gives what the drawn records give by themselves."""
    rng = np.random.default_rng(5)
    task = get_task(metric.tasks[-1])
    y = np.array(task.extreme_labels(3) * 10, task.label_dtype)
    outputs = rng.normal(size=(len(y), *task.output_shape(3)))
    weights = rng.integers(0, 4, (5, len(y)))
    drawn = [
        float(metric.value(task, outputs[rows], y[rows], np.ones(len(rows))))
        for rows in (np.repeat(np.arange(len(y)), weight) for weight in weights)
    ]
    np.testing.assert_allclose(metric.value(task, outputs, y, weights), drawn)


@pytest.mark.parametrize("name", ["auc", "average_precision", "recall"])
def test_of_one_class_there_is_no_value(name):
    """No error either: a silo of one class is what a federation is for."""
    metric, outputs = get_metric(name), np.array([0.3, -0.2, 0.1])
    for y in (np.full(3, -1.0), np.full(0, 1.0)):
        assert not metric.has_value(y)
        assert math.isnan(value(name, outputs[: len(y)], y, task="binary"))
    assert metric.has_value(np.array([1.0, -1.0]))


def test_a_constant_ranks_nothing():
    y = np.array([1.0, -1, -1, -1])
    flat = np.zeros(4)
    assert value("auc", flat, y, task="binary") == pytest.approx(0.5)
    assert value("average_precision", flat, y, task="binary") == pytest.approx(0.25)


def test_no_skill_is_the_best_without_features():
    rng = np.random.default_rng(6)
    numbers = rng.exponential(size=51)
    for name, best in (("mse", numbers.mean()), ("mae", np.median(numbers))):
        found = get_metric(name).no_skill(get_task("regression"), numbers, 0)
        assert float(found) == pytest.approx(best)
        around = [value(name, np.full(51, best + off), numbers) for off in (-0.1, 0.0, 0.1)]
        assert min(around) == around[1]
    binary = get_task("binary")
    for y, right in (([1.0, -1, -1], -1.0), ([1.0, 1, -1], 1.0), ([1.0, -1], -1.0), ([1.0], 1.0)):
        said = np.broadcast_to(binary.no_skill_output(np.array(y), 0), 1)
        assert bool(binary.right(said, np.array([right]))[0])
    several = get_task("multiclass").no_skill_output(np.array([2, 2, 0]), 4)
    assert several.argmax() == 2
    assert np.exp(several).sum() == pytest.approx(1)


def test_wilson_by_hand():
    """E. B. Wilson's interval of 1 in 10, as in textbooks; at the ends it stays within 0 and 1."""
    assert wilson(0.1, 10) == pytest.approx((0.0179, 0.4042), abs=1e-4)
    assert wilson(0.0, 11)[0] == 0
    assert wilson(1.0, 11) == pytest.approx((0.7412, 1.0), abs=1e-4)


def test_several_metrics_at_once():
    def names(*given):
        return [metric.name for metric in metrics_for(*given)]

    assert names("regression", None, None) == ["mse", "mae", "rmse", "r2"]
    assert names("regression", None, "r2, mae") == ["r2", "mae"]
    assert names("regression", "mae", "r2,mae") == ["mae", "r2"]
    assert names("binary", None, None, False) == [
        *("accuracy", "recall", "precision", "auc")  # no probabilities: no log loss
    ]
    with pytest.raises(SilodpError, match="is about probabilities, and the model gives none"):
        metrics_for("binary", None, "accuracy,brier", False)
    with pytest.raises(SilodpError, match=r"auc: .* is not for a regression task"):
        metrics_for("regression", None, "mse,auc")


def test_a_draw_of_two_classes_is_wrong_for_both():
    right = get_task("binary").right(np.array([0.0, 2.0, -1.0, 0.0]), np.array([1.0, 1, 1, -1]))
    assert right.tolist() == [False, True, False, False]


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_padding_changes_no_metric(metric):
    rng = np.random.default_rng(2)
    task = get_task(metric.tasks[-1])
    shape = task.output_shape(3)
    y = np.array(task.extreme_labels(3) * 4, task.label_dtype)
    outputs = rng.normal(size=(len(y), *shape)).astype(np.float32)
    alone = value(metric.name, outputs, y, task=task.name)
    strange = np.full((5, *shape), np.inf, np.float32)
    padded = value(
        metric.name,
        np.concatenate([outputs, strange]),
        np.concatenate([y, np.zeros((5, *y.shape[1:]), y.dtype)]),
        np.arange(len(y) + 5) < len(y),
        task.name,
    )
    assert padded == pytest.approx(alone, rel=1e-6)


def test_the_deviance_of_counts_is_that_of_scikit_learn():
    rng = np.random.default_rng(3)
    y, exposure = rng.poisson(2, 50), rng.uniform(0.1, 1, 50)
    outputs = rng.normal(size=50).astype(np.float32)
    found = value("deviance", outputs, np.stack([y, exposure], 1).astype(np.float32), task="count")
    expected = mean_poisson_deviance(y, exposure * np.exp(outputs))
    assert found == pytest.approx(expected, rel=1e-4)


def test_kappa_is_that_of_scikit_learn():
    rng = np.random.default_rng(4)
    y, outputs = rng.integers(0, 4, 60), -np.sort(-rng.normal(size=(60, 3)), axis=1)
    ranks = get_task("ordinal").ranks(outputs)
    expected = cohen_kappa_score(y, ranks, weights="quadratic")
    assert value("kappa", outputs, y, task="ordinal") == pytest.approx(expected, rel=1e-5)
    error = np.abs(ranks - y).mean()
    assert value("rank_error", outputs, y, task="ordinal") == pytest.approx(error, rel=1e-6)


def test_the_deviance_of_classes_and_courses_is_less_twice_the_log_likelihood():
    rng = np.random.default_rng(5)
    outputs = -np.sort(-rng.normal(size=(40, 3)) * 2, axis=1).astype(np.float32)
    ordinal, y = get_task("ordinal"), rng.integers(0, 4, 40)
    chances = ordinal.probabilities(outputs)[np.arange(40), y]
    found = value("deviance", outputs, y, task="ordinal")
    assert found == pytest.approx(-2 * np.log(chances).mean(), rel=1e-3)
    times, events = rng.uniform(0, 4, 40), rng.random(40) < 0.6
    survival = np.column_stack([np.ones(40), get_task("hazard").survival(outputs)])
    courses = labels_of_times(times, events, (1, 2, 3))
    lived, seen = courses[:, 0].astype(int), courses[:, 1] > 0
    ends = np.take_along_axis(survival, np.minimum(lived + 1, 3)[:, None], 1)[:, 0]
    begins = np.take_along_axis(survival, lived[:, None], 1)[:, 0]
    chances = np.where(seen, begins - ends, begins)
    found = value("deviance", outputs, courses.astype(np.float32), task="hazard")
    assert found == pytest.approx(-2 * np.log(chances).mean(), rel=1e-4)


def test_the_c_index_is_harrells_pair_by_pair():
    """As lifelines counts: of two equal times, exactly one an event, that one came first."""
    rng = np.random.default_rng(6)
    times, events = rng.integers(1, 8, 60).astype(float), rng.random(60) < 0.6
    outputs = rng.normal(size=(60, 1)).round(1).astype(np.float32)  # some risks are equal
    right = pairs = 0.0
    for i in range(60):
        for j in range(60):
            first = times[i] < times[j] or (times[i] == times[j] and not events[j])
            if events[i] and first and i != j:
                pairs += 1
                right += 1.0 * (outputs[i] > outputs[j]) + 0.5 * (outputs[i] == outputs[j])
    courses = labels_of_times(times, events, (10.0,)).astype(np.float32)
    found = value("c_index", outputs, courses, task="hazard")
    assert found == pytest.approx(float(right[0] / pairs), rel=1e-5)
    assert math.isnan(value("c_index", outputs * np.nan, courses, task="hazard"))
    c_index = get_metric("c_index")
    assert c_index.has_value(courses)
    assert not c_index.has_value(labels_of_times(times, np.zeros(60), (10.0,)))


def test_r2_needs_targets_that_differ():
    r2 = get_metric("r2")
    for y in (np.array([]), np.array([0.3]), np.full(1000, 0.1)):
        y = y.astype(np.float32)
        assert not r2.has_value(y)
        assert math.isnan(value("r2", y + 0.5, y))
    # Its padding does not make targets differ, and does not make them equal.
    assert math.isnan(value("r2", np.ones(3), np.array([1.0, 1.0, 0.0]), np.array([1, 1, 0], bool)))
    assert r2.has_value(np.array([0.0, 1.0]))
    assert value("r2", np.array([0.0, 1.0]), np.array([0.0, 1.0])) == 1.0


def test_which_silos_have_a_value():
    federation = small(sizes=(20, 20, 20))
    first, second, third = federation.silos
    second = replace(second, test=second.test.take(np.arange(1)))
    federation = replace(federation, silos=(first, second, third))
    assert get_metric("r2").where_known([federation]).tolist() == [[True, False, True]]
    assert get_metric("mae").where_known([federation]).tolist() == [[True, True, True]]


numbers = arrays.arrays(np.float32, 20, elements=st.floats(width=32))


@pytest.mark.parametrize("metric", MEANS, ids=lambda metric: metric.name)
@given(outputs=numbers, bound=st.floats(1e-3, 1e6))
@settings(deadline=None, max_examples=50)
def test_a_bounded_share_is_bounded_whatever_the_model_says(metric, outputs, bound):
    """Of this a noisy metric's epsilon lives."""
    largest = metric.largest(bound)
    for name in metric.tasks:
        task = get_task(name)
        shaped = outputs if task.output_shape(2) == () else outputs.reshape(10, 2)
        y = np.resize(np.array(task.extreme_labels(2), task.label_dtype), len(shaped))
        shares = metric.bounded_share(task, jnp.asarray(shaped), jnp.asarray(y), largest)
        assert shares.shape == (len(shaped),)
        assert bool(jnp.all((shares >= 0) & (shares <= np.float32(largest))))


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_each_task_has_a_metric_of_its_own_that_fits(task):
    assert metric_for(task.name).name == task.metric
    assert task.name in metric_for(task.name).tasks


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_is_in_the_file_of_its_name(name):
    metric = get_metric(name)
    assert metric.name == name
    assert type(metric).__module__ == f"silodp.models.metrics.{name}"
    assert set(metric.tasks) <= set(TASKS)


def test_a_metric_for_another_task_is_refused():
    with pytest.raises(SilodpError, match=r"--metric accuracy: .*regression task: choose mse or"):
        metric_for("regression", "accuracy")
    with pytest.raises(SilodpError, match="'rmsle' is unknown: did you mean 'rmse'"):
        get_metric("rmsle")


def test_what_is_no_mean_cannot_be_bounded():
    assert mean_metric(get_metric("mae"), "--metric-share").name == "mae"
    with pytest.raises(SilodpError, match=r"--metric-share takes a mean.*r2 is none: choose "):
        mean_metric(get_metric("r2"), "--metric-share")


def test_words():
    mse, mae, r2, accuracy = map(get_metric, ("mse", "mae", "r2", "accuracy"))
    assert mse.title == "test error: mean squared error (lower is better)"
    assert mse.brief == "mean squared error (lower is better)"
    assert mae.label == "test MAE (lower is better)"
    assert accuracy.title == accuracy.label == accuracy.brief == "test accuracy (higher is better)"
    assert r2.label == "test R² (higher is better)"
    assert r2.heading == "test R² (higher is better)"
    assert [one.text(0.12345) for one in (mse, mae, r2, accuracy)] == [
        *("0.123", "0.123", "0.123"),
        "12.3 %",
    ]
    assert r2.text(math.nan) == accuracy.text(None) == "not a number"
    assert accuracy.plus_minus(0.9, 0.01) == "90.0 ± 1.0 %"
    assert r2.plus_minus(-0.5, 0.1) == "-0.500 ± 0.100"
    assert r2.plus_minus(0.0132, 0.00041) == "0.0132 ± 0.0004"
    assert r2.plus_minus(0.613, 0.00008) == "0.613 ± <0.001"
    assert r2.plus_minus(1234.5, 56.7) == "1234 ± 57"


def test_gains_in_words():
    """Errors are compared by ratio, shares by points, and R² by difference."""
    own, other = np.array([0.2, 0.4]), np.array([0.5, 0.7])
    mae, r2, accuracy = map(get_metric, ("mae", "r2", "accuracy"))
    assert mae.gains(own, other).tolist() == pytest.approx([0.5, 0.5])
    assert (mae.size(0.5), mae.way(0.5)) == ("50 %", "lower (better)")
    assert mae.way(-0.5) == "higher (worse)"
    assert r2.gains(own, other).tolist() == pytest.approx([-0.3, -0.3])
    assert (r2.size(-0.3), r2.way(-0.3)) == ("0.3", "lower (worse)")
    assert (accuracy.size(0.3), accuracy.way(0.3)) == ("30.0 points", "higher (better)")
