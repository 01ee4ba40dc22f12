"""A coin for each record by itself: what one record more, less or other moves, and what is told."""

import io
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import silodp
from silodp.base.errors import SilodpError
from silodp.base.progress import Reporter
from silodp.config.options import RunRequest
from silodp.data import coins
from silodp.data.federation import ExpectedCounts, Federation, Records, Silo
from silodp.data.images.folders import Labelled, split_images
from silodp.data.registry import DataOptions, resolve
from silodp.data.split import expected_counts
from silodp.data.tables.table import split_and_scale, table_of_frames
from silodp.privacy.mechanisms.sampling import capacity_for, draw_batches
from silodp.runs.prepare import load
from silodp.runs.run import job_of, plan
from silodp.tuning.set_apart import set_apart

DECLARED = {
    "target": "y",
    "task": "regression",
    "preprocess": "bounds",
    "bounds": {"x": (0, 1000), "s": (0, 1000)},
    "levels": {"w": ["a", "b", "7", "007", *map(str, range(100, 160))]},
    "target_range": (0, 10),
}
# Rows of which many are alike.
rows = st.tuples(
    st.sampled_from([0, 1, 1.5, 2, 700]),
    st.sampled_from([0, 1, 130, 131]),
    st.sampled_from(["a", "b", "7", "007"]),
    st.sampled_from([0, 3.5]),
)
tables = st.lists(rows, max_size=12)
seeds = st.integers(0, 2**32 - 1)


def frame_of(table):
    """With rows that are always there, so that no part is ever empty."""
    always = [(number, number, str(number), 1) for number in range(100, 160)]
    return pd.DataFrame([*always, *table], columns=["x", "s", "w", "y"]).astype({"w": object})


def silo_of(table, seed, **options):
    given = DataOptions(**{**DECLARED, **options})
    return split_and_scale(table_of_frames("t", {"a": frame_of(table)}, given), seed, given).silos[
        0
    ]


def contents(records):
    return Counter(
        (tuple(x.ravel().tolist()), float(y)) for x, y in zip(records.x, records.y, strict=True)
    )


def moved(one, other):
    """What the one has and the other has not, and the other way round."""
    return one - other, other - one


WAYS = [
    {},
    {"density": 0.5},
    {"test_fraction": 0.7},
    {"group_column": "s", "bounds": {"x": (0, 1000)}},
    {"group_column": "s", "bounds": {"x": (0, 1000)}, "density": 0.4},
    {"time_column": "s", "bounds": {"x": (0, 1000)}, "test_from": "130", "density": 0.5},
]


@pytest.mark.parametrize("way", WAYS)
@settings(deadline=None, max_examples=25)
@given(table=tables, row=rows, place=st.integers(0, 12), seed=seeds)
def test_a_record_more_moves_no_other(way, table, row, place, seed):
    """With the split of before, which drew a permutation, this failed at once."""
    without, within = silo_of(table, seed, **way), [*table[:place], row, *table[place:]]
    with_it = silo_of(within, seed, **way)
    for part in ("train", "test"):
        gone, come = moved(contents(getattr(without, part)), contents(getattr(with_it, part)))
        assert not gone
        assert come.total() <= 1


@pytest.mark.parametrize("way", WAYS)
@settings(deadline=None, max_examples=25)
@given(table=tables.filter(len), row=rows, place=st.integers(0, 11), seed=seeds)
def test_a_record_in_the_place_of_another_moves_no_third(way, table, row, place, seed):
    place %= len(table)
    one = silo_of(table, seed, **way)
    # Wherever it stands: a database may sort by what records hold.
    two = silo_of([row, *table[:place], *table[place + 1 :]], seed, **way)
    gone, come = moved(contents(one.train), contents(two.train))
    assert gone.total() <= 1
    assert come.total() <= 1
    assert one.expected == two.expected  # all that is public


