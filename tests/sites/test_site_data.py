import datetime
import decimal
import sqlite3
import sys
import traceback
import uuid
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pandas as pd
import postgres_server
import pytest

from silodp.base.errors import SilodpError
from silodp.data.federation import ExpectedCounts
from silodp.data.tables import dialect
from silodp.data.tables.dialect import PLAIN, Dialect
from silodp.privacy.policy import Policy
from silodp.sites import site_data
from silodp.sites.agreed_schema import agreed_schema, example
from silodp.sites.findings import findings_of_parts, look_at
from silodp.sites.site_data import DataAtSite, data_at_site, load_records
from silodp.sites.site_files import read_site, write_site

SCHEMA = agreed_schema(
    "here",
    {
        "target": "ill",
        "task": "binary",
        "bounds": {"age": [0, 100], "bmi": [10, 50]},
        "levels": {"ward": ["01", "2", "x"], "smoker": [False, True]},
        "classes": ["no", "yes"],
    },
)
QUERY = "select * from visits"


def agreed(**change):
    return agreed_schema("here", {**SCHEMA.to_plain(), **change})


def rows(n=20):
    return pd.DataFrame(
        {
            "name": [f"person {i}" for i in range(n)],
            "ill": ["no", "yes"] * (n // 2),
            "ward": ["01", "2", "x", "x"] * (n // 4),
            "age": np.arange(n) * 3,
            "smoker": [True, False, False, True] * (n // 4),
            "bmi": 20 + np.arange(n) / 4,
            "who": [f"{i // 2:03d}" for i in range(n)],
        }
    )


def csv(folder, frame):
    frame.to_csv(folder / "records.csv", index=False)
    return DataAtSite(folder=folder, path=Path("records.csv"))


def sqlite(folder, frame, query=QUERY):
    with closing(sqlite3.connect(folder / "records.db")) as connection:
        frame.to_sql("visits", connection, index=False, if_exists="replace")
    return DataAtSite(folder=folder, url="sqlite:///records.db", query=query)


def load(source, schema=SCHEMA, seed=3, test_fraction=0.2):
    return load_records("north", source, schema, seed=seed, test_fraction=test_fraction)


def refused(words, source, schema=SCHEMA, **more):
    with pytest.raises(SilodpError, match=words) as error:
        load(source, schema, **more)
    message = str(error.value)
    assert "'north'" in message
    assert message.endswith((".", "?"))
    assert "\n" not in message
    return error


def check_same(one, other):
    assert one.feature_names == other.feature_names
    for a, b in (
        (one.silos[0].train, other.silos[0].train),
        (one.silos[0].test, other.silos[0].test),
    ):
        np.testing.assert_array_equal(a.x, b.x)
        np.testing.assert_array_equal(a.y, b.y)
        if a.subject is not None or b.subject is not None:
            np.testing.assert_array_equal(a.subject, b.subject)


def check_same_records(one, other):
    """The same records with the same owners, whichever are for testing."""
    assert one.feature_names == other.feature_names
    np.testing.assert_array_equal(all_records(one), all_records(other))
    assert one.silos[0].expected == other.silos[0].expected


def all_records(federation):
    silo = federation.silos[0]
    joined = [np.column_stack([part.x, part.y]) for part in (silo.train, silo.test)]
    return np.array(sorted(np.concatenate(joined).tolist()))


# --- what is read


def test_csv(tmp_path):
    federation = load(csv(tmp_path, rows()))
    assert federation.names == ("north",)
    assert federation.uncovered == ()
    assert federation.declared == ("feature bounds", "class list")
    assert federation.feature_names == example(SCHEMA).feature_names
    assert federation.input_shape == example(SCHEMA).input_shape
    assert federation.silos[0].expected == ExpectedCounts(train=16, test=4, max_count=20)
    assert federation.train_counts + federation.test_counts == 20
    ages = np.concatenate([federation.silos[0].train.x, federation.silos[0].test.x])[:, 0]
    np.testing.assert_allclose(np.sort(ages), np.arange(20) * 3 / 50 - 1, atol=1e-6)


def test_all_places_give_the_same(tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("sqlalchemy")
    frame = rows()
    one = load(csv(tmp_path, frame))
    frame.to_parquet(tmp_path / "records.parquet", index=False)
    check_same(one, load(DataAtSite(folder=tmp_path, path=Path("records.parquet"))))
    check_same(one, load(DataAtSite(path=tmp_path / "records.parquet")))
    # SQLite keeps true and false as 1 and 0, and rows come in an order of their own.
    check_same_records(one, load(sqlite(tmp_path, frame)))
    # The order of a site's columns, and what else it has, is its own business.
    check_same(one, load(csv(tmp_path, frame[frame.columns[::-1]].drop(columns="name"))))


def test_subjects(tmp_path):
    pytest.importorskip("sqlalchemy")
    schema = agreed(subject_column="who")
    one = load(csv(tmp_path, rows()), schema)
    assert one.by_subject
    assert one.silos[0].expected == ExpectedCounts(train=8, test=4, max_count=10)
    check_same_records(one, load(sqlite(tmp_path, rows()), schema))


def test_an_id_column_is_the_sites_own(tmp_path):
    """Nobody agreed on it, it is no feature, and a record that is mended stays where it was."""
    frame = rows().assign(visit=[f"v{number}" for number in range(20)])

    def tested(frame, id_column="visit"):
        source = csv(tmp_path, frame)
        one = load_records(
            "north", source, SCHEMA, seed=3, test_fraction=0.4, id_column=id_column
        ).silos[0]
        assert one.test.x.shape[1] == example(SCHEMA).input_shape[0]
        return sorted(one.test.x[:, 0].tolist())

    first = tested(frame)
    mended = frame.assign(bmi=frame.bmi + 1)
    assert tested(mended) == first
    assert tested(mended, None) != tested(frame, None)
    with pytest.raises(SilodpError, match=r"'vist', which site.toml names as id_column"):
        tested(frame, "vist")


@pytest.mark.parametrize("subject", [None, "who"])
@pytest.mark.parametrize("place", [csv, sqlite])
def test_a_row_less_moves_no_other(tmp_path, place, subject):
    if place is sqlite:
        pytest.importorskip("sqlalchemy")
    schema, frame = agreed(subject_column=subject), rows()
    ages = frame.age.map(lambda age: round(age / 50 - 1, 4))

    def trained(frame):
        silo = load(place(tmp_path, frame), schema, test_fraction=0.3).silos[0]
        return sorted(round(float(x), 4) for x in silo.train.x[:, 0])

    everyone, moved = trained(frame), 0
    for number in range(0, 20, 3):
        gone = [number] if subject is None else frame.index[frame.who == frame.who[number]]
        left = trained(frame.drop(index=gone))
        assert left == sorted(set(everyone) - set(ages[gone]))
        moved += left != everyone
    assert moved


def test_long_numbers_of_subjects_stay_apart(tmp_path):
    pytest.importorskip("sqlalchemy")
    frame = rows()
    # As floating point, all of these would be one.
    frame["who"] = pd.array([2**60 + i for i in range(19)] + [None], dtype="Int64")
    schema = agreed(subject_column="who", drop_missing=True)
    assert load(sqlite(tmp_path, frame), schema).silos[0].max_count == 19


def test_values_beyond_the_bounds_are_moved_there(tmp_path):
    frame = rows()
    frame["age"] = [-500, 500] * 10
    federation = load(csv(tmp_path, frame))
    assert set(federation.silos[0].train.x[:, 0]) == {-1, 1}


def test_regression(tmp_path):
    schema = agreed_schema(
        "here",
        {"target": "bmi", "task": "regression", "bounds": {"age": [0, 100]}, "range": [20, 30]},
    )
    federation = load(csv(tmp_path, rows()), schema)
    assert federation.declared == ("feature bounds", "label range")
    assert 0 <= federation.silos[0].train.y.min() < federation.silos[0].train.y.max() < 0.5


def test_the_split_goes_by_the_seed(tmp_path):
    source = csv(tmp_path, rows())
    check_same(load(source, seed=1), load(source, seed=1))
    one, two = (set(load(source, seed=seed).silos[0].test.x[:, 0]) for seed in (1, 2))
    assert one != two
    assert load(source, test_fraction=0.5).public_test_counts.tolist() == [10]
    for fraction in (0.0, 1.0):
        with pytest.raises(SilodpError, match="test_fraction"):
            load(source, test_fraction=fraction)


def test_a_url_from_the_environment(tmp_path, monkeypatch):
    pytest.importorskip("sqlalchemy")
    sqlite(tmp_path, rows())
    source = DataAtSite(url_env="NORTH_URL", query=QUERY)
    monkeypatch.delenv("NORTH_URL", raising=False)
    refused("environment variable 'NORTH_URL'", source)
    monkeypatch.setenv("NORTH_URL", f"sqlite:///{tmp_path / 'records.db'}")
    check_same_records(load(csv(tmp_path, rows())), load(source))


# --- what is refused when a coordinator asks: what is wrong with the table as a whole


@pytest.mark.parametrize("place", [csv, sqlite])
@pytest.mark.parametrize(
    ("words", "renamed"),
    [
        ("no column 'age', .* nearest is 'Age'", {"age": "Age"}),
        ("no column 'ill'", {"ill": "sick"}),
    ],
)
def test_bad_tables(tmp_path, place, words, renamed):
    if place is sqlite:
        pytest.importorskip("sqlalchemy")
    refused(words, place(tmp_path, rows().rename(columns=renamed)))


def test_files_that_are_none(tmp_path):
    refused("does not exist: check", DataAtSite(folder=tmp_path, path=Path("none.csv")))
    refused("does not end in .csv", DataAtSite(folder=tmp_path, path=Path("none.xlsx")))
    refused("neither a path, nor a url", DataAtSite())
    refused("neither a path, nor a url", DataAtSite(url="sqlite:///x.db"))
    (tmp_path / "empty.csv").write_text("\n")
    refused("is empty: give it a header", DataAtSite(folder=tmp_path, path=Path("empty.csv")))
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    refused("'a' is used more than once", DataAtSite(folder=tmp_path, path=Path("twice.csv")))
    pytest.importorskip("pyarrow")
    (tmp_path / "text.parquet").write_text("secret")
    error = refused("cannot be read as Parquet", DataAtSite(tmp_path, path=Path("text.parquet")))
    assert "secret" not in str(error.value)


# --- what a person is told before consenting, and no coordinator ever


def look(source, schema=SCHEMA):
    return look_at("north", source, schema)


@pytest.mark.parametrize("place", [csv, sqlite])
@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("column 'ward' has no row that fits \\('z'\\): .*'01', '2', 'x'", {"ward": ["z"] * 20}),
        ("column 'ill' has no row that fits", {"ill": ["maybe"] * 20}),
        ("column 'bmi' has no row that fits: store numbers", {"bmi": [None] * 20}),
        ("column 'age' has no row that fits \\('1,5'\\)", {"age": ["1,5"] * 20}),
        ("'age' has no row that fits \\('2020-01-31'\\)", {"age": ["2020-01-31"] * 20}),
    ],
)
def test_tables_that_cannot_be_meant(tmp_path, place, words, change):
    if place is sqlite:
        pytest.importorskip("sqlalchemy")
    source = place(tmp_path, rows().assign(**change))
    with pytest.raises(SilodpError, match=words) as error:
        look(source)
    assert "'north'" in str(error.value)
    load(source)  # which a coordinator may ask for


@pytest.mark.parametrize("place", [csv, sqlite])
@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, []),
        (
            {"ward": ["01", "z"] * 10},
            [("ward", "not among the levels ('z')", 10, "none of the levels")],
        ),
        ({"ill": ["no", "maybe"] * 10}, [("ill", "no target", 10, "the row is left out")]),
        ({"age": [1.0, None] * 10}, [("age", "missing", 10, "50")]),
        ({"ill": ["no", None] * 10}, [("ill", "no target", 10, "the row is left out")]),
        ({"age": [1, "old"] * 10}, [("age", "no number ('old')", 10, "50")]),
        ({"age": [1.0, float("inf")] * 10}, [("age", "above 100 (", 10, "100")]),
        ({"bmi": [20, -7] * 10}, [("bmi", "below 10 (", 10, "10")]),
        ({"smoker": [True, None] * 10}, [("smoker", "missing", 10, "none of the levels")]),
    ],
)
def test_what_a_person_is_told(tmp_path, place, change, found):
    if place is sqlite:
        pytest.importorskip("sqlalchemy")
    frame = rows().assign(**{column: pd.Series(v, dtype=object) for column, v in change.items()})
    looked = look(place(tmp_path, frame))
    told = [(one.column, one.rows, one.counts_as) for one in looked.findings]
    assert told == [(column, count, counts_as) for column, _, count, counts_as in found]
    for one, (_, what, _, _) in zip(looked.findings, found, strict=True):
        assert one.what.startswith(what)
        assert one.remedy
    left_out = sum(one.rows for one in looked.findings if "left out" in one.counts_as)
    assert (looked.rows, looked.usable) == (20, 20 - left_out)
    federation = load(place(tmp_path, frame))
    assert federation.train_counts + federation.test_counts == looked.usable


