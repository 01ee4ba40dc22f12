"""No record makes a site refuse, and none changes what becomes of another.

A refusal when a coordinator asks would be a release that nothing was paid for: one bit about the
record that is the reason. Likewise a record that changes how others are read would be in more than
one term of what epsilon is about.
"""

import datetime
import decimal
import logging
import math
import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from site_folders import (
    make_coordinator,
    make_sites,
    proposal,
    run_in_one_process,
    table,
)
from site_requests import asked, first_request, kinds

from silodp.data.federation import Records
from silodp.data.tables.by_value import LARGEST, MISSING, UNLISTED, name_of, number_of, place_of
from silodp.data.tables.dialect import Dialect
from silodp.data.tables.table import table_of_frames
from silodp.data.tables.values import frame_of
from silodp.results.result import read_result
from silodp.sites import site_data
from silodp.sites.agreed_schema import agreed_schema, table_options
from silodp.sites.job_at_site import RESULTS, STATE
from silodp.sites.shown_ledger import is_token
from silodp.sites.site_data import DataAtSite, at_most, load_records
from silodp.sites.worker import SiteWorker

PLAIN = {
    "target": "ill",
    "task": "binary",
    "bounds": {"age": [0, 100], "tiny": [0, 5e-324], "huge": [-3e38, 3e38]},
    "levels": {"ward": ["a", 1, "nan"], "smoker": [False, True]},
    "classes": ["no", 1],
}
RULES = {"other": {"ward": 1}, "missing": {"age": 7, "ward": "a"}}
SCHEMAS = [
    agreed_schema("here", one)
    for one in (
        PLAIN,
        {**PLAIN, "drop_missing": True},
        {**PLAIN, **RULES},
        {**PLAIN, **RULES, "drop_missing": True, "subject_column": "who"},
        {**PLAIN, "subject_column": "who", "task": "multiclass", "classes": ["no", 1, "c"]},
        {
            **{**PLAIN, "missing": {"age": {"value": 7, "indicator": True}, "ward": "drop"}},
            **{"words": {"age": {"a": 90, "no": "missing", "NA": 3}}},
            **{"dates": {"tiny": {"origin": "2015-01-01", "format": "%d.%m.%Y"}}},
        },
        {
            **{key: value for key, value in PLAIN.items() if key != "classes"},
            **{"task": "regression", "range": [-1e30, 1e30]},
        },
    )
]

texts = st.text(max_size=6) | st.sampled_from(
    [
        *("a", " 1.0 ", "TRUE", "0", "no", "nan", "NA", "inf", "-Infinity", "1e999", "1_0", "\x00"),
        *("٣", "31.12.2020", "31.12.٢٠٢٠", "0001-01-01T00:00:00+23:59", "9999-12-31", "1.1.99999"),
    ]
)
values = st.one_of(
    st.none(),
    texts,
    st.booleans(),
    st.integers(),
    st.floats(),
    st.decimals(),
    st.binary(max_size=4),
    st.dates(),
    st.datetimes(),
    st.timedeltas(),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(texts, st.integers(), max_size=1),
    st.sampled_from(
        [10**400, -(10**5000), pd.NA, pd.NaT, pd.Timestamp(0), np.float64("nan"), np.zeros(2), 1j]
    ),
    st.sampled_from([decimal.Decimal("sNaN"), decimal.Decimal("1E+999999"), object(), math.nan]),
)
# As good as they are bad, so that some rows are usable.
COLUMNS = ("age", "tiny", "huge", "ward", "smoker", "ill", "who")
row = st.fixed_dictionaries({name: values | st.sampled_from(["a", 1, "no"]) for name in COLUMNS})


def frame(rows):
    return frame_of({name: [one[name] for one in rows] for name in COLUMNS})


def encoded(rows, schema):
    """What becomes of each row that is not left out: features, label, and whose it is."""
    used = frame(rows).loc[:, list(schema.columns)]
    made = table_of_frames("north", {"north": used}, table_options(schema), total=True)
    return made.records["north"]


