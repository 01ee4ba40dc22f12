"""`silodp figure` from start to end, on small figures of made-up silos."""

import contextlib
import json
import math

import pandas as pd
import pytest
from trained_runs import watch

import silodp
from silodp.figures.definition import Definition, Panel, names, parse
from silodp.figures.make import make_figure
from silodp.sweeps import read_table

pytestmark = pytest.mark.usefixtures("kept_programs")

HEAD = """
title = "A small figure"
paper = "Figure 0"
caption = "Look at this."
picture = "tradeoffs"
[sweep]
seeds = 2
rounds = 4
"""
SMALL = """
[[panels]]
name = "small"
title = "Made-up"
[panels.sweep]
data = "synthetic"
silos = 3
epsilon = [2, inf]
lr = [0.1, 0.3]
method = ["local", "mrmtl"]
lam = [0.5, 2]
"""
# A data set whose file lies nowhere.
ABSENT = """
[[panels]]
name = "school"
title = "School"
[panels.sweep]
data = "school"
epsilon = 2
method = "local"
"""
LESS = SMALL.replace('["local", "mrmtl"]', '"local"').replace("[0.1, 0.3]", "[0.1]")
CURVES = [("local", 2.0), ("local", math.inf), ("mrmtl", 2.0), ("mrmtl", math.inf)]
DEFINITIONS = {
    "small": HEAD + SMALL,
    "less": HEAD + LESS,
    "more": HEAD + LESS.replace("[0.1]", "[0.5, 0.1]"),
    "partly": HEAD + ABSENT + SMALL,
    "absent": HEAD + ABSENT,
}


@pytest.fixture(scope="module", autouse=True)
def no_data(tmp_path_factory):
    """No data set lies anywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SILODP_DATA", str(tmp_path_factory.mktemp("empty")))
        yield


@contextlib.contextmanager
def only(*figures):
    """These are all figures that there are, besides Figure 7."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("silodp.cli.figure.names", lambda: list(figures))
        patch.setattr("silodp.cli.figure.load", lambda name: parse(name, DEFINITIONS[name]))
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory, cli):
    """The folder of the small figure, and what the command printed."""
    folder = tmp_path_factory.mktemp("made") / "out"
    with only("small"):
        done = cli("figure", "small", "--out", folder)
    assert done.exit_code == 0, done.stderr
    return folder, done


@pytest.fixture
def trained(monkeypatch):
    """What is trained from here on: names of settings, with seeds."""
    return watch(monkeypatch)


