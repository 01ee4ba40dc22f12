"""The suite of federations: what it trains, keeps, compares and writes."""

import csv
import json
import math

import numpy as np
import pytest

from silodp.base.errors import SilodpError
from silodp.data.registry import SOURCES
from silodp.data.sources.made_up import Recipe, draw
from silodp.privacy.policy_files import read_policies
from silodp.suite import cases as suite_cases
from silodp.suite import running, training
from silodp.suite.cells import CONSTANT, Cell, Setting, cells_in, read_cell, write_cell
from silodp.suite.comparing import Line, best_setting, lines_of, read_lines, write_lines
from silodp.suite.page import page_of
from silodp.suite.report import write_report
from silodp.suite.running import lacking, rows_of, run_suite

TINY = """
title = "Tiny"
what = "two silos"
metric = "mse"
[run]
rounds = 1
batch_size = 8
delta = 1e-3
[made_up]
silos = 2
records = [10, 12]
features = 2
test = 6
"""
ABSENT = """
title = "School"
what = "not here"
metric = "mse"
[run]
data = "school"
"""


def case(text=TINY, name="tiny", folder=None):
    return suite_cases.parse(name, text, folder)


@pytest.fixture
def small_grids(monkeypatch):
    monkeypatch.setattr(suite_cases, "GRIDS", ({"lr": (0.1, 0.3)},))


def cell(row, by_silo, *, metric="mse", refused="", options=None, tests=None):
    """A cell of one setting whose silos [silos][seeds] are given; silos weigh alike."""
    values = np.mean(by_silo, axis=0).tolist() if by_silo else []
    settings = [Setting(options or {}, values, by_silo, 1.0, True)] if by_silo else []
    silos = [f"silo {k}" for k in range(len(by_silo))]
    tests = tests or [10] * len(by_silo)
    return Cell("tiny", row, 1.0, {}, len(values), metric, silos, tests, tests, settings, refused)


# --- the federations


def test_every_federation_can_be_had_or_says_what_it_waits_for():
    for name in suite_cases.names():
        own = suite_cases.load(name)
        assert own.title
        assert own.what
        if own.made_up is None and not own.waits_for:
            assert own.run["data"] in SOURCES


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TINY.replace("[made_up]", "[made]"), "made"),
        (TINY.replace("rounds = 1", "round = 1"), "round"),
        (TINY + '[[x]]\ny = "z"', "x"),
        (TINY.replace("rounds = 1", 'data = "school"'), "and not both"),
        (ABSENT.replace("mse", "mess"), "mess"),
        (TINY.replace("features", "feature"), "feature"),
    ],
)
def test_a_mistaken_file_is_refused_in_a_sentence(text, said):
    with pytest.raises(SilodpError, match=said):
        case(text)


def test_unequal_budgets_name_silos_that_are_there():
    own = suite_cases.load("made_up_budgets")
    assert own.federation is not None
    names = own.federation(0).names
    policies = read_policies(own.run["policies"], names, {"epsilon": 4.0, "delta": 1e-5})
    assert sum(one.epsilon < 4 for one in policies) == 10


def test_made_up_silos_change_with_the_seed_but_for_their_sizes():
    recipe = Recipe(task="binary", silos=4, records=(10, 40), features=3, offset=-1.0)
    one, other = draw("made", recipe, 0), draw("made", recipe, 1)
    assert one.train_counts.tolist() == other.train_counts.tolist() == [10, 16, 25, 40]
    assert not np.array_equal(one.silos[0].train.x, other.silos[0].train.x)
    labels = np.concatenate([silo.test.y for silo in one.silos])
    assert 0 < (labels > 0).mean() < 0.4  # the offset makes the second class rare


def test_groups_have_centres_of_their_own():
    recipe = Recipe(silos=4, groups=2, heterogeneity=0.0, noise=0.0, features=2, test=2000)
    silos = draw("made", recipe, 0).silos

    def fitted(silo):
        return np.linalg.lstsq(silo.test.x, silo.test.y, rcond=None)[0]

    first, second, third, _ = map(fitted, silos)
    assert np.abs(first - third).max() < 0.1
    assert np.abs(first - second).max() > 0.2


# --- training


def test_simple_choices_come_first_and_once():
    simple = [CONSTANT, "best of local", "best of fedavg"]
    assert rows_of(["ebmtl"], ["local", "mrmtl"]) == [*simple, "ebmtl", "best of mrmtl"]