def as_rows(records):
    return [(x.tobytes(), y.tobytes()) for x, y in zip(records.x, records.y, strict=True)]


@settings(deadline=None, max_examples=150)
@given(st.lists(row, max_size=6), st.sampled_from(SCHEMAS))
def test_any_values_are_prepared(rows, schema):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site_data, "read_query", lambda *_: frame(rows))
        source = DataAtSite(url="sqlite:///none.db", query="select")
        alone = load_records("north", source, schema, seed=0, test_fraction=0.3)
    (silo,) = alone.silos
    assert len(silo.train) + len(silo.test) <= len(rows)
    assert alone.uncovered == ()
    for part in (silo.train, silo.test):
        assert part.x.shape[1:] == alone.input_shape
        assert (np.abs(part.x) <= 1).all()  # NaN is not
        assert np.isfinite(part.y).all()
        allowed = {-1, 1} if schema.task == "binary" else {0, 1, 2}
        if schema.task == "regression":
            assert ((part.y >= 0) & (part.y <= 1)).all()
        else:
            assert set(part.y.tolist()) <= allowed


@settings(deadline=None, max_examples=150)
@given(st.lists(row, min_size=1, max_size=5), row, st.integers(0, 4), st.sampled_from(SCHEMAS))
def test_a_row_is_prepared_by_itself(rows, odd, place, schema):
    """Whatever stands in the others: so one row more or less is one record more or less."""
    alone = [as_rows(encoded([one], schema)) for one in rows]
    together = encoded(rows, schema)
    assert as_rows(together) == [record for one in alone for record in one]
    assert all(len(one) <= 1 for one in alone)
    place = min(place, len(rows))
    more = encoded([*rows[:place], odd, *rows[place:]], schema)
    gained = Counter(as_rows(more)) - Counter(as_rows(together))
    assert Counter(as_rows(together)) <= Counter(as_rows(more))
    assert sum(gained.values()) == len(more) - len(together) <= 1
    if schema.subject_column is not None and len(more) == len(together):
        np.testing.assert_array_equal(more.subject, together.subject)


cells = texts.filter(lambda text: '"' not in text and "\r" not in text) | st.sampled_from(
    ["42", "42.10", "a", "no", "1", "1e5", "0.1"]
)


@settings(deadline=None, max_examples=90)
@given(
    st.lists(st.fixed_dictionaries(dict.fromkeys(COLUMNS, cells)), max_size=4),
    st.sampled_from([None, Dialect(";", ",", "."), Dialect("\t", ".", "", "utf-16")]),
)
@example([dict.fromkeys(COLUMNS, "no"), dict.fromkeys(COLUMNS, "0.30000000000000004")], None)
@example([dict.fromkeys(COLUMNS, "no"), dict.fromkeys(COLUMNS, "1;5,5")], None)
def test_a_file_is_read_value_by_value(rows, dialect):
    """pandas would guess a type for all: one odd value, and all numbers of a column are text.

    Nor is it found from the rows how the file is written.
    """
    schema, form = SCHEMAS[-1], dialect or Dialect()
    with tempfile.TemporaryDirectory() as folder:
        source = DataAtSite(folder=Path(folder), path=Path("records.csv"), dialect=dialect)

        def all_of(some):
            frame(some).to_csv(
                Path(folder) / "records.csv",
                index=False,
                sep=form.delimiter,
                encoding=form.encoding,
            )
            federation = load_records("north", source, schema, seed=0, test_fraction=0.3)
            (silo,) = federation.silos
            return Counter(as_rows(silo.train) + as_rows(silo.test))

        assert all_of(rows) == sum((all_of([one]) for one in rows), Counter())


@pytest.mark.parametrize("stored", [42, 42.0, "42", " 42 ", "4.2e1", "+42.", decimal.Decimal(42)])
def test_one_number_however_it_is_stored(stored):
    assert number_of(stored) == 42
    assert place_of(stored, {"x": 0, "42": 1}) == 1