@settings(deadline=None, max_examples=25)
@given(table=tables, other=tables, seed=seeds, density=st.sampled_from([None, 0.6]))
@pytest.mark.parametrize("by_group", [False, True])
def test_a_subject_more_moves_no_other(by_group, table, other, seed, density):
    """All rows of subject 900, wherever they stand, are what two tables differ in."""
    by = {"subject_column": "s", "bounds": {"x": (0, 1000)}, "density": density}
    if by_group:  # a subject may then be on both sides
        by |= {"group_column": "w", "levels": {}}
    own = [(x + 0.25, 900, w, y) for x, _, w, y in other]
    one = silo_of(table, seed, **by)
    two = silo_of([*own[:1], *table, *own[1:]], seed, **by)
    gone, come = moved(contents(one.train), contents(two.train))
    assert not gone
    assert {round(500 * x[0] + 500, 2) % 1 for x, _ in come} <= {0.25, 0.75}  # all are its own
    assert two.train.units - one.train.units in (0, 1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((0, 0, "7", 0), (0, 0, "007", 0)),  # two levels, although one number
        ((0, 0, "a", 0), (0, 1, "a", 0)),
        ((1.5, 0, "a", 0), (1, 0, "a", 0)),
        ((0, 0, "a", 0), (0, 0, "a", 3.5)),
    ],
)
def test_records_that_differ_are_no_copies(one, other):
    """Taken for copies, the second would have the first one's coin once that is gone."""
    for seed in range(30):
        both, alone = silo_of([one, other], seed), silo_of([other], seed)
        assert not contents(alone.train) - contents(both.train)
        assert not contents(alone.test) - contents(both.test)


@settings(deadline=None, max_examples=30)
@given(table=tables, seed=seeds, data=st.data())
def test_the_order_of_rows_and_columns_says_nothing(table, seed, data):
    one = silo_of(table, seed)
    assert contents(silo_of(data.draw(st.permutations(table)), seed).train) == contents(one.train)
    given = DataOptions(**DECLARED)
    frame = frame_of(table)[["w", "y", "s", "x"]]
    other = split_and_scale(table_of_frames("t", {"a": frame}, given), seed, given).silos[0]
    assert sorted(other.train.y) == sorted(one.train.y)
    assert other.train.x.sum() == pytest.approx(one.train.x.sum(), rel=1e-5)


def identities(text, as_text=("w",)):
    """By row, of a CSV file with a column that names it."""
    frame = pd.read_csv(io.StringIO(text), dtype=dict.fromkeys(as_text, str))
    found = coins.of_rows(frame.drop(columns="row"), set(as_text))
    return dict(zip(frame["row"].astype(str), found, strict=True))


@pytest.mark.parametrize(
    "more",
    [
        "z,1.5,2",
        "z,,2",
        "z,word,2",
        "z,1,x y",
        "z,-0.0,2",
        "z,1e30,True",
        "z,12345678901234567890,",
    ],
)
def test_no_other_row_changes_the_form_of_a_row(more):
    """Although the type of a whole column hangs on each of its values."""
    few = "row,a,w\np,1,7\nq,2,007\nr,30,7.0\ns,0,\n"
    alone, with_it = identities(few), identities(few + more + "\n")
    assert {row: with_it[row] for row in alone} == alone
    assert len(set(with_it.values())) == len(with_it)


def test_a_value_has_one_form_however_it_is_stored():
    def form(values, as_text=False):
        return coins.of_rows(pd.DataFrame({"a": values}), {"a"} if as_text else set())

    numbers = [form(pd.Series(values)) for values in ([1, 0], [1.0, -0.0], ["1.00", "0"])]
    numbers.append(form(pd.Series([True, False])))
    numbers.append(form(pd.array([1, 0], dtype="Int64")))
    assert all(one == numbers[0] for one in numbers)
    words = [
        form(pd.Series(v, dtype=object), True) for v in ([1, "TRUE"], ["1", True], [1.0, True])
    ]
    assert all(one == words[0] for one in words)
    missing = [form(pd.Series(v)) for v in ([None, 1], [np.nan, 1], pd.array([None, 1], "Int64"))]
    assert all(one == missing[0] for one in missing)
    # But what a model tells apart has forms of its own.
    assert len(set(form(pd.Series(["7", "007", "7.0"]), True))) == 3
    assert len(set(form(pd.Series([1, 1 + 2**-52, -1, 0.1, np.nan])))) == 5
    apart = form(pd.DataFrame({"a": ["ab", "a"], "b": ["c", "bc"]})["a"])
    assert apart[0] != apart[1]
    frame = pd.DataFrame({"a": ["ab", "a"], "b": ["c", "bc"]})
    assert len(set(coins.of_rows(frame, {"a", "b"}))) == 2


