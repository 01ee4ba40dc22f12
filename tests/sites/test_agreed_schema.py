import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silodp.base.errors import SilodpError
from silodp.sites.agreed_schema import agreed_schema, example, table_options

BINARY = {
    "target": "outcome",
    "task": "binary",
    "bounds": {"bmi": [10, 60], "age": [0, 120]},
    "levels": {"ward": ["a", "b", "c"], "smoker": [False, True]},
    "classes": ["no", "yes"],
}
SCORE = {"target": "score", "task": "regression", "bounds": {"age": [0, 120]}, "range": [0, 1]}


def refused(words, table):
    with pytest.raises(SilodpError, match=words) as error:
        agreed_schema("fed.toml: [schema]", table)
    message = str(error.value)
    assert message.startswith("fed.toml: [schema]: ")
    assert message.endswith((".", "?"))
    assert "\n" not in message
    return message


# --- what is read


def test_what_is_read():
    schema = agreed_schema("here", {**BINARY, "subject_column": "who", "drop_missing": True})
    assert (schema.target, schema.task) == ("outcome", "binary")
    assert schema.bounds == {"age": (0.0, 120.0), "bmi": (10.0, 60.0)}
    assert schema.levels == {"ward": ("a", "b", "c"), "smoker": ("False", "True")}
    assert schema.classes == ("no", "yes")
    assert schema.target_range is None
    assert schema.drop_missing
    assert schema.columns == ("age", "bmi", "smoker", "ward", "outcome", "who")


def test_defaults():
    schema = agreed_schema("here", SCORE)
    assert schema.target_range == (0.0, 1.0)
    assert schema.subject_column is None
    assert not schema.drop_missing
    assert schema.levels == schema.other == schema.missing == {}
    assert schema.columns == ("age", "score")


def test_numbers_are_declared_before_categories_in_any_order():
    # Canonical JSON sorts keys: whoever reads it must see the same order as who wrote it.
    schema = agreed_schema("here", BINARY)
    again = agreed_schema("here", json.loads(json.dumps(schema.to_plain(), sort_keys=True)))
    assert schema.features == again.features == ("age", "bmi", "smoker", "ward")
    assert example(schema).feature_names == example(again).feature_names


def test_tables_are_asked_for_bounds():
    options = table_options(agreed_schema("here", SCORE), test_fraction=0.3)
    assert options.preprocess == "bounds"
    assert options.test_fraction == 0.3


# --- there and back

words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8)
columns = words.filter(str.strip)
numbers = st.floats(-1e38, 1e38) | st.integers(-(10**12), 10**12)
ranges = st.tuples(numbers, numbers).filter(lambda ends: float(ends[0]) < float(ends[1])).map(list)
level = words | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)


def _is_distinct(values):
    try:
        return bool(agreed_schema("here", {**BINARY, "levels": {"x": values}}))
    except SilodpError:
        return False


levels = st.lists(level, min_size=2, max_size=6).filter(_is_distinct)


@st.composite
def tables(draw):
    names = draw(st.lists(columns, min_size=3, max_size=7, unique=True))
    target, subject, *features = names
    cut = draw(st.integers(0, len(features)))
    table = {
        "target": target,
        "task": draw(st.sampled_from(["regression", "binary", "multiclass"])),
        "bounds": {name: draw(ranges) for name in features[:cut]},
        "levels": {name: draw(levels) for name in features[cut:]},
    }
    if table["task"] == "regression":
        table["range"] = draw(ranges)
    elif table["task"] == "binary":
        table["classes"] = draw(levels.filter(lambda values: len(values) == 2))
    else:
        table["classes"] = draw(levels)
    if draw(st.booleans()):
        table["subject_column"] = subject
    if draw(st.booleans()):
        table["drop_missing"] = draw(st.booleans())
    ruled = st.lists(st.sampled_from(features), unique=True)
    table["other"] = {
        name: draw(st.sampled_from(table["levels"][name]))
        for name in draw(ruled)
        if name in table["levels"]
    }
    table["missing"] = {
        name: draw(st.sampled_from(table["levels"].get(name) or table["bounds"][name]))
        for name in draw(ruled)
    }
    return table


@settings(deadline=None, max_examples=50)
@given(tables())
def test_there_and_back(table):
    schema = agreed_schema("here", table)
    plain = schema.to_plain()
    for sort in (False, True):
        again = agreed_schema("here", json.loads(json.dumps(plain, sort_keys=sort)))
        assert again == schema
        assert again.columns == schema.columns
        assert again.to_plain() == plain