def test_what_is_no_number():
    for value in (None, "", "old", "1,5", "1_000", "٣", True, b"1", [1], datetime.date.today()):
        assert math.isnan(number_of(value))
    for value in (math.inf, "inf", "Infinity", "1e999", 10**400, 1e300, decimal.Decimal("1E+999")):
        assert number_of(value) == LARGEST
    assert number_of("-inf") == number_of(-(10**400)) == -LARGEST


def test_what_is_no_level_or_name():
    levels = {"a": 0, "NA": 1}
    assert [place_of(value, levels) for value in ("a", " a", "NA", "A", [], b"a")] == [
        *(0, 0, 1),
        *[UNLISTED] * 3,
    ]
    assert {place_of(value, levels) for value in (None, "", "null", math.nan, pd.NA)} == {MISSING}
    truth = {"False": 0, "True": 1}
    assert [place_of(value, truth) for value in (0, "1.0", True, "FALSE", 2)] == [0, 1, 1, 0, -1]
    assert [name_of(value) for value in (7, 7.0, "7.0", "007", decimal.Decimal("7.0"))] == [
        *("7", "7", "7", "007", "7")
    ]
    assert {name_of(value) for value in (None, " ", "NA", math.nan, [1], b"7", 10**5000)} == {None}


# --- a site that is asked

AGREED = proposal(method="mrmtl", rounds=3, task="binary")
SECRET = "epsilon = 4\ndelta = 1e-3\nrecords = 50\npublic = ['feature bounds', 'class list']"
HONEST = table(0)


def with_row(**change):
    odd = {**HONEST.iloc[0].to_dict(), **change}
    return pd.concat([HONEST.astype(object), pd.DataFrame([odd], dtype=object)])


ODD = {
    "an unknown level": with_row(ward="secret"),
    "a missing number": with_row(first=None),
    "no number": with_row(first="many"),
    "infinite": with_row(first="inf"),
    "no target": with_row(sick=None),
    "an unknown class": with_row(sick="perhaps"),
    "a huge number": with_row(second="9" * 400),
    "one class": HONEST.assign(sick="no"),
    "one row": HONEST[:1],
    "no row": HONEST[:0],
    "no usable row": HONEST.assign(sick=None),
    "too many": pd.concat([HONEST] * 4),
}


