"""Sweeps: the grid of a file, chunks, the table, and what is left after a process was killed."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import silodp
from silodp.base.errors import SilodpError
from silodp.sweeps import read_sweep, read_table, run_sweep, sweep_of
from silodp.sweeps.best import best_by_method
from silodp.sweeps.chunks import make_chunks
from silodp.sweeps.settings import over_seeds
from silodp.sweeps.table import Row, Table

SMALL = {"data": "synthetic", "silos": 3, "rounds": 4, "seeds": 2, "epsilon": 2}


def sweep(**content):
    return sweep_of(content, "the file", Path())


def named(asked, *names):
    return [tuple(getattr(point.options, name) for name in names) for point in asked.points]


def test_lists_span_a_grid_and_each_grid_table_its_own():
    asked = sweep(
        **SMALL,
        lr=[0.1, 0.2],
        grid=[{"method": ["local", "fedavg"]}, {"method": "mrmtl", "lam": [1, 2]}],
    )
    assert named(asked, "method", "lr", "lam") == [
        ("local", 0.1, 1.0),
        ("fedavg", 0.1, 1.0),
        ("local", 0.2, 1.0),
        ("fedavg", 0.2, 1.0),
        ("mrmtl", 0.1, 1.0),
        ("mrmtl", 0.1, 2.0),
        ("mrmtl", 0.2, 1.0),
        ("mrmtl", 0.2, 2.0),
    ]
    assert asked.runs == 16
    assert asked.columns == ("data", "method", "silos", "rounds", "epsilon", "lr", "lam")


def test_options_that_a_method_does_not_use_make_no_more_runs():
    asked = sweep(**SMALL, method=["local", "mrmtl", "finetune"], lam=[0.1, 1, 10])
    assert named(asked, "method", "lam") == [
        ("local", 1.0),
        ("mrmtl", 0.1),
        ("mrmtl", 1.0),
        ("mrmtl", 10.0),
        ("finetune", 1.0),
    ]


def test_a_run_has_the_same_name_in_every_sweep():
    one = sweep(**SMALL, method=["mrmtl", "local"], lam=[1, 3]).points
    other = sweep(data="synthetic", silos=3, rounds=4, seeds=7, epsilon=[5, 2], method="local")
    assert {p.run for p in one} & {p.run for p in other.points} == {one[-1].run}
    assert len({p.run for p in one}) == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"lamda": 1}, "option 'lamda' is unknown"),
        ({"lam": []}, "lam is an empty list"),
        ({"lam": ["a"]}, "lam is 'a', not of type float"),
        ({"lam": -1}, "--lam is -1.0"),
        ({"method": ["local", "nosuch"]}, "Method 'nosuch' is unknown"),
        ({"seeds": [1, 2]}, "seeds is a list: give one value"),
        ({"epsilon": [1, 0]}, "--epsilon is 0.0"),
        ({"ledger": "somewhere"}, "leave out ledger"),
        ({"grid": {"lam": 1}}, "write [[grid]]"),
        ({"grid": [{"nosuch": 1}]}, "the file, grid 1: option 'nosuch'"),
        ({"history": 3}, "history is 3"),
        ({"silo-column": "a", "silo_column": "b"}, "silo_column is given twice"),
        ({"lr": list(range(1, 1200)), "lam": list(range(1, 1200))}, "shorten its lists"),
    ],
)
def test_files_that_are_wrong_are_refused(content, said):
    content = {"method": "mrmtl"} | content
    with pytest.raises(SilodpError, match=r"^the file") as refused:
        sweep_of(content, "the file", Path())
    assert said in str(refused.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path, cli, sentence):
    assert "does not exist" in sentence(cli("sweep", tmp_path / "none.toml"))
    (tmp_path / "bad.toml").write_text("lam = = 3")
    assert "is not valid TOML: fix line" in sentence(cli("sweep", tmp_path / "bad.toml"))


def test_paths_are_meant_from_the_file(tmp_path):
    (tmp_path / "table.csv").write_text("a\n1\n")
    file = tmp_path / "a.toml"
    file.write_text('data = "table.csv"\nschema = "schema.toml"\nepsilon = 1\n')
    (point,) = read_sweep(file).points
    assert point.options.data == str(tmp_path / "table.csv")
    assert point.options.schema == tmp_path / "schema.toml"


def test_chunks_hold_each_unfinished_run_once():
    asked = sweep(
        **(SMALL | {"seeds": 3}), method=["local", "mrmtl"], lam=list(range(1, 71)), lr=[0.1, 0.2]
    )
    every = {(point.run, seed) for point in asked.points for seed in point.seeds}
    local = asked.points[0].run
    finished = {(local, 1)} | {run for run in every if run[0] == asked.points[5].run}
    chunks = make_chunks(asked.points, finished)
    held = [(p.run, seed) for chunk in chunks for p in chunk.points for seed in chunk.seeds]
    assert len(held) == len(set(held))
    assert set(held) == every - finished
    # 140 settings of mrmtl in four chunks of one size, one of them short of a point.
    assert sorted(len(c.points) for c in chunks if c.points[0].options.method == "mrmtl") == [
        34,
        35,
        35,
        35,
    ]
    # Of the settings of local, one lacks the seeds around seed 1.
    assert [c.seeds for c in chunks[:3]] == [range(1), range(2, 3), range(3)]


def test_chunks_span_all_budgets_so_that_one_program_fits_all():
    asked = sweep(**(SMALL | {"epsilon": [1, 2, 4]}), method="mrmtl", lam=list(range(1, 71)))
    chunks = make_chunks(asked.points, set())
    assert len(chunks) == 5
    for chunk in chunks:
        assert {point.options.epsilon for point in chunk.points} == {1, 2, 4}
        assert len(chunk.points) == 42


def test_all_chunks_of_a_program_are_compiled_once(tmp_path, monkeypatch):
    compiled = []
    whole = jax.stages.Lowered.compile

    def watched(lowered, *args):
        compiled.append(lowered)
        return whole(lowered, *args)

    monkeypatch.setattr(jax.stages.Lowered, "compile", watched)
    lams = [0.1 * number for number in range(1, 71)]
    asked = sweep(**(SMALL | {"epsilon": [1, 4], "seeds": 1}), method="meanpull", lam=lams)
    assert len(make_chunks(asked.points, set())) > 1
    run_sweep(asked, tmp_path)
    assert len(compiled) == 1


def row(run, seed, at=4, value=1.0, **more):
    options = {"data": "d", "method": "local", "epsilon": 2.0} | more
    return Row(run, options, seed, at, "mse", value, 2.0, 1.5, True)


@pytest.fixture
def table(tmp_path):
    opened = Table(tmp_path, ("data", "method", "epsilon"))
    yield opened
    opened.close()


def test_the_table_gives_back_what_was_added(table, tmp_path):
    table.add([row("a", 0, value=1 / 3), row("a", 1, value=math.nan)])
    table.add([row("b", 0, epsilon=math.inf)])
    assert table.finished() == {("a", 0), ("a", 1), ("b", 0)}
    read = read_table(tmp_path)
    assert read["value"][0] == 1 / 3
    assert math.isnan(read["value"][1])
    assert read["epsilon"][2] == math.inf


@pytest.mark.parametrize("written", [0, 1, 20, 10_000])
def test_appending_is_finished_by_who_comes_next(table, tmp_path, written):
    """The process ends after it had written some bytes of a chunk."""
    table.add([row("a", 0)])
    whole = tmp_path / "results.csv"
    before = whole.read_bytes()
    table.add([row("b", 0), row("b", 1)])
    after = whole.read_bytes()
    text = after[len(before) :].decode()
    (tmp_path / ".chunk.json").write_text(json.dumps({"size": len(before), "text": text}))
    whole.write_bytes(after[: len(before) + written])
    table.close()
    again = Table(tmp_path, ("data", "method", "epsilon"))
    assert whole.read_bytes() == after
    assert not (tmp_path / ".chunk.json").exists()
    again.close()


def test_two_sweeps_cannot_share_a_folder(table, tmp_path):
    with pytest.raises(SilodpError, match="Another sweep is at work"):
        Table(tmp_path, ("data", "method", "epsilon"))


def test_a_damaged_table_is_refused_with_its_line(table, tmp_path):
    table.add([row("a", 0), row("b", 0)])
    path = tmp_path / "results.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], lines[2][:9]]) + "\n")
    with pytest.raises(SilodpError, match="line 3 has"):
        table.finished()


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A sweep over methods, budgets and learning rates, with its folder."""
    folder = tmp_path_factory.mktemp("sweep")
    asked = sweep(
        **(SMALL | {"epsilon": [2, math.inf]}),
        lr=[0.1, 0.3],
        grid=[{"method": "local"}, {"method": "mrmtl", "lam": [0.5, 2]}],
    )
    return asked, folder, run_sweep(asked, folder)


