import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from silodp.base.errors import SilodpError
from silodp.data.federation import Records
from silodp.data.scaling import (
    bounds_to_symmetric,
    bounds_to_unit,
    records_to_unit_norm,
    standardisation,
    standardise,
)
from silodp.data.split import (
    MAX_SEED,
    authors_seed,
    split_silo,
    subject_split,
    time_split,
    train_test_split,
)

fractions = st.floats(0.01, 0.99)
seeds = st.integers(0, MAX_SEED)


@settings(deadline=None)  # the first example imports scikit-learn
@given(n=st.integers(2, 500), fraction=fractions, seed=seeds)
def test_equals_scikit_learn(n, fraction, seed):
    model_selection = pytest.importorskip("sklearn.model_selection")
    train, test = train_test_split(n, fraction, seed)
    if not len(train):  # scikit-learn refuses what would leave no training record
        return
    expected = model_selection.train_test_split(np.arange(n), test_size=fraction, random_state=seed)
    np.testing.assert_array_equal(train, expected[0])
    np.testing.assert_array_equal(test, expected[1])


@settings(deadline=None)
@given(n=st.integers(0, 300), fraction=fractions, seed=seeds)
def test_each_record_is_in_one_part(n, fraction, seed):
    train, test = train_test_split(n, fraction, seed)
    assert sorted([*train, *test]) == list(range(n))


def test_known_split():
    # Written down from scikit-learn 1.9, so that the rule is held without it.
    train, test = train_test_split(10, 0.25, 7)
    assert test.tolist() == [8, 5, 0]
    assert train.tolist() == [2, 1, 9, 7, 3, 6, 4]


@pytest.mark.parametrize("fraction", [0, 1, -0.2, 1.5, float("nan"), "0.2", True])
def test_fraction_must_lie_between_0_and_1(fraction):
    with pytest.raises(SilodpError, match="test_fraction"):
        train_test_split(10, fraction, 0)


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "0", True])
def test_seed_must_be_a_whole_number(seed):
    with pytest.raises(SilodpError, match="Seed"):
        train_test_split(10, 0.2, seed)


def test_seeds_of_the_authors():
    assert [authors_seed(seed) for seed in range(3)] == [100, 1100, 2100]
    train_test_split(10, 0.2, authors_seed(MAX_SEED))  # any seed that a user may give can be used


def test_standardisation_guards_constant_columns():
    train = np.array([[0.1, 1.0], [0.1, 3.0], [0.1, 5.0]])
    mean, deviation = standardisation(train)
    scaled = standardise(train, mean, deviation)
    np.testing.assert_array_equal(scaled[:, 0], 0)
    np.testing.assert_allclose(scaled[:, 1], [-(1.5**0.5), 0, 1.5**0.5])
    # The mean of 0.1 three times is not 0.1: the deviation must be 1 all the same.
    np.testing.assert_array_equal(standardise(np.array([[1.1, 3.0]]), mean, deviation), [[1, 0]])


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(-100, 99), st.floats(0.1, 200))
def test_bounds_clip_and_scale(values, low, width):
    high = low + width
    x = np.array(values)
    unit = bounds_to_unit(x, low, high)
    assert ((unit >= 0) & (unit <= 1)).all()
    inside = (x >= low) & (x <= high)
    np.testing.assert_allclose((low + unit * (high - low))[inside], x[inside], atol=1e-9)
    symmetric = bounds_to_symmetric(x[:, None], np.array([low]), np.array([high]))
    np.testing.assert_allclose(symmetric[:, 0], 2 * unit - 1)


@settings(deadline=None)
@given(
    arrays(
        np.float64, st.tuples(st.integers(1, 9), st.integers(1, 5)), elements=st.floats(-1e12, 1e12)
    )
)
def test_records_to_unit_norm(x):
    scaled = records_to_unit_norm(x)
    zero = (x == 0).all(axis=1)
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), np.where(zero, 0, 1))
    largest, of_scaled = (np.abs(a).max(axis=1, keepdims=True) for a in (x, scaled))
    np.testing.assert_allclose(scaled * largest, x * of_scaled, atol=1e-300)
    for record, alone in zip(x, scaled, strict=True):  # what the others are makes no difference
        np.testing.assert_array_equal(records_to_unit_norm(record[None])[0], alone)