def test_rules_of_the_schema_are_told(tmp_path):
    frame = rows().assign(ward=["z", None] * 10, age=[None] * 20, smoker=[None, True] * 10)
    schema = agreed(other={"ward": "x"}, missing={"age": 30, "ward": "2"}, drop_missing=True)
    looked = look(csv(tmp_path, frame), schema)
    assert [(one.column, one.counts_as) for one in looked.findings] == [
        ("age", "30"),
        ("smoker", "the row is left out"),
        ("ward", "2"),
        ("ward", "x"),
    ]
    assert looked.usable == 10


def test_a_person_is_told_of_too_few(tmp_path):
    for source in (csv(tmp_path, rows()[:0]), csv(tmp_path, rows()[:1].assign(ill="?"))):
        with pytest.raises(SilodpError, match=r"no rows|no row that fits"):
            look(source)
        assert load(source).train_counts.tolist() == [0]
    # Each column has some value, but no row has all.
    frame = rows()[:2].assign(ill=[None, "yes"], age=[3, None])
    source, schema = csv(tmp_path, frame), agreed(drop_missing=True)
    with pytest.raises(SilodpError, match="no usable row"):
        look(source, schema)
    assert load(source, schema).train_counts.tolist() == [0]
    sides = set()
    for age in range(12):  # one record, whose coin falls on the one side or the other
        alone = load(csv(tmp_path, rows()[:1].assign(age=age, ill="no")))
        if len(alone.silos[0].train):
            sides.add("training")
            what = " ".join(finding.what for finding in findings_of_parts(alone))
            assert "no records for testing" in what
            assert "one class only (no)" in what
        else:
            sides.add("testing")
            with pytest.raises(SilodpError, match="no records left for training"):
                findings_of_parts(alone)
    assert sides == {"training", "testing"}
    assert findings_of_parts(load(csv(tmp_path, rows()))) == []


