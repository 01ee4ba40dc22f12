"""Few messages, several classes: what noise hides, how sure models are, silos that lack classes."""

import math

import numpy as np
import pytest
from federations import small

import silodp
from silodp.engines.messages import stacked
from silodp.methods.fewround import classes, discriminants, fewround, message_schedule
from silodp.methods.fewround.frequencies import frequencies_of, mixtures_of
from silodp.methods.fewround.released import each_of, nothing_released
from silodp.methods.fewround.spectra import groups_of, spectrum_of
from silodp.models.unit_vectors import UnitVectors
from silodp.privacy.mechanisms.message_queries import message_queries
from silodp.privacy.mechanisms.moments import whole_records


class Gaussian:
    """Noise of a seeded generator, which is fast."""

    def __init__(self, random):
        self._random = random

    def rounded_gaussian(self, deviation, shape):
        return np.rint(self._random.normal(size=shape) * deviation)


def drawn(seed, silos=20, size=6, count=80, kinds=4, apart=1.2, heavy=False, held=None):
    """Silos of Gaussian classes: features and classes of training and test records."""
    random = np.random.default_rng(seed)
    means = random.normal(size=(kinds, size)) * apart * 0.15
    found = []
    for number in range(silos):
        if held is None:
            shares = random.dirichlet(np.ones(kinds))
        else:
            shares = np.isin(np.arange(kinds), held(number)).astype(float)
            shares /= shares.sum()

        def records(rows, shares=shares):
            y = random.choice(kinds, size=rows, p=shares)
            noise = random.normal(size=(rows, size))
            if heavy:
                noise /= np.sqrt(random.chisquare(2.5, size=rows) / 2.5)[:, None]
            return np.clip(means[y] + 0.2 * noise, -1, 1), y

        found.append((records(count), records(200)))
    return found


def learned(silos, kinds, noise, messages=1, seed=0):
    """Mean log loss and accuracy on test records, and the models, after so many messages."""
    random = Gaussian(np.random.default_rng(seed))
    size = silos[0][0][0].shape[1] + 1
    unit = UnitVectors(math.sqrt(size), 0.0, 1.0, kinds)
    method = fewround(messages, classes.MODEL)
    server, own = method.init(silodp.Start(np.zeros((size, kinds)), None, 0, len(silos)))
    states = [own] * len(silos)
    held = [whole_records(unit.vectors(x), unit.outputs(y), 2 * len(y) + 10) for (x, y), _ in silos]
    schedule = method.schedule(messages)
    for number in range(messages):
        queries = [
            message_queries(
                *(one, unit, schedule.noise_of(number, noise), len(one.x)), lambda _: random
            )
            for one in held
        ]
        answers = [
            method.local(state, method.broadcast(server), own)
            for state, own in zip(states, queries, strict=True)
        ]
        states = [state for state, _ in answers]
        weights = np.ones(len(silos)) / len(silos)
        server = method.merge(server, stacked([message for _, message in answers]), weights)
    models = [method.personal(state, method.broadcast(server)) for state in states]
    losses, right = [], []
    for (_, (x, y)), model in zip(silos, models, strict=True):
        outputs = unit.vectors(x) @ model
        outputs -= outputs.max(axis=1, keepdims=True)
        logs = outputs - np.log(np.exp(outputs).sum(axis=1, keepdims=True))
        losses.append(-logs[np.arange(len(y)), y].mean())
        right.append(np.mean(logs.argmax(axis=1) == y))
    return float(np.mean(losses)), float(np.mean(right)), models, server


def constant(silos, kinds):
    """The log loss of silos' own class frequencies, without noise."""
    losses = []
    for (_, y), (_, test) in silos:
        shares = (np.bincount(y, minlength=kinds) + 0.5) / (len(y) + 0.5 * kinds)
        losses.append(-np.log(shares[test]).mean())
    return float(np.mean(losses))


def noise_matrix(random, size, deviation):
    matrix = random.normal(size=(size, size)) * deviation
    return (np.triu(matrix) + np.triu(matrix, 1).T) * (1 + (math.sqrt(2) - 1) * np.eye(size))


def test_eigenvalues_within_the_noise_are_their_mean_and_others_lose_what_noise_adds():
    random = np.random.default_rng(0)
    size, deviation = 100, 0.05
    noise = noise_matrix(random, size, deviation)
    flat = spectrum_of(0.01 * np.eye(size) + noise, deviation, 1e-4)
    assert flat.distinct == 0
    np.testing.assert_allclose(flat.values, 0.01, atol=0.01)
    wide = 0.01 * np.eye(size)
    wide[0, 0] = 2.0
    found = spectrum_of(wide + noise, deviation, 1e-4)
    assert found.distinct == 1
    # What the matrix without noise is along the axis that noise has turned.
    along = found.axes[:, -1] @ wide @ found.axes[:, -1]
    assert found.values[-1] == pytest.approx(along, abs=2 * deviation)
    assert found.noisy[-1] > along
    known = spectrum_of(wide, 0.0, 1e-4)
    np.testing.assert_allclose(known.values, np.append(np.full(99, 0.01), 2.0))
    assert sorted(np.concatenate(groups_of(known, 10))) == list(range(100))


