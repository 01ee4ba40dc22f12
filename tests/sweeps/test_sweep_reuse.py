"""Runs that other tables hold are taken from there, if they are sure to be the same."""

import json
import math
import shutil
from pathlib import Path

import pytest
from trained_runs import watch

from silodp.base.errors import SilodpError
from silodp.results.result import versions
from silodp.sweeps import read_table, run_sweep, sweep_of
from silodp.sweeps.known import known_runs

pytestmark = pytest.mark.usefixtures("kept_programs")

SMALL = {"data": "synthetic", "silos": 3, "rounds": 4, "seeds": 2, "epsilon": 2, "lr": 0.1}
# `clusters` is of IFCA alone: whole numbers in a column with empty cells.
FULL = SMALL | {
    "clusters": 3,
    "grid": [{"method": "local"}, {"method": "mrmtl", "lam": [0.5, 2]}, {"method": "ifca"}],
}


def sweep(**content):
    return sweep_of(content, "the file", Path())


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """The folder of a finished sweep."""
    folder = tmp_path_factory.mktemp("full")
    run_sweep(sweep(**FULL), folder)
    return folder


@pytest.fixture
def trained(monkeypatch):
    """What is trained from here on: names of settings, with seeds."""
    return watch(monkeypatch)


def about(folder):
    return json.loads((folder / "sweep.json").read_text())


def retold(folder, to, **changes):
    """A copy of the folder, with changes of what is told about it."""
    shutil.copytree(folder, to)
    (to / "sweep.json").write_text(json.dumps(about(to) | changes))
    return to


def found(asked, *folders, finished=()):
    return {(row.run, row.seed) for row in known_runs(asked, set(finished), folders).rows}


def every(asked):
    return {(point.run, seed) for point in asked.points for seed in point.seeds}


def test_a_sweep_that_is_known_is_copied_to_the_byte(full, tmp_path, trained):
    table = run_sweep(sweep(**FULL), tmp_path, reuse=[full])
    assert trained == []
    assert (tmp_path / "results.csv").read_bytes() == (full / "results.csv").read_bytes()
    assert table.equals(read_table(full))
    assert about(tmp_path)["data"] == about(full)["data"]
    assert [session["runs"] for session in about(tmp_path)["sessions"]] == [0]


def test_a_sweep_with_other_columns_takes_what_it_asks_for(full, tmp_path, trained):
    """In another order, with more settings and columns than are known."""
    asked = sweep(**SMALL | {"method": "local", "lr": [0.3, 0.1], "epochs": 1})
    table = run_sweep(asked, tmp_path, reuse=[full])
    known = every(sweep(**FULL)) & every(asked)
    assert len(known) == 2
    assert sorted(trained) == sorted(every(asked) - known)
    before = read_table(full)
    both = before.merge(table, on=[name for name in table.columns if name in before.columns])
    assert set(zip(both["run"], both["seed"], strict=True)) == known
    # The table is as if all was trained now.
    fresh = run_sweep(asked, tmp_path / "fresh")
    assert table["value"].tolist() == pytest.approx(fresh["value"].tolist(), rel=1e-5)
    assert table.drop(columns="value").equals(fresh.drop(columns="value"))
    assert [session["runs"] for session in about(tmp_path)["sessions"]] == [2]


def test_what_is_finished_is_not_taken_again(full):
    asked = sweep(**FULL)
    some = sorted(every(asked))[:3]
    assert found(asked, full) == every(asked)
    assert found(asked, full, full, finished=some) == every(asked) - set(some)
    assert found(asked, full, finished=every(asked)) == set()
    assert found(sweep(**FULL | {"seeds": 5, "first_seed": 1}), full) == {
        (run, seed) for run, seed in every(asked) if seed == 1
    }


def test_no_run_is_taken_twice(full, tmp_path):
    shutil.copytree(full, tmp_path / "again")
    rows = known_runs(sweep(**FULL), set(), [full, tmp_path / "again"]).rows
    assert len(rows) == len(every(sweep(**FULL)))


def test_other_versions_are_left_alone(full, tmp_path):
    asked = sweep(**FULL)
    (session,) = about(full)["sessions"]
    assert session["versions"] == versions()
    other = session | {"versions": versions() | {"jax": "0.0"}}
    assert found(asked, retold(full, tmp_path / "other", sessions=[other])) == set()
    # Which of the rows are from which session is not told.
    assert found(asked, retold(full, tmp_path / "both", sessions=[other, session])) == set()
    assert found(asked, retold(full, tmp_path / "none", sessions=[])) == set()
    assert found(asked, retold(full, tmp_path / "same", sessions=[session])) == every(asked)
    (tmp_path / "same" / "sweep.json").unlink()
    assert found(asked, tmp_path / "same") == set()
    assert found(asked, tmp_path / "other", full) == every(asked)