def test_copies_have_coins_of_their_own():
    (content,) = set(coins.contents(np.zeros((9, 2)), np.zeros(9)))
    found = coins.of_arrays(np.zeros((2000, 2)), np.zeros(2000))
    assert found[:3] == coins.numbered([content] * 3)
    assert 320 < coins.toss(found, 0.2, "test", "a", 0).sum() < 480


def test_coins_fall_as_they_did():
    """Written down: what was once kept for testing must not be trained on by a later version."""
    names = coins.of_texts(map(str, range(40)))
    fallen = np.flatnonzero(coins.toss(names, 0.2, "test", "north", 0)).tolist()
    assert fallen == FALLEN
    frame = pd.DataFrame({"b": [1, 2.5, None], "a": ["x", "y", "x"]})
    assert [one.hex()[:8] for one in coins.of_rows(frame, {"a"})] == FORMS


FALLEN = [2, 9, 10, 11, 12, 14, 16, 18, 24, 27, 36]
FORMS = ["814866aa", "516c315f", "336fc0c9"]


def test_shares_are_what_was_asked_for_and_coins_fall_by_themselves():
    n = 40_000
    names = coins.of_texts(map(str, range(n)))
    for share in (0.0, 0.03, 0.2, 0.9, 1.0):
        fallen = coins.toss(names, share, "test", "a", 0)
        assert fallen.mean() == pytest.approx(share, abs=4.5 * math.sqrt(share * (1 - share) / n))
    first = coins.toss(names, 0.2, "test", "a", 0)
    for purpose, silo, seed in (("density", "a", 0), ("test", "b", 0), ("test", "a", 1)):
        other = coins.toss(names, 0.2, purpose, silo, seed)
        both = (first & other).mean()
        assert both == pytest.approx(0.04, abs=4.5 * math.sqrt(0.04 / n))
    # Nothing that is put together looks like something else that is.
    assert not (
        coins.toss(names, 0.2, "test", "1 a", 0) == coins.toss(names, 0.2, "test", "a", 1)
    ).all()


def test_hands_get_their_shares():
    found = coins.deal(coins.of_texts(map(str, range(40_000))), np.array([0.5, 0.0, 0.3, 0.2]), "x")
    share = np.bincount(found, minlength=4) / 40_000
    np.testing.assert_allclose(share, [0.5, 0.0, 0.3, 0.2], atol=4.5 * 0.5 / 200)


def test_what_is_expected_follows_from_the_number_alone():
    assert expected_counts(100, 100, 0.2) == ExpectedCounts(80, 20, 100)
    assert expected_counts(100, 100, 0.2, 0.5) == ExpectedCounts(40, 20, 100)
    assert expected_counts(10, 35, 0.3) == ExpectedCounts(7, 11, 10)  # by subject
    assert expected_counts(1, 1, 0.9) == ExpectedCounts(1, 1, 1)
    silo = silo_of([], 0)
    with pytest.raises(SilodpError, match=r"Silo 'a': expected is .*at most as many"):
        Federation("f", (replace(silo, expected=ExpectedCounts(5, 5, 3)),), "regression")


def test_an_id_column_keeps_a_record_where_it_was(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "site": np.repeat(["a", "b"], 50),
            "visit": [f"{number:03}" for number in range(100)],
            "x": rng.normal(size=100),
            "y": np.arange(100) + 0.5,
        }
    )

    def tested(table):
        table.to_csv(tmp_path / "t.csv", index=False)
        given = DataOptions(
            **{"silo_column": "site", "target": "y", "preprocess": "none", "id_column": "visit"},
            task="regression",
        )
        federation = resolve(tmp_path / "t.csv", given).load(0, given)
        assert federation.input_shape == (1,)  # no feature
        assert federation.uncovered == ()
        return [set(silo.test.y.tolist()) for silo in federation.silos]

    assert tested(frame) == tested(frame.assign(x=frame.x + 1))  # mended, each record stays
    given = {"silo_column": "site", "target": "y", "id_column": "visit"}
    for words, more in (
        ("subject_column is 'x' and id_column is 'visit'", {"subject_column": "x"}),
        ("split is 'paper', which knows nothing of id_column", {"split": "paper"}),
        ("'y' is both id_column and target", {"id_column": "y"}),
        ("test_from is '3', but no time_column", {"test_from": "3"}),
        ("split is 'fair': choose", {"split": "fair"}),
    ):
        options = DataOptions(**{**given, **more})
        with pytest.raises(SilodpError, match=words):
            resolve(tmp_path / "t.csv", options).load(0, options)