def test_missing_values_can_be_dropped(tmp_path):
    frame = rows()
    frame["age"] = [None, None, *range(18)]
    frame["smoker"] = [None, *frame.smoker[1:]]
    federation = load(csv(tmp_path, frame), agreed(drop_missing=True))
    assert federation.train_counts + federation.test_counts == 18
    filled = agreed(drop_missing=True, missing={"age": 30})
    federation = load(csv(tmp_path, frame), filled)
    assert federation.train_counts + federation.test_counts == 19
    frame["age"] = None
    federation = load(csv(tmp_path, frame), agreed(drop_missing=True))
    assert federation.train_counts + federation.test_counts == 0


def encoded(federation):
    """Features of all records, in no order, as a dictionary of columns would name them."""
    silo = federation.silos[0]
    return sorted(np.concatenate([silo.train.x, silo.test.x]).tolist())


def test_what_odd_values_count_as(tmp_path):
    frame = rows()[:4].assign(ward=["z", None, "x", " x "], age=[None, "old", "1e400", " 50 "])
    frame["smoker"] = [1, "0", "TRUE", 7]
    frame["bmi"] = [30, "30.0", "nan", "-inf"]
    names = list(load(csv(tmp_path, rows())).feature_names)
    assert names[:4] == ["age", "bmi", "smoker=False", "smoker=True"]
    assert encoded(load(csv(tmp_path, frame))) == sorted(
        [
            [0, 0, 0, 1, 0, 0, 0],
            [0, 0, 1, 0, 0, 0, 0],
            [1, 0, 0, 1, 0, 0, 1],
            [0, -1, 0, 0, 0, 0, 1],
        ]
    )
    schema = agreed(
        other={"ward": "01", "smoker": True}, missing={"age": 100, "ward": "2", "bmi": 50}
    )
    assert encoded(load(csv(tmp_path, frame), schema)) == sorted(
        [
            [1, 0, 0, 1, 1, 0, 0],
            [1, 0, 1, 0, 0, 1, 0],
            [1, 1, 0, 1, 0, 0, 1],
            [0, -1, 0, 1, 0, 0, 1],
        ]
    )