def test_what_noise_adds_by_turning_axes_is_known():
    random = np.random.default_rng(1)
    size, deviation, floor = 8, 0.1, 0.15
    matrix = np.diag(np.linspace(0.05, 0.6, size))
    direction = random.normal(size=size)
    added, expected = [], []
    for _ in range(4000):
        noise = noise_matrix(random, size, deviation)
        values, axes = np.linalg.eigh(matrix + noise)
        spectrum = discriminants.Spectrum(values, axes, values, 0, deviation)
        inverse = 1 / np.maximum(values, floor)
        turned = axes.T @ direction
        model = axes @ (inverse * turned)
        added.append(model @ noise @ model)
        expected.append(discriminants._by_chance(spectrum, inverse, floor, turned**2))
    assert np.mean(expected) == pytest.approx(np.mean(added), rel=0.1)


def released(labels, noise, count):
    """A silo whose counts are known."""
    own = nothing_released(3, len(labels), 1)
    return own._replace(
        records=np.array(float(count)),
        labels=np.array(labels, float),
        noise=np.array([0.0, 0.0, noise]),
    )


@pytest.mark.parametrize("noise", [0.0, 8.0])
def test_classes_that_silos_lack_are_found(noise):
    random = np.random.default_rng(2)
    kinds, count = 10, 300
    truths, silos = [], []
    for _ in range(30):
        shares = np.zeros(kinds)
        shares[random.permutation(kinds)[:5]] = 0.2
        truths.append(shares)
        silos.append(released(count * shares + noise * random.normal(size=kinds), noise, count))
    mixtures = mixtures_of(silos)
    found = np.stack([frequencies_of(own, mixtures) for own in silos])
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert found.min() > 0
    truth = np.stack(truths)
    assert found[truth == 0].mean() < 0.3 * (noise + 1) / count
    np.testing.assert_allclose(found[truth > 0], 0.2, atol=0.06)


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize(("noise", "most"), [(0.0, 0.85), (2.0, 0.9), (8.0, 1.3)])
def test_probabilities_are_sure_of_no_more_than_they_should(heavy, noise, most):
    """With Gaussian classes and with outliers; most noise hides silos' own frequencies too."""
    losses, constants = [], []
    for seed in range(3):
        silos = drawn(seed, heavy=heavy)
        losses.append(learned(silos, 4, noise, 2, seed)[0])
        constants.append(constant(silos, 4))
    assert np.mean(losses) < most * np.mean(constants)


def test_hopeless_noise_leaves_frequencies():
    silos = drawn(3, silos=5, count=30)
    for noise in (100.0, 1e5):
        losses = [learned(silos, 4, noise, messages, 1)[0] for messages in (1, 3)]
        assert max(losses) < 1.05 * math.log(4)


def test_later_messages_mend_what_the_first_was_too_sure_of():
    """A scale that is wrong by much is mended by one gradient, taken along the model."""
    gains = []
    for seed in range(4):
        silos = drawn(seed, heavy=True, count=200)
        one, three = (learned(silos, 4, 2.0, messages, seed)[0] for messages in (1, 3))
        gains.append(one - three)
    assert np.mean(gains) > -0.03


def test_the_scale_follows_gradients():
    silos = drawn(4, count=300)
    _, _, _, server = learned(silos, 4, 1.0, 2)
    silos = each_of(server.released)
    first = discriminants.discriminants_of(silos)
    # As if records had said that the model was far too sure, or not sure enough.
    for factor, less in ((-1.0, True), (1.0, False)):
        changed = []
        for own in silos:
            gradients = factor * 0.2 * float(own.records) * first.weights
            gradients /= (first.weights**2).sum() ** 0.5
            changed.append(own._replace(gradients=gradients[None]))
        scale = discriminants.discriminants_of(changed).scale
        assert (scale < first.scale) == less


@pytest.mark.parametrize("noise", [0.0, 1.0, 50.0])
@pytest.mark.parametrize("messages", [1, 3])
def test_silos_of_one_class_or_of_few_records_are_no_trouble(noise, messages):
    for silos in (
        drawn(5, silos=6, held=lambda number: [number % 4]),  # one class each
        drawn(6, silos=3, held=lambda number: [0, 1]),  # two classes that nobody has
        drawn(7, silos=3, held=lambda number: [2]),  # one class in all
        drawn(8, silos=2, size=1, count=5),
        drawn(9, silos=1, size=2, count=1),
    ):
        loss, _, models, _ = learned(silos, 4, noise, messages)
        assert np.isfinite(models).all()
        assert loss < 3.0 * math.log(4)
    alone = drawn(5, silos=6, count=200, held=lambda number: [number % 4])
    if noise <= 1:
        assert learned(alone, 4, noise, messages)[1] > 0.95


def test_shares_of_messages_are_of_their_own():
    several = message_schedule(3, several_classes=True)
    assert several.shares != message_schedule(3).shares
    federation = small("multiclass", sizes=(40, 70), d=3)
    asked = {"method": "fewround", "epsilon": 1, "delta": 1e-5, "messages": 3}
    plan = silodp.plan(federation=federation, **asked).plans[0][0]
    assert plan.schedule == several
    two = silodp.plan(federation=small("binary", sizes=(40, 70), d=3), **asked).plans[0][0]
    assert two.schedule == message_schedule(3)


def test_the_same_answers_give_the_same_models():
    silos = drawn(10, silos=4)
    first, second = (learned(silos, 4, 1.0, 3)[2] for _ in range(2))
    np.testing.assert_array_equal(first, second)