def test_a_declared_time_parts_records_by_themselves(tmp_path):
    days = pd.date_range("2020-01-01", periods=60).strftime("%Y-%m-%d")
    frame = pd.DataFrame({"site": ["a", "b"] * 30, "day": days, "x": 1.0, "y": np.arange(60) + 0.5})
    frame.to_csv(tmp_path / "t.csv", index=False)

    def loaded(**more):
        given = DataOptions(
            **{"silo_column": "site", "target": "y", "preprocess": "none", "time_column": "day"},
            **more,
            task="regression",
        )
        return resolve(tmp_path / "t.csv", given).load(0, given)

    federation = loaded(test_from="2020-02-20")
    for silo in federation.silos:
        assert silo.train.y.max() < 50 < silo.test.y.min()
        assert silo.expected == ExpectedCounts(24, 6, 30)  # whatever the date gives
    assert federation.uncovered == ()
    assert [note for note in loaded().uncovered if "--test-from" in note] == list(
        loaded().uncovered
    )
    assert len(loaded().uncovered) == 1
    assert [len(silo.test) for silo in loaded(test_from="2031-01-01").silos] == [0, 0]
    with pytest.raises(
        SilodpError, match="test_from is '7', but the time column 'day' holds dates"
    ):
        loaded(test_from="7")
    frame.assign(day=np.arange(60)).to_csv(tmp_path / "t.csv", index=False)
    assert loaded(test_from="50").silos[0].test.y.tolist() == [50.5, 52.5, 54.5, 56.5, 58.5]
    with pytest.raises(SilodpError, match="'day' holds numbers: give a number"):
        loaded(test_from="2020-01-01")


@settings(deadline=None, max_examples=25)
@given(
    pictures=st.lists(st.integers(0, 3), max_size=8),
    more=st.integers(0, 3),
    seed=seeds,
    density=st.sampled_from([None, 0.5]),
)
def test_an_image_more_moves_no_other(pictures, more, seed, density):
    def silo(images):
        always = np.arange(100, 160)
        x = np.concatenate([always, images]).astype(np.uint8).reshape(-1, 1, 1, 1)
        labels = (x.ravel() % 2).astype(int)
        found = Labelled(Path("scans"), (), labels, (("a", len(x)),), ("even", "odd"), True)
        return split_images(found, x, seed, DataOptions(density=density)).silos[0]

    one, two = silo(pictures), silo([more, *pictures])
    gone, come = moved(contents(one.train), contents(two.train))
    assert not gone
    assert come.total() <= 1
    assert one.expected.max_count + 1 == two.expected.max_count


# --- Tuning


@settings(deadline=None, max_examples=25)
@given(table=tables, row=rows, seed=seeds, fraction=st.sampled_from([0.1, 0.2, 0.5]))
def test_a_record_more_moves_no_other_between_the_parts_of_tuning(table, row, seed, fraction):
    def parts(table):
        silo = silo_of(table, seed)
        (apart,) = set_apart(Federation("f", (silo,), "regression"), fraction).silos
        assert contents(apart.train) + contents(apart.test) == contents(silo.train)
        assert apart.public_count == round((1 - fraction) * silo.public_count)
        assert apart.public_count + apart.public_test_count == silo.public_count
        assert apart.max_count == silo.max_count
        return apart

    one, two = parts(table), parts([row, *table])
    for part in ("train", "test"):
        gone, come = moved(contents(getattr(one, part)), contents(getattr(two, part)))
        assert not gone
        assert come.total() <= 1