def test_what_is_finished_is_kept_and_not_trained_again(tmp_path, monkeypatch, small_grids):
    rows = [CONSTANT, "local", "best of local"]
    assert run_suite(tmp_path, [case()], rows, (1.0, math.inf), 2) == {}
    found = {(one.row, one.epsilon): one for one in cells_in(tmp_path)}
    assert set(found) == {(row, eps) for row in rows for eps in (1.0, math.inf)}
    local = found["local", 1.0]
    assert len(local.settings) == 1
    assert np.shape(local.settings[0].by_silo) == (2, 2)
    assert local.settings[0].epsilon <= 1.0
    assert [one.options["lr"] for one in found["best of local", 1.0].settings] == [0.1, 0.3]
    means = np.mean(found[CONSTANT, 1.0].settings[0].by_silo, axis=0)
    assert found[CONSTANT, 1.0].settings[0].values == pytest.approx(means)
    trained = []
    monkeypatch.setattr(running, "train_row", lambda own, row, *_: trained.append(row) or [])
    assert run_suite(tmp_path, [case()], rows, (1.0, math.inf), 2) == {}
    assert not trained
    run_suite(tmp_path, [case()], ["local"], (1.0,), 2, overwrite=True)
    assert trained == ["local"]


def test_only_what_changed_is_lacking(tmp_path):
    write_cell(tmp_path, one := cell("local", [[1.0, 2.0]]))
    assert one == read_cell(next(tmp_path.glob("cells/tiny/*.json")))
    own = case()
    request = training.request_of(own, "local")
    write_cell(tmp_path, Cell(**{**vars(one), "request": request}))
    assert not lacking(tmp_path, [own], ["local"], (1.0,), 2)
    assert lacking(tmp_path, [own], ["local"], (1.0,), 3)  # more seeds
    other = case(TINY.replace("rounds = 1", "rounds = 2"))
    assert lacking(tmp_path, [other], ["local"], (1.0,), 2)
    (task,) = lacking(tmp_path, [own], ["local"], (1.0, 4.0), 2)
    assert task.epsilons == (4.0,)


def test_missing_data_and_unsuited_methods_are_said_and_do_not_stop_the_rest(tmp_path, monkeypatch):
    monkeypatch.delenv("SILODP_DATA", raising=False)
    monkeypatch.setenv("SILODP_CACHE", str(tmp_path / "cache"))
    waiting = case('title="T"\nwhat="w"\nmetric="mse"\nwaits_for="it has no features"', "waiting")
    counts = TINY.replace('metric = "mse"', 'metric = "c_index"')
    own = [case(ABSENT, "school"), waiting, case(counts, "odd")]
    missing = run_suite(tmp_path, own, ["local"], (1.0,), 1)
    assert set(missing) == {"school", "waiting"}
    assert "silodp data get school" in missing["school"]
    lines = write_report(tmp_path, tmp_path / "suite.md", own, missing)
    page = (tmp_path / "suite.md").read_text()
    assert "`school`: Data set" in page
    assert "`waiting`: it has no features." in page
    (refused,) = (line for line in lines if line.federation == "odd")
    assert "c_index" in refused.refused
    assert refused.refused in page


# --- comparing


def test_a_difference_counts_if_it_is_beyond_chance():
    simple = [
        cell(CONSTANT, [[4.0, 4.0, 4.0]] * 4),
        cell("best of local", [[2.0, 2.1, 1.9]] * 4),
        cell("best of fedavg", [[3.0, 3.0, 3.0]] * 4),
    ]
    rows = {
        "good": [[1.5, 1.6, 1.4]] * 4,
        "alike": [[2.2, 1.9, 2.0]] * 4,
        "bad": [[2.5, 2.6, 2.4]] * 3 + [[1.0, 1.1, 0.9]],
    }
    lines = {one.row: one for one in lines_of([*simple, *(cell(*own) for own in rows.items())])}
    assert [lines[row].verdict for row in rows] == ["better", "level", "worse"]
    assert lines["good"].against == "best of local"
    assert lines["good"].excess == pytest.approx(-0.25)
    assert lines["good"].harmed == 0
    assert lines["bad"].harmed == 3
    assert not lines["best of local"].verdict