def test_other_versions_are_trained_anew(full, tmp_path, trained):
    (session,) = about(full)["sessions"]
    older = session | {"versions": versions() | {"silodp": "0.0"}}
    folder = retold(full, tmp_path / "older", sessions=[older])
    asked = sweep(**SMALL, method="local")
    run_sweep(asked, tmp_path / "new", reuse=[folder])
    assert set(trained) == every(asked)


def test_history_is_wanted_whole_or_its_end(tmp_path):
    options = SMALL | {"method": "local", "evaluate_every": 2}
    whole, last = sweep(**options, history=True), sweep(**options)
    run_sweep(whole, tmp_path / "whole")
    run_sweep(last, tmp_path / "last", reuse=[tmp_path / "whole"])
    all_rounds, last_round = read_table(tmp_path / "whole"), read_table(tmp_path / "last")
    assert all_rounds["round"].tolist() == [2, 4, 2, 4]
    assert last_round.equals(all_rounds[all_rounds["round"] == 4].reset_index(drop=True))
    rows = known_runs(whole, set(), [tmp_path / "whole"]).rows
    assert [row.round for row in rows] == [2, 4, 2, 4]
    assert found(whole, tmp_path / "last") == set()


def test_defaults_that_a_table_does_not_tell_are_not_guessed(full, tmp_path, trained):
    """The one of a data set stands in the table of a sweep that names the option."""
    asked = sweep(**SMALL, method="local", grid=[{"clip": 0.5, "heterogeneity": 0.2}, {}])
    plain = asked.points[1]
    assert (plain.run, 0) in every(sweep(**FULL))
    assert found(asked, full) == set()
    table = run_sweep(asked, tmp_path / "one", reuse=[full])
    assert set(trained) == every(asked)
    shown = table[table["run"] == plain.run].iloc[0]
    assert shown["clip"] > 0
    assert math.isnan(shown["heterogeneity"])  # none is filled in: the data set's own
    trained.clear()
    run_sweep(asked, tmp_path / "two", reuse=[full, tmp_path / "one"])
    assert trained == []
    one, two = (tmp_path / name / "results.csv" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_only_data_that_are_asked_for_are_told(full, tmp_path):
    told = about(full)["data"]
    folder = retold(full, tmp_path / "more", data=told | {"school": {"silos": 139}})
    assert known_runs(sweep(**FULL), set(), [folder]).data == told


def test_the_commands_take_folders_of_tables(full, tmp_path, cli, sentence, trained):
    file = tmp_path / "grid.toml"
    file.write_text("\n".join(f"{n} = {json.dumps(v)}" for n, v in SMALL.items()))
    file.write_text(file.read_text() + '\nmethod = "local"\n')
    shutil.copytree(full, tmp_path / "tables" / "deep" / "full")
    done = cli("sweep", file, "--out", tmp_path / "out", "--reuse", tmp_path / "tables")
    assert done.exit_code == 0, done.stderr
    assert trained == []
    assert len(read_table(tmp_path / "out")) == 2
    for nothing in (tmp_path / "no" / "such", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        for command in (("sweep", file), ("figure", "5")):
            said = sentence(cli(*command, "--out", tmp_path / "x", "--reuse", nothing))
            assert "--reuse: there is no results.csv in" in said
    assert not (tmp_path / "x").exists()


TABLE = "silo,age,score\n" + "".join(
    f"{'ab'[n % 2]},{n % 7},{(n % 7) / 7 + n % 3 / 10}\n" for n in range(80)
)


def of_a_table(folder):
    options = {"silo_column": "silo", "target": "score", "method": "local", "batch_size": 8}
    small = {"rounds": 4, "seeds": 1, "epsilon": 2}
    return sweep_of({"data": "table.csv", **options, **small}, "the file", folder)


def test_a_table_that_has_changed_since_is_refused_and_not_reused(tmp_path, trained):
    file = tmp_path / "table.csv"
    file.write_text(TABLE)
    asked = of_a_table(tmp_path)
    run_sweep(asked, tmp_path / "first")
    run_sweep(asked, tmp_path / "same", reuse=[tmp_path / "first"])
    assert len(trained) == 1
    file.write_text(TABLE.replace("\na,1,", "\na,2,"))
    with pytest.raises(SilodpError, match=r"table.csv has changed since runs in .*first"):
        run_sweep(asked, tmp_path / "first")
    run_sweep(asked, tmp_path / "other", reuse=[tmp_path / "first"])
    assert len(trained) == 2
    run_sweep(asked, tmp_path / "first", overwrite=True)
    assert len(trained) == 3