def test_each_row_is_what_run_gives(ran):
    table = ran[2]
    assert len(table) == 24
    chosen = table[(table["method"] == "mrmtl") & (table["lam"] == 2) & (table["lr"] == 0.3)]
    for epsilon in (2.0, math.inf):
        alone = silodp.run(**SMALL | {"epsilon": epsilon}, method="mrmtl", lam=2, lr=0.3)
        own = chosen[chosen["epsilon"] == epsilon]
        np.testing.assert_allclose(own["value"], alone.test["per_seed"], rtol=1e-5)
        assert list(own["seed"]) == [0, 1]
        assert set(own["epsilon_spent"]) == {max(alone.epsilons)}
        assert set(own["metric"]) == {alone.metric}
        assert set(own["proven"]) == {alone.proven}
        assert set(own["round"]) == {4}
    assert table[table["method"] == "local"]["lam"].isna().all()


def test_a_finished_sweep_is_not_run_again(ran, monkeypatch):
    asked, folder, table = ran
    monkeypatch.setattr("silodp.sweeps.sweeping.train_chunk", None)
    assert run_sweep(asked, folder).equals(table)


def test_more_seeds_and_settings_are_added_to_what_is_there(ran, tmp_path, monkeypatch):
    _, folder, table = ran
    (tmp_path / "results.csv").write_bytes((folder / "results.csv").read_bytes())
    more = sweep(
        **(SMALL | {"epsilon": [2, math.inf], "seeds": 3}),
        lr=[0.1, 0.3],
        grid=[{"method": "local"}, {"method": "mrmtl", "lam": [0.5, 2, 5]}],
    )
    trained = []
    from silodp.sweeps import sweeping

    def watched(chunk, *rest):
        trained.extend((point.run, seed) for point in chunk.points for seed in chunk.seeds)
        return sweeping_train(chunk, *rest)

    sweeping_train = sweeping.train_chunk
    monkeypatch.setattr(sweeping, "train_chunk", watched)
    grown = run_sweep(more, tmp_path)
    assert len(trained) == len(set(trained)) == len(grown) - len(table)
    known = grown.merge(table, on=list(table.columns))
    assert len(known) == len(table)
    assert len(grown) == more.runs