def test_parts_of_tuning_have_their_shares_and_may_be_empty():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(4000, 2)), rng.normal(size=4000)
    records = Records(x.astype(np.float32), y.astype(np.float32))
    silo = Silo("a", records, records)
    (apart,) = set_apart(Federation("f", (silo,), "regression"), 0.2).silos
    assert len(apart.test) == pytest.approx(800, abs=4.5 * math.sqrt(4000 * 0.16))
    assert apart.expected == ExpectedCounts(3200, 800, 4000)
    few = records.take(np.arange(3))
    (apart,) = set_apart(Federation("f", (Silo("a", few, few),), "regression"), 0.01).silos
    assert (len(apart.train), len(apart.test)) == (3, 0)  # noise will choose
    one = records.take(np.arange(1))
    whose = f"silo {next(k for k in range(99) if scored_alone(f'silo {k}', one))}"
    alone = Federation("f", (Silo(whose, one, one),), "regression")
    (apart,) = set_apart(alone, 0.5).silos
    assert (len(apart.train), len(apart.test), apart.public_count) == (0, 1, 1)


def scored_alone(silo, records):
    return coins.toss(coins.of_arrays(records.x, records.y), 0.5, "score", silo, 0)[0]


# --- From the command line


def csv(folder, frame):
    folder.mkdir(exist_ok=True)
    frame.to_csv(folder / "t.csv", index=False)
    (folder / "schema.toml").write_text(
        "[bounds]\nx = [-3, 3]\nz = [-3, 3]\n[target]\nrange = [-5, 5]\n"
    )
    return (
        *("--data", folder / "t.csv", "--schema", folder / "schema.toml"),
        *("--silo-column", "site", "--target", "y"),
    )


def visits(seed=0, n=300):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 2)).round(3), columns=["x", "z"])
    frame["y"] = (frame.x - frame.z + 0.1 * rng.normal(size=n)).round(3)
    return frame.assign(site=np.where(np.arange(n) % 3 == 0, "north", "south"))


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_neighbours_are_planned_and_charged_alike(tmp_path, cli, relation):
    """All that is told is the same, and what is trained on differs in one record."""
    frame = visits()
    other = frame.drop(index=7) if relation == "add-remove" else frame.copy()
    if relation == "replace-one":
        other.loc[7, ["x", "z", "y"]] = [2.5, -2.5, 5.0]
    told, kept, results = [], [], []
    for name, table in (("one", frame), ("other", other)):
        data = csv(tmp_path / name, table)
        # Where the number of records is not public, there is a stand-in for it.
        policy = f'epsilon = 2\ndelta = 1e-3\nrelation = "{relation}"\n'
        policy += 'public = ["feature bounds", "label range"]\nrecords = 120\n'
        (tmp_path / "policy.toml").write_text("[default]\n" + policy)
        asked = (*data, "--policies", tmp_path / "policy.toml", "--rounds", 2, "--batch-size", 16)
        asked += ("--weights", "uniform", "--method", "fedavg")
        done = cli("plan", *asked, "--json")
        assert done.exit_code == 0, done.output
        told.append(json.loads(done.stdout)["silos"])
        done = cli("run", *asked, "--ledger", tmp_path / name / "ledger", "--json")
        assert done.exit_code == 0, done.output
        results.append(json.loads(done.stdout))
        options = RunRequest(data=str(data[1]), schema=data[3], silo_column="site", target="y")
        kept.append(load(options, None, Reporter()).federations[0])
    assert told[0] == told[1]
    assert all(silo["unproven"] == [] for silo in told[0])
    assert all(silo["proven"] for silo in results[0]["privacy"])  # charged, so a release
    assert results[0]["privacy"] == results[1]["privacy"]
    assert [silo["records"] for silo in results[0]["per_silo"]] == [
        silo["records"] for silo in results[1]["per_silo"]
    ]
    for one, two in zip(kept[0].silos, kept[1].silos, strict=True):
        gone, come = moved(contents(one.train), contents(two.train))
        assert gone.total() <= 1
        assert come.total() <= (0 if relation == "add-remove" else 1)
        assert one.name == "south" or contents(one.train) == contents(two.train)
    # Some of them is for training: else nothing was tested here.
    assert contents(kept[0].silos[1].train) != contents(kept[1].silos[1].train)


