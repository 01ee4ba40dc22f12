"""From a table to a result with one command; interrupted runs, and how they go on."""

import json
import math
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from interruptible import interruptible
from typer.main import get_command

import silodp
from silodp.base.errors import SilodpError
from silodp.base.progress import Reporter
from silodp.cli import app
from silodp.config.options import RunRequest
from silodp.engines import checkpoint
from silodp.methods import METHODS

pytestmark = pytest.mark.usefixtures("kept_programs")

METRIC_KEYS = {"metric", "release", "share", "test", "no_skill", "private", "per_silo"}
RESULT_KEYS = {
    "format",
    *("data", "method", "options", "metric", "test", "per_silo", "privacy"),
    *("assumptions", "warnings", "person", "history", "seconds", "versions", "tuning"),
    "learned",
    *("metrics", "problem", "left_out", "chosen", "encoders"),
}
SUMMARY_KEYS = {"mean", "std", "per_seed"}
PRIVACY_KEYS = {
    *("silo", "epsilon", "delta", "unit", "relation", "noise_multiplier"),
    *("sampling_rate", "steps"),
    *("accountant", "experiment", "proven", "unproven"),
}
SCHEMA = """
[bounds]
age = [-4, 4]
dose = [-4, 4]

[target]
range = [-5, 5]
"""
POLICIES = """
[default]
epsilon = 2
delta = 1e-4

[silos.careful]
epsilon = 0.5

[silos.generous]
epsilon = 8
delta = 1e-3
"""


@pytest.fixture(autouse=True)
def no_data_of_the_developer(monkeypatch):
    monkeypatch.delenv("SILODP_DATA", raising=False)


def table(silos, target):
    """Equal silos, so that one compiled shape fits them all."""
    rng = np.random.default_rng(0)
    age, dose = rng.normal(size=(2, 40 * len(silos)))
    return pd.DataFrame(
        {"silo": np.repeat(silos, 40), "age": age, "dose": dose, "target": target(age, dose)}
    )


def strict_json(text):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def result_in(folder):
    return strict_json((folder / "result.json").read_text())


@pytest.fixture(scope="module")
def run(cli):
    """Runs the command to its end, and gives what it printed."""

    def call(*args):
        done = cli("run", *args)
        assert done.exit_code == 0, done.stderr
        return done

    return call


# --- a regression table with a budget for each silo


@pytest.fixture(scope="module")
def regression(command, tmp_path_factory):
    """In a process of its own, as of a user."""
    folder = tmp_path_factory.mktemp("regression")
    frame = table(["careful", "generous", "usual"], lambda age, dose: age - dose)
    frame.to_csv(folder / "table.csv", index=False)
    (folder / "schema.toml").write_text(SCHEMA)
    (folder / "policies.toml").write_text(POLICIES)
    args = ("--data", folder / "table.csv", "--silo-column", "silo", "--target", "target")
    args += ("--schema", folder / "schema.toml", "--policies", folder / "policies.toml")
    args += ("--method", "mrmtl", "--rounds", 5, "--seeds", 2, "--out", folder / "out", "--json")
    done = command("run", *args)
    assert done.returncode == 0, done.stderr
    return folder / "out", done


def test_result_has_the_documented_keys(regression):
    result = result_in(regression[0])
    assert result.keys() == RESULT_KEYS
    assert result["test"].keys() == SUMMARY_KEYS
    for silo in result["per_silo"]:
        assert silo.keys() == {"silo", "records", "test_records", *SUMMARY_KEYS}
    for silo in result["privacy"]:
        assert silo.keys() == PRIVACY_KEYS
    for point in result["history"]:
        assert point.keys() == {"round", *SUMMARY_KEYS}
    for entry in result["metrics"]:
        assert entry.keys() == METRIC_KEYS


def test_result_of_a_regression(regression):
    result = result_in(regression[0])
    assert (result["data"], result["method"], result["metric"]) == ("table", "mrmtl", "mse")
    assert result["options"]["model"] == "linear"
    assert [silo["silo"] for silo in result["per_silo"]] == ["careful", "generous", "usual"]
    assert [(s["records"], s["test_records"]) for s in result["per_silo"]] == [(32, 8)] * 3
    assert [point["round"] for point in result["history"]] == [1, 2, 3, 4, 5]
    assert result["seconds"]["total"] > 0
    assert {"silodp", "jax", "python"} <= result["versions"].keys()


