"""Tables whose records are split by time, or by group."""

import datetime
import json

import numpy as np
import pandas as pd
import pytest

from silodp.base.errors import SilodpError
from silodp.data.registry import DataOptions, resolve
from silodp.data.tables.times import places_in_time


def visits(n=60, seed=0):
    """Two silos in turn; the target is the row's number, so that rows can be told."""
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.permutation(n), unit="D")
    return pd.DataFrame(
        {
            "site": ["north", "south"] * (n // 2),
            "day": days.strftime("%Y-%m-%d"),
            "family": [f"{number:02}" for number in rng.integers(0, 12, n)],
            "person": rng.integers(0, 30, n),
            "age": rng.integers(20, 80, n),
            "score": np.arange(n) + 0.5,
        }
    )


def csv(folder, frame):
    frame.to_csv(folder / "visits.csv", index=False)
    return folder / "visits.csv"


def load(path, seed=0, **options):
    given = DataOptions(
        **{"silo_column": "site", "target": "score", "preprocess": "none", **options}
    )
    return resolve(path, given).load(seed, given)


def refused(words, path, **options):
    with pytest.raises(SilodpError, match=words) as error:
        load(path, **options)
    assert str(error.value).endswith((".", "?"))
    assert "\n" not in str(error.value)


def rows_of(frame, records):
    return frame.iloc[(records.y - 0.5).astype(int)]


def test_the_latest_records_are_tested(tmp_path):
    frame = visits()
    path = csv(tmp_path, frame)
    federation = load(path, time_column="day", ignore=["family", "person"])
    assert federation.input_shape == (1,)  # the day is no feature
    for silo in federation.silos:
        train, test = rows_of(frame, silo.train), rows_of(frame, silo.test)
        assert len(test) == 6
        assert train.day.max() < test.day.min()
    again = load(path, seed=7, time_column="day", ignore=["family", "person"])
    np.testing.assert_array_equal(again.silos[0].train.y, federation.silos[0].train.y)


def test_a_subject_may_be_on_both_sides_of_the_cut(tmp_path):
    frame = visits()
    path = csv(tmp_path, frame)
    federation = load(path, time_column="day", subject_column="person", ignore=["family"])
    assert federation.by_subject
    for silo in federation.silos:
        assert rows_of(frame, silo.train).day.max() < rows_of(frame, silo.test).day.min()


@pytest.mark.parametrize("subject", [None, "person"])
def test_a_group_is_on_one_side(tmp_path, subject):
    frame = visits()
    frame["person"] = frame.family + frame.age.astype(str)
    path = csv(tmp_path, frame)
    ignore = ["day"] if subject else ["day", "person"]
    given = {"group_column": "family", "subject_column": subject, "task": "regression"}
    one, two = (load(path, seed, ignore=ignore, **given) for seed in (0, 1))
    assert one.input_shape == (1,)
    for silo in one.silos:
        train, test = rows_of(frame, silo.train), rows_of(frame, silo.test)
        assert not set(train.family) & set(test.family)
    np.testing.assert_array_equal(one.public_counts, two.public_counts)
    assert one.uncovered == ()
    assert one.by_subject == (subject is not None)


def test_columns_have_one_role(tmp_path):
    path = csv(tmp_path, visits())
    refused("'day' is both time_column and silo_column", path, silo_column="day", time_column="day")
    refused("'score' is both group_column and target", path, group_column="score")
    both = {"time_column": "day", "group_column": "family"}
    refused("time_column is 'day' and group_column is 'family'", path, **both)
    refused("time_column names the column 'dai'.* did you mean 'day'", path, time_column="dai")
    refused(
        "group_column names the column 'famly'.* did you mean 'family'", path, group_column="famly"
    )
    levels = {"family": ["01", "02"]}
    refused("'family', which is the group_column", path, group_column="family", levels=levels)
    bounds = {"day": (0, 1)}
    refused("'day', which is the time_column", path, time_column="day", bounds=bounds)


def test_missing_times_and_groups(tmp_path):
    frame = visits()
    frame.loc[3, "day"] = None
    frame.loc[5, "family"] = None
    path = csv(tmp_path, frame)
    refused("1 in column 'day' of silo 'south'", path, time_column="day", ignore=["family"])
    refused("1 in column 'family' of silo 'south'", path, group_column="family", ignore=["day"])
    federation = load(path, time_column="day", ignore=["family"], drop_missing=True)
    assert federation.silos[1].train.y.size + federation.silos[1].test.y.size == 29


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ([3, 1, 2, 3], [2, 0, 1, 2]),
        ([2**60 + 1, 2**60, 5, 5], [2, 1, 0, 0]),  # beyond what a float can tell apart
        ([0.5, -1.0, 0.5, 2.0], [1, 0, 1, 2]),
        (["2024-02-01", "2023-12-31", "2024-02-01 00:00", "2024-02-01T00:00:01"], [1, 0, 1, 2]),
        # Half past one in Paris is before one in London.
        (["2024-03-01T01:30+01:00", "2024-03-01T01:00Z", "2024-03-01T00:30:00.5Z"], [0, 2, 1]),
        ([datetime.date(2024, 1, 2), datetime.date(2024, 1, 1)], [1, 0]),
        (pd.to_datetime(["2024-01-02", "2024-01-01"]), [1, 0]),
        (pd.to_timedelta([2, 1], unit="D"), [1, 0]),
        (pd.Categorical(["2024-01-02", "2023-01-01"]), [1, 0]),
    ],
)
def test_places_in_time(values, places):
    assert places_in_time("a", "when", pd.Series(values)).tolist() == places


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["2024-01-01", "31/12/2024"], "'31/12/2024', which is no number or ISO date"),
        (["2024-01-01", "2024-13-01"], "'2024-13-01'"),
        (["2024-01-01", "2023-02-29"], "'2023-02-29'"),
        (["2024-01-01", "2024-1-2"], "'2024-1-2'"),
        (["2024-01-01", "12"], "'12'"),
        (["2024-01-01", ""], "holds ''"),
        (["2024-01-01 10:00", "2024-01-01 10:00+02:00"], r"\+02:00' with a time zone"),
        ([1.0, float("inf")], "infinite"),
        ([True, False], "True"),
        ([datetime.time(10), datetime.time(11)], "holds '10:00:00', which is no number"),
        ([datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1)], "holds '2024-01-01', which"),
    ],
)
def test_what_says_no_time_is_refused(values, words):
    with pytest.raises(SilodpError, match=rf"Silo 'a'.*'when'.*{words}"):
        places_in_time("a", "when", pd.Series(values, dtype=object))


