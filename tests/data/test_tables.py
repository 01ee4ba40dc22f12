import datetime
import decimal
import functools
import json
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silodp.base.errors import SilodpError
from silodp.data.federation import ExpectedCounts
from silodp.data.problems import Problems
from silodp.data.registry import DataOptions, resolve
from silodp.data.split import train_test_split
from silodp.data.tables.columns import Column, Encoder, make_encoder
from silodp.data.tables.files import in_order
from silodp.data.tables.schema import Schema, level_text, read_schema


def people(n=40, seed=0):
    """Two silos in turn, numbers, a category and true/false."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "site": ["north", "south"] * (n // 2),
            "age": rng.integers(20, 80, n),
            "ward": rng.choice(["a", "b", "c"], n),
            "smoker": rng.choice([True, False], n),
            "bmi": rng.normal(25, 4, n),
            "score": rng.normal(50, 10, n),
            "ill": rng.choice(["no", "yes"], n),
        }
    )


def csv(folder, frame, name="people.csv"):
    frame.to_csv(folder / name, index=False)
    return folder / name


def load(path, seed=0, **options):
    given = DataOptions(**{"silo_column": "site", "target": "score", **options})
    return resolve(path, given).load(seed, given)


def all_problems(path, seed=0, **options):
    """Silo, column and rows of every problem of a table."""
    given = DataOptions(**{"silo_column": "site", "target": "score", **options})
    problems = Problems()
    with problems.noted():
        resolve(path, given, problems).load(seed, given)
    assert all(row["remedy"] and row["what"] for row in problems.rows())
    return [(row["silo"], row["column"], row["rows"]) for row in problems.rows()]


def refused(words, path, **options):
    with pytest.raises(SilodpError, match=words) as error:
        load(path, **options)
    message = str(error.value)
    assert message.endswith((".", "?"))
    assert "\n" not in message
    return message


# --- what is read


def test_one_file_with_a_silo_column(tmp_path):
    frame = people()
    federation = load(csv(tmp_path, frame), seed=3, preprocess="none", ignore=["ill"])
    assert federation.name == "people"
    assert federation.names == ("north", "south")
    assert federation.task == "regression"
    assert federation.input_shape == (1 + 3 + 2 + 1,)
    north = frame[frame.site == "north"].reset_index(drop=True)
    silo = federation.silos[0]
    assert silo.expected == ExpectedCounts(train=16, test=4, max_count=20)
    assert len(silo.train) + len(silo.test) == 20
    for records in (silo.train, silo.test):
        rows = north[np.isin(north.score.astype(np.float32), records.y)]  # in the file's order
        np.testing.assert_allclose(records.y, rows.score, rtol=1e-6)
        np.testing.assert_allclose(records.x[:, 0], rows.age)
        for column, level in ((1, "a"), (2, "b"), (3, "c")):
            np.testing.assert_array_equal(records.x[:, column], rows.ward == level)
        np.testing.assert_array_equal(records.x[:, 4], ~rows.smoker)
        np.testing.assert_array_equal(records.x[:, 5], rows.smoker)
        np.testing.assert_allclose(records.x[:, 6], rows.bmi, rtol=1e-6)


def test_csv_parquet_and_folder_give_the_same(tmp_path):
    pytest.importorskip("pyarrow")
    frame = people()
    one = load(csv(tmp_path, frame))
    frame.to_parquet(tmp_path / "people.parquet", index=False)
    two = load(tmp_path / "people.parquet")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "README.txt").write_text("not a table")
    (folder / ".hidden.csv").write_text("not a table either")
    north = frame[frame.site == "north"].drop(columns="site")
    csv(folder, north[north.columns[::-1]], "north.csv")
    south = frame[frame.site == "south"].drop(columns="site")
    south.to_parquet(folder / "south.parquet", index=False)
    three = load(folder, silo_column=None)
    assert one.names == two.names == three.names
    for first, *others in zip(one.silos, two.silos, three.silos, strict=True):
        for other in others:
            order = np.argsort(first.train.x.sum(axis=1))
            same = np.argsort(other.train.x.sum(axis=1))
            np.testing.assert_allclose(first.train.y[order], other.train.y[same], rtol=1e-5)
            # North's columns stand in another order, so features of the folder do as well.
            np.testing.assert_allclose(
                np.sort(first.train.x, axis=1), np.sort(other.train.x, axis=1), atol=1e-5
            )


def test_silo_names_are_words_in_order(tmp_path):
    frame = people()
    frame["site"] = [10, 9, 2, 100] * 10
    assert load(csv(tmp_path, frame)).names == ("2", "9", "10", "100")
    # Not a number in any order: all are words then.
    path = csv(tmp_path, frame.assign(site=["10", "9", "2", "nan!"] * 10))
    assert load(path).names == ("10", "2", "9", "nan!")
    assert in_order({"10", "nan", "9", "inf"}) == ["10", "9", "inf", "nan"]
    path = csv(tmp_path, frame.assign(site=["007", "7"] * 20))
    assert load(path).names == ("007", "7")


def test_silo_numbers_of_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    people().assign(site=[1.0, 2.0] * 20).to_parquet(tmp_path / "a.pq", index=False)
    assert load(tmp_path / "a.pq").names == ("1", "2")


def test_byte_order_mark_and_spaces(tmp_path):
    rows = "\n".join(f"{'a' if i % 2 else 'b'}, {i}, {i * 1.5}" for i in range(20))
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfsite, x ,score\n" + rows.encode())
    assert load(tmp_path / "a.csv", bounds={"x": (0, 20)}, target_range=(0, 30)).names == ("a", "b")


def test_strange_parquet_types(tmp_path):
    pytest.importorskip("pyarrow")
    frame = people()
    frame["fee"] = [decimal.Decimal(i) / 4 for i in range(40)]
    frame["kind"] = pd.Categorical(["x", "y", "x", "z"] * 10)
    frame["count"] = pd.array(range(40), dtype="Int64")
    frame.to_parquet(tmp_path / "a.parquet", index=False)
    federation = load(tmp_path / "a.parquet", ignore=["age", "ward", "smoker", "bmi", "ill"])
    assert federation.input_shape == (1 + 3 + 1,)
    frame["list"] = [[1, 2]] * 40
    frame.to_parquet(tmp_path / "a.parquet", index=False)
    refused("'list' holds values of type ndarray", tmp_path / "a.parquet")


# --- tasks


@pytest.mark.parametrize(
    ("values", "task", "classes", "model"),
    [
        ([1.5, 2.5, 3.25, 4.0], "regression", 0, "linear"),
        (list(range(20)), "regression", 0, "linear"),
        ([0, 1], "binary", 0, "logistic"),
        (["no", "yes"], "binary", 0, "logistic"),
        ([True, False], "binary", 0, "logistic"),
        ([3, 1, 2], "multiclass", 3, "softmax"),
        (["x", "y", "z"], "multiclass", 3, "softmax"),
    ],
)
def test_task_is_inferred(tmp_path, values, task, classes, model):
    frame = people(120)
    frame["target"] = [values[(i // 2) % len(values)] for i in range(120)]
    path = csv(tmp_path, frame)
    options = DataOptions(silo_column="site", target="target")
    source = resolve(path, options)
    federation = source.load(0, options)
    assert (federation.task, federation.num_classes) == (task, classes)
    assert source.defaults.model == model
    assert source.defaults.lr == (0.05 if task == "regression" else 0.1)
    assert any("classes of 'target'" in note for note in federation.uncovered) == (
        task != "regression"
    )


def test_the_second_class_is_plus_one(tmp_path):
    path = csv(tmp_path, people())
    labels = np.concatenate([silo.train.y for silo in load(path, target="ill").silos])
    declared = load(path, target="ill", classes=["yes", "no"])
    swapped = np.concatenate([silo.train.y for silo in declared.silos])
    np.testing.assert_array_equal(labels, -swapped)
    assert not any("classes" in note for note in declared.uncovered)


def test_classes_sort_by_value_and_may_be_declared(tmp_path):
    frame = people(120)
    frame["grade"] = np.tile([10, 10, 9, 9, 2, 2], 20)
    path = csv(tmp_path, frame)
    order = np.concatenate([s.train.y for s in load(path, target="grade", preprocess="none").silos])
    assert set(order) == {0, 1, 2}
    federation = load(path, target="grade", classes=[2, 9, 10, 11])
    assert federation.num_classes == 4
    assert load(path, target="grade", task="regression").task == "regression"
    refused("column 'grade' holds '2'", path, target="grade", classes=[9, 10])


def test_tasks_that_do_not_fit(tmp_path):
    frame = people()
    frame["one"] = 1
    path = csv(tmp_path, frame)
    refused("holds words", path, target="ill", task="regression")
    refused("40 different values", path, task="binary")
    refused("1 different values", path, target="one", task="multiclass")
    refused("Task 'binray' does not fit: choose 'binary'", path, task="binray")
    refused("because of what is declared", path, task="binary", target_range=(0, 100))
    refused("because of what is declared", path, target="ill", task="regression", classes=[1, 2])
    refused("both a range and classes", path, target_range=(0, 1), classes=["a", "b"])
    refused("'one' is 1 in every training record", path, target="one", task="regression")


# --- preprocessing, and what epsilon does not cover


def test_paper(tmp_path):
    path = csv(tmp_path, people())
    federation = load(path)
    for silo in federation.silos:
        for column in (0, 6):
            assert silo.train.x[:, column].mean() == pytest.approx(0, abs=1e-5)
            assert silo.train.x[:, column].std() == pytest.approx(1, abs=1e-5)
        assert set(np.unique(silo.train.x[:, 1:6])) == {0, 1}
    y = np.concatenate([silo.train.y for silo in federation.silos])
    assert (y.min(), y.max()) == (0, 1)
    notes = " ".join(federation.uncovered)
    for words in ("'ward', 'smoker', 'ill'", "standardised", "target 'score' is scaled"):
        assert words in notes


def declarations(**more):
    return {
        "levels": {"ward": ["a", "b", "c", "d"], "smoker": [True, False], "ill": ["no", "yes"]},
        "bounds": {"age": (30, 70), "bmi": (10, 60)},
        "target_range": (40, 60),
        **more,
    }


def test_bounds_leave_nothing_uncovered(tmp_path):
    frame = people()
    path = csv(tmp_path, frame)
    federation = load(path, **declarations())  # bounds that are declared are used
    assert federation.uncovered == ()
    assert federation.input_shape == (1 + 4 + 2 + 1 + 2,)
    silo = federation.silos[0]
    paper = load(path, **declarations(), split="paper")
    assert [note for note in paper.uncovered if "--split coin" in note] == list(paper.uncovered)
    assert paper.silos[0].expected is None
    silo = paper.silos[0]
    rows = frame[frame.site == "north"].iloc[train_test_split(20, 0.2, 0)[0]]
    np.testing.assert_allclose(silo.train.x[:, 0], (rows.age.clip(30, 70) - 50) / 20, atol=1e-6)
    np.testing.assert_allclose(silo.train.y, (rows.score.clip(40, 60) - 40) / 20, atol=1e-6)
    assert not silo.train.x[:, 4].any()  # ward d, which nobody is in
    assert federation.feature_names[:2] == ("age", "ward=a")
    assert federation.feature_names[4] == "ward=d"
    assert resolve(
        path, DataOptions(silo_column="site", target="score", **declarations())
    ).defaults.preprocess == ("bounds")
    paper = load(path, **declarations(preprocess="paper"))
    assert len(paper.uncovered) == 1
    assert "standardised" in paper.uncovered[0]


def test_bounds_must_be_declared_for_all(tmp_path):
    path = csv(tmp_path, people())
    refused(
        "Column 'age' has no declared bounds, which the preprocessing", path, preprocess="bounds"
    )
    refused("Column 'bmi' has no declared bounds", path, **declarations(bounds={"age": (0, 100)}))
    refused("The target 'score' has no declared range", path, **declarations(target_range=None))
    refused("'ward' has bounds, but it holds words", path, bounds={"ward": (0, 1)})
    refused("both levels and bounds", path, **declarations(bounds={"ward": (0, 1)}))
    refused("'levels of|is not a range", path, bounds={"age": (5, 5)})


def test_a_task_that_one_record_decides_is_not_covered(tmp_path):
    """Ten whole numbers are classes; with an eleventh, in one record, they are numbers."""
    frame = people()[["site", "age", "score"]].assign(score=np.arange(40) % 10)
    given = {"preprocess": "none"}
    assert load(csv(tmp_path, frame), **given).task == "multiclass"
    frame.loc[3, "score"] = 77
    federation = load(csv(tmp_path, frame), **given)
    assert federation.task == "regression"
    assert [note for note in federation.uncovered if note.startswith("The task regression was")]
    assert load(csv(tmp_path, frame), task="regression", **given).uncovered == ()


def test_none_keeps_the_target(tmp_path):
    frame = people()
    federation = load(csv(tmp_path, frame), preprocess="none")
    y = np.concatenate([np.concatenate([s.train.y, s.test.y]) for s in federation.silos])
    np.testing.assert_allclose(np.sort(y), np.sort(frame.score), rtol=1e-6)


def test_constant_columns_stay(tmp_path):
    frame = people().assign(age=0.1)
    federation = load(csv(tmp_path, frame))
    assert not federation.silos[0].train.x[:, 0].any()


def test_seeds_share_shapes_and_the_file_is_read_once(tmp_path):
    path = csv(tmp_path, people())
    options = DataOptions(silo_column="site", target="score")
    source = resolve(path, options)
    path.unlink()
    one, two = source.load(0, options), source.load(1, options)
    np.testing.assert_array_equal(one.public_counts, two.public_counts)
    assert not np.array_equal(one.silos[0].train.y, two.silos[0].train.y)
    half = source.load(0, DataOptions(silo_column="site", target="score", test_fraction=0.5))
    assert half.public_test_counts.tolist() == [10, 10]
    with pytest.raises(SilodpError, match="does not exist"):  # other rows: it must be read again
        source.load(0, DataOptions(silo_column="site", target="age"))


# --- subjects


def visits(**columns):
    """People with one to four rows each: 1, 2, 3, 4, 1, ... in turn, in both silos."""
    who = np.repeat(np.arange(16), [1, 2, 3, 4] * 4)
    return people(40).assign(site=np.where(who < 8, "north", "south"), who=who, **columns)


def test_a_subject_column_is_no_feature_and_is_never_split(tmp_path):
    frame = visits()
    path = csv(tmp_path, frame)
    federation = load(path, subject_column="who", preprocess="none")
    assert federation.by_subject
    assert federation.input_shape == load(path, ignore=["who"]).input_shape
    assert federation.public_counts.tolist() == [6, 6]  # 0.8 of 8 people
    for silo in federation.silos:
        people_in = {}
        for part in ("train", "test"):
            records = getattr(silo, part)
            rows = [int(np.abs(frame.score - y).argmin()) for y in records.y]
            who = frame.who.to_numpy()[rows]
            people_in[part] = set(who)
            pairs = set(zip(who, records.subject, strict=True))
            assert len(pairs) == records.units == len(people_in[part])
        assert not people_in["train"] & people_in["test"]
        assert len(people_in["train"] | people_in["test"]) == silo.max_count == 8
        assert len(silo.train) + len(silo.test) == 20
    other = load(path, seed=3, subject_column="who", preprocess="none")
    assert other.public_counts.tolist() == [6, 6]
    assert set(other.silos[0].test.y) != set(federation.silos[0].test.y)


def test_one_row_each_is_split_as_rows_are(tmp_path):
    frame = people().assign(who=[f"{i:03d}" for i in range(40)])
    path = csv(tmp_path, frame)
    plain = load(path, seed=3, id_column="who", preprocess="none")
    federation = load(path, seed=3, subject_column="who", preprocess="none")
    for one, two in zip(plain.silos, federation.silos, strict=True):
        np.testing.assert_array_equal(np.sort(one.test.y), np.sort(two.test.y))


@pytest.mark.parametrize("preprocess", ["paper", "none"])
def test_subjects_survive_scaling(tmp_path, preprocess):
    federation = load(csv(tmp_path, visits()), subject_column="who", preprocess=preprocess)
    assert federation.public_counts.tolist() == [6, 6]
    assert all(silo.test.subject is not None for silo in federation.silos)


@pytest.mark.parametrize(
    ("names", "subjects"),
    [
        (["a", "b", "c", "d"], 4),
        (["7", "007", "8", "9"], 4),  # as written
        (["7", "7.0", "8", "9.00"], 3),  # but a whole number is one, however it is stored
        (["a", " a ", "b", "c"], 3),
        (["1.5", "1.50", "v1.0", "v1"], 3),
        (["12345678901234567890", "12345678901234567891", "1", "2"], 4),
    ],
)
def test_spellings_of_subjects(tmp_path, names, subjects):
    path = csv(tmp_path, people().assign(who=np.repeat(names, 2).tolist() * 5))
    # So few that coins may leave a part empty.
    federation = load(path, subject_column="who", test_fraction=0.3, split="paper")
    for silo in federation.silos:
        assert silo.train.units + silo.test.units == subjects


def test_subjects_of_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    frame = visits()
    found = []
    for who in (
        frame.who,
        frame.who.astype(float),
        frame.who.astype(str),
        pd.Categorical(frame.who),
    ):
        frame.assign(who=who).to_parquet(path, index=False)
        one = load(path, subject_column="who", preprocess="none")
        assert one.public_counts.tolist() == [6, 6]
        found.append([silo.test.y.tolist() for silo in one.silos])
    assert all(tested == found[0] for tested in found)
    frame.assign(who=[[1]] * 40).to_parquet(path, index=False)
    refused("'north': the subject column 'who' holds values of type", path, subject_column="who")
    frame.assign(who=["", " "] + ["a", "b"] * 19).to_parquet(path, index=False)
    refused("'north': the subject column 'who' is blank in 2 rows", path, subject_column="who")


def test_missing_subjects(tmp_path):
    frame = visits().astype({"who": object})
    frame.loc[[0, 39], "who"] = None
    path = csv(tmp_path, frame)
    refused("1 in column 'who' of silo 'north'", path, subject_column="who")
    federation = load(path, subject_column="who", drop_missing=True)
    assert [silo.max_count for silo in federation.silos] == [7, 8]
    assert (federation.train_counts + federation.test_counts).tolist() == [19, 19]


def test_subject_columns_that_do_not_fit(tmp_path):
    path = csv(tmp_path, visits())
    refused("'score' is both subject_column and target", path, subject_column="score")
    refused("'site' is both subject_column and silo_column", path, subject_column="site")
    refused(
        "subject_column names the column 'woh', .* did you mean 'who'", path, subject_column="woh"
    )
    for declared in ({"bounds": {"who": (0, 20)}}, {"levels": {"who": range(16)}}):
        refused("'who', which is the subject_column", path, subject_column="who", **declared)
    # To leave it out of the features, which happens anyway, contradicts nothing.
    assert load(path, subject_column="who", ignore=["who"]).by_subject
    features = ["age", "ward", "smoker", "bmi", "ill"]
    refused("no feature column", path, subject_column="who", ignore=features)


def test_silos_with_few_subjects(tmp_path):
    frame = visits()
    frame.loc[frame.site == "south", "who"] = 99
    south = load(csv(tmp_path, frame), subject_column="who").silos[1]
    assert sorted((len(south.train), len(south.test))) == [0, (frame.site == "south").sum()]
    assert (south.public_count, south.max_count) == (1, 1)
    frame.loc[frame.index[-3:], "who"] = 98
    path = csv(tmp_path, frame)
    paper = load(path, subject_column="who", split="paper")
    assert paper.unit_counts.tolist() == [6, 1]


# --- what was taken as public


def test_declarations_that_were_used_are_named(tmp_path):
    path = csv(tmp_path, people())
    bounded = load(path, **declarations())
    assert bounded.declared == ("feature bounds", "label range")
    assert bounded.feature_bound == 1.0
    nothing = load(path)
    assert (nothing.declared, nothing.feature_bound) == ((), None)
    # Bounds that are declared but not used tell nothing.
    paper = load(path, bounds={"age": (0, 120)}, preprocess="paper")
    assert (paper.declared, paper.feature_bound) == ((), None)
    assert load(path, target_range=(0, 100)).declared == ("label range",)
    assert load(path, levels={"ward": ["a", "b", "c"]}).declared == ("feature bounds",)
    classes = load(path, target="ill", classes=["no", "yes"])
    assert classes.declared == ("class list",)
    assert load(path, target="ill").declared == ()


def test_categories_alone_are_bounded(tmp_path):
    path = csv(tmp_path, people())
    federation = load(path, target="ill", ignore=["age", "bmi", "score"])
    assert federation.feature_bound == 1.0


# --- declarations


def test_level_outside_the_declared(tmp_path):
    path = csv(tmp_path, people())
    message = refused("not among its levels", path, levels={"ward": ["a", "b"]})
    assert "Silo 'north'" in message or "Silo 'south'" in message
    assert "'ward' holds 'c'" in message


RULES = {
    "levels": {"ward": ["a", "b", "c", "rest"]},
    "bounds": {"age": (0, 120), "bmi": (10, 60)},
    "target_range": (0, 100),
    "ignore": ["ill", "smoker"],
    "other": {"ward": "rest"},
    "missing": {"age": 60, "ward": "a"},
}


def all_features(federation):
    return sorted(
        row
        for silo in federation.silos
        for part in (silo.train, silo.test)
        for row in part.x.tolist()
    )


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_declared_rules_for_odd_values(tmp_path, kind):
    """Each is as if the table held what the rule says; and all the others stay."""
    odd = people().astype(object)
    odd.loc[0, ["age", "ward"]] = [None, "z"]
    odd.loc[1, ["age", "ward"]] = ["old", None]
    odd.loc[2, "age"] = "inf"
    mended = people()
    mended.loc[0, ["age", "ward"]] = [60, "rest"]
    mended.loc[1, ["age", "ward"]] = [60, "a"]
    mended.loc[2, "age"] = 120

    def path(frame):
        if kind == "csv":
            return csv(tmp_path, frame)
        pytest.importorskip("pyarrow")
        frame = frame.assign(age=frame.age.map(lambda v: None if v is None else str(v)))
        frame.to_parquet(tmp_path / "people.parquet", index=False)
        return tmp_path / "people.parquet"

    one, other = load(path(odd), **RULES), load(path(mended), **RULES)
    assert one.uncovered == ()
    np.testing.assert_allclose(all_features(one), all_features(other), atol=1e-6)
    # Without a rule they are refused, as ever.
    strict = {**RULES, "other": {}, "missing": {"age": 60}}
    refused("missing: 1 in column 'ward' of silo", path(odd), **strict)
    refused("'z', which is not among .*\\[other\\]", path(odd), **strict, drop_missing=True)
    refused("missing: 1 in column 'bmi'", path(odd.assign(bmi=[None, *odd.bmi[1:]])), **RULES)
    dropped = load(path(odd.assign(bmi=[None, *odd.bmi[1:]])), **RULES, drop_missing=True)
    assert len(all_features(dropped)) == 39


def test_rules_of_a_schema_file(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(
        """
        [levels]
        ward = ["a", 1]
        [bounds]
        age = [0, 120]
        [other]
        ward = 1
        [missing]
        ward = "a"
        age = 60
        bmi = 25.5
        """
    )
    schema = read_schema(path)
    assert schema.other == {"ward": "1"}
    values = {column: rule.value for column, rule in schema.missing.items()}
    assert values == {"ward": "a", "age": 60, "bmi": 25.5}
    refused(
        "other of column 'ward' is '1', which is not among its levels",
        csv(tmp_path, people()),
        schema=path,
        levels={"ward": ["a", "b"]},
    )
    refused(
        "missing names the column 'bmi', which is not there",
        csv(tmp_path, people().drop(columns="bmi")),
        schema=path,
    )


def test_declared_levels_make_a_category_of_numbers(tmp_path):
    frame = people()
    frame["ward"] = ["01", "02"] * 20
    path = csv(tmp_path, frame)
    ignore = ["age", "bmi", "smoker", "ill"]
    written_so = load(path, levels={"ward": ["01", "02", "03"]}, ignore=ignore)
    assert written_so.input_shape == (3,)
    as_numbers = load(csv(tmp_path, frame.assign(ward=[1.0, 2.0] * 20)), levels={"ward": [1, 2]})
    assert as_numbers.input_shape == (1 + 2 + 2 + 1 + 2,)
    mixed = frame.assign(ward=["9", "10", "K", "K"] * 10)
    assert load(csv(tmp_path, mixed), levels={"ward": ["9", "10", "K"]}, ignore=ignore)


def test_read_schema(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(
        """
        ignore = ["ill"]
        [levels]
        ward = ["a", "b", "c"]
        smoker = [false, true]
        [bounds]
        age = [0, 120]
        bmi = [10, 60.5]
        [target]
        range = [0, 100]
        """
    )
    assert read_schema(path) == Schema(
        ignore=("ill",),
        levels={"ward": ("a", "b", "c"), "smoker": ("False", "True")},
        bounds={"age": (0, 120), "bmi": (10, 60.5)},
        target_range=(0, 100),
    )
    federation = load(csv(tmp_path, people()), schema=path)
    assert federation.uncovered == ()
    # What is given directly goes before the file.
    changed = load(csv(tmp_path, people()), schema=path, target_range=(0, 200))
    np.testing.assert_allclose(changed.silos[0].train.y, federation.silos[0].train.y / 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[level]\na = [1, 2]", "'level' is unknown: did you mean 'levels'"),
        ("[target]\nclass = [1, 2]", "'class' is unknown: did you mean 'classes'"),
        ("levels = 3", r"'levels' is not a section"),
        ("[levels]\na = 3", "levels of column 'a'"),
        ("[levels]\na = [[1], [2]]", "levels of column 'a'"),
        ("[levels]\na = [1]", "at least two"),
        ('[levels]\na = [1, "1"]', "each one once"),
        ("[bounds]\na = [1]", "is not a range"),
        ("[bounds]\na = [2, 1]", "is not a range"),
        ("[bounds]\na = [0, inf]", "is not a range"),
        ("[bounds]\na = [false, true]", "is not a range"),
        ('[bounds]\na = "01"', "is not a range"),
        ("[target]\nrange = 5", "is not a range"),
        ("[target]\nclasses = 'ab'", "target classes"),
        ("[target]\nrange = [0, 1]\nclasses = [1, 2]", "both a range and classes"),
        ("other = 3", "'other' is not a section"),
        ("[other]\na = 'x'", "other of column 'a' is 'x', but it has no levels"),
        (
            "[levels]\na = [1, 2]\n[missing]\na = 3",
            "missing of column 'a' is 3, which is not among",
        ),
        ("[missing]\na = 'x'", "missing of column 'a' is 'x', which is no number"),
        ("[bounds]\na = [0, 1]\n[missing]\na = 3", "beyond its bounds"),
        ("ignore = 'a'", "'ignore'"),
        ("[levels", "not valid TOML"),
    ],
)
def test_bad_schema(tmp_path, text, words):
    path = tmp_path / "schema.toml"
    path.write_text(text)
    with pytest.raises(SilodpError, match=words) as error:
        read_schema(path)
    assert str(path) in str(error.value)


def test_schema_that_cannot_be_read(tmp_path):
    with pytest.raises(SilodpError, match="does not exist: check the path"):
        read_schema(tmp_path / "none.toml")
    (tmp_path / "a.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(SilodpError, match="is not text: save it as UTF-8"):
        read_schema(tmp_path / "a.toml")


# --- what is refused


def test_columns_that_are_not_there(tmp_path):
    path = csv(tmp_path, people())
    refused(
        "target names the column 'scroe', which is not there: did you mean 'score'",
        path,
        target="scroe",
    )
    refused("silo_column names the column 'sit', .* did you mean 'site'", path, silo_column="sit")
    refused(
        "levels names the column 'wards', .* did you mean 'ward'", path, levels={"wards": [1, 2]}
    )
    refused("bounds names the column 'Age', .* did you mean 'age'", path, bounds={"Age": (0, 1)})
    refused("ignore names the column 'bim', .* did you mean 'bmi'", path, ignore=["bim"])
    refused("which is the target", path, ignore=["score"])
    refused("target is not given", path, target=None)
    refused("silo_column is needed", path, silo_column=None)
    refused("'site' is both target and silo_column", path, target="site")
    refused("no feature column", path, ignore=["age", "ward", "smoker", "bmi", "ill"])


def test_missing_values(tmp_path):
    frame = people()
    frame.loc[[0, 2, 4], "age"] = np.nan
    frame.loc[1, "ward"] = None
    frame.loc[3, "score"] = np.nan
    path = csv(tmp_path, frame)
    refused("Values are missing: 3 in column 'age' of silo 'north'.*2 more problems", path)
    assert all_problems(path) == [
        ("north", "age", 3),
        ("south", "ward", 1),
        ("south", "score", 1),
    ]
    federation = load(path, drop_missing=True)
    assert (federation.train_counts + federation.test_counts).tolist() == [17, 18]
    frame.loc[frame.site == "south", "age"] = np.nan
    refused("Silo 'south' has no row", csv(tmp_path, frame), drop_missing=True)
    assert load(csv(tmp_path, frame), ignore=["age", "ward"], target="ill", drop_missing=True)
    frame.loc[7, "site"] = None
    refused("'site' is empty in 1 row", csv(tmp_path, frame))


def test_missing_values_of_every_type(tmp_path):
    frame = people()
    frame["smoker"] = [None, *frame.smoker[1:]]
    assert load(csv(tmp_path, frame), drop_missing=True).input_shape == (9,)
    pytest.importorskip("pyarrow")
    frame["age"] = pd.array([None, *range(39)], dtype="Int64")
    frame.to_parquet(tmp_path / "a.parquet", index=False)
    refused("1 in column 'age' of silo 'north'", tmp_path / "a.parquet")
    assert load(tmp_path / "a.parquet", drop_missing=True).input_shape == (9,)


def test_a_silo_of_one_record_takes_part(tmp_path):
    frame = people()
    frame.loc[0, "site"] = "lonely"
    path = csv(tmp_path, frame)
    for seed in range(8):  # whichever side its coin falls on
        lonely = next(silo for silo in load(path, seed=seed).silos if silo.name == "lonely")
        assert (len(lonely.train) + len(lonely.test), lonely.public_count) == (1, 1)
    refused("Silo 'lonely' has 1 record, too few for training", path, split="paper")


def test_a_silo_of_one_class_takes_part(tmp_path):
    frame = people()
    frame.loc[frame.site == "south", "ill"] = frame.ill[0]
    south = load(csv(tmp_path, frame), target="ill").silos[1]
    assert len(set(south.train.y.tolist())) == 1


# --- silos that are left out


def test_silos_are_left_out_before_their_records_are_looked_at(tmp_path):
    frame = people()
    frame.loc[frame.index[frame.site == "south"][0], "bmi"] = np.nan
    path = csv(tmp_path, frame)
    refused("1 in column 'bmi' of silo 'south'", path)
    for choice in ({"exclude_silos": ["south"]}, {"only_silos": ["north"]}):
        federation = load(path, **choice)
        assert (federation.names, federation.left_out) == (("north",), ("south",))


def test_silos_are_left_out_by_how_many_units_they_have(tmp_path):
    frame = visits()
    rows, people_of = frame.site.value_counts(), frame.groupby("site").who.nunique()
    by_row = load(csv(tmp_path, frame), ignore=["who"], min_records=int(rows.max()))
    assert set(by_row.names) == set(rows.index[rows == rows.max()])
    refused("the largest has", csv(tmp_path, frame), ignore=["who"], min_records=10**6)
    kept = load(csv(tmp_path, frame), subject_column="who", min_records=int(people_of.max()))
    assert set(kept.names) == set(people_of.index[people_of == people_of.max()])


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (
            {"exclude_silos": ["sotuh"]},
            "exclude_silos: silo 'sotuh' is unknown: did you mean 'south'",
        ),
        ({"only_silos": ["sotuh"]}, "only_silos: silo 'sotuh' is unknown: did you mean 'south'"),
        ({"only_silos": ["south"], "exclude_silos": ["south"]}, "in both"),
        ({"exclude_silos": ["south", "north"]}, "No silo is left of 2"),
    ],
)
def test_choices_that_cannot_be_meant(tmp_path, choice, words):
    refused(words, csv(tmp_path, people()), **choice)


@pytest.mark.parametrize("value", ["inf", "-inf", "1e39"])
def test_infinite_numbers(tmp_path, value):
    frame = people().astype({"bmi": object})
    frame.loc[5, "bmi"] = value
    refused("Silo 'south': column 'bmi' holds 1 infinite", csv(tmp_path, frame))
    frame = people().astype({"score": object})
    frame.loc[4, "score"] = value
    refused("Silo 'north': column 'score' holds 1 infinite", csv(tmp_path, frame))


def test_numbers_and_words_in_one_column(tmp_path):
    for word in ("?", "1,5", "n/k", "12 kg"):
        frame = people().astype({"age": object})
        frame.loc[3, "age"] = word
        message = refused("where numbers stand", csv(tmp_path, frame))
        assert f"Silo 'south': column 'age' holds {word!r}" in message
    frame = people()
    frame["age"] = [f"{age},5" for age in frame.age]
    refused("Silo 'north': column 'age' holds '.*,5'.* where numbers", csv(tmp_path, frame))
    frame["age"] = frame["age"].str.replace(",5", "%")
    refused("Silo 'north': column 'age' holds '.*%'.* where numbers", csv(tmp_path, frame))


def test_a_number_column_that_is_text_in_one_silo(tmp_path):
    for name in ("a", "b", "c"):
        frame = people().drop(columns="site")
        if name == "b":
            frame = frame.astype({"age": object})
            frame.loc[:, "age"] = "old"
        csv(tmp_path, frame, f"{name}.csv")
    refused("Silo 'b': column 'age' holds 'old' where numbers", tmp_path, silo_column=None)
    csv(tmp_path, people().drop(columns="site").assign(age=True), "b.csv")
    refused("Silo 'b': column 'age' holds .*True.*, but silo 'a'", tmp_path, silo_column=None)


def test_numbers_stored_as_text(tmp_path):
    pytest.importorskip("pyarrow")
    frame = people()
    frame["age"] = frame.age.astype(str)
    frame.to_parquet(tmp_path / "a.parquet", index=False)
    refused("'age' holds numbers stored as text", tmp_path / "a.parquet")
    assert load(
        tmp_path / "a.parquet", levels={"age": [str(age) for age in sorted(set(frame.age))]}
    )


def test_dates(tmp_path):
    for dates in (
        ["2020-01-31", "2021-12-01"],
        ["2020-01-31 10:00", "2021-12-01T11:00:00Z"],
        ["31.01.2020", "1.2.21"],
        ["1/2/2020", "11/12/2021"],
    ):
        path = csv(tmp_path, people().assign(day=dates * 20))
        refused("column 'day' holds dates", path)
    pytest.importorskip("pyarrow")
    for dates in (
        [datetime.date(2020, 1, 31), datetime.date(2021, 1, 31)],
        list(pd.to_datetime(["2020-01-31", "2021-01-31"])),
        list(pd.to_datetime(["2020-01-31", "2021-01-31"], utc=True)),
        list(pd.to_timedelta(["1 day", "2 days"])),
        [datetime.time(1, 2), datetime.time(3, 4)],
    ):
        people().assign(day=dates * 20).to_parquet(tmp_path / "a.parquet", index=False)
        refused("column 'day' holds dates", tmp_path / "a.parquet")
        assert load(tmp_path / "a.parquet", ignore=["day"])


def test_a_column_of_names(tmp_path):
    frame = people(300)
    frame["who"] = [f"person{i}" for i in range(300)]
    refused("'who' has 300 different values", csv(tmp_path, frame))
    assert load(csv(tmp_path, frame), ignore=["who"]).input_shape == (9,)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"site,x,score\n", "header but no rows"),
        (b"site\nnorth\n", "1 column only"),
        (b"site,x,x,score\nnorth,1,2,3\n", "'x' is used more than once"),
        (b",site,x,score\n0,north,1,2.5\n0,north,1,3.5\n", "column 1 has no name"),
        (b"site,x,score\nnorth,1,2\nnorth,1,2,3\n", "as many values as the header"),
        (b"site,x,score\nnorth,1,2,3\nnorth,1,2,3\n", "as many values as the header"),
        (b'site,x,score\nnorth,1,2\n"north,1,2\n', "cannot be read as CSV"),
        (b"site,x,score\nnorth,1,2\nnorth,1\n", "1 in column 'score' of silo 'north'"),
        (b"\xff\xfes\x00i\x00", "1 column only"),
    ],
)
def test_bad_csv(tmp_path, content, words):
    (tmp_path / "a.csv").write_bytes(content)
    message = refused(words, tmp_path / "a.csv")
    assert str(tmp_path / "a.csv") in message or "missing" in message


def test_bad_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    people().to_parquet(path, index=False)
    whole = path.read_bytes()
    for length in (0, 3, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refused("cannot be read as Parquet", path)
    people().sort_values("age").to_parquet(path)  # rows out of order: pandas saves the index
    refused("column 8 has no name", path)
    offsets = pyarrow.array([0, 1, 2], pyarrow.int32()).buffers()[1]
    words = pyarrow.StringArray.from_buffers(2, offsets, pyarrow.py_buffer(b"a\xff"))
    pyarrow.parquet.write_table(pyarrow.table([words, [1, 2]], names=["site", "score"]), path)
    refused("cannot be read as Parquet .*UTF", path)
    twice = pyarrow.table([[1, 2], [1, 2], [3, 4]], names=["site", "x", "x"])
    pyarrow.parquet.write_table(twice, path)
    refused("'x' is used more than once", path)


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    refused(r"pip install 'silodp\[parquet\]'", tmp_path / "a.parquet")


def test_bad_paths(tmp_path):
    refused("does not end in .csv", _touched(tmp_path / "a.ods"))
    refused("save it as .xlsx", _touched(tmp_path / "a.xls"))
    refused("does not exist", tmp_path / "none.csv")
    refused("does not exist", "none.csv")
    refused("'shcool': did you mean 'school'", "shcool")
    refused("holds no file that ends in", tmp_path, silo_column=None)


def _touched(path):
    path.write_bytes(b"")
    return path


def test_bad_folders(tmp_path):
    frame = people().drop(columns="site")
    csv(tmp_path, frame, "a.csv")
    csv(tmp_path, frame.drop(columns="age"), "b.csv")
    refused("b.csv has no column 'age'", tmp_path, silo_column=None)
    csv(tmp_path, frame.assign(more=1), "b.csv")
    refused("b.csv has a column 'more'", tmp_path, silo_column=None)
    csv(tmp_path, frame, "b.csv")
    refused("leave silo_column out", tmp_path, silo_column="age")
    (tmp_path / "a.parquet").write_bytes(b"")
    refused("a.csv and a.parquet name the same silo", tmp_path, silo_column=None)


def test_options_of_other_sources(tmp_path):
    path = csv(tmp_path, people())
    refused("does not use the option 'heterogeneity'", path, heterogeneity=1.0)
    refused("does not use the option 'data_dir'", path, data_dir=tmp_path)
    refused("no preprocessing 'papre': choose 'paper'", path, preprocess="papre")
    refused("test_fraction", path, test_fraction=0.0)


# --- encoding is a pure function of rows

names = st.sampled_from(["a", "b", "c", "north wing", "True", "x=y"])


@settings(deadline=None)
@given(st.lists(st.tuples(names, st.floats(-1e6, 1e6)), min_size=1))
def test_encoding_can_be_undone(rows):
    frame = pd.DataFrame(rows, columns=["ward", "age"])
    levels = ("x=y", "a", "b", "c", "True", "north wing")
    encoder = Encoder((Column("ward", levels), Column("age")))
    x = encoder.encode("silo", frame)
    assert x.shape == (len(rows), len(encoder.feature_names))
    assert (x[:, :6].sum(axis=1) == 1).all()
    assert [levels[i] for i in x[:, :6].argmax(axis=1)] == list(frame.ward)
    np.testing.assert_array_equal(x[:, 6], frame.age)
    assert encoder.is_number.tolist() == [False] * 6 + [True]


@settings(deadline=None)
@given(st.data())
def test_rows_are_encoded_one_by_one(data):
    rows = data.draw(st.lists(st.tuples(st.sampled_from("abc"), st.integers()), min_size=2))
    frame = pd.DataFrame([(ward, age % 1000) for ward, age in rows], columns=["ward", "age"])
    encoder, undeclared = make_encoder({"silo": frame}, ["ward", "age"], Schema())
    assert undeclared == ("ward",)
    whole = encoder.encode("silo", frame)
    cut = data.draw(st.integers(1, len(rows) - 1))
    parts = [encoder.encode("silo", part) for part in (frame[:cut], frame[cut:])]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


def test_one_spelling():
    assert level_text(1) == level_text(1.0) == level_text(" 1 ") == "1"
    assert level_text(True) == level_text("TRUE") == level_text("true") == "True"
    assert level_text(1.5) == level_text("1.5")


# --- `silodp data check`


@pytest.fixture
def run(cli):
    return functools.partial(cli, "data")


def test_check_command(run, tmp_path):
    path = csv(tmp_path, people().assign(site=["[b]north", "south"] * 20))
    some = ("--batch-size", "4")
    result = run("check", path, "--silo-column", "site", "--target", "ill", *some, "--json")
    described = json.loads(result.output)
    assert described["task"] == "binary"
    assert described["features"] == [8]
    silo = described["silos"][0]
    assert (silo["name"], silo["train"] + silo["test"]) == ("[b]north", 20)
    assert sum(silo["labels"].values()) == silo["train"]
    assert len(described["uncovered"]) == 3
    plain = run("check", path, "--silo-column", "site", "--target", "score", *some)
    assert plain.exit_code == 0
    assert "[b]north" in plain.output
    assert "Not covered by epsilon" in plain.output


def test_check_command_shows_subjects_and_what_is_public(run, tmp_path):
    path = csv(tmp_path, visits())
    asked = ("check", path, "--silo-column", "site", "--subject-column", "who", "--target", "score")
    asked += ("--batch-size", "2")
    described = json.loads(run(*asked, "--json").output)
    assert all(0 < silo["subjects"] < 8 for silo in described["silos"])
    assert described["declared"] == []
    printed = run(*asked).output
    assert "subjects" in printed
    assert "Taken as public" not in printed
    without = run("check", path, "--silo-column", "site", "--target", "score")
    assert "subjects" not in without.output
    binary = json.loads(run("check", "synthetic", "--task", "binary", "--json").output)
    assert binary["declared"] == ["class list"]
    assert "subjects" not in binary["silos"][0]
    assert "Taken as public: class list." in run("check", "synthetic", "--task", "binary").output


def test_check_command_refuses(run, sentence, tmp_path):
    path = csv(tmp_path, people())
    assert "--silo-column" in sentence(run("check", path, "--target", "score"))


def test_check_command_on_a_name(run, sentence):
    described = json.loads(run("check", "synthetic", "--task", "binary", "--json").output)
    assert described["task"] == "binary"
    assert described["uncovered"] == []
    assert "Nothing was learned" in run("check", "synthetic").output
    assert "'drop_missing'" in sentence(run("check", "synthetic", "--drop-missing"))
