"""Counts, ordered classes, times to an event, rare classes: trained as statisticians would."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit, gammaln, log_expit

import silodp
from silodp import Federation, Records, Silo, SilodpError
from silodp.data.tasks import get_task
from silodp.data.tasks.hazard import labels_of_times

RECORDS, CUTS = 300, (1.0, 2.0, 3.0, 5.0)
SLOPES = np.array([0.8, -0.6])
EXACT = {"method": "local", "epsilon": math.inf, "batch_size": RECORDS, "evaluate_every": 1000}


def drawn(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(RECORDS, 2)).astype(np.float32)
    exposure = rng.uniform(0.2, 1, RECORDS)
    counts = rng.poisson(exposure * np.exp(0.5 + x @ SLOPES))
    ranks = np.digitize(2 * x @ SLOPES + rng.logistic(size=RECORDS), [-1.5, 0, 2])
    happens = rng.exponential(2.5 * np.exp(-(x @ SLOPES)))
    seen_until = rng.uniform(0, 7, RECORDS)
    times, events = np.minimum(happens, seen_until), happens <= seen_until
    rare = np.where(x @ SLOPES * 1.5 - 2.5 + rng.logistic(size=RECORDS) > 0, 1.0, -1.0)
    return {
        "count": (x, np.stack([counts, exposure], axis=1)),
        "ordinal": (x, ranks),
        "hazard": (x, labels_of_times(times, events, CUTS)),
        "binary": (x, rare),
    }


DATA = drawn()
CLASSES = {"ordinal": 4, "hazard": 4}


def federation_of(task, silos=1, subjects=False):
    """The records dealt out to so many silos; each is tested on what it is trained on."""
    x, y = DATA[task]
    made = []
    for place in range(silos):
        own = slice(place, None, silos)
        subject = np.arange(len(x[own])) // 2 if subjects else None
        part = Records(x[own], y[own], subject)
        made.append(Silo(f"silo {place}", part, Records(x[own], y[own])))
    return Federation("outcomes", tuple(made), task, CLASSES.get(task, 0))


def fitted(loss, start):
    found = minimize(loss, start, method="BFGS", options={"gtol": 1e-7})
    return found.x


def likeliest(task, prevalence=None):
    """Parameters of greatest likelihood, by a program that shares no code with ours."""
    x, y = (np.asarray(part, float) for part in DATA[task])

    if task == "count":
        count, exposure = y.T

        def loss(p):
            log_mean = x @ p[:2] + p[2] + np.log(exposure)
            return -np.mean(count * log_mean - np.exp(log_mean) - gammaln(count + 1))

        return fitted(loss, np.zeros(3))
    if task == "ordinal":

        def loss(p):
            above = expit((x @ p[:2])[:, None] + p[2:])
            ends = np.column_stack([np.ones(len(x)), above, np.zeros(len(x))])
            rows, rank = np.arange(len(x)), y.astype(int)
            return -np.mean(np.log(np.maximum(ends[rows, rank] - ends[rows, rank + 1], 1e-12)))

        return fitted(loss, [0, 0, 1.5, 0, -1.5])
    if task == "hazard":
        rows = [  # one for each interval that a subject comes to, as in person-period data
            (own, place, lived == place)
            for own, (lived, event, _, _) in zip(x, y, strict=True)
            for place in range(int(lived + event))
        ]
        own = np.array([row for row, _, _ in rows])
        places, died = (np.array(part) for part in list(zip(*rows, strict=True))[1:])

        def loss(p):
            scores = own @ p[:2] + p[2:][places]
            return -np.mean(log_expit(np.where(died, scores, -scores)))

        return fitted(loss, np.zeros(6))
    # Weighted so that both classes weigh alike, and the intercept then put back.
    odds = prevalence / (1 - prevalence)
    weight = np.where(y > 0, 1.0, odds)

    def loss(p):
        return -np.mean(weight * log_expit(y * (x @ p[:2] + p[2])))

    return fitted(loss, np.zeros(3)) + np.array([0, 0, math.log(odds)])


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("count", {"lr": 0.2, "rounds": 400}),
        ("ordinal", {"lr": 0.8, "rounds": 600}),
        ("hazard", {"lr": 0.8, "rounds": 600}),
        ("binary", {"lr": 8.0, "rounds": 500, "prevalence": 0.1}),
    ],
)
def test_without_noise_they_are_the_models_of_greatest_likelihood(task, options):
    result = silodp.run(federation=federation_of(task), keep_models=True, **EXACT, **options)
    found = np.asarray(result.models)[0, 0]
    np.testing.assert_allclose(found, likeliest(task, options.get("prevalence")), atol=2e-3)
    assert result.metric == get_task(task).metric


@pytest.mark.parametrize(
    ("task", "method", "subjects"),
    [
        ("count", "fedavg", False),
        ("ordinal", "mrmtl", False),
        ("hazard", "finetune", False),
        ("hazard", "fedavg", True),
    ],
)
def test_they_are_released_by_methods(tmp_path, task, method, subjects):
    """With secret noise: sums in whole grains, of records or of subjects with several courses."""
    result = silodp.run(
        federation=federation_of(task, silos=2, subjects=subjects),
        method=method,
        epsilon=2,
        rounds=2,
        batch_size=16,
        entropy="os",
        metric_share=0.2 if task == "count" else 0,
    )
    assert math.isfinite(result.mean)
    assert all(0 < epsilon <= 2 for epsilon in result.epsilons)
    assert all(not one["unproven"] for one in result.privacy)


def test_a_declared_prevalence_leaves_probabilities_true():
    federation = federation_of("binary")
    x, y = DATA["binary"]
    options = EXACT | {"lr": 8.0, "rounds": 500, "prevalence": 0.1}
    weighted = silodp.run(federation=federation, keep_models=True, **options)
    weights = np.asarray(weighted.models)[0, 0]
    chances = expit(x @ weights[:2] + weights[2])
    assert chances.mean() == pytest.approx((y > 0).mean(), abs=0.02)
    assert any("the second class has 0.1" in line for line in weighted.assumptions)


def test_a_threshold_by_costs_decides_predictions_and_the_metric(tmp_path):
    federation, (x, y) = federation_of("binary"), DATA["binary"]
    options = EXACT | {"lr": 1.0, "rounds": 30, "keep_models": True, "out": tmp_path / "run"}
    result = silodp.run(federation=federation, cost_ratio=9, **options)
    (folder,) = (tmp_path / "run" / "models").iterdir()
    said = silodp.load_model(folder).predict(x)
    yes = said.probabilities[:, 1] > 0.1  # 1 / (1 + 9)
    assert [value == "1" for value in said.values] == yes.tolist()
    assert 0.3 < yes.mean() > (said.probabilities[:, 1] > 0.5).mean()
    assert result.mean == pytest.approx((yes == (y > 0)).mean())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prevalence": 0.1, "model": "svm"}, "'svm' does not know: choose --model logistic"),
        ({"cost_ratio": 3.0, "model": "svm"}, "'svm' does not give: choose another --model"),
        ({"prevalence": 1.0}, "--prevalence is 1.0: give a number above 0 and below 1"),
    ],
)
def test_what_does_not_fit_two_classes_is_refused(options, words):
    with pytest.raises(SilodpError, match=words):
        silodp.plan(federation=federation_of("binary"), method="local", epsilon=1, **options)


def test_weights_and_thresholds_are_for_two_classes():
    for option, words in (("prevalence", "'poisson' does not know"), ("cost_ratio", "is count")):
        with pytest.raises(SilodpError, match=words):
            silodp.plan(
                federation=federation_of("count"), method="local", epsilon=1, **{option: 0.5}
            )


def test_counts_begin_in_the_middle_of_what_is_declared():
    """Between one event and the most, in logarithms: clipped steps would take long from one."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"site": ["a", "b"] * 30, "x": rng.random(60), "n": [150, 250] * 30})
    options = {"silo": "site", "target": "n", "task": "count", "bounds": {"x": (0, 1)}}
    quick = {"method": "local", "rounds": 1, "epsilon": math.inf, "lr": 1e-9, "keep_models": True}
    for declared, first in (((0, 400), math.log(20)), (None, 0.0)):
        federation = Federation.from_frame(frame, **options, target_range=declared)
        result = silodp.run(federation=federation, **quick)
        (_, bias) = result.model("a").params
        assert bias == pytest.approx(first, abs=1e-5)
