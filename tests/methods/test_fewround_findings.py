"""What few messages say beside models: which features differ, who is alike, what more brings."""

import math

import numpy as np
import pytest
from message_runs import UNIT, drawn, error, learned

from silodp.methods.fewround import linear
from silodp.methods.fewround.constants import CONSTANTS, MESSAGE_SHARES
from silodp.methods.fewround.expected import Truth, after_messages, expected_errors
from silodp.methods.fewround.findings import differing, related
from silodp.methods.fewround.hierarchy import Prior, Sums
from silodp.privacy.mechanisms.moments import whole_records


def sums_from(own, gram, noise, residual, seed=0):
    """Sums of silos with these models and second moments, from the model."""
    random = np.random.default_rng(seed)
    values, axes = np.linalg.eigh(gram)
    size = len(gram)
    covariance = residual * gram + noise * np.eye(size)
    errors = random.multivariate_normal(np.zeros(size), covariance, len(own))
    silos = len(own)
    return Sums(
        np.tile(values, (silos, 1)),
        np.tile(axes, (silos, 1, 1)),
        own @ gram + errors,
        np.full(silos, noise),
    )


def gram_of(size, seed=0):
    random = np.random.default_rng(seed)
    root = random.normal(size=(size, size))
    return 5.0 * root @ root.T / size + np.eye(size)


@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_features_that_do_not_differ_are_called_so_as_often_as_is_said(spread):
    """Chances of a feature that does not differ are evenly spread, whatever others do."""
    random, chances = np.random.default_rng(1), []
    prior = Prior(
        np.zeros(4),
        np.zeros((4, 4)),
        np.array(spread),
        np.array(0.3),
        np.array(spread),
        np.zeros((4, 4)),
    )
    for seed in range(400):
        own = math.sqrt(spread) * random.normal(size=(15, 4))
        own[:, 0] = 0.4
        chances.append(differing(sums_from(own, gram_of(4), 0.5, 0.3, seed), prior).chance[0])
    assert 0.02 <= np.mean(np.array(chances) < 0.05) <= 0.08
    assert 0.4 <= np.mean(chances) <= 0.6


def test_a_feature_that_differs_is_found_with_its_spread():
    random = np.random.default_rng(1)
    own = np.zeros((200, 4))
    own[:, 2] = 1.0 + 0.5 * random.normal(size=200)
    prior = Prior(
        own.mean(axis=0),
        np.zeros((4, 4)),
        np.array(0.06),
        np.array(0.3),
        np.array(0.06),
        np.zeros((4, 4)),
    )
    found = differing(sums_from(own, gram_of(4), 0.5, 0.3), prior)
    assert found.chance.argmin() == 2
    assert found.chance[2] < 1e-6
    assert found.spread[2] == pytest.approx(0.5, rel=0.2)
    assert found.spread[[0, 1, 3]].max() < 0.2


def test_who_is_alike_is_told_where_it_is_seen_and_else_is_not():
    direction = np.array([1.0, -1.0, 0.5])
    own = np.outer([1.0, 1.0, -1.0, 0.0], direction)
    prior = Prior(
        np.zeros(3), np.zeros((3, 3)), np.array(0.7), np.array(0.3), np.array(0.7), np.zeros((3, 3))
    )
    gram = gram_of(3)
    seen = related(own, sums_from(own, 100 * gram, 0.1, 0.3), prior, gram)
    assert seen.relations[0, 1] > 0.95
    assert seen.relations[0, 2] < -0.95
    assert seen.told[0, 1]
    assert seen.told[0, 2]
    hidden = related(0.01 * own, sums_from(own, gram, 1e4, 0.3), prior, gram)
    assert not hidden.told[~np.eye(4, dtype=bool)].any()
    assert np.abs(hidden.relations[~np.eye(4, dtype=bool)]).max() < 0.1
    np.testing.assert_array_equal(np.diag(hidden.relations), 1.0)


