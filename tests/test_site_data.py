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

from silodp.errors import SilodpError
from silodp.federation import ExpectedCounts
from silodp.sites.agreed_schema import agreed_schema, example
from silodp.sites.site_data import DataAtSite, data_at_site, load_records

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
    assert message.endswith(".")
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
    assert federation.silos[0].expected == ExpectedCounts(train=16, test=4, most=20)
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
    assert one.silos[0].expected == ExpectedCounts(train=8, test=4, most=10)
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
    with pytest.raises(SilodpError, match="id_column names the column 'vist'"):
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
    assert load(sqlite(tmp_path, frame), schema).silos[0].most == 19


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


# --- what is refused of any table


@pytest.mark.parametrize("place", [csv, sqlite])
@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("no column 'age', .* nearest is 'Age'", {"rename": {"age": "Age"}}),
        ("no column 'ill'", {"rename": {"ill": "sick"}}),
        ("column 'ward' holds 'z', which is not among its levels", {"ward": ["01", "z"] * 10}),
        ("column 'ill' holds 'maybe', which", {"ill": ["no", "maybe"] * 10}),
        ("10 in column 'age' of silo", {"age": [1.0, None] * 10}),
        ("10 in column 'ill' of silo", {"ill": ["no", None] * 10}),
        ("20 in column 'bmi' of silo", {"bmi": [None] * 20}),
        ("one class only \\(no\\)", {"ill": ["no"] * 20}),
        ("column 'age' holds '1', but numbers", {"age": [1, "old"] * 10}),
        ("column 'age' holds '1,5', but numbers", {"age": ["1,5"] * 20}),
        ("column 'age' holds '2020-01-31', but numbers", {"age": ["2020-01-31"] * 20}),
        ("column 'age' holds 10 infinite", {"age": [1.0, float("inf")] * 10}),
    ],
)
def test_bad_tables(tmp_path, place, words, change):
    if place is sqlite:
        pytest.importorskip("sqlalchemy")
    if "rename" in change:
        frame = rows().rename(columns=change["rename"])
    else:
        frame = rows().assign(**{column: pd.Series(values) for column, values in change.items()})
    refused(words, place(tmp_path, frame))


def test_too_few(tmp_path):
    refused("1 record, of which", csv(tmp_path, rows()[:1]))
    refused("no rows", csv(tmp_path, rows()[:0]))
    refused("does not exist: check", DataAtSite(folder=tmp_path, path=Path("none.csv")))
    refused("does not end in .csv", DataAtSite(folder=tmp_path, path=Path("none.xlsx")))
    refused("neither a path, nor a url", DataAtSite())
    refused("neither a path, nor a url", DataAtSite(url="sqlite:///x.db"))


def test_missing_values_can_be_dropped(tmp_path):
    frame = rows()
    frame["age"] = [None, None, *range(18)]
    frame["smoker"] = [None, *frame.smoker[1:]]
    federation = load(csv(tmp_path, frame), agreed(drop_missing=True))
    assert federation.train_counts + federation.test_counts == 18
    frame["age"] = None
    refused("no row without missing", csv(tmp_path, frame), agreed(drop_missing=True))


def test_strange_types_of_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    source = DataAtSite(folder=tmp_path, path=Path("a.parquet"))
    for words, change in (
        ("'age' holds dates, but numbers", {"age": [datetime.date(2020, 1, 31)] * 20}),
        ("'age' holds dates, but numbers", {"age": pd.to_datetime(["2020-01-31"] * 20)}),
        ("'age' holds True, but numbers", {"age": [True, False] * 10}),
        ("'ward' holds values of type ndarray", {"ward": [["x"], ["2"]] * 10}),
        ("'ward' holds values of type bytes", {"ward": [b"x"] * 20}),
    ):
        rows().assign(**change).to_parquet(tmp_path / "a.parquet", index=False)
        refused(words, source)


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
    refused("column 'age' holds 'old', but numbers", source)
    mixed = "select ill, age, smoker, bmi, iif(rowid % 2, 2, 'x') as ward from v2"
    with closing(sqlite3.connect(tmp_path / "records.db")) as connection:
        connection.execute("create view v2 as select *, rowid from visits")
    federation = load(DataAtSite(folder=tmp_path, url=source.url, query=mixed))
    assert federation.feature_names[-2:] == ("ward=2", "ward=x")


def test_other_numbers_are_no_booleans(tmp_path):
    refused(
        "'smoker' holds '0', which is not among",
        sqlite(tmp_path, rows().assign(smoker=[0, 2] * 10)),
    )


@pytest.mark.parametrize(
    ("words", "query"),
    [
        ("the query fails .*no such table: vists.*: mend the query", "select * from vists"),
        ("the query fails .*syntax error", "selct 1"),
        ("the query fails .*one statement", "select 1; select 2"),
        ("the query returns no rows from sqlite", "select * from visits where age > 1000"),
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
    refused(
        "1 in column 'age' of silo 'north', 2 in column 'bmi' of silo 'north', 1 in column",
        source,
    )
    federation = load(source, agreed(drop_missing=True))
    assert federation.train_counts + federation.test_counts == 16


def test_postgres_types_that_are_refused(postgres):
    fill(postgres)
    for words, select in (
        ("'age' holds dates, but numbers", "born as age, bmi, ward, smoker, ill"),
        ("'age' holds dates, but numbers", "seen as age, bmi, ward, smoker, ill"),
        (
            "'age' holds True, but numbers|'age' holds False",
            "smoker as age, bmi, ward, smoker, ill",
        ),
        ("'age' holds 'no', but numbers", "ill as age, bmi, ward, smoker, ill"),
        ("'age' holds ", "tags as age, bmi, ward, smoker, ill"),
        ("'ward' holds values of type list", "age, bmi, tags as ward, smoker, ill"),
        ("'ward' holds values of type dict", "age, bmi, more as ward, smoker, ill"),
        ("'ward' holds values of type bytes", "age, bmi, raw as ward, smoker, ill"),
        ("'ward' holds values of type date", "age, bmi, born as ward, smoker, ill"),
    ):
        refused(words, DataAtSite(url=postgres, query=f"select {select} from visits order by name"))


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
        ("'pth' is unknown: use 'path'", {"pth": "a.csv"}),
        ("no records are named", {}),
        ("path is no text", {"path": 3}),
        ("query is no text", {"url": "x", "query": " "}),
        ("path and url are both", {"path": "a", "url": "secret"}),
        ("path and query are both", {"path": "a", "query": "secret"}),
        ("url and url_env are both", {"url": "secret", "url_env": "B", "query": "x"}),
        ("query is given, but no database", {"query": "x"}),
        ("url is given, but no query", {"url": "secret"}),
        ("url_env is given, but no query", {"url_env": "B"}),
        ("url is no text", {"url": ["secret"], "query": "x"}),
    ],
)
def test_what_a_file_may_not_say(words, table):
    with pytest.raises(SilodpError, match=f"^here: .*{words}") as error:
        data_at_site("here", Path("x"), table)
    assert "secret" not in str(error.value)
