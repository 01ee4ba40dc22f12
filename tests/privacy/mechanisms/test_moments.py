"""Messages: exact sums, of which one record moves no more than is paid for, to the last bit."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from silodp.base.errors import SilodpError
from silodp.models.unit_vectors import UnitVectors
from silodp.privacy.mechanisms.message_queries import MessageSchedule, message_queries
from silodp.privacy.mechanisms.moments import (
    Shares,
    WholeRecords,
    bits_for,
    noisy_gradient_of,
    noisy_moments_of,
    odds_residuals,
    softmax_residuals,
    squared_residuals,
    whole_outputs,
    whole_records,
)
from silodp.privacy.mechanisms.randomness import HostRandom

SHARES = Shares(0.5, 0.4, 0.1)
SIZE, CLASSES = 4, 3
KINDS = ["number", "two classes", "classes"]
ODD = (np.nan, np.inf, -np.inf, 1e300, -1e30, 1e-300, 0.0)


class Recorded:
    """No noise, but the deviations that it would have had."""

    def __init__(self):
        self.deviations = []

    def rounded_gaussian(self, deviation, shape):
        self.deviations.append(np.broadcast_to(deviation, shape).astype(float))
        return np.zeros(shape, np.int64)


def records(number, kind, seed=0, count=12):
    """Random records, with hostile ones among them."""
    random = np.random.default_rng([seed, count])
    x = random.normal(size=(count, SIZE)) * random.choice([1e-3, 0.5, 1.0, 30.0], (count, 1))
    odd = random.random((count, SIZE)) < 0.1
    x[odd] = random.choice(ODD, odd.sum())
    y = np.clip(random.normal(size=(count, 1)), -1, 1)
    if kind == "two classes":
        y = np.sign(y)
    if kind == "classes":
        y = np.eye(CLASSES)[random.integers(0, CLASSES, count)]
    return x[:number], y[:number]


def released(x, y, kind, z, subject=None, model=None, most=64, scale=0.3):
    """Sums of both questions without noise, and the deviations that it would have had."""
    whole = whole_records(x, y, most, subject)
    random = Recorded()
    moments = noisy_moments_of(whole, kind != "number", z, SHARES, random)
    above = np.triu_indices(SIZE, 1)
    parts = [
        np.concatenate([np.diag(moments.gram), moments.gram[above]]),
        moments.cross,
        moments.labels,
    ]
    if model is not None:
        outputs = whole_outputs(whole, model)
        residuals = residuals_of(kind, whole, outputs, scale)
        parts.append(noisy_gradient_of(whole, residuals, z, random))
    return parts, random.deviations


def residuals_of(kind, whole, outputs, scale):
    """The residuals of a kind of label."""
    if kind == "two classes":
        return odds_residuals(whole, outputs)
    return (softmax_residuals if kind == "classes" else squared_residuals)(whole, outputs, scale)


@settings(max_examples=90, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    z=st.sampled_from([0.01, 0.7, 3.0, 1e4]),
    kind=st.sampled_from(KINDS),
    by_subject=st.booleans(),
    relation=st.sampled_from(["add-remove", "replace-one"]),
    scale=st.sampled_from([0.3, 1.0, 1e-300, 1e300, 0.0, -0.3, np.inf, -np.inf, np.nan]),
)
@example(seed=3, z=0.01, kind="number", by_subject=False, relation="add-remove", scale=0.3)
@pytest.mark.filterwarnings("ignore:.*encountered in")
def test_neighbours_differ_by_no_more_than_is_paid_for(seed, z, kind, by_subject, relation, scale):
    """One record (or subject) less: in deviations of the noise, sums move by at most 1 / z.

    One that is replaced: by twice that. Whoever asks may give any model and any scale.
    """
    x, y = records(13, kind, seed, count=13)
    model = np.random.default_rng(seed).normal(size=(SIZE, y.shape[1])) * 10.0 ** (seed % 9 - 3)
    subject = np.r_[0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 3, 4] if by_subject else np.arange(13)
    mine = subject == seed % 2
    if relation == "replace-one":  # its opposite, or any other
        other_x, other_y = records(13, kind, seed + 1, count=13)
        opposite = kind != "classes" and seed % 3 > 0
        other_x, other_y = (x, -y) if opposite else (other_x, other_y)
        neighbour = (
            np.where(mine[:, None], other_x, x),
            np.where(mine[:, None], other_y, y),
            subject,
        )
    else:
        neighbour = x[~mine], y[~mine], subject[~mine]
    (more, deviations), (less, same) = [
        released(*world[:2], kind, z, world[2] if by_subject else None, model, scale=scale)
        for world in ((x, y, subject), neighbour)
    ]
    squares = []
    for place, (a, b, deviation) in enumerate(zip(more, less, deviations, strict=True)):
        z_of_part = z / math.sqrt([*SHARES, 1.0][place])
        grain = 2.0 ** (math.ceil(math.log2(z_of_part)) - 30)
        assert np.isfinite(a).all()
        np.testing.assert_array_equal(a / grain, np.rint(a / grain))  # whole grains
        np.testing.assert_array_equal(deviation, same[place])  # noise says nothing of records
        squares.append(float((((a - b) / (deviation.reshape(a.shape) * grain)) ** 2).sum()))
    paid = (2 if relation == "replace-one" else 1) / z
    assert sum(squares[:3]) <= paid**2
    assert squares[3] <= paid**2


@pytest.mark.parametrize("records_of_one", [1, 300, 2**17 + 5])
def test_a_subject_of_many_records_adds_no_more_than_their_mean(records_of_one):
    """Sums within a subject that double precision would not hold are not rounded up."""
    random = np.random.default_rng(0)
    bits = bits_for(2)
    for _ in range(3):
        x, y = (float(number) for number in random.integers(2 ** (bits - 1), 2**bits, 2))
        shape = (records_of_one, 1)
        whole = WholeRecords(np.full(shape, x), np.full(shape, y), bits, np.zeros(shape[0], int))
        moments = noisy_moments_of(whole, False, 0.0, SHARES, Recorded())
        mean = Fraction(int(x) * int(y), 4**bits)
        assert Fraction(float(moments.cross[0, 0])) <= mean
        assert float(moments.cross[0, 0]) == pytest.approx(float(mean), rel=1e-4)


def test_the_bound_is_reached():
    """A record of length 1 with a label of 1 uses what is paid for, but for rounding."""
    x, y = np.array([[0.6, 0.8, 0.0, 0.0]]), np.ones((1, 1))
    (gram, cross, labels), deviations = released(x, y, "number", 2.0)
    grains = [2.0 ** (math.ceil(math.log2(2.0 / math.sqrt(s))) - 30) for s in SHARES]
    squares = [
        float(((a / (d.reshape(a.shape) * g)) ** 2).sum())
        for a, d, g in zip((gram, cross, labels), deviations, grains, strict=True)
    ]
    assert sum(squares) == pytest.approx(1 / 2.0**2, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_exact_and_know_no_order(kind):
    x, y = records(12, kind, 7)
    random = np.random.default_rng(0)
    order = random.permutation(12)
    model = random.normal(size=(SIZE, y.shape[1]))
    one, _ = released(x, y, kind, 0.01, model=model)
    other, _ = released(x[order], y[order], kind, 0.01, model=model)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)
    whole = whole_records(x, y, 64)
    exact = noisy_moments_of(whole, kind != "number", 0.0, SHARES, Recorded())
    unit = Fraction(1, 4**whole.bits)
    for i in range(SIZE):
        by_hand = sum(int(row[i]) * int(row[0]) for row in whole.x) * unit
        assert Fraction(exact.gram[i, 0]) == by_hand


def test_sums_stay_below_what_double_precision_holds():
    for count in (1, 5, 1000, 10**6, 10**9):
        assert count * 4 ** bits_for(count) < 2**53
    with pytest.raises(SilodpError, match="more than exact sums can be made of"):
        bits_for(2**40)


@pytest.mark.parametrize("kind", KINDS)
def test_a_records_residual_is_the_same_whoever_stands_beside_it(kind):
    x, y = records(12, kind, 3)
    model = np.random.default_rng(1).normal(size=(SIZE, y.shape[1])) * 5

    def residuals(which):
        whole = whole_records(x[which], y[which], 64)
        return residuals_of(kind, whole, whole_outputs(whole, model), 0.7)

    together = residuals(slice(None))
    assert (np.linalg.norm(together, axis=1) <= 1 + 1e-12).all()
    for place in range(12):
        np.testing.assert_array_equal(residuals(slice(place, place + 1))[0], together[place])
        np.testing.assert_array_equal(residuals(slice(place))[:place], together[:place])


@pytest.mark.parametrize("number", [np.nan, np.inf, -1e300, 1e-320])
def test_hostile_models_get_finite_answers(number):
    x, y = records(12, "classes", 3)
    model = np.full((SIZE, CLASSES), number)
    (*_, gradient), _ = released(x, y, "classes", 1.0, model=model)
    assert np.isfinite(gradient).all()


def test_softmax_residuals_are_right():
    x, y = records(12, "classes", 5)
    whole = whole_records(np.nan_to_num(x, posinf=1, neginf=-1), y, 64)
    model = np.random.default_rng(1).normal(size=(SIZE, CLASSES))
    outputs = whole_outputs(whole, model)
    np.testing.assert_allclose(outputs, whole.x * 2.0**-whole.bits @ model, atol=1e-6)
    chances = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(softmax_residuals(whole, outputs, 2.0), (y - chances) / 2, atol=1e-6)


def test_residuals_of_log_odds_are_right():
    """Over the larger of p and 1 - p, the usual residual: 0 on average where p is right."""
    x, y = records(12, "two classes", 5)
    whole = whole_records(np.nan_to_num(x, posinf=1, neginf=-1), y, 64)
    outputs = whole_outputs(whole, np.random.default_rng(1).normal(size=(SIZE, 1)) * 3)
    chance = 1 / (1 + np.exp(-outputs))
    expected = ((y + 1) / 2 - chance) / np.maximum(chance, 1 - chance)
    np.testing.assert_allclose(odds_residuals(whole, outputs), expected, rtol=1e-9)
    whole = whole._replace(y=-whole.y)
    other = odds_residuals(whole, outputs)
    second = np.where(y > 0, expected, other)
    first = np.where(y > 0, other, expected)
    np.testing.assert_allclose(chance * second + (1 - chance) * first, 0.0, atol=1e-12)


def test_noise_is_as_large_as_it_says():
    x, y = records(12, "number", 1)
    whole = whole_records(x, y, 64)
    exact = noisy_moments_of(whole, False, 0.0, SHARES, Recorded())
    drawn = [
        noisy_moments_of(whole, False, 2.0, SHARES, HostRandom(seed, b"", "test"))
        for seed in range(400)
    ]
    z = 2.0 / np.sqrt(SHARES)
    np.testing.assert_allclose(drawn[0].noise, z)
    grams = np.stack([one.gram - exact.gram for one in drawn])
    assert grams[:, 1, 1].std() == pytest.approx(z[0], rel=0.12)
    assert grams[:, 0, 1].std() == pytest.approx(z[0] / math.sqrt(2), rel=0.12)
    np.testing.assert_array_equal(grams, grams.transpose(0, 2, 1))
    crosses = np.stack([one.cross - exact.cross for one in drawn])
    assert crosses.std() == pytest.approx(z[1], rel=0.06)
    assert np.stack([o.labels for o in drawn]).std() == pytest.approx(z[2], rel=0.12)
    assert abs(np.corrcoef(grams[:, 0, 1], crosses[:, 0, 0])[0, 1]) < 0.17


def test_no_record_at_all():
    (gram, cross, labels), _ = released(*records(0, "number"), "number", 1.0)
    assert not gram.any()
    assert not cross.any()
    assert not labels.any()


def queries(asked=None, secret=b"s" * 32, two_classes=True):
    """The questions of a round."""
    x, y = records(12, "two classes" if two_classes else "number")

    def random(question):
        if asked is not None:
            asked.append(question)
        return HostRandom(0, secret, question.hex())

    vectors = UnitVectors(1.0, 0.0, 1.0, two_classes=two_classes)
    return message_queries(whole_records(x, y, 64), vectors, 1.0, 12, random)


def test_one_question_a_round():
    model = np.zeros((SIZE, 1))
    questions = (
        lambda q: q.moments(SHARES),
        lambda q: q.gradient(model, 1.0),
        lambda q: q.odds_gradient(model),
    )
    for first in questions:
        for second in questions:
            asked = []
            own = queries(asked)
            first(own)
            with pytest.raises(SilodpError, match="its schedule pays for one message"):
                second(own)
            assert len(asked) == 1
    for shares in (Shares(0.6, 0.4, 0.1), Shares(1.0, 0.0, 0.0), Shares(np.nan, 0.1, 0.1)):
        asked = []
        with pytest.raises(SilodpError, match="are no shares"):
            queries(asked).moments(shares)
        assert not asked
    with pytest.raises(SilodpError, match="there are not two classes"):
        queries(asked, two_classes=False).odds_gradient(model)
    assert not asked


def test_the_same_question_gets_the_same_answer_and_another_one_other_noise():
    model = np.zeros((SIZE, 1))
    answers = [queries().gradient(model, 1.0)[0] for _ in range(2)]
    np.testing.assert_array_equal(*answers)
    moved, _ = queries().gradient(model + 1e-12, 1.0)
    assert np.abs(moved - answers[0]).min() > 1e-6
    answers = [queries().odds_gradient(model)[0] for _ in range(2)]
    np.testing.assert_array_equal(*answers)
    moved, _ = queries().odds_gradient(model + 1e-12)
    assert np.abs(moved - answers[0]).min() > 1e-6


class OneDeviation:
    """In place of noise, one deviation of it."""

    def rounded_gaussian(self, deviation, shape):
        return np.broadcast_to(np.rint(deviation), shape)


@pytest.mark.parametrize("z", [0.3, 1.0, 7.0])
def test_every_question_gets_the_noise_that_is_paid_for(z):
    """Each part of it, in units of what a record adds; and it says so."""
    x, y = records(12, "two classes")
    whole, vectors = whole_records(x, y, 64), UnitVectors(1.0, 0.0, 1.0, two_classes=True)
    model = np.zeros((SIZE, 1))

    def moments(own):
        gram, cross, labels, noise = own.moments(SHARES)
        return [np.diag(gram), gram[0, 1] * math.sqrt(2), cross, labels], noise[[0, 0, 1, 2]]

    def gradient(own):
        value, noise = own.gradient(model, 0.5)
        return [value], [noise]

    def odds_gradient(own):
        value, noise = own.odds_gradient(model)
        return [value], [noise]

    parts = [z / math.sqrt(share) for share in SHARES]
    for question, paid in (
        (moments, [parts[0], *parts]),
        (gradient, [z]),
        (odds_gradient, [z]),
    ):
        (noisy, said), (exact, _) = (
            question(message_queries(whole, vectors, noise, 12, lambda _: OneDeviation()))
            for noise in (z, 0.0)
        )
        np.testing.assert_allclose(said, paid)
        for with_noise, without, due in zip(noisy, exact, paid, strict=True):
            np.testing.assert_allclose(with_noise - without, due, rtol=1e-6)


def test_schedules_share_out_what_there_is():
    schedule = MessageSchedule(rounds=2, shares=(0.25, 0.75))
    noises = [schedule.noise_of(number, 3.0) for number in range(2)]
    assert sum(1 / noise**2 for noise in noises) == pytest.approx(1 / 9)
    for shares in ((1.0,), (0.5, 0.6), (1.5, -0.5), (0.5, math.nan)):
        with pytest.raises(SilodpError, match="is no schedule"):
            MessageSchedule(rounds=2, shares=shares)


def test_an_attack_on_a_whole_run_sees_what_is_paid_for_and_no_more():
    """The best test there is for one record, on all messages together, as if all else were known.

    Its advantage is that of a Gaussian mechanism of the run's noise multiplier: the canary has
    length 1 and a label of 1, so that it uses all that is paid for.
    """
    z, trials, shares = 1.0, 400, (0.4, 0.25, 0.35)
    others = np.zeros((3, SIZE)), np.zeros((3, 1))
    canary = np.array([[0.6, 0.8, 0.0, 0.0]]), np.ones((1, 1))
    both = [np.concatenate(pair) for pair in zip(others, canary, strict=True)]
    models = [np.zeros((SIZE, 1)), np.array([[-3.0], [0.5], [0.0], [0.0]])]

    def released_by(x, y, seed):
        whole = whole_records(x, y, 8)

        def random(number):
            return lambda question: HostRandom(seed, b"k" * 32, f"{number} {question.hex()}")

        vectors, parts = UnitVectors(1.0, 0.0, 1.0), []
        for number, share in enumerate(shares):
            noise = z / math.sqrt(share)
            own = message_queries(whole, vectors, noise, 3, random(number))
            if number == 0:
                moments = own.moments(SHARES)
                above = np.triu_indices(SIZE, 1)
                parts += [
                    (np.diag(moments.gram), moments.noise[0]),
                    (moments.gram[above], moments.noise[0] / math.sqrt(2)),
                    (moments.cross.ravel(), moments.noise[1]),
                    (moments.labels, moments.noise[2]),
                ]
            else:
                gradient, deviation = own.gradient(models[number - 1], 0.5)
                parts.append((gradient.ravel(), deviation))
        return np.concatenate([values / deviation for values, deviation in parts])

    added = sum(released_by(*both, seed) - released_by(*others, seed) for seed in range(3)) / 3
    # The same noise on both: what is left is the canary's own share, in deviations.
    assert float(added @ added) == pytest.approx(1 / z**2, rel=1e-4)
    scores = [
        [float(released_by(*world, seed) @ added) for seed in range(first, first + trials)]
        for first, world in ((0, others), (trials, both))
    ]
    right = np.mean(np.array(scores[1])[:, None] > np.array(scores[0])[None, :])
    assert right == pytest.approx(norm.cdf(1 / z / math.sqrt(2)), abs=0.04)
    deviations = [np.std(one) for one in scores]
    np.testing.assert_allclose(deviations, 1 / z, rtol=0.12)
