"""Whatever reaches an engine is whole; whatever is not is named."""

import numpy as np
import pytest
from federations import small
from hypothesis import given, settings
from hypothesis import strategies as st

from silodp import Federation, Records, Silo, SilodpError


def one(x=None, y=None, name="ward", task="regression", classes=0, test=None):
    x = np.arange(12.0).reshape(6, 2) if x is None else x
    y = np.array([0.0, 1, 2, 3, 4, 5]) if y is None else y
    test = Records(np.ones((2, 2)), np.asarray(y)[:2]) if test is None else test
    return Federation("f", (Silo(name, Records(x, y), test),), task, classes)


def test_what_a_federation_knows():
    federation = small(sizes=(40, 70))
    assert federation.names == ("silo 0", "silo 1")
    assert federation.input_shape == (4,)
    assert federation.metric == "mse"
    assert federation.train_counts.tolist() == [40, 70]
    assert federation.test_counts.tolist() == [20, 20]
    assert federation.silos[0].train.x.dtype == np.float32
    assert small("multiclass").silos[0].train.y.dtype == np.int32
    assert small("binary").metric == "accuracy"


@settings(max_examples=30, deadline=None)
@given(
    bad=st.sampled_from([np.nan, np.inf, -np.inf]),
    row=st.integers(0, 5),
    field=st.sampled_from(["x", "y"]),
)
def test_every_nan_and_infinity_is_found_and_located(bad, row, field):
    x, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    (x if field == "x" else y)[row] = bad
    with pytest.raises(SilodpError, match=rf"'ward': train {field} .*record {row}"):
        one(x, y)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Federation("f", (), "regression"), "no silo"),
        (lambda: one(task="ranking"), "regression, binary, multiclass"),
        (lambda: one(name=""), "empty name"),
        (lambda: one(np.zeros((0, 2)), np.zeros(0)), r"'ward': train has no records"),
        (lambda: one(test=Records(np.zeros((0, 2)), np.zeros(0))), r"'ward': test has no records"),
        (lambda: one(np.zeros((6, 2)), np.zeros(5)), r"'ward': train x has shape \(6, 2\)"),
        (lambda: one(np.zeros(6), np.zeros(6)), r"'ward'.*features"),
        (lambda: one(np.zeros((6, 0)), np.zeros(6)), r"'ward'.*at least one"),
        (lambda: one(np.full((6, 2), "a"), np.zeros(6)), r"'ward': train x has dtype <U1"),
        (lambda: one(np.zeros((6, 2)), np.array(["a"] * 6)), r"'ward': train y has dtype"),
        (lambda: one(y=np.ones(6), task="binary"), r"'ward': train y holds one class only \(1\)"),
        (lambda: one(y=np.arange(6), task="binary"), r"'ward': train y holds the label 0.*-1"),
        (lambda: one(y=np.arange(6), task="multiclass", classes=4), r"'ward'.*label 4.*0 to 3"),
        (lambda: one(y=np.arange(6), task="multiclass", classes=1), "num_classes"),
        (lambda: one(y=np.arange(6) / 2, task="multiclass", classes=9), r"'ward'.*not whole"),
    ],
)
def test_bad_records_are_refused_in_one_sentence(build, message):
    with pytest.raises(SilodpError, match=message):
        build()


def test_silos_must_agree():
    a = Silo("a", Records(np.zeros((3, 2)), np.arange(3)), Records(np.zeros((1, 2)), np.zeros(1)))
    b = Silo("b", Records(np.zeros((3, 4)), np.arange(3)), Records(np.zeros((1, 4)), np.zeros(1)))
    with pytest.raises(SilodpError, match="'b'"):
        Federation("f", (a, b), "regression")
    with pytest.raises(SilodpError, match="'a' is used more than once"):
        Federation("f", (a, a), "regression")
