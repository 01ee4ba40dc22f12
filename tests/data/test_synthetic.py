import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silodp.base.errors import SilodpError
from silodp.data.registry import SOURCES, DataOptions, resolve
from silodp.data.sources.synthetic import silo_sizes

SYNTHETIC = SOURCES["synthetic"]


def test_defaults():
    federation = SYNTHETIC.load(0)
    assert len(federation.silos) == 12
    assert federation.input_shape == (20,)
    assert federation.train_counts.min() == 100
    assert federation.train_counts.max() == 600
    assert federation.train_counts.min() > resolve("synthetic").defaults.batch_size
    assert federation.uncovered == ()
    norms = np.linalg.norm(federation.silos[0].train.x, axis=1)
    assert 0.9 < norms.mean() < 1.1


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    silos=st.integers(1, 30),
    task=st.sampled_from(["regression", "binary"]),
)
def test_same_seed_same_silos_and_any_seed_same_counts(seed, silos, task):
    options = DataOptions(silos=silos, task=task, records=(60, 90))
    one, two = SYNTHETIC.load(seed, options), SYNTHETIC.load(seed, options)
    other = SYNTHETIC.load((seed + 1) % 2**32, options)
    for a, b, c in zip(one.silos, two.silos, other.silos, strict=True):
        np.testing.assert_array_equal(a.train.x, b.train.x)
        np.testing.assert_array_equal(a.test.y, b.test.y)
        assert a.train.x.shape == c.train.x.shape
        assert a.test.x.shape == c.test.x.shape
        assert not np.array_equal(a.train.x, c.train.x)


def fit(silo):
    return np.linalg.lstsq(silo.train.x, silo.train.y, rcond=None)[0]


def test_heterogeneity_is_the_spread_of_the_silos():
    for tau in (0.0, 0.5, 2.0):
        options = DataOptions(heterogeneity=tau, noise=0.0, silos=40, records=(50, 50))
        weights = np.array([fit(silo) for silo in SYNTHETIC.load(4, options).silos])
        assert weights.std(axis=0).mean() == pytest.approx(tau, rel=0.1, abs=1e-4)


def test_noise_is_what_the_true_model_leaves():
    federation = SYNTHETIC.load(1, DataOptions(noise=0.3, records=(5000, 5000), silos=1))
    silo = federation.silos[0]
    assert np.std(silo.test.y - silo.test.x @ fit(silo)) == pytest.approx(0.3, rel=0.1)


def test_binary_labels_follow_the_features():
    options = DataOptions(task="binary", heterogeneity=0.0, records=(4000, 4000), silos=1)
    silo = SYNTHETIC.load(0, options).silos[0]
    assert set(np.unique(silo.train.y)) == {-1, 1}
    right = np.mean(np.sign(silo.test.x @ fit(silo)) == silo.test.y)
    assert 0.7 < right < 0.95


def test_sizes_grow_evenly():
    assert silo_sizes(3, (100, 400)) == [100, 200, 400]
    assert silo_sizes(1, (100, 400)) == [100]


def test_defaults_follow_the_task():
    assert resolve("synthetic").defaults.model == "linear"
    assert resolve("synthetic", DataOptions(task="binary")).defaults.model == "logistic"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (DataOptions(silos=0), "'silos' is 0"),
        (DataOptions(silos=2.5), "'silos'"),
        (DataOptions(num_features=0), "'num_features'"),
        (DataOptions(heterogeneity=-1.0), "'heterogeneity'"),
        (DataOptions(heterogeneity=float("nan")), "'heterogeneity'"),
        (DataOptions(noise=float("inf")), "'noise'"),
        (DataOptions(noise=0.1, task="binary"), "'noise'"),
        (DataOptions(records=(1, 5)), "'records'"),
        (DataOptions(records=(9, 5)), "'records'"),
        (DataOptions(records=(9,)), "'records'"),
        (DataOptions(records=(9.5, 10)), "'records'"),
        (DataOptions(records=(2, 10), test_fraction=0.6), "'silo-01' has 2 records"),
        (DataOptions(records_per_subject=0), "'records_per_subject' is 0"),
        (DataOptions(records_per_subject=2.0), "'records_per_subject'"),
        (DataOptions(records_per_subject=30, records=(20, 90)), "'silo-01' has 1 subject, too few"),
        (DataOptions(task="multiclass"), "'regression'"),
        (DataOptions(preprocess="paper"), "'none'"),
        (DataOptions(target="y"), "'target'"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(SilodpError, match=words):
        SYNTHETIC.load(0, options)


def test_data_without_subjects_are_what_they_always_were():
    federation = SYNTHETIC.load(0)
    first, last = federation.silos[0], federation.silos[-1]
    np.testing.assert_allclose(first.train.x[0, :3], [-0.05031626, 0.28022906, 0.13027035])
    np.testing.assert_allclose(last.test.y[:3], [-0.5158184, -1.0910908, -0.964788])
    assert not federation.by_subject


def test_subjects_have_records_that_are_alike():
    options = DataOptions(records_per_subject=5, records=(1000, 1023), silos=2)
    federation = SYNTHETIC.load(0, options)
    assert federation.unit_counts.tolist() == [160, 164]  # of 200 and 205
    assert federation.train_counts.tolist() == [800, 820]
    assert SYNTHETIC.load(1, options).train_counts.tolist() == [800, 820]
    train = federation.silos[0].train
    assert np.bincount(train.subject).tolist() == [5] * 160
    assert np.mean(np.sum(train.x**2, axis=1)) == pytest.approx(1, rel=0.1)
    means = np.array([train.x[train.subject == s].mean(axis=0) for s in range(160)])
    # Half the variance is of the subject, and a fifth of the other half stays in a mean of five.
    assert np.mean(np.sum(means**2, axis=1)) == pytest.approx(0.5 + 0.5 / 5, rel=0.1)
    assert federation.silos[0].test.units == 40


def test_the_class_list_is_public():
    assert SYNTHETIC.load(0).declared == ()
    assert SYNTHETIC.load(0, DataOptions(task="binary")).declared == ("class list",)