def sides_of(silo):
    """What each record holds, and on which side it is."""
    return {
        (side, *x, *np.ravel(y))
        for side, part in (("train", silo.train), ("test", silo.test))
        for x, y in zip(part.x, part.y, strict=True)
    }


OUTCOMES = {
    "count": (
        {"y": 2, "years": 1.5},
        {"y": 10**6, "years": 0.001},
        {
            **{"target_range": (0, 9), "exposure_column": "years"},
            "exposure_range": (0.1, 3),
        },
    ),
    "hazard": (
        {"y": 20, "status": 0},
        {"y": 1e9, "status": 1},
        {"event_column": "status", "cut_points": (10.0, 30.0)},
    ),
    "ordinal": ({"y": "mild"}, {"y": "severe"}, {"classes": ("none", "mild", "severe")}),
}


@pytest.mark.parametrize("task", OUTCOMES)
def test_the_most_extreme_outcome_changes_nothing_but_its_own_record(task):
    """The largest count, the longest or the only event: neither features, labels, intervals,
    exposures and scales of others nor what is planned hang on it; and nothing is refused for it."""
    usual, extreme, declared = OUTCOMES[task]
    rows = pd.DataFrame([usual] * 40).assign(x=np.arange(40) / 40)
    given = DataOptions(target="y", task=task, bounds={"x": (0, 1)}, **declared)

    def of(frame):
        federation = split_and_scale(table_of_frames("t", {"a": frame, "b": rows}, given), 0, given)
        metric = "rank_error" if task == "ordinal" else "deviance"  # such as need no event
        options = {"method": "local", "epsilon": 1, "delta": 1e-3, "rounds": 1, "metric": metric}
        planned = plan(federation=federation, **options)
        return federation, planned.plans[0]

    odd = rows.astype(object)
    odd.loc[7, list(extreme)] = list(extreme.values())
    (one, its_plans), (other, other_plans) = of(rows), of(odd.infer_objects())
    for silo, changed in zip(one.silos, other.silos, strict=True):
        assert silo.preparation == changed.preparation
        assert silo.expected == changed.expected

        moved = sides_of(silo) ^ sides_of(changed)
        assert len(moved) == (2 if silo.name == "a" else 0)
    assert (one.uncovered, one.declared, one.num_classes) == (
        *(other.uncovered, other.declared, other.num_classes),
    )
    assert [p.statement() for p in its_plans] == [p.statement() for p in other_plans]


def test_runs_of_several_seeds_differ_in_counts_and_tell_none(tmp_path, cli):
    data = csv(tmp_path, visits())
    asked = (*data, "--epsilon", 4, "--delta", "1e-3", "--rounds", 2, "--batch-size", 16)
    done = cli("run", *asked, "--seeds", 3, "--out", tmp_path / "out", "--method", "fedavg")
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert [silo["records"] for silo in result["per_silo"]] == [80, 160]
    assert [silo["test_records"] for silo in result["per_silo"]] == [20, 40]
    assert len(result["test"]["per_seed"]) == 3
    options = RunRequest(data=str(data[1]), schema=data[3], silo_column="site", target="y", seeds=3)
    counts = [one.train_counts.tolist() for one in load(options, None, Reporter()).federations]
    assert len(set(map(tuple, counts))) == 3
    # Padded together or alone, a seed's run is the same.
    done = cli("run", *asked, "--first-seed", 2, "--method", "fedavg", "--json")
    alone = json.loads(done.stdout)
    assert alone["test"]["mean"] == pytest.approx(result["test"]["per_seed"][2], rel=1e-5)