def test_of_accuracies_the_loss_is_what_is_wrong():
    simple = [
        cell(row, [[value] * 2], metric="accuracy")
        for row, value in ((CONSTANT, 0.5), ("best of local", 0.8), ("best of fedavg", 0.7))
    ]
    own = [*simple, cell("m", [[0.6, 0.6]], metric="accuracy")]
    line = next(line for line in lines_of(own) if line.row == "m")
    assert line.excess == pytest.approx(1.0)
    assert line.verdict == "worse"


def test_nothing_is_compared_before_the_simple_choices_are_there():
    (line,) = lines_of([cell("m", [[1.0, 1.0]])])
    assert line.verdict == ""
    assert math.isnan(line.excess)


def test_the_best_setting_is_none_that_diverged_and_may_lie_at_the_edge():
    settings = [
        Setting({"lr": lr}, [value, value], [[value, value]], 1.0, True)
        for lr, value in ((0.1, 3.0), (0.3, 2.0), (1.0, None))
    ]
    own = Cell(**{**vars(cell("best of local", [])), "settings": settings})
    best = best_setting(own)
    assert best is not None
    assert best.options == {"lr": 0.3}
    line = lines_of([own])[0]
    assert (line.mean, line.at_edge) == (2.0, False)
    left = Cell(**{**vars(own), "settings": settings[:2]})
    assert lines_of([left])[0].at_edge


def test_the_table_is_read_as_it_was_written(tmp_path):
    lines = [
        Line(
            "a", math.inf, "m", "mse", mean=0.123456789, values="1 2", proven=True, verdict="level"
        ),
        Line("b", 0.5, "n", "mse", refused="not, for it"),
    ]
    path = write_lines(tmp_path / "suite.csv", lines)
    again = read_lines(path)
    assert again[0].epsilon == math.inf
    assert again[0].mean == pytest.approx(0.1234568)
    assert again[0].proven
    assert math.isnan(again[1].mean)
    assert again[1].refused == "not, for it"
    assert write_lines(tmp_path / "again.csv", again).read_text() == path.read_text()
    path.write_text("a,b\n1,2\n")
    with pytest.raises(SilodpError, match="other columns"):
        read_lines(path)


def test_the_page_says_how_each_method_did(tmp_path):
    cells = [
        cell(CONSTANT, [[4.0, 4.0]]),
        cell("best of local", [[2.0, 2.01]], options={"lr": 0.1}),
        cell("best of fedavg", [[3.0, 3.0]]),
        cell("ebmtl", [[1.0, 1.01]]),
        cell("fewround", [], refused="It is not for these."),
    ]
    page = page_of(lines_of(cells), [case()])
    assert "| `ebmtl` | 1 | 0 | 0 | -49.9 % |" in page
    assert "**Tiny**, MSE" in page
    assert "1.005 ± 0.005 ▲" in page
    assert "`fewround` on `tiny`: It is not for these." in page
    assert "<!--" not in page


# --- the command


def test_the_command_writes_what_is_finished(cli, tmp_path):
    own = suite_cases.load("made_up_alike")
    rows = {CONSTANT: 4.0, "best of local": 2.0, "best of fedavg": 3.0, "ebmtl": 1.0}
    for row, value in rows.items():
        made = cell(row, [[value, value + 0.01]])
        write_cell(tmp_path, Cell(**{**vars(made), "federation": own.name}))
    page = tmp_path / "docs" / "suite.md"
    done = cli(
        *("bench", "suite", "--out", tmp_path, "--only", own.name, "--as-is"),
        *("--page", page, "--json"),
    )
    assert done.exit_code == 0, done.stderr
    assert {line["row"] for line in json.loads(done.stdout)} == set(rows)
    assert own.title in page.read_text()
    written = page.read_text()
    page.write_text("older words")
    cli("bench", "suite", "--out", tmp_path / "none", "--only", own.name, "--as-is", "--page", page)
    assert page.read_text() == written  # from the table alone
    with (page.parent / "results" / "suite.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    assert (page.parent / "results" / "suite.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--only", "hart"), "--only names 'hart'"),
        (("--epsilon", "much"), "--epsilon holds 'much'"),
        (("--methods", "fedavgg"), "fedavgg"),
    ],
)
def test_what_is_not_known_is_refused(cli, tmp_path, options, said):
    done = cli("bench", "suite", "--out", tmp_path, *options)
    assert done.exit_code == 2
    assert said in done.stderr