def test_data_check_takes_both(tmp_path, cli):
    path = csv(tmp_path, visits().drop(columns=["family", "person"]))
    options = ("--silo-column", "site", "--target", "score", "--batch-size", "4")
    done = cli("data", "check", path, *options, "--time-column", "day", "--json")
    assert [silo["test"] for silo in json.loads(done.stdout)["silos"]] == [6, 6]
    path = csv(tmp_path, visits().drop(columns=["day", "person"]))
    done = cli("data", "check", path, *options, "--group-column", "family", "--json")
    assert json.loads(done.stdout)["features"] == [1]


@pytest.mark.slow
def test_private_runs(tmp_path, cli):
    pytest.importorskip("pyarrow")
    frame = visits(160).drop(columns="person")
    frame.drop(columns="day").to_parquet(tmp_path / "visits.parquet", index=False)
    options = ("--silo-column", "site", "--target", "score", "--epsilon", "8", "--rounds", "1")
    path = csv(tmp_path, frame.drop(columns="family"))
    done = cli("run", "--data", path, "--time-column", "day", *options)
    assert done.exit_code == 0, done.output
    path = tmp_path / "visits.parquet"
    # Groups differ in size, and so do parts from seed to seed.
    done = cli("run", "--data", path, "--group-column", "family", "--seeds", "2", *options)
    assert done.exit_code == 0, done.output