def test_a_table_of_another_sweep_is_refused(ran):
    _, folder, _ = ran
    fewer = sweep(
        **(SMALL | {"epsilon": [2, math.inf]}), lr=[0.1], method=["local", "mrmtl"], lam=[0.5]
    )
    with pytest.raises(SilodpError, match="runs that are not in this sweep"):
        run_sweep(fewer, folder)
    with pytest.raises(SilodpError, match="has other columns"):
        run_sweep(sweep(**SMALL, method="local"), folder)


def test_history_shows_every_evaluated_round(tmp_path):
    asked = sweep(**SMALL, method="fedavg", evaluate_every=2, history=True)
    table = run_sweep(asked, tmp_path)
    alone = silodp.run(**SMALL, method="fedavg", evaluate_every=2)
    assert list(table["round"]) == [2, 4, 2, 4]
    expected = np.array([point["per_seed"] for point in alone.history]).T.ravel()
    np.testing.assert_allclose(table["value"], expected, rtol=1e-5)


def test_what_a_run_is_refused_for_names_it_and_keeps_the_rest(tmp_path):
    asked = sweep(**(SMALL | {"batch_size": [8, 100_000]}), method="local")
    with pytest.raises(SilodpError, match=r"Runs of local on synthetic: .*fewer"):
        run_sweep(asked, tmp_path)
    assert len(read_table(tmp_path)) == 2