def test_torn_rows_of_a_csv_file(tmp_path):
    source = replace(csv(tmp_path, rows()), dialect=PLAIN)
    whole = load(source)
    text = (tmp_path / "records.csv").read_text().splitlines()
    odd = ["a,b,c,d,e,f,g,h,i", "short", "", '"a, quoted",no,x,1,True,20,"who ""?"""']
    content = "\n".join([text[0], odd[0], *text[1:], *odd[1:]]).encode()
    (tmp_path / "records.csv").write_bytes(content + b"\n\xff\xfe,no,x,\x00,True,20,w\n")
    looked = look(source)
    assert (looked.rows, looked.usable) == (23, 22)
    assert [one.rows for one in looked.findings if not one.column] == [1]
    more = load(source)
    assert len(all_records(more)) == 22
    for record in all_records(whole).tolist():
        assert record in all_records(more).tolist()
    # Nobody can say where such a value ends; it is read to the end of the file.
    (tmp_path / "records.csv").write_bytes(content + b'\n"never closed,no\nx,no,x,1,True,20,w')
    assert len(all_records(load(source))) == 21


def test_strange_types_of_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    source = DataAtSite(folder=tmp_path, path=Path("a.parquet"))
    for column, values in (
        ("age", [datetime.date(2020, 1, 31)] * 20),
        ("age", pd.to_datetime(["2020-01-31"] * 20)),
        ("age", [True, False] * 10),
        ("age", [[1, 2]] * 20),
        ("ward", [["x"], ["2"]] * 10),
        ("ward", [b"x"] * 20),
    ):
        rows().assign(**{column: values}).to_parquet(tmp_path / "a.parquet", index=False)
        with pytest.raises(SilodpError, match=f"column '{column}' has no row that fits"):
            look(source)
        silo = load(source).silos[0]
        odd = [name.startswith(column) for name in load(source).feature_names]
        assert not np.concatenate([silo.train.x, silo.test.x])[:, odd].any()