def seen(folder, agreed, requests, caplog):
    """All that a coordinator or whoever reads the site's log gets, but for the noisy numbers."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="silodp"), closing(SiteWorker(folder)) as worker:
        replies = [worker.answer(request) for request in requests]
    shapes = [[(array.shape, array.dtype) for array in reply.arrays] for reply in replies]
    told = []
    for reply in replies:
        # A hash of an entry with 128 random bits, which are never sent: it says nothing.
        about = {k: v for k, v in reply.about.items() if k != "ledger" or not is_token(v)}
        told.append((reply.status, reply.reason, about))
    files = sorted(path.name for path in (folder / STATE / agreed.job()).iterdir())
    log = [(one.name, one.levelname, one.getMessage()) for one in caplog.records]
    return told, shapes, files, log, kinds(folder)


@pytest.mark.parametrize("what", ODD)
def test_a_coordinator_sees_no_difference(tmp_path, caplog, what):
    """Where the number of records is secret, not even how many there are."""
    join = first_request(tmp_path, AGREED, kind="join")
    requests = [join]
    if what in ("an unknown level", "no row", "too many"):  # a round takes a second to compile
        requests += [replace(join, kind="train"), replace(join, kind="finish")]
    views = []
    for name, records in (("honest", HONEST), ("odd", ODD[what])):
        folder = make_sites(tmp_path / name, AGREED, policy=SECRET)["north"]
        records.to_csv(folder / "records.csv", index=False)
        views.append(seen(folder, AGREED, requests, caplog))
    assert views[0] == views[1]
    told, _, _, log, ledger = views[1]
    assert {status for status, _, _ in told} == {"ok"}
    assert log == []
    assert ledger[:3] == ["opened", "policy", "reserve"]
    assert ledger.count("charge") == (1 if len(requests) > 1 else 0)


@pytest.mark.parametrize("what", ["an unknown level", "no target", "infinite"])
def test_nor_where_the_number_is_public(tmp_path, caplog, what):
    """A row counts as any other would, be it used or left out."""
    agreed = proposal(method="mrmtl", rounds=3, task="binary", weights="records")
    request = first_request(tmp_path, agreed, kind="join")
    views = []
    for name, records in (("plain", with_row()), ("odd", ODD[what])):
        folder = make_sites(tmp_path / name, agreed)["north"]
        records.to_csv(folder / "records.csv", index=False)
        views.append(seen(folder, agreed, [request], caplog))
    assert views[0] == views[1]
    assert views[0][0][0][0] == "ok"


def test_a_public_number_may_be_refused(tmp_path):
    """Fewer than a batch: everybody may know that. Where it need not be refused, it is not."""
    for small in ("refuse", "full-batch"):
        agreed = proposal(method="mrmtl", rounds=3, small_silos=small)
        folder = make_sites(tmp_path / small, agreed)["north"]
        request = first_request(tmp_path / small, agreed, kind="join")
        HONEST[:0].to_csv(folder / "records.csv", index=False)
        (reply,) = asked(folder, request)
        if small == "full-batch":
            assert reply.status == "ok"
            continue
        assert (reply.status, reply.arrays) == ("refused", [])
        assert reply.reason == "the site's records or policy do not allow this"
        assert not (folder / "ledger").exists()


@pytest.mark.parametrize(
    "more",
    [
        {"method": "ifca"},
        {"method": "ebmtl", "statistics_share": 0.1},
        {"subjects": True},
        {"statistics_share": 0.1, "noisy_mean": True},
    ],
)
def test_a_site_without_records_takes_part_to_the_end(tmp_path, cli, monkeypatch, more):
    """Its sums are zero and noise, of which nobody can tell."""
    monkeypatch.setenv("COLUMNS", "200")
    more = dict(more)
    by_subject, noisy_mean = more.pop("subjects", False), more.pop("noisy_mean", False)
    agreed = proposal(rounds=2, task="binary", **{"method": "mrmtl", **more})
    policy = SECRET
    if by_subject:
        schema = {**agreed.schema.to_plain(), "subject_column": "unused"}
        agreed = replace(agreed, schema=agreed_schema("here", schema))
        policy += "\nsubject = 'unused'"
    if noisy_mean:
        schema = {**agreed.schema.to_plain(), "missing": {"first": "noisy mean"}}
        agreed = replace(agreed, schema=agreed_schema("here", schema))
    folders = make_sites(tmp_path, agreed, policy=policy)
    for place, folder in enumerate(folders.values()):
        records = table(place).assign(unused=[f"p{row // 2}" for row in range(60)])
        records["first"] = records["first"].where(
            ~records.index.isin(range(0, 60, 3)) | (not noisy_mean)
        )
        records[: 60 * bool(place)].to_csv(folder / "records.csv", index=False)
    coordinator = run_in_one_process(make_coordinator(tmp_path / "fed", agreed), folders, agreed)
    assert set(coordinator.status.values()) == {"finished"}
    results = [read_result(folder / RESULTS / agreed.job()) for folder in folders.values()]
    assert [bool(result.unmeasured) for result in results] == [True, False, False]
    assert "no test records" in " ".join(cli("site", "models", folders["north"]).stdout.split())


# --- more records than were declared


@st.composite
def some_records(draw, subjects=None):
    count = draw(st.integers(0, 12))
    x = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    y = draw(st.lists(st.sampled_from([-1.0, 1.0]), min_size=count, max_size=count))
    owners = draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    subject = np.unique(np.array(owners, int), return_inverse=True)[1]
    by_subject = draw(st.booleans()) if subjects is None else subjects
    x = np.array(x, np.float32).reshape(count, 1)
    return Records(x, np.array(y, np.float32), subject if by_subject else None)


def held(records):
    """What each record or subject holds, in no order."""
    rows = as_rows(records)
    owner = range(len(rows)) if records.subject is None else records.subject.tolist()
    own: dict = {}
    for number, one in zip(owner, rows, strict=True):
        own.setdefault(number, []).append(one)
    return Counter(tuple(sorted(rows)) for rows in own.values())


@settings(deadline=None)
@given(some_records(), st.integers(1, 8), st.randoms())
def test_what_is_left_out_hangs_on_no_order(records, most, random):
    kept = at_most(records, most)
    assert kept.units == min(records.units, most)
    assert held(kept) <= held(records)
    order = list(range(len(records)))
    random.shuffle(order)
    assert held(at_most(records.take(np.array(order, int)), most)) == held(kept)


@settings(deadline=None)
@given(some_records(), st.integers(1, 8), st.data())
def test_neighbours_stay_neighbours_where_what_was_declared_holds(records, most, data):
    """And beyond that, one pushes out one: never more."""
    if not len(records):
        return
    owner = np.arange(len(records)) if records.subject is None else records.subject
    gone = data.draw(st.integers(0, records.units - 1))
    less = records.take(np.flatnonzero(owner != gone))
    one, other = held(at_most(records, most)), held(at_most(less, most))
    apart = sum((one - other).values()) + sum((other - one).values())
    assert apart <= (1 if records.units <= most else 2)


def test_more_than_declared_is_said_to_a_person(tmp_path, cli):
    folder = make_sites(tmp_path, AGREED, policy=SECRET)["north"]
    (folder / "proposal.json").write_text(AGREED.text)
    ODD["too many"].to_csv(folder / "records.csv", index=False)
    done = cli("site", "consent", folder, "--yes")
    assert done.exit_code == 2
    assert "records = 50 as a stand-in" in " ".join(done.stderr.split())


# --- a person who consents


def test_a_person_is_told_and_asked(tmp_path, cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    folder = make_sites(tmp_path, AGREED)["north"]
    (folder / "proposal.json").write_text(AGREED.text)
    for path in (folder / "consented").iterdir():
        path.unlink()
    done = cli("site", "consent", folder, answers="n\n")
    assert "Every value fits the schema" in done.stdout
    odd = pd.concat([ODD["an unknown level"], ODD["no target"][-1:], ODD["infinite"][-1:]])
    odd.to_csv(folder / "records.csv", index=False)
    done = cli("site", "consent", folder, answers="n\n")
    assert done.exit_code == 0, done.stderr
    told = " ".join(done.stdout.split())
    for words in ("'secret'", "none of the levels", "no target", "the row is left out", "above 10"):
        assert words in told
    assert "of 63 rows, 62 are used" in told
    assert not list((folder / "consented").iterdir())
    assert cli("site", "consent", folder, answers="y\n").exit_code == 0
    assert len(list((folder / "consented").iterdir())) == 1


def test_a_table_that_cannot_be_meant_is_refused_to_a_person(tmp_path, cli):
    folder = make_sites(tmp_path, AGREED)["north"]
    (folder / "proposal.json").write_text(AGREED.text)
    for what, words in (
        ("no row", "has no rows"),
        ("no usable row", "'sick' has no row that fits"),
    ):
        ODD[what].to_csv(folder / "records.csv", index=False)
        done = cli("site", "consent", folder, "--yes")
        assert done.exit_code == 2
        assert words in " ".join(done.stderr.split())


def test_what_was_agreed_on_before_is_the_same_proposal():
    """The digest is of the plain form: keys that say nothing new must not be in it."""
    plain = agreed_schema("here", PLAIN).to_plain()
    assert sorted(plain) == ["bounds", "classes", "drop_missing", "levels", "target", "task"]
    with_rules = agreed_schema("here", {**PLAIN, **RULES}).to_plain()
    assert (with_rules["other"], with_rules["missing"]) == ({"ward": "1"}, {"age": 7, "ward": "a"})