def test_result_sums_up_its_seeds(regression):
    result = result_in(regression[0])
    per_seed = result["test"]["per_seed"]
    assert len(per_seed) == 2
    assert result["test"]["mean"] == pytest.approx(np.mean(per_seed))
    assert result["test"]["std"] == pytest.approx(np.std(per_seed, ddof=1))
    # Silos here have as many test records, so each weighs as much.
    of_silos = [silo["per_seed"] for silo in result["per_silo"]]
    assert per_seed == pytest.approx(np.mean(of_silos, axis=0))
    last = result["history"][-1]
    assert {name: last[name] for name in SUMMARY_KEYS} == result["test"]


def test_folder_holds_result_and_picture_only(regression):
    folder, _ = regression
    assert sorted(os.listdir(folder)) == ["history.png", "result.json"]
    assert (folder / "history.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_json_on_the_screen_is_that_of_the_file(regression):
    folder, done = regression
    assert strict_json(done.stdout) == result_in(folder)
    assert done.stderr.strip() == ""


def test_each_silo_has_its_own_budget(regression):
    careful, generous, usual = result_in(regression[0])["privacy"]
    for silo, epsilon, delta in ((careful, 0.5, 1e-4), (generous, 8, 1e-3), (usual, 2, 1e-4)):
        assert 0.98 * epsilon < silo["epsilon"] <= epsilon
        assert silo["delta"] == delta
        assert (silo["experiment"], silo["proven"], silo["unproven"]) == (True, False, [])
    noises = [silo["noise_multiplier"] for silo in (careful, usual, generous)]
    assert noises[0] > noises[1] > noises[2] > 0


def test_result_can_be_read_again(regression):
    result = silodp.read_result(regression[0])
    assert result.as_json() == result_in(regression[0])


# --- other tables, other options


@pytest.fixture(scope="module")
def binary(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("binary")
    frame = table(["north", "south"], lambda age, dose: np.where(age > dose, "ill", "well"))
    frame.to_csv(folder / "table.csv", index=False)
    args = ("--silo-column", "silo", "--target", "target", "--preprocess", "paper")
    args += ("--method", "local", "--epsilon", 3, "--rounds", 2, "--out", folder / "out")
    return folder / "out", run("--data", folder / "table.csv", *args)


def test_binary_table(binary):
    result = result_in(binary[0])
    assert (result["metric"], result["options"]["model"]) == ("accuracy", "logistic")
    assert 0 <= result["test"]["mean"] <= 1


def test_statistics_of_the_records_are_not_proven(binary):
    folder, done = binary
    for silo in result_in(folder)["privacy"]:
        assert silo["proven"] is False
        assert any("standardised" in reason for reason in silo["unproven"])
        assert any("classes of 'target'" in reason for reason in silo["unproven"])
        assert silo["epsilon"] <= 3
    assert "not proven" in done.stdout


@pytest.fixture(scope="module")
def multiclass(run, tmp_path_factory):
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("multiclass")

    def target(age, dose):
        return np.digitize(age + dose, [-0.5, 0.5])

    table(["north", "south"], target).to_parquet(folder / "table.parquet", index=False)
    args = ("--silo-column", "silo", "--target", "target", "--sampling", "shuffle")
    args += ("--preprocess", "none", "--epsilon", 3, "--rounds", 2, "--out", folder / "out")
    args += ("--method", "local")
    run("--data", folder / "table.parquet", *args)
    return result_in(folder / "out")


def test_multiclass_table(multiclass):
    assert (multiclass["metric"], multiclass["options"]["model"]) == ("accuracy", "softmax")
    assert 0 <= multiclass["test"]["mean"] <= 1


def test_shuffling_is_not_proven(multiclass):
    for silo in multiclass["privacy"]:
        assert silo["proven"] is False
        assert any("shuffle" in reason for reason in silo["unproven"])


@pytest.fixture(scope="module")
def twice(run, tmp_path_factory):
    """A folder with one file a silo, trained twice without privacy."""
    folder = tmp_path_factory.mktemp("silos")
    frame = table(["north", "south"], lambda age, dose: age - dose)
    (folder / "silos").mkdir()
    for silo, own in frame.groupby("silo"):
        own.drop(columns="silo").to_csv(folder / "silos" / f"{silo}.csv", index=False)
    args = ("--data", folder / "silos", "--target", "target", "--epsilon", "inf", "--rounds", 2)
    args += ("--first-seed", 7, "--quiet", "--out")
    return [(folder / name, run(*args, folder / name)) for name in ("one", "two")]


def test_folder_of_tables(twice):
    result = result_in(twice[0][0])
    assert [silo["silo"] for silo in result["per_silo"]] == ["north", "south"]


def test_no_privacy_is_said(twice):
    result = result_in(twice[0][0])
    assert result["options"]["epsilon"] == "inf"
    for silo in result["privacy"]:
        assert silo["epsilon"] == "inf"
        assert silo["noise_multiplier"] == 0
        assert silo["proven"] is False
        assert silo["unproven"] == ["no privacy was asked for"]


def test_same_seed_gives_the_same_numbers(twice):
    one, two = (result_in(folder) for folder, _ in twice)
    for key in RESULT_KEYS - {"seconds"}:
        assert one[key] == two[key]


def test_quiet_prints_nothing(twice):
    for _, done in twice:
        assert done.stdout == ""
        assert done.stderr.strip() == ""


def test_option_that_the_method_does_not_use_is_refused(cli):
    done = cli("run", "--finetune-fraction", 0.3, "--epsilon", 3)
    assert "--finetune-fraction: method 'ebmtl' does not use it" in " ".join(done.stderr.split())
    assert done.exit_code == 2


# --- what there is


def test_version():
    installed = Path(sys.executable).with_name("silodp")
    start = [installed] if installed.exists() else [sys.executable, "-m", "silodp"]
    done = subprocess.run(
        [*start, "--version"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0
    assert re.fullmatch(r"silodp \d+\.\d+\.\d+\S*\n", done.stdout)


def test_methods_are_listed(cli):
    done = cli("methods")
    assert done.exit_code == 0
    for name in METHODS:
        assert name in done.stdout


def test_data_sets_are_listed(cli):
    done = cli("data", "list")
    assert done.exit_code == 0
    assert "school" in done.stdout
    assert "synthetic" in done.stdout
    names = [row["name"] for row in strict_json(cli("data", "list", "--json").stdout)]
    assert names == list(silodp.data.registry.SOURCES)


def every_command(command, path=()):
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from every_command(below, (*path, name))


COMMANDS = dict(every_command(get_command(app)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_says_what_each_option_is_for(cli, path):
    own = COMMANDS[path]
    everything = any("--help-all" in option.opts for option in own.params)
    done = cli(*path, "--help-all" if everything else "--help")
    assert done.exit_code == 0
    assert own.help
    for option in own.params:
        assert getattr(option, "help", None), option.name
        flag = option.opts[-1]
        assert not flag.startswith("--") or flag in done.stdout


def test_the_first_help_fits_a_screen(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli("run", "--help").stdout.splitlines()
    assert len(lines) < 45
    assert not [line for line in lines if line.startswith("│  ")]  # no help text goes on below


def test_help_tells_defaults(cli):
    shown = " ".join(re.sub(r"[│\s]+", " ", cli("run", "--help-all").stdout).split())
    for name in ("method", "sampling", "accountant", "weights"):
        assert f"(default: {getattr(RunRequest(), name)})" in shown


# --- interrupted runs

LONG = ("--silos", "1", "--rounds", "1000000", "--evaluate-every", "50", "--epsilon", "inf")
LONG += ("--method", "mrmtl")


def trained_until(signum, *args):
    """Starts a run, sends it the signal once it trains, and gives exit code and messages."""
    # Progress is shown on terminals only, which this makes of the pipe.
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": "200"}
    process = subprocess.Popen(
        interruptible(sys.executable, *args),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert process.stderr is not None
    shown, deadline = b"", time.monotonic() + 100
    try:
        while b"test metric" not in shown:
            assert select.select([process.stderr], [], [], deadline - time.monotonic())[0], shown
            piece = os.read(process.stderr.fileno(), 1 << 16)
            assert piece, shown.decode()
            shown += piece
        process.send_signal(signum)
        _, rest = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    # What stays on a terminal: the lines of the progress bar are wiped out.
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", rest).decode()
    lines = [line.strip() for line in re.split(r"[\r\n]+", text)]
    return process.returncode, [line for line in lines if line and " training " not in line]


@pytest.fixture(scope="module", params=[signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
def interrupted(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("interrupted") / "out"
    return out, *trained_until(request.param, "-m", "silodp", "run", *LONG, "--out", out)


def test_interrupted_run_says_how_to_go_on(interrupted):
    _, code, lines = interrupted
    assert code == 130
    assert len(lines) == 1, lines
    assert lines[0].startswith("Interrupted.")
    assert "--resume" in lines[0]


def test_interrupted_run_leaves_a_checkpoint_only(interrupted):
    out, _, _ = interrupted
    assert os.listdir(out) == ["checkpoint.npz"]
    assert 0 < checkpoint.load(out).round < 1000000


def test_interrupted_run_is_not_begun_anew(interrupted, cli, sentence):
    out, _, _ = interrupted
    before = (out / "checkpoint.npz").read_bytes()
    text = sentence(cli("run", *LONG, "--out", out))
    assert f"holds an interrupted run (round {checkpoint.load(out).round})" in text
    assert "--resume" in text
    assert "--overwrite" in text
    assert (out / "checkpoint.npz").read_bytes() == before


@pytest.mark.parametrize("args", [("--lr", "0.1"), ("--lam", "2"), ("--method", "local")])
def test_interrupted_run_does_not_go_on_with_other_options(interrupted, cli, sentence, args):
    out, _, _ = interrupted
    text = sentence(cli("run", *LONG, *args, "--out", out, "--resume"))
    assert "with other options" in text
    assert "--overwrite" in text
    assert os.listdir(out) == ["checkpoint.npz"]


# numpy leaves a file that is no archive open; to be taken out once checkpoint.load closes it.
@pytest.mark.parametrize("resume", [("--resume",), ()])
def test_damaged_checkpoint(interrupted, cli, sentence, tmp_path, resume):
    whole = (interrupted[0] / "checkpoint.npz").read_bytes()
    for content in (b"", whole[:10], whole[: len(whole) // 2], whole[:-1], b"x" * len(whole)):
        (tmp_path / "checkpoint.npz").write_bytes(content)
        text = sentence(cli("run", *LONG, "--out", tmp_path, *resume))
        assert "checkpoint.npz cannot be read" in text
        assert "--overwrite" in text
        assert os.listdir(tmp_path) == ["checkpoint.npz"]


def test_killed_run(cli, tmp_path):
    """A checkpoint after every call, so that one is being written when the process dies."""
    out = tmp_path / "out"
    hurried = (
        "import silodp.engines.execution as e; e.SECONDS_BETWEEN_CHECKPOINTS = 0.0; "
        "from silodp.cli import main; main()"
    )
    code, _ = trained_until(signal.SIGKILL, "-c", hurried, "run", *LONG, "--out", out)
    assert code == -signal.SIGKILL
    assert not (out / "result.json").exists()
    checkpoint.load(out)  # whole, or not there
    done = cli("run", *LONG, "--rounds", 100, "--out", out, "--overwrite")
    assert done.exit_code == 0, done.stderr
    assert {"result.json", "history.png"} <= set(os.listdir(out))
    assert not (out / "checkpoint.npz").exists()
    assert result_in(out)["options"]["rounds"] == 100


class StopAt(Reporter):
    """Interrupts as Ctrl-C does, as soon as so many rounds are done."""

    def __init__(self, rounds):
        self.rounds = rounds

    def trained(self, done, total, metric):
        if done >= self.rounds:
            raise KeyboardInterrupt


# What ebmtl keeps in a checkpoint is held in test_ebmtl.
SHORT = {"silos": 2, "rounds": 8, "evaluate_every": 3, "epsilon": 3.0, "seeds": 2}
SHORT["method"] = "mrmtl"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A run, and the checkpoint that it would have left in the middle."""
    folder = tmp_path_factory.mktemp("short")
    with pytest.raises(KeyboardInterrupt):
        silodp.run(**SHORT, out=folder, reporter=StopAt(4))
    return silodp.run(**SHORT), (folder / "checkpoint.npz").read_bytes()


def test_resumed_run_equals_an_uninterrupted_one(uninterrupted, tmp_path):
    whole, _ = uninterrupted
    with pytest.raises(KeyboardInterrupt):
        silodp.run(**SHORT, out=tmp_path, reporter=StopAt(1))  # before the first evaluation
    assert checkpoint.load(tmp_path).round == 1
    with pytest.raises(KeyboardInterrupt):
        silodp.run(**SHORT, out=tmp_path, resume=True, reporter=StopAt(6))
    assert os.listdir(tmp_path) == ["checkpoint.npz"]
    result = silodp.run(**SHORT, out=tmp_path, resume=True)
    assert os.listdir(tmp_path) == ["result.json"]
    assert result.test["per_seed"] == whole.test["per_seed"]
    assert result.per_silo == whole.per_silo
    assert result.history == whole.history
    assert result.privacy == whole.privacy
    assert all(math.isfinite(value) for value in result.test["per_seed"])


def test_resumed_run_with_another_budget_is_refused(tmp_path):
    options = SHORT | {"epsilon": None, "policies": tmp_path / "policies.toml", "silos": 1}
    options["policies"].write_text("[default]\nepsilon = 100\n")
    with pytest.raises(KeyboardInterrupt):
        silodp.run(**options, out=tmp_path / "out", reporter=StopAt(1))
    options["policies"].write_text("[default]\nepsilon = 0.1\n")
    with pytest.raises(SilodpError, match="other"):
        silodp.run(**options, out=tmp_path / "out", resume=True)


def test_overwriting_run_can_be_resumed(uninterrupted, tmp_path):
    whole, middle = uninterrupted
    # As a run with --overwrite leaves the folder when it is interrupted.
    whole.write(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        silodp.run(**SHORT, out=tmp_path, overwrite=True, reporter=StopAt(4))
    assert (tmp_path / "checkpoint.npz").read_bytes() == middle
    assert silodp.run(**SHORT, out=tmp_path, resume=True).history == whole.history


def test_checkpoint_outlives_a_result_that_cannot_be_written(uninterrupted, tmp_path, monkeypatch):
    _, middle = uninterrupted
    (tmp_path / "checkpoint.npz").write_bytes(middle)

    def full(self, folder):
        raise OSError("no space left")

    monkeypatch.setattr(silodp.Result, "write", full)
    with pytest.raises(OSError, match="no space left"):
        silodp.run(**SHORT, out=tmp_path, resume=True)
    assert (tmp_path / "checkpoint.npz").exists()


def test_personal_models_are_written(cli, tmp_path, sentence):
    table = tmp_path / "grouped.csv"
    rng = np.random.default_rng(0)
    rows = [
        f"{'abc'[i % 3]},{a:.3f},{b:.3f},{a - b + 0.1 * (i % 3):.3f},2024-01-{i % 28 + 1:02d}"
        for i, (a, b) in enumerate(rng.normal(size=(120, 2)))
    ]
    table.write_text("site,one,two,outcome,day\n" + "\n".join(rows))
    asked = ("run", "--data", table, "--silo-column", "site", "--target", "outcome", "--epsilon", 5)
    asked += ("--method", "local")
    assert "leave the column out (--ignore)" in sentence(cli(*asked))
    assert "ignore names the column 'week'" in sentence(cli(*asked, "--ignore", "week"))
    asked += ("--ignore", " day,two ")
    done = cli(*asked, "--rounds", 2, "--out", tmp_path / "out", "--save-models", "--quiet")
    assert done.exit_code == 0, done.stderr
    with np.load(tmp_path / "out" / "models.npz", allow_pickle=False) as models:
        assert models["silos"].tolist() == ["a", "b", "c"]
        assert models["model"].shape == (1, 3, 2)  # seeds, silos, a feature and a bias
        assert not np.array_equal(models["model"][0, 0], models["model"][0, 1])
    # Models of a run that is replaced do not stay beside another result.
    done = cli(*asked, "--rounds", 1, "--out", tmp_path / "out", "--overwrite", "--quiet")
    assert done.exit_code == 0, done.stderr
    assert not (tmp_path / "out" / "models.npz").exists()
    assert "--save-models needs a folder" in sentence(cli(*asked, "--save-models"))
