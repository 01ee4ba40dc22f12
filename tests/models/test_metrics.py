"""Metrics are what other programs say they are, know when they have no value, and their words."""

import math
from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from federations import small
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import norm
from sklearn.calibration import calibration_curve
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


@cache
def compiled(name, task):
    """As a whole, as in a run: else its operations are compiled one by one."""
    return jax.jit(partial(get_metric(name).value, get_task(task)))


def value(name, outputs, y, present=None, task="regression"):
    present = np.ones(len(y), bool) if present is None else present
    return float(compiled(name, task)(*map(jnp.asarray, (outputs, y, present))))


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


def test_calibration_is_by_the_bins_of_scikit_learn():
    outputs, y = of_two_classes(1000, 7, False)
    happened, said = calibration_curve(y > 0, chances(outputs), n_bins=10)
    counts = np.histogram(chances(outputs), np.linspace(0, 1, 11))[0]
    expected = np.sum(counts[counts > 0] * np.abs(happened - said)) / 1000
    assert value("calibration", outputs, y, task="binary") == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("cost_ratio", [0.2, 1, 9])
def test_a_threshold_by_costs_is_that_of_scikit_learn(cost_ratio):
    """The second class from a probability of 1 / (1 + ratio) on, in each metric that decides."""
    outputs, y = of_two_classes(300, 8, False)
    task = get_task("binary").deciding_at(-math.log(cost_ratio))
    said = chances(outputs) > 1 / (1 + cost_ratio)
    for name, elsewhere in (
        ("recall", recall_score),
        ("precision", precision_score),
        ("accuracy", accuracy_score),
    ):
        found = float(get_metric(name).value(task, outputs, y, np.ones(300)))
        assert found == pytest.approx(elsewhere(y > 0, said))


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


@pytest.mark.parametrize("count", [1, 7, 40, 1000])
def test_wilson_is_the_formula_of_statsmodels(count):
    """`proportion_confint(successes, count, method="wilson")`, written out; and what it solves."""
    quantile = norm.isf(0.025)
    for successes in {0, 1, count // 3, count}:
        share, square = successes / count, quantile**2
        denominator = 1 + square / count
        center = (share + square / (2 * count)) / denominator
        distance = quantile * np.sqrt(share * (1 - share) / count + square / (4 * count**2))
        by_hand = center - distance / denominator, center + distance / denominator
        ends = wilson(share, count)
        assert ends == pytest.approx(by_hand, abs=1e-6)
        for end in ends:
            off = (share - end) ** 2 - square * end * (1 - end) / count
            assert off == pytest.approx(0, abs=1e-6)


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
    with pytest.raises(
        SilodpError, match=r"--metrics: 'auc', 'foo' are no metrics of a regression task"
    ):
        metrics_for("regression", None, "mse,auc,foo")
    with pytest.raises(SilodpError, match="--metrics names none: give some of mse, mae, rmse, r2"):
        metrics_for("regression", None, ", ")


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


@pytest.mark.parametrize(
    ("times", "events", "risks", "lifelines"),
    [
        (
            [5, 5, 5, 3, 8, 8, 2, 9, 9, 1],
            [1, 1, 0, 1, 0, 1, 0, 1, 1, 1],
            [0.3, 0.1, 0.3, 0.3, 0.9, -0.2, 0.4, -0.5, -0.5, 0.4],
            0.7241379310344828,
        ),
        ([4, 4, 4, 4], [1, 0, 1, 0], [1, 0, 0, 1], 0.5),
        ([1, 2, 3, 4, 5], [0, 0, 1, 0, 1], [2, 2, 2, 2, 2], 0.5),
        ([1, 1, 2, 2, 2, 7], [1, 1, 1, 0, 1, 0], [3, 1, 2, 2, 0, -1], 0.7083333333333334),
    ],
)
def test_the_c_index_is_that_of_lifelines(times, events, risks, lifelines):
    """Worked out by lifelines 0.30.3: times and risks that are equal, events and none."""
    courses = labels_of_times(np.array(times, float), np.array(events), (10.0,))
    outputs = np.array(risks, float)[:, None]
    weight = np.ones(len(times))
    found = get_metric("c_index").value(get_task("hazard"), outputs, courses, weight)
    assert float(found) == pytest.approx(lifelines)


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


@given(
    counts=st.lists(st.integers(1, 10**6), min_size=20, max_size=20),
    exposure=st.floats(2**-10, 1, width=32),
    off=st.floats(-1e-3, 1e-3),
)
@settings(deadline=None, max_examples=30)
def test_no_count_that_is_foretold_rightly_has_less_than_nothing(counts, exposure, off):
    """Near 0, terms of the size of the count cancel: shares of -2 stood where 1 was paid for."""
    y = np.stack([counts, np.full(20, exposure)], axis=1).astype(np.float32)
    outputs = np.minimum(np.log(y[:, 0] / y[:, 1]) + np.float32(off), 19.9)
    deviance, task = get_metric("deviance"), get_task("count")
    shares = deviance.bounded_share(task, jnp.asarray(outputs), jnp.asarray(y), 1.0)
    assert bool(jnp.all((shares >= 0) & (shares <= 1)))
    expected = mean_poisson_deviance(y[:, 0], y[:, 1] * np.exp(outputs.astype(float)))
    assert value("deviance", outputs, y, task="count") == pytest.approx(
        expected, rel=0.01, abs=0.01
    )


def test_a_share_that_a_loss_has_below_nothing_counts_as_nothing():
    """Far beyond any rate the loss of counts goes on in a straight line, for some downwards."""
    y, outputs = jnp.array([[1e6, 1e-6]]), jnp.array([30.0])
    deviance, task = get_metric("deviance"), get_task("count")
    assert float(deviance.share(task, outputs, y)[0]) < 0
    assert float(deviance.bounded_share(task, outputs, y, 1.0)[0]) == 0


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