@settings(deadline=None, max_examples=50)
@given(tables())
def test_every_schema_has_an_example(table):
    schema = agreed_schema("here", table)
    federation = example(schema)
    wide = len(schema.bounds) + sum(map(len, schema.levels.values()))
    assert federation.input_shape == (wide,)
    assert len(federation.feature_names) == wide
    assert federation.task == schema.task
    assert federation.uncovered == ()
    assert federation.feature_bound == 1
    assert federation.by_subject == (schema.subject_column is not None)
    assert federation.num_classes == (len(schema.classes) if schema.task == "multiclass" else 0)
    assert federation.class_names == (schema.classes or ())


def test_example():
    federation = example(agreed_schema("here", BINARY))
    assert federation.names == ("example",)
    assert federation.feature_names == (
        *("age", "bmi", "smoker=False", "smoker=True", "ward=a", "ward=b", "ward=c"),
    )
    assert federation.declared == ("feature bounds", "class list")
    rows = np.concatenate([federation.silos[0].train.x, federation.silos[0].test.x])
    assert set(np.unique(rows[:, :2])) == {-1, 1}
    assert (rows[:, 2:].sum(axis=0) > 0).all()
    assert set(federation.silos[0].train.y) == {-1, 1}


# --- what is refused


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("the key 'lvels' is unknown: did you mean 'levels'", {"lvels": {}}),
        ("target is missing: give the name", {"target": None}),
        ("target is 3: give the name", {"target": 3}),
        ("target is ' ': give the name", {"target": " "}),
        ("task is missing: choose", {"task": None}),
        ("task is 'binray': choose 'binary'", {"task": "binray"}),
        ("task is \\['binary'\\]: choose", {"task": ["binary"]}),
        ("bounds is \\['age'\\]: give a table of columns", {"bounds": ["age"]}),
        ("bounds is None: give a table", {"bounds": None}),
        ("levels is 'ward': give a table of columns", {"levels": "ward"}),
        ("a column of levels is '': give", {"levels": {"": ["a", "b"]}}),
        ("a column of levels is 1: give", {"levels": {1: ["a", "b"]}}),
        ("bounds of column 'age': \\[120, 0\\] is not a range", {"bounds": {"age": [120, 0]}}),
        ("bounds of column 'age': \\[0, inf\\] is not", {"bounds": {"age": [0, float("inf")]}}),
        ("bounds of column 'age': .* is not a range", {"bounds": {"age": [0, 10**400]}}),
        ("bounds of column 'age': .* beyond 3.4e\\+38", {"bounds": {"age": [0, 1e39]}}),
        ("levels of column 'ward' are 'ab': give a list", {"levels": {"ward": "ab"}}),
        ("levels of column 'ward' are \\['a'\\]: give at", {"levels": {"ward": ["a"]}}),
        ("levels of column 'ward' .* each one once", {"levels": {"ward": ["1", 1]}}),
        ("no feature is declared", {"bounds": {}, "levels": {}}),
        ("'ward' has both levels and bounds", {"bounds": {"ward": [0, 1]}}),
        ("'outcome' is the target, and so no", {"bounds": {"outcome": [0, 1]}}),
        ("subject_column is 7: give the name", {"subject_column": 7}),
        ("'ward' is the subject_column", {"subject_column": "ward"}),
        ("'outcome' is the subject_column", {"subject_column": "outcome"}),
        ("drop_missing is 'yes': write true", {"drop_missing": "yes"}),
        ("other is 'a': give a table of columns", {"other": "a"}),
        ("other of column 'ward' is 'z', which is not among", {"other": {"ward": "z"}}),
        ("other of column 'ward' is \\['a'\\], which is not", {"other": {"ward": ["a"]}}),
        ("other of column 'age' is 3, but it has no levels", {"other": {"age": 3}}),
        ("missing is 'drop': give a table of columns", {"missing": "drop"}),
        ("missing of column 'age' is 'a', which is no number", {"missing": {"age": "a"}}),
        ("missing of column 'age' is nan, which is no", {"missing": {"age": float("nan")}}),
        ("missing of column 'age' is True, which is no", {"missing": {"age": True}}),
        ("missing of column 'age' is 121, beyond its bounds", {"missing": {"age": 121}}),
        ("missing of column 'ward' is 'z', which is not among", {"missing": {"ward": "z"}}),
        ("missing names the column 'who', which is no feature", {"missing": {"who": 3}}),
        ("both a range and classes", {"range": [0, 1]}),
        ("needs its classes", {"classes": None}),
        ("'outcome' of a binary task needs its classes", {"classes": None, "range": [0, 1]}),
        ("has 3 classes, but the task is binary", {"classes": ["a", "b", "c"]}),
        ("target classes are 'no': give", {"classes": "no"}),
        ("'outcome' of a regression needs its range", {"task": "regression"}),
        (
            "target range: .* is not a range",
            {"task": "regression", "classes": None, "range": [1]},
        ),
        (
            "target range: .* beyond",
            {"task": "regression", "classes": None, "range": [0, 1e40]},
        ),
    ],
)
def test_refused(words, change):
    refused(words, {**BINARY, **change})