def test_parquet_of_any_kind_of_number_or_word(tmp_path):
    pytest.importorskip("pyarrow")
    one = load(csv(tmp_path, rows()))
    source = DataAtSite(folder=tmp_path, path=Path("a.parquet"))
    for change in (
        {"age": rows().age.astype("float32")},
        {"age": rows().age.astype("float16")},
        {"age": rows().age.astype("uint8")},
        {"age": rows().age.map(decimal.Decimal)},
        {"age": rows().age.astype(str)},
        {"ward": rows().ward.astype("category")},
        {"smoker": rows().smoker.astype(int)},
        {"smoker": rows().smoker.astype(str).str.lower()},
    ):
        rows().assign(**change).to_parquet(tmp_path / "a.parquet", index=False)
        check_same(one, load(source))


# --- databases

sql = pytest.importorskip("sqlalchemy")


def test_numbers_as_categories_and_gaps(tmp_path):
    frame = rows().assign(ward=[1.0, 2.0] * 10)
    frame["smoker"] = pd.array([1, 0, 1, None] * 5, dtype="Int64")
    schema = agreed(levels={"ward": [1, 2], "smoker": [False, True]}, drop_missing=True)
    federation = load(sqlite(tmp_path, frame), schema)
    assert federation.train_counts + federation.test_counts == 15


def test_a_column_of_any_type(tmp_path):
    # SQLite holds a column to no type.
    source = sqlite(tmp_path, rows(), "select *, iif(rowid = 3, 'old', rowid) as age from v")
    with closing(sqlite3.connect(tmp_path / "records.db")) as connection:
        connection.execute(
            "create view v as select name, ill, ward, smoker, bmi, rowid from visits"
        )
    ages = np.array(encoded(load(source)))[:, 0]
    np.testing.assert_allclose(
        np.sort(ages), np.sort([0.0 if i == 3 else i / 50 - 1 for i in range(1, 21)]), atol=1e-6
    )
    mixed = "select ill, age, smoker, bmi, iif(rowid % 2, 2, 'x') as ward from v2"
    with closing(sqlite3.connect(tmp_path / "records.db")) as connection:
        connection.execute("create view v2 as select *, rowid from visits")
    federation = load(DataAtSite(folder=tmp_path, url=source.url, query=mixed))
    assert federation.feature_names[-2:] == ("ward=2", "ward=x")


def test_other_numbers_are_no_booleans(tmp_path):
    federation = load(sqlite(tmp_path, rows().assign(smoker=[0, 2] * 10)))
    assert set(map(tuple, np.array(encoded(federation))[:, 2:4])) == {(1, 0), (0, 0)}


@pytest.mark.parametrize(
    ("words", "query"),
    [
        ("the query fails .*no such table: vists.*: correct the query", "select * from vists"),
        ("the query fails .*syntax error", "selct 1"),
        ("the query fails .*one statement", "select 1; select 2"),
        ("the query selects nothing", "begin"),
        ("the query fails .*readonly", "delete from visits"),
        ("the query fails .*readonly", "delete from visits returning *"),
        ("'age' is used more than once", "select *, age from visits"),
        ("no column 'bmi'.*select ... as \"bmi\"", "select age, ill from visits"),
    ],
)
def test_bad_queries(tmp_path, words, query):
    source = sqlite(tmp_path, rows(), query)
    refused(words, source)
    assert load(replace(source, query=QUERY)).public_counts.tolist() == [16]


def test_a_query_without_rows(tmp_path):
    source = sqlite(tmp_path, rows(), "select * from visits where age > 1000")
    assert load(source).train_counts.tolist() == [0]
    with pytest.raises(SilodpError, match="'north': the query's answer has no rows"):
        look(source)


