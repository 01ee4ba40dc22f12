import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silodp.datasets.scaling import (
    bounds_to_symmetric,
    bounds_to_unit,
    standardisation,
    standardise,
)
from silodp.datasets.split import MAX_SEED, split_records, subject_split, train_test_split
from silodp.errors import SilodpError
from silodp.federation import Records

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


def test_split_records_with_and_without_subjects():
    x, y = np.arange(20.0).reshape(10, 2), np.arange(10.0)
    train, test = split_records(Records(x, y), 0.25, 7)
    assert test.y.tolist() == [8, 5, 0]
    assert train.subject is None
    subject = np.array([0, 1, 2, 3, 4, 0, 1, 2, 3, 4])
    train, test = split_records(Records(x, y, subject), 0.2, 7)
    (out,) = train_test_split(5, 0.2, 7)[1]
    assert test.y.tolist() == [out, out + 5]
    assert test.subject.tolist() == [0, 0]  # numbered anew within the part
    assert train.subject.tolist() == [0, 1, 2, 3] * 2
    np.testing.assert_array_equal(train.x[:, 0], 2 * train.y)
