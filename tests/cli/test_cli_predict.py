"""`silodp predict`, as people call it."""

import csv
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from handovers import AGE, NASTY, WARD, handed, own_test_rows, patients, silos_of, trained

from silodp.base.text import in_cell
from silodp.results.model_export.files import CARD_FILE, MODEL_FILE

pytestmark = pytest.mark.usefixtures("kept_programs")

FRAME = patients(silos=NASTY)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Runs of a regression and of a classification."""
    folder = tmp_path_factory.mktemp("home")
    for target in ("score", "ill"):
        (folder / target).mkdir()
        trained(FRAME, folder / target, target)
    return folder


@pytest.fixture
def table(tmp_path):
    """New records, in a file."""
    path = tmp_path / "new.csv"
    FRAME.head(12).to_csv(path, index=False)
    return path


def read(text):
    return list(csv.reader(io.StringIO(text)))


@pytest.mark.parametrize("target", ["score", "ill"])
def test_the_numbers_are_those_of_the_run(cli, home, tmp_path, target):
    result = json.loads((home / target / "run" / "result.json").read_text())
    for place, silo in enumerate(silos_of(FRAME)):
        tested = tmp_path / f"{place}.csv"
        own_test_rows(FRAME, silo).to_csv(tested, index=False)
        done = cli("predict", handed(home / target, silo), tested, "--json")
        assert done.exit_code == 0, done.stderr
        told = json.loads(done.stdout)
        own = result["per_silo"][place]
        assert told["silo"] == own["silo"] == silo
        assert told["test"]["value"] == pytest.approx(own["per_seed"][0], rel=2e-5)
        assert told["test"]["records"] == own["test_records"]
        assert told["columns_not_used"] == [
            "site",
            *[name for name in ("score", "ill", "grade") if name != target],
        ]


def test_predictions_go_to_a_file_or_to_the_output(cli, home, table, tmp_path, sentence):
    model, out = handed(home / "score", NASTY[0]), tmp_path / "out" / "said.csv"
    shown = cli("predict", model, table)
    assert shown.exit_code == 0
    rows = read(shown.stdout)
    assert rows[0] == ["row", "prediction"]
    assert [row[0] for row in rows[1:]] == [str(i) for i in range(1, 13)]
    assert "MSE 0." in shown.stderr
    assert "in the target's units" in shown.stderr
    assert "columns that the model does not use: 'site', 'ill', 'grade'" in shown.stderr
    done = cli("predict", model / CARD_FILE, table, "--out", out)
    assert done.exit_code == 0
    assert done.stdout == ""
    assert out.read_text() == shown.stdout
    assert "12 predictions" in done.stderr
    assert "already" in sentence(cli("predict", model, table, "--out", out))
    done = cli("predict", model, table, "--out", out, "--overwrite", "--quiet")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    for path in (table, model):
        again = ("predict", model, table, "--out", path, "--overwrite")
        assert "is an input of this command" in sentence(cli(*again))
    assert "is a folder" in sentence(cli("predict", model, table, "--out", tmp_path))
    told = json.loads(cli("predict", model, table, "--json").stdout)
    for row, value in zip(rows[1:], told["predictions"], strict=True):
        assert float(row[1]) == pytest.approx(value, rel=1e-8)


def test_classes_come_with_their_probabilities(cli, home, table):
    shown = cli("predict", handed(home / "ill", NASTY[0]), table)
    rows = read(shown.stdout)
    assert rows[0] == ["row", "prediction", "probability of no", "probability of yes"]
    for _, said, no, yes in rows[1:]:
        assert float(no) + float(yes) == pytest.approx(1)
        assert said == ("yes" if float(yes) > 0.5 else "no")
    assert "accuracy" in shown.stderr


def test_a_table_without_the_target_will_do(cli, home, tmp_path):
    table = tmp_path / "new.parquet"
    FRAME[[AGE, "dose", WARD, "smoker"]].to_parquet(table)
    done = cli("predict", handed(home / "ill", NASTY[0]), table, "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["test"] is None
    assert told["columns_not_used"] == []
    assert len(told["predictions"]) == len(FRAME)


def test_nothing_in_a_name_commands_the_terminal_or_a_spreadsheet(cli, tmp_path):
    frame = patients(silos=NASTY)
    frame["ill"] = np.where(frame["ill"] == "yes", "=1+1", "-no")
    frame["\x1b[31m[bold]red"] = 1
    trained(frame.assign(**{"@more": 1}), tmp_path, "ill")
    frame["\x1b]0;title\x07"] = 2
    frame.assign(**{"@more": 1}).to_csv(tmp_path / "new.csv", index=False)
    for silo in NASTY:
        done = cli("predict", handed(tmp_path, silo), tmp_path / "new.csv")
        assert done.exit_code == 0, done.stderr
        assert not re.search(r"[\x00-\x09\x0b-\x1f]", done.stderr)
        rows = read(done.stdout)
        assert {row[1] for row in rows[1:]} <= {"'=1+1", "'-no"}
        assert not any(cell.startswith(("=", "@", "+")) for row in rows for cell in row)
    assert [in_cell(text) for text in ("-2", "+1.5e-3", "-2+3", "a")] == [
        "-2", "+1.5e-3", "'-2+3", "a",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.drop(columns="dose"), "no column 'dose'"),
        (lambda f: f.assign(dose="much"), "'much', which is not a number"),
        (lambda f: f.assign(**{WARD: "z"}), "'z', which is not among its levels"),
        (lambda f: f.assign(smoker="perhaps"), "'perhaps', which is not among its levels"),
        (lambda f: f.assign(dose=1e39), "infinite or too large"),
        (lambda f: f.assign(score="good"), "'good', which is not a number"),
        (lambda f: f.head(0), "has a header but no rows"),
        (lambda f: pd.DataFrame({"other": [1]}), "no column"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(cli, home, tmp_path, sentence, change, words):
    change(FRAME.head(12)).to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "said.csv"
    told = sentence(cli("predict", handed(home / "score", NASTY[0]), tmp_path / "new.csv",
                        "--out", out))  # fmt: skip
    assert words in told
    assert "new.csv" in told
    assert not out.exists()


def test_all_problems_of_a_table_are_told_at_once(cli, home, tmp_path, monkeypatch):
    """Of all columns; and nothing is written."""
    monkeypatch.setenv("COLUMNS", "200")
    frame = FRAME.head(12).assign(smoker="perhaps", dose=1e39)
    frame.to_csv(tmp_path / "new.csv", index=False)
    model, out = handed(home / "score", NASTY[0]), tmp_path / "out.csv"
    done = cli("predict", model, tmp_path / "new.csv", "--out", out)
    assert done.exit_code == 2
    assert "2 problems in 1 silo" in done.stdout
    for words in ("'perhaps', which is not among", "infinite or too large"):
        assert words in " ".join(done.stdout.split())
    assert not out.exists()


def test_files_that_are_no_model_or_no_table(cli, home, tmp_path, table, sentence):
    model = handed(home / "score", NASTY[0])
    assert "folder of a run" in sentence(cli("predict", home / "score" / "run", table))
    assert "does not exist" in sentence(cli("predict", tmp_path / "none", table))
    assert "does not exist" in sentence(cli("predict", model, tmp_path / "none.csv"))
    assert "does not end in" in sentence(cli("predict", model, model / CARD_FILE))
    table.write_bytes(b"\xff\xfe\x00")
    assert "not utf-16 text" in sentence(cli("predict", model, table))
    table.write_text("")
    assert "is empty" in sentence(cli("predict", model, table))
    own = tmp_path / "own"
    own.mkdir()
    (own / CARD_FILE).write_bytes((model / CARD_FILE).read_bytes())
    (own / MODEL_FILE).write_bytes((model / MODEL_FILE).read_bytes()[:-7])
    assert "another sha256" in sentence(cli("predict", own, table))


def test_levels_are_read_as_they_are_written(cli, tmp_path):
    """Also where every one of them looks like a number in the new table."""
    frame = patients().rename(columns={WARD: "ward"})
    frame["ward"] = frame["ward"].map({"x": "007", "y": "7", "w": "1.50"})
    schema = tmp_path / "schema.toml"
    schema.write_text('[levels]\nward = ["007", "7", "1.50"]')
    trained(frame, tmp_path, schema=schema)
    for ward in ("007", "7", "1.50"):
        part = frame[frame["ward"] == ward]
        part.to_csv(tmp_path / "part.csv", index=False)
        done = cli("predict", handed(tmp_path, "north"), tmp_path / "part.csv", "--json")
        assert done.exit_code == 0, done.stderr
        frame.to_csv(tmp_path / "all.csv", index=False)
        whole = cli("predict", handed(tmp_path, "north"), tmp_path / "all.csv", "--json")
        of_all = np.array(json.loads(whole.stdout)["predictions"])[frame["ward"] == ward]
        np.testing.assert_allclose(json.loads(done.stdout)["predictions"], of_all, rtol=1e-6)