def test_a_text_that_is_none_of_a_database(tmp_path):
    query = "select age, bmi, smoker, ill, iif(age = 3, cast(x'ff78' as text), ward) as ward "
    federation = load(sqlite(tmp_path, rows(), query + "from visits"))
    assert len(all_records(federation)) == 20


def test_the_order_of_an_answer_does_not_matter(tmp_path):
    source = sqlite(tmp_path, rows())
    one = load(source)
    for order in ("age", "age desc", "ill, ward", "random()"):
        check_same(one, load(replace(source, query=f"{QUERY} order by {order}")))


def test_signs_that_mean_something_to_drivers(tmp_path):
    query = "select *, ':x' as colon from visits where ward like '%' and name <> '%s'"
    check_same_records(load(csv(tmp_path, rows())), load(sqlite(tmp_path, rows(), query)))


def test_an_sqlite_file_is_not_made(tmp_path):
    refused("none.db .* does not exist", DataAtSite(tmp_path, url="sqlite:///none.db", query=QUERY))
    assert not (tmp_path / "none.db").exists()
    for url in ("sqlite://", "sqlite:///:memory:"):
        refused("names no file", DataAtSite(tmp_path, url=url, query=QUERY))
    (tmp_path / "text.db").write_text("this is not a database " * 100)
    refused("not a database", DataAtSite(tmp_path, url="sqlite:///text.db", query=QUERY))


@pytest.mark.parametrize(
    ("words", "url"),
    [
        ("cannot be understood", "secret"),
        ("cannot be understood", "postgresql://user:secret/db"),
        ("more than one @", "postgresql://user:se@secret@host/db"),
        ("'oracel', which SQLAlchemy does not know", "oracel://user:secret@host/db"),
        ("needs the package 'MySQLdb'", "mysql://user:secret@host/db"),
        ("needs the package 'pymysql'", "mysql+pymysql://user:secret@host/db"),
    ],
)
def test_bad_urls_are_not_repeated(words, url):
    error = refused(words, DataAtSite(url=url, query=QUERY))
    assert "secret" not in "".join(traceback.format_exception(error.value))
    assert "secret" not in repr(DataAtSite(url=url, query=QUERY))


def test_a_database_that_is_not_there():
    pytest.importorskip("psycopg")
    port = postgres_server.free_port()
    url = f"postgresql+psycopg://user:secret@127.0.0.1:{port}/db?sslpassword=secret2"
    error = refused("cannot be used .*refused.*: check the url", DataAtSite(url=url, query=QUERY))
    assert f"user:***@127.0.0.1:{port}/db" in str(error.value)
    assert "secret" not in "".join(traceback.format_exception(error.value))