def test_the_best_of_each_method_by_hand(ran):
    _, _, table = ran
    best = best_by_method(table)
    assert [(row["epsilon"], row["method"]) for row in best] == [
        (2.0, "local"),
        (2.0, "mrmtl"),
        (math.inf, "local"),
        (math.inf, "mrmtl"),
    ]
    for chosen in best:
        same = table[
            (table["method"] == chosen["method"]) & (table["epsilon"] == chosen["epsilon"])
        ]
        means = same.groupby("run")["value"].mean()
        assert chosen["mean"] == pytest.approx(means.min())
        assert chosen["run"] == means.idxmin()
        assert chosen["tried"] == len(means)
        values = same[same["run"] == chosen["run"]]["value"]
        assert chosen["standard_error"] == pytest.approx(values.std(ddof=1) / math.sqrt(2))


def test_a_setting_that_diverged_is_never_the_best(table, tmp_path):
    table.add([row("a", 0, value=5.0), row("a", 1, value=5.0)])
    table.add([row("b", 0, value=0.1), row("b", 1, value=math.nan)])
    read = read_table(tmp_path)
    (best,) = best_by_method(read)
    assert (best["run"], best["tried"], best["diverged"]) == ("a", 2, 1)
    assert over_seeds(read)["mean"].isna().tolist() == [False, True]


def test_of_accuracies_the_highest_is_the_best(table, tmp_path):
    table.add([row("a", 0, value=0.5)._replace(metric="accuracy")])
    table.add([row("b", 0, value=0.7)._replace(metric="accuracy")])
    assert [row["run"] for row in best_by_method(read_table(tmp_path))] == ["b"]


FILE = """
data = "synthetic"
silos = 3
rounds = 100
seeds = 2
epsilon = [1, inf]
lr = 0.1
method = ["local", "fedavg"]
clip = [0.5, 1.0]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(FILE)
    return path


def test_the_command_prints_the_best_and_what_epsilon_leaves_out(tmp_path, cli):
    file = tmp_path / "grid.toml"
    file.write_text(
        'data = "synthetic"\nsilos = 3\nrounds = 4\nepsilon = 2\nmethod = ["local", "mrmtl"]\n'
        "lam = [1, 2]\nseeds = 2\n"
    )
    done = cli("sweep", file, "--out", tmp_path / "out", "--parquet")
    assert done.exit_code == 0, done.stderr
    assert "silodp tune chooses privately" in " ".join(done.stdout.split())
    import pandas as pd

    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "out" / "results.parquet"), read_table(tmp_path / "out")
    )
    again = cli("sweep", file, "--out", tmp_path / "out", "--json", "--quiet")
    best = json.loads(again.stdout)
    assert [one["method"] for one in best] == ["local", "mrmtl"]
    assert best[1]["tried"] == 2
    about = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert about["runs"] == 6
    assert [session["runs"] for session in about["sessions"]] == [6]


def test_killed_twice_the_table_is_the_same(file, tmp_path, cli):
    """kill -9 while it trains, twice; then the same command goes on."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert cli("sweep", file, "--out", whole, "--quiet").exit_code == 0
    rows = 0
    for _ in range(2):
        args = [sys.executable, "-m", "silodp", "sweep", file, "--out", killed, "--quiet"]
        process = subprocess.Popen(args)
        _wait_for_rows(killed, rows + 1)  # it has added some since it began
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        rows = len((killed / "results.csv").read_text().splitlines())
    assert rows < len((whole / "results.csv").read_text().splitlines()), "killed too late"
    assert cli("sweep", file, "--out", killed, "--quiet").exit_code == 0
    assert (killed / "results.csv").read_bytes() == (whole / "results.csv").read_bytes()
    assert not (killed / "unfinished").exists()


def _wait_for_rows(folder, least):
    end = time.monotonic() + 100
    table = folder / "results.csv"
    while time.monotonic() < end:
        if table.exists() and len(table.read_text().splitlines()) > least:
            return
        time.sleep(0.02)
    raise AssertionError("no rows came")
