"""Whatever reaches an engine is whole; whatever is not is named."""

from dataclasses import replace

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
    assert federation.train_counts.tolist() == [40, 70]
    assert federation.test_counts.tolist() == [20, 20]
    assert federation.silos[0].train.x.dtype == np.float32
    assert small("multiclass").silos[0].train.y.dtype == np.int32


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
        (lambda: one(task="ranking"), "'regression', 'binary', 'multiclass'"),
        (lambda: one(name=""), "empty name"),
        (lambda: one(np.zeros((0, 2)), np.zeros(0)), r"'ward': train has no records"),
        (lambda: one(np.zeros((6, 2)), np.zeros(5)), r"'ward': train x has shape \(6, 2\)"),
        (lambda: one(np.zeros(6), np.zeros(6)), r"'ward'.*features"),
        (lambda: one(np.zeros((6, 0)), np.zeros(6)), r"'ward'.*at least one"),
        (lambda: one(np.full((6, 2), "a"), np.zeros(6)), r"'ward': train x has dtype <U1"),
        (lambda: one(np.zeros((6, 2)), np.array(["a"] * 6)), r"'ward': train y has dtype"),
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


# --- subjects


def of_people(subject, test_subject=None, name="ward"):
    train = Records(np.arange(12.0).reshape(6, 2), np.arange(6.0), subject)
    return Silo(name, train, Records(np.ones((2, 2)), np.arange(2.0), test_subject))


def test_units_are_subjects_where_there_are_some():
    plain = small(sizes=(40, 70))
    assert not plain.by_subject
    assert plain.unit_counts.tolist() == [40, 70]
    silos = (of_people([0, 0, 1, 1, 2, 0], name="a"), of_people(np.arange(6), [1, 0], name="b"))
    federation = Federation("f", silos, "regression")
    assert federation.by_subject
    assert federation.train_counts.tolist() == [6, 6]
    assert federation.unit_counts.tolist() == [3, 6]
    assert federation.silos[0].train.subject.dtype == np.int32
    assert federation.silos[0].test.subject is None
    assert federation.silos[1].test.subject.tolist() == [1, 0]


def test_taken_records_keep_their_subjects():
    records = Records(np.arange(8.0).reshape(4, 2), np.arange(4.0), np.array([0, 1, 2, 1]))
    taken = records.take(np.array([3, 2, 1]))
    assert taken.y.tolist() == [3, 2, 1]
    assert taken.subject.tolist() == [0, 1, 0]
    assert records.take(np.array([0])).units == 1


@pytest.mark.parametrize(
    ("subject", "test_subject", "message"),
    [
        (np.arange(6.0), None, r"'ward': train subject has dtype float64: number"),
        (np.array([0, 1, 2, 3, 4, np.nan]), None, r"'ward': train subject has dtype float64"),
        (["a"] * 6, None, r"'ward': train subject has dtype <U1"),
        ([True] * 6, None, r"'ward': train subject has dtype bool"),
        ([0, 1], None, r"'ward': train subject has shape \(2,\), but the records have \(6,\)"),
        (np.zeros((6, 1), int), None, r"'ward': train subject has shape \(6, 1\)"),
        ([0, 0, 1, 1, 3, 3], None, r"'ward': train subject holds the number 3, but 3 subjects"),
        ([-1, 0, 1, 2, 3, 4], None, r"'ward': train subject holds the number -1"),
        ([1, 2, 3, 4, 5, 6], None, r"numbered 0 to 5: number them so"),
        (np.arange(6), [5, 6], r"'ward': test subject holds the number 5"),
    ],
)
def test_bad_subjects_are_refused(subject, test_subject, message):
    with pytest.raises(SilodpError, match=message):
        Federation("f", (of_people(subject, test_subject),), "regression")


def test_all_silos_have_subjects_or_none():
    some, none = of_people(np.arange(6), name="some"), of_people(None, name="none")
    for silos in ((some, none), (none, some)):
        with pytest.raises(SilodpError, match="'none': train subject is missing, but silo 'some'"):
            Federation("f", silos, "regression")


# --- public knowledge


def test_public_knowledge_is_named_in_known_words():
    silos = (of_people(None),)
    known = ("feature bounds", "label range", "class list")
    assert Federation("f", silos, "regression", declared=known).declared == known
    with pytest.raises(SilodpError, match=r"'f': declared holds 'labels': choose from feature"):
        Federation("f", silos, "regression", declared=("labels",))


def test_features_must_keep_to_their_public_bound():
    silos = (of_people(None),)  # features up to 11
    for bound in (11.0, 11 - 1e-6, 20.0):
        assert Federation("f", silos, "regression", feature_bound=bound).feature_bound == bound
    with pytest.raises(SilodpError, match=r"'ward': train x holds 2 values beyond .* 9.5 .*ord 5"):
        Federation("f", silos, "regression", feature_bound=9.5)
    for bound in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(SilodpError, match="feature_bound is"):
            Federation("f", silos, "regression", feature_bound=bound)


def test_feature_names_are_of_all_features():
    names = ("age", "dose", "sex=f", "sex=m")
    assert replace(small(), feature_names=names).feature_names == names
    with pytest.raises(SilodpError, match="3 names for 4 features"):
        replace(small(), feature_names=names[:3])


def test_class_names_are_of_all_classes():
    federation = small("multiclass")
    assert replace(federation, class_names=("a", "b", "c")).class_names == ("a", "b", "c")
    with pytest.raises(SilodpError, match="2 names for 3 classes"):
        replace(federation, class_names=("a", "b"))
    with pytest.raises(SilodpError, match="1 names for 0 classes"):
        replace(small("regression"), class_names=("a",))