def test_without_the_driver(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    source = DataAtSite(url="postgresql+psycopg://user:secret@host/db", query=QUERY)
    error = refused(r"needs the package 'psycopg'.*pip install 'silodp\[postgres\]'`.$", source)
    assert "secret" not in str(error.value)
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    source = DataAtSite(url="postgresql+psycopg2://user:secret@host/db", query=QUERY)
    refused(r"silodp\[postgres\]'` and begin the url with postgresql\+psycopg://", source)


def test_without_sqlalchemy(tmp_path, monkeypatch):
    source = sqlite(tmp_path, rows())
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    refused(r"pip install 'silodp\[sites\]'", source)


# --- PostgreSQL


@pytest.fixture(scope="module")
def postgres():
    pytest.importorskip("psycopg", reason="the driver of PostgreSQL (psycopg) is not installed")
    if reason := postgres_server.why_not():
        pytest.skip(reason)
    with postgres_server.server() as port:
        password = quote(postgres_server.PASSWORD, safe="")
        yield f"postgresql+psycopg://site:{password}@127.0.0.1:{port}/postgres"


def fill(url, frame=None, *more):
    """The table visits, in PostgreSQL's own types."""
    frame = rows() if frame is None else frame
    engine = sql.create_engine(url, poolclass=sql.pool.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("drop table if exists visits")
        connection.exec_driver_sql(
            "create table visits (id uuid, name text, ill varchar(5), ward text, age bigint, "
            "smoker boolean, bmi numeric(8, 2), who numeric(30), born date, seen timestamptz, "
            "tags text[], more jsonb, raw bytea)"
        )
        for i, row in enumerate(frame.to_dict("records")):
            connection.exec_driver_sql(
                "insert into visits values (%s, %s, %s, %s, %s, %s, %s, %s, '1970-01-31', now(), "
                "'{a,b}', '{\"a\": 1}', 'x')",
                (
                    *(uuid.UUID(int=i // 2), row["name"], row["ill"], row["ward"], row["age"]),
                    *(row["smoker"], decimal.Decimal(row["bmi"]), 10**25 + i // 2),
                ),
            )
        for statement in more:
            connection.exec_driver_sql(statement)
    engine.dispose()


def test_postgres(postgres, tmp_path):
    fill(postgres)
    source = DataAtSite(url=postgres, query=QUERY)
    check_same_records(load(csv(tmp_path, rows())), load(source))
    # Words, long numbers and UUIDs name the same people.
    schema = agreed(subject_column="who")
    one = load(csv(tmp_path, rows()), schema)
    check_same_records(one, load(source, schema))
    named = f"select {', '.join(SCHEMA.columns)}, id as who from visits"
    check_same_records(one, load(replace(source, query=named), schema))
    moved = load(source, schema)
    fill(postgres, rows()[::-1])
    check_same_records(moved, load(source, schema))


def test_postgres_with_gaps(postgres):
    fill(
        postgres,
        None,
        "update visits set smoker = null where age = 3",
        "update visits set bmi = null where age = 6",
        "update visits set age = null where age = 9",
        "update visits set bmi = 'NaN' where age = 12",
    )
    source = DataAtSite(url=postgres, query="select * from visits order by name")
    found = {one.column: one.rows for one in look(source).findings}
    assert found == {"age": 1, "bmi": 2, "smoker": 1}
    assert len(all_records(load(source))) == 20
    federation = load(source, agreed(drop_missing=True))
    assert federation.train_counts + federation.test_counts == 16


def test_postgres_types_that_nobody_means(postgres):
    """Also dates that Python does not know, at which the driver would stop."""
    fill(
        postgres,
        None,
        "update visits set born = '12000-01-01' where age = 3",
        "update visits set born = '4000-01-01 BC' where age = 6",
        "update visits set seen = '20000-01-01' where age = 9",
    )
    for column, select in (
        ("age", "born as age, bmi, ward, smoker, ill"),
        ("age", "seen as age, bmi, ward, smoker, ill"),
        ("age", "smoker as age, bmi, ward, smoker, ill"),
        ("age", "ill as age, bmi, ward, smoker, ill"),
        ("age", "tags as age, bmi, ward, smoker, ill"),
        ("ward", "age, bmi, tags as ward, smoker, ill"),
        ("ward", "age, bmi, more as ward, smoker, ill"),
        ("ward", "age, bmi, raw as ward, smoker, ill"),
        ("ward", "age, bmi, born as ward, smoker, ill"),
    ):
        source = DataAtSite(url=postgres, query=f"select {select} from visits order by name")
        with pytest.raises(SilodpError, match=f"column '{column}' has no row that fits"):
            look(source)
        assert len(all_records(load(source))) == 20


def test_postgres_is_read_only(postgres):
    fill(postgres)
    for query in (
        "delete from visits",
        "update visits set age = 1 returning *",
        "drop table visits",
    ):
        refused("the query fails .*read-only", DataAtSite(url=postgres, query=query))
    assert load(DataAtSite(url=postgres, query=QUERY)).public_counts.tolist() == [16]


def test_postgres_hides_passwords(postgres):
    wrong = postgres.replace("site:", "site:wrong")
    error = refused(
        "cannot be used .*password authentication failed", DataAtSite(url=wrong, query=QUERY)
    )
    query = f"select '{postgres_server.PASSWORD.replace('%', '%%')}' from none"
    other = refused("the query fails", DataAtSite(url=postgres, query=query))
    same = f'select * from "{postgres_server.PASSWORD}"'
    third = refused('relation "\\*\\*\\*" does not exist', DataAtSite(url=postgres, query=same))
    for told in (error, other, third):
        text = "".join(traceback.format_exception(told.value))
        assert postgres_server.PASSWORD not in text
        assert quote(postgres_server.PASSWORD, safe="") not in text


# --- the [data] of a site's file


def test_what_a_file_may_say():
    assert data_at_site("here", Path("x"), {"path": "a.csv"}) == DataAtSite(
        Path("x"), path=Path("a.csv")
    )
    source = data_at_site("here", Path("x"), {"url_env": "A", "query": QUERY})
    assert source == DataAtSite(Path("x"), url_env="A", query=QUERY)


@pytest.mark.parametrize(
    ("words", "table"),
    [
        ("'pth' is unknown: did you mean 'path'", {"pth": "a.csv"}),
        ("no records are named", {}),
        ("path is not text", {"path": 3}),
        ("query is not text", {"url": "x", "query": " "}),
        ("path and url are both", {"path": "a", "url": "secret"}),
        ("path and query are both", {"path": "a", "query": "secret"}),
        ("url and url_env are both", {"url": "secret", "url_env": "B", "query": "x"}),
        ("query is given, but no database", {"query": "x"}),
        ("url is given, but no query", {"url": "secret"}),
        ("url_env is given, but no query", {"url_env": "B"}),
        ("url is not text", {"url": ["secret"], "query": "x"}),
    ],
)
def test_what_a_file_may_not_say(words, table):
    with pytest.raises(SilodpError, match=f"^here: .*{words}") as error:
        data_at_site("here", Path("x"), table)
    assert "secret" not in str(error.value)


# --- how a file is written: fixed by a person, and never found while a site answers

GERMAN = Dialect(delimiter=";", decimal=",")
DATED = agreed_schema(
    "here",
    {
        **{"target": "ill", "task": "binary", "classes": ["no", "yes"]},
        "bounds": {"age": [0, 120], "day": [0, 100]},
        "dates": {"day": {"origin": "2020-01-01", "format": "%d.%m.%Y"}},
        "words": {"age": {"90+": 90, "unknown": "missing"}},
        "missing": {"age": {"value": 50, "indicator": True}, "day": "drop"},
    },
)


@pytest.fixture
def german(tmp_path):
    """A site's table as German Excel writes it."""
    rows = [f"{20 + row},5;{1 + row % 28}.1.2020;{'no' if row % 3 else 'yes'}" for row in range(40)]
    rows += ["90+;1.2.2020;no", "unknown;2.2.2020;no", "30;someday;no"]
    (tmp_path / "records.csv").write_text("\n".join(["age;day;ill", *rows]))
    return tmp_path


def test_a_person_fixes_how_a_file_is_written(german):
    undeclared = DataAtSite(folder=german, path=Path("records.csv"))
    with pytest.raises(SilodpError, match=r'delimiter = ";", decimal = ","'):
        look_at("north", undeclared, DATED)
    looked = look_at("north", replace(undeclared, dialect=GERMAN), DATED)
    assert (looked.rows, looked.usable) == (43, 42)
    assert [(one.column, one.rows, one.counts_as) for one in looked.findings] == [
        ("age", 1, "50"),
        ("day", 1, "the row is left out"),
    ]


def test_a_site_never_finds_it_while_it_answers(german, monkeypatch):
    def not_now(path):
        raise AssertionError("a site answers, and looks at all records to read one")

    monkeypatch.setattr(site_data, "sniffed", not_now)
    monkeypatch.setattr(dialect, "sniffed", not_now)
    source = DataAtSite(folder=german, path=Path("records.csv"), dialect=GERMAN)
    federation = load_records("north", source, DATED, seed=0, test_fraction=0.3)
    assert federation.feature_names == ("age", "age is missing", "day")
    x = np.concatenate([federation.silos[0].train.x, federation.silos[0].test.x])
    assert len(x) == 42
    assert x[:, 1].sum() == 1
    assert x[x[:, 1] == 1, 0] == pytest.approx(50 / 120 * 2 - 1)
    # Without a dialect it is the plain one: no column of that name, and no other way is tried.
    with pytest.raises(SilodpError, match="has no column 'age'"):
        load_records("north", replace(source, dialect=None), DATED, seed=0, test_fraction=0.3)


def test_the_dialect_stands_in_the_sites_own_file(tmp_path):
    where = "site.toml"
    data = data_at_site(where, tmp_path, {"path": "a.csv", "delimiter": ";", "decimal": ","})
    assert data.dialect == GERMAN
    assert data_at_site(where, tmp_path, {"path": "a.csv"}).dialect is None
    written = write_site(tmp_path, "north", data, Policy(epsilon=1, delta=1e-5, silo="north"))
    assert 'delimiter = ";"' in written.read_text()
    assert read_site(tmp_path).data.dialect == GERMAN
    with pytest.raises(SilodpError, match="delimiter is ' '"):
        data_at_site(where, tmp_path, {"path": "a.csv", "delimiter": " "})
    with pytest.raises(SilodpError, match="decimal is given, but no path"):
        data_at_site(where, tmp_path, {"url": "sqlite://", "query": "q", "decimal": ","})


@pytest.mark.parametrize("name", ["a.xlsx", "a.dta", "a.sav"])
def test_files_that_one_record_could_make_unreadable(tmp_path, name):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(SilodpError, match="whatever one record holds: save the table as CSV"):
        load_records("north", DataAtSite(tmp_path, Path(name)), DATED, seed=0, test_fraction=0.3)