def test_the_noisy_metric_is_divided_by_what_is_expected(tmp_path):
    """There is no noise here, so that the number that it is divided by shows."""
    data = csv(tmp_path, visits())
    asked = {"data": str(data[1]), "schema": data[3], "silo_column": "site", "target": "y"}
    asked |= {"epsilon": math.inf, "rounds": 1, "method": "fedavg"}
    exact = silodp.run(**asked)
    noisy = silodp.run(**asked, metric_share=0.5)
    federation = load(RunRequest(**asked), None, Reporter()).federations[0]
    for silo, one, other in zip(federation.silos, exact.per_silo, noisy.per_silo, strict=True):
        share = len(silo.test) / silo.public_test_count
        assert share != 1
        assert other["mean"] == pytest.approx(one["mean"] * share, rel=1e-3)


# --- What plans and engines make of it


def prepared_with(train, expected, epsilon=2.0, **options):
    """A plan for two silos of which only what is expected may show."""
    rng = np.random.default_rng(0)
    silos = tuple(
        Silo(
            name,
            Records(rng.normal(size=(n, 3)), rng.normal(size=n)),
            Records(rng.normal(size=(9, 3)), rng.normal(size=9)),
            expected=own,
        )
        for name, n, own in zip("ab", train, expected, strict=True)
    )
    given = {"batch_size": 8, "rounds": 2, "delta": 1e-3, "method": "fedavg", **options}
    return plan(federation=Federation("f", silos, "regression"), epsilon=epsilon, **given)


def public_part(silo_plan):
    """All but how large arrays are."""
    capacity = silo_plan.batch_capacity if silo_plan.draw == "gaps" else 0
    return replace(silo_plan, true_count=0, batch_capacity=capacity)


@pytest.mark.parametrize("batch", [8, 40])  # few enough that gaps are drawn, or every record
def test_plans_and_weights_follow_from_what_is_expected(batch):
    expected = (ExpectedCounts(80, 20, 100), ExpectedCounts(40, 10, 50))
    one, two = (prepared_with(train, expected, batch_size=batch) for train in ((80, 40), (93, 29)))
    for a, b in zip(one.plans[0], two.plans[0], strict=True):
        assert public_part(a) == public_part(b)
    assert [own.public_count for own in two.plans[0]] == [80, 40]
    assert [own.max_count for own in two.plans[0]] == [100, 50]
    assert [own.true_count for own in two.plans[0]] == [93, 29]
    assert job_of(one).weights.tolist() == job_of(two).weights.tolist() == [2 / 3, 1 / 3]


def test_slots_are_enough_for_all_that_may_be_there():
    for records, most in ((80, 100), (800, 1000), (50, 5000)):
        slots = capacity_for(records, 5, 1e-9, most)
        assert stats.binom.sf(slots - 1, most, 5 / records) < 1e-9
        assert slots > capacity_for(records, 5, 1e-9)
    assert capacity_for(80, 5, 0.0, 300) > 300


@pytest.mark.parametrize("held", [5, 11, 16, 30])
def test_a_shuffle_takes_what_is_there(held):
    """16 records are expected, in batches of 4; others are padding."""
    words = np.random.default_rng(0).integers(0, 2**32, (2, 30), dtype=np.uint32)
    numbers = (jnp.int32(n) for n in (held, 16, 4))
    rows, mask = draw_batches("shuffle", jnp.asarray(words), 8, 4, *numbers, jnp.uint32(0))
    assert np.asarray(mask).sum() == 2 * min(held, 16)
    drawn = np.asarray(rows)[np.asarray(mask) > 0]
    assert drawn.max() < held
    for epoch in (slice(0, 4), slice(4, 8)):
        own = np.asarray(rows)[epoch][np.asarray(mask)[epoch] > 0]
        assert len(set(own.tolist())) == len(own)


def test_a_silo_without_score_records_is_tuned_all_the_same():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.float32)
    records = Records(x, y)
    few = records.take(np.arange(3))
    federation = Federation(
        "f", (Silo("many", records, records), Silo("few", few, few)), "regression"
    )
    apart = set_apart(federation, 0.02)
    assert len(apart.silos[1].test) == 0
    result = silodp.tune(
        grid={"lam": [0.1, 1.0]},
        federation=federation,
        score_fraction=0.02,
        **{"epsilon": 4.0, "delta": 1e-3, "rounds": 1, "small_silos": "full-batch"},
    )
    assert math.isfinite(result.mean)
    assert result.tuning["score_records"] == [1, 1]