@settings(deadline=None)
@given(
    subject=st.lists(st.integers(0, 12), min_size=1, max_size=60), fraction=fractions, seed=seeds
)
def test_a_subject_is_on_one_side(subject, fraction, seed):
    subject = np.unique(subject, return_inverse=True)[1]
    train, test = subject_split(subject, fraction, seed)
    assert sorted([*train, *test]) == list(range(len(subject)))
    # The subjects themselves are drawn as records are.
    train_subjects, test_subjects = train_test_split(subject.max() + 1, fraction, seed)
    assert set(subject[train]) == set(train_subjects)
    assert set(subject[test]) == set(test_subjects)


def test_a_silo_is_split_with_and_without_subjects():
    x, y = np.arange(20.0).reshape(10, 2), np.arange(10.0)
    train, test, expected = split_silo("a", Records(x, y), 0.25, 7)
    assert test.y.tolist() == [8, 5, 0]
    assert train.subject is None
    assert expected is None  # the numbers are what they are
    subject = np.array([0, 1, 2, 3, 4, 0, 1, 2, 3, 4])
    train, test, _ = split_silo("a", Records(x, y, subject), 0.2, 7)
    (out,) = train_test_split(5, 0.2, 7)[1]
    assert test.y.tolist() == [out, out + 5]
    assert test.subject.tolist() == [0, 0]  # numbered anew within the part
    assert train.subject.tolist() == [0, 1, 2, 3] * 2
    np.testing.assert_array_equal(train.x[:, 0], 2 * train.y)


@given(time=st.lists(st.integers(0, 30), min_size=1, max_size=60), fraction=fractions)
def test_what_is_tested_is_later_than_what_is_trained_on(time, fraction):
    time = np.array(time)
    train, test = time_split(time, fraction)
    assert sorted([*train, *test]) == list(range(len(time)))
    if len(np.unique(time)) == 1:
        assert not len(test)
        return
    assert time[train].max() < time[test].min()
    if len(np.unique(time)) == len(time) > np.ceil(fraction * len(time)):
        assert len(test) == np.ceil(fraction * len(time))


def test_the_cut_in_time_moves_to_the_nearest_change():
    # Two of ten are asked for; three share the last time, and six the one before.
    time = np.array([5, 9, 9, 5, 5, 9, 5, 5, 1, 5])
    assert time_split(time, 0.2)[1].tolist() == [1, 2, 5]
    assert time_split(time, 0.8)[1].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 9]
    # As near to either side: rather more for testing.
    assert time_split(np.array([0, 0, 0, 0, 1, 1, 2, 2]), 0.375)[1].tolist() == [4, 5, 6, 7]


def test_a_split_by_time_thins_and_keeps_subjects():
    rows = np.arange(20)
    records = Records(rows[:, None], rows, rows % 5)
    train, test, _ = split_silo("a", records, 0.25, 0, 0.5, time=rows)
    assert test.y.tolist() == [15, 16, 17, 18, 19]
    assert train.units == 2  # of five subjects
    assert len(train) == 6
    assert train.y.max() < 15


def test_a_split_needs_two_subjects_and_records_of_one_time_are_not_tested_on():
    rows = np.arange(9)
    alike = split_silo("a", Records(rows[:, None], rows), 0.2, 0, time=np.zeros(9))
    assert (len(alike.train), len(alike.test)) == (9, 0)
    with pytest.raises(SilodpError, match="'a' has 1 subject, too few"):
        split_silo("a", Records(rows[:, None], rows, rows * 0), 0.2, 0)


def test_a_split_by_time_that_is_far_from_what_was_asked_is_refused():
    records = Records(np.zeros((100, 1)), np.zeros(100))
    time = np.array([1] + 99 * [2])
    with pytest.raises(SilodpError, match=r"99 of its 100 records would be for testing"):
        split_silo("a", records, 0.2, 0, time=time)
    train = split_silo("a", records, 0.99, 0, time=time).train
    assert len(train) == 1


@pytest.mark.parametrize(
    ("times", "test_fraction", "tested"),
    [
        ([1] * 50 + [2] * 50, 0.6, 50),  # the only change, although later
        ([1] * 40 + [2] * 30 + [3] * 30, 0.35, 30),  # the nearest: later
        ([1] * 40 + [2] * 30 + [3] * 30, 0.55, 60),  # the nearest: earlier
        ([1] * 40 + [2] * 20 + [3] * 40, 0.5, 60),  # of two as near: the earlier
        ([1] * 40 + [2] * 20 + [3] * 40, 0.4, 40),
    ],
)
def test_equal_times_are_never_parted(times, test_fraction, tested):
    train, test = time_split(np.array(times), test_fraction)
    assert len(test) == tested
    assert len(train) == 100 - tested