@pytest.mark.parametrize("noise", [0.3, 2.0])
def test_what_is_told_is_true(noise):
    right, told = [], 0
    for seed in range(4):
        silos = drawn(seed, silos=20, spread=0.4)
        server, _ = learned(silos, noise, seed=seed)
        found = linear.learned(*server)
        truth = np.array([own for _, own in silos])
        truth = truth - truth.mean(axis=0)
        products = truth @ server.shared.gram.mean @ truth.T
        pairs = np.triu_indices(20, 1)
        known = found["told"][pairs] > 0
        told += known.sum()
        right += (np.sign(products[pairs]) == np.sign(found["relations"][pairs]))[known].tolist()
    assert told > 10
    assert np.mean(right) > 0.85


def test_a_silo_that_sent_nothing_is_left_out():
    server, _ = learned(drawn(0, silos=5), 0.3)
    records = server.released.records.copy()
    records[2] = 0.0
    found = linear.learned(server.released._replace(records=records), server.shared)
    assert found["kept_of_own"][2] == 0
    assert found["cross_noise"][2] == math.inf
    assert not found["told"][2, [0, 1, 3, 4]].any()
    assert np.isfinite(found["standard_errors"]).all()
    # Whoever is there, the same is told: runs of several seeds are put together.
    for present in ([1.0, 0, 0, 0, 0], [0.0] * 5):
        alone = server.released._replace(records=server.released.records * present)
        other = linear.learned(alone, server.shared)
        assert {n: a.shape for n, a in other.items()} == {n: a.shape for n, a in found.items()}


def federation_of(truth, count, silos, seed):
    """Silos with axes along which vectors vary as is said, and models that differ as is said."""
    random, size = np.random.default_rng(seed), len(truth.values)
    means = np.sqrt(truth.usual) * random.normal(size=size)
    # Of the constant there is 1 / length in each vector.
    made = []
    for _ in range(silos):
        own = means + math.sqrt(truth.spread) * random.normal(size=size)
        features = np.sqrt(3 * truth.values[:-1]) * random.uniform(-1, 1, (count, size - 1))
        x = np.concatenate([features, np.full((count, 1), 1.0 / UNIT.length)], axis=1)
        y = np.clip(x @ own + math.sqrt(truth.residual) * random.normal(size=count), -1, 1)
        made.append((whole_records(x, y[:, None], 2 * count), own))
    return made


@pytest.mark.parametrize(("messages", "within"), [(1, 0.3), (3, 0.12)])
def test_models_are_worth_about_what_was_predicted_before_the_run(messages, within):
    """The part of what features tell that models have, where all assumptions hold."""
    size, explained, found, predicted = 6, 0.06, [], []
    values = np.append(np.full(size - 1, 0.05), 1.0 / UNIT.length**2)
    for part in (0.0, 0.5):
        spread = part * explained / values.sum()
        usual = np.append(np.full(size - 1, (1 - part) * explained / 0.25), 0.1)
        truth = Truth(values, usual, spread, 0.06)
        for noise in (0.7, 4.0):
            expected = after_messages(
                *(truth, np.full(30, 80.0), np.full(30, noise)),
                *(MESSAGE_SHARES[messages], CONSTANTS.parts),
            )
            errors = []
            for seed in range(2):
                silos = federation_of(truth, 80, 30, seed)
                errors.append(error(silos, *learned(silos, noise, messages, seed)))
            found.append(1 - np.mean(errors) / explained)
            predicted.append(1 - expected.own.mean() / explained)
    assert min(found) < 0.6 < 0.9 < max(found)
    np.testing.assert_allclose(found, predicted, atol=within)


def test_what_twice_the_budget_brings_is_what_it_then_brings():
    """From what a run has found: the error of another one, with half the variance of noise."""
    predicted, found = [], []
    for seed in range(3):
        silos = drawn(seed, silos=20, count=60, spread=0.3)
        single, states = learned(silos, 1.0, 2, seed)
        known = linear.learned(*single)
        weights = known["mean_model"] ** 2 + known["mean_errors"] ** 2
        variances = float(known["spread"]) ** 2, float(known["residual"]) ** 2
        truth = Truth(known["values"], float(weights.mean()), *variances)
        counts, noise = known["public_counts"], known["cross_noise"]
        now, then = (expected_errors(truth, counts, one).own for one in (noise, noise / 2))
        predicted.append(np.mean(then / now))
        double = learned(silos, math.sqrt(0.5), 2, seed)
        found.append(error(silos, *double) / error(silos, single, states))
    assert np.mean(found) == pytest.approx(np.mean(predicted), rel=0.2)