def test_files_of_a_figure(made):
    folder, done = made
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert [file for file in files if not file.endswith(".lock")] == [
        *("small-settings.csv", "small.csv", "small.pdf", "small.png"),
        *("small/results.csv", "small/sweep.json"),
    ]
    assert (folder / "small.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "small.pdf").read_bytes().startswith(b"%PDF")
    assert len(read_table(folder / "small")) == 24
    printed = " ".join(done.stdout.split())
    assert "Look at this. 24 runs" in printed
    assert "Epsilon does not include" in printed
    assert "small-settings.csv" in printed
    assert "…" not in printed


def test_numbers_are_those_of_runs(made):
    folder, _ = made
    numbers, settings = (
        pd.read_csv(folder / f"{name}.csv") for name in ("small", "small-settings")
    )
    assert sorted(zip(numbers["curve"], numbers["x"], strict=True)) == CURVES
    assert len(settings) == 12
    for _, row in numbers.iterrows():
        tried = settings[
            (settings["method"] == row["method"]) & (settings["epsilon"] == row["epsilon"])
        ]
        assert row["mean"] == pytest.approx(tried["mean"].min(), rel=1e-6)  # rounded there
        assert len(tried) == (2 if row["method"] == "local" else 4)
    for method, epsilon in CURVES[1:3]:
        (row,) = numbers[(numbers["curve"] == method) & (numbers["x"] == epsilon)].iloc
        lam = {} if math.isnan(row["lam"]) else {"lam": row["lam"]}
        alone = silodp.run(
            data="synthetic",
            silos=3,
            rounds=4,
            seeds=2,
            method=method,
            epsilon=epsilon,
            lr=row["lr"],
            **lam,
        )
        assert row["mean"] == pytest.approx(alone.mean, rel=1e-5)
        assert row["std"] == pytest.approx(alone.std, rel=1e-3)
        assert row["standard_error"] == pytest.approx(alone.std / math.sqrt(2), rel=1e-3)
        assert row["seeds"] == 2


def test_a_finished_figure_is_drawn_again_without_training(made, cli, trained):
    folder, first = made
    before = {path: path.read_bytes() for path in folder.glob("*.*")}
    assert len(before) == 4
    with only("small"):
        done = cli("figure", "small", "--out", folder)
    assert trained == []
    assert {path: path.read_bytes() for path in folder.glob("*.*")} == before
    assert done.stdout == first.stdout


def test_json(made, cli, trained):
    folder, _ = made
    with only("small"):
        done = cli("figure", "small", "--out", folder, "--json", "--quiet")
        both = cli("figure", "small", "--out", folder, "--quiet")
    points = json.loads(done.stdout)
    assert sorted((p["curve"], float(p["x"])) for p in points) == CURVES
    assert {p["x"] for p in points} == {2.0, "inf"}
    assert all((p["lam"] is None) == (p["curve"] == "local") for p in points)
    assert (both.stdout, both.stderr) == ("", "")
    assert trained == []


def test_panels_without_data_are_named_and_the_others_drawn(made, cli, tmp_path, trained):
    with only("partly"):
        done = cli("figure", "partly", "--out", tmp_path, "--reuse", made[0], "--quiet")
    assert done.exit_code == 0, done.stderr
    assert trained == []
    assert "Not drawn, because data are missing" in done.stderr
    assert "figure partly, School: " in done.stderr
    assert "silodp data get school" in done.stderr
    assert set(pd.read_csv(tmp_path / "partly.csv")["panel"]) == {"small"}
    assert not (tmp_path / "school").exists()


def test_without_any_data_the_sentence_says_what_to_fetch(cli, sentence, tmp_path):
    said = sentence(cli("figure", "adni", "--out", tmp_path))
    assert "adni/labels_2.txt" in said
    # Three panels lack the same file.
    said = sentence(cli("figure", "school-splits", "--out", tmp_path))
    assert said.count("silodp data get school") == 1
    assert not list(tmp_path.rglob("*.*"))


def test_missing_data_destroy_nothing(tmp_path):
    """Neither runs on other data of a panel, nor what else lies in its folder."""
    grid = [
        {"data": "synthetic", "silos": 3, "rounds": 2, "method": "local"},
        {"data": "school", "method": "local"},
    ]
    panels = (
        Panel("both", "Both", {"epsilon": 2, "grid": grid}),
        Panel("none", "None", {"epsilon": 2, "data": "school", "method": "local"}),
    )
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "mine.txt").write_text("dear")
    made = make_figure(Definition("mine", "t", "", "c", "tradeoffs", panels), "paper", tmp_path)
    assert (made.files, list(made.missing)) == ([], ["Both", "None"])
    assert len(read_table(tmp_path / "both")) == 1
    assert [path.name for path in (tmp_path / "none").iterdir()] == ["mine.txt"]


@pytest.mark.slow
def test_all_figures_share_runs_and_those_without_data_stop_none(cli, tmp_path, trained):
    quick = ("--trials", 2, "--closed-form", "--out", tmp_path)
    with only("absent", "less", "more"):
        done = cli("figure", "all", *quick, "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    assert len(trained) == len(set(trained)) == 8
    assert len(read_table(tmp_path / "figuremore-quick" / "small")) == 8
    drawn = json.loads(done.stdout)
    assert list(drawn) == ["7", "less", "more"]
    assert [len(drawn[name]) for name in ("less", "more")] == [2, 2]
    for path in ("figure7/figure7", "figureless-quick/less", "figuremore-quick/more"):
        assert (tmp_path / f"{path}.pdf").exists()
    (told,) = [line for line in done.stderr.splitlines() if "School" in line]
    assert told.strip().startswith("figure absent, School: ")
    assert not list((tmp_path / "figureabsent-quick").rglob("*"))


def test_numbered_figures_are_written_under_their_number(made, tmp_path):
    definition = parse("0", DEFINITIONS["small"])
    again = make_figure(definition, "quick", tmp_path, reuse=[made[0] / "small"])
    assert [file.name for file in again.files] == [
        *("figure0.png", "figure0.pdf", "figure0.csv", "figure0-settings.csv")
    ]
    assert (tmp_path / "figure0.csv").read_bytes() == (made[0] / "small.csv").read_bytes()


def test_the_list_names_all_figures(cli):
    done = cli("figure", "list")
    assert done.exit_code == 0
    assert {*names(), "7"} <= {line.split()[0] for line in done.stdout.splitlines() if line.strip()}


def test_names_and_scales_that_are_unknown(cli, sentence, tmp_path):
    out = ("--out", tmp_path / "x")
    assert "did you mean 'bumps-school'?" in sentence(cli("figure", "bump-school", *out))
    assert "--scale is 'quik': choose 'quick', " in sentence(
        cli("figure", "5", "--scale", "quik", *out)
    )
    assert not (tmp_path / "x").exists()
