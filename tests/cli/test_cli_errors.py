"""Whatever a user may get wrong: one sentence, exit code 2, nothing written.

Most cases call the command in this process; some of each kind are run as a real command.
"""

import json
import os

import numpy as np
import pandas as pd
import pytest
import scipy.io

pytestmark = pytest.mark.usefixtures("kept_programs")

TABLE = ("--silo-column", "silo", "--target", "score", "--epsilon", "3", "--rounds", "2")
SMALL = ("--silos", "2", "--rounds", "2")
TINY = ("--silos", "1", "--rounds", "1")  # where it comes to training


def table(rows=40, silos=("north", "south")):
    rng = np.random.default_rng(0)
    count = rows * len(silos)
    age, dose = rng.normal(size=(2, count))
    return pd.DataFrame(
        {"silo": np.repeat(silos, rows), "age": age, "dose": dose, "score": age + 0.1 * dose}
    )


def with_value(column, row, value):
    frame = table()
    frame[column] = frame[column].astype(object)
    frame.loc[row, column] = value
    return frame


def with_column(column, values):
    frame = table()
    frame[column] = values
    return frame


@pytest.fixture(autouse=True)
def no_data_of_the_developer(monkeypatch):
    monkeypatch.delenv("SILODP_DATA", raising=False)


@pytest.fixture
def refused(cli, sentence, tmp_path):
    """The sentence with which a run is refused, having written nothing."""

    def call(*args):
        out = tmp_path / "out"
        text = sentence(cli("run", "--out", out, *args))
        assert not out.exists() or not os.listdir(out)
        return text

    return call


@pytest.fixture
def refused_table(refused, tmp_path):
    def call(frame, *args):
        path = tmp_path / "table.csv"
        frame.to_csv(path, index=False)
        return refused("--data", path, *TABLE, *args)

    return call


@pytest.fixture
def file(tmp_path):
    """Writes a file and gives its path."""

    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


# --- records


@pytest.mark.parametrize("nothing", [np.nan, "nan", "NaN", ""])
def test_nan_names_silo_column_and_count(refused_table, nothing):
    text = refused_table(with_value("age", 45, nothing))
    assert "1 in column 'age' of silo 'south'" in text
    assert "--drop-missing" in text


def test_missing_values_are_counted_by_silo_and_column(refused_table):
    frame = table()
    frame.loc[[1, 2, 3], "age"] = np.nan
    frame.loc[[50, 51], "score"] = np.nan
    text = refused_table(frame)
    assert "3 in column 'age' of silo 'north'" in text
    assert "1 more problem: `silodp data check`" in text


def test_silo_without_a_whole_row(refused_table):
    frame = table()
    frame.loc[frame["silo"] == "north", "age"] = np.nan
    text = refused_table(frame, "--drop-missing")
    assert "Silo 'north' has no row without missing values" in text


@pytest.mark.parametrize("column", ["dose", "score"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300])
def test_infinite_value_names_silo_and_column(refused_table, column, value):
    text = refused_table(with_value(column, 45, value))
    assert f"Silo 'south': column '{column}' holds 1 infinite or too large" in text
    assert "drop those rows" in text


def test_text_among_numbers(refused_table):
    text = refused_table(with_value("age", 45, "old"))
    assert "Silo 'south': column 'age' holds 'old' where numbers stand" in text
    assert "declare its levels" in text


def test_text_in_the_target_of_a_regression(refused_table):
    frame = with_column("score", np.where(np.arange(80) % 2, "yes", "no"))
    text = refused_table(frame, "--task", "regression")
    assert "'score' holds words" in text
    assert "binary or multiclass" in text


@pytest.mark.parametrize("date", ["2020-01-31", "31.1.2020", "1/31/2020"])
def test_dates(refused_table, date):
    text = refused_table(with_column("age", date))
    assert "column 'age' holds dates" in text
    assert "days since" in text


def test_empty_file(refused, file):
    text = refused("--data", file("table.csv", ""), *TABLE)
    assert "table.csv is empty: give it a header and records" in text


def test_header_without_rows(refused, file):
    text = refused("--data", file("table.csv", "silo,age,score\n"), *TABLE)
    assert "table.csv has a header but no rows" in text


def test_row_without_a_silo(refused_table):
    text = refused_table(with_value("silo", 3, None))
    assert "silo column 'silo' is empty in 1 row" in text


def test_one_class_in_all_silos(refused_table):
    text = refused_table(with_column("score", "no"))
    assert "target 'score' has 1 different values" in text


def test_target_that_never_changes(refused_table):
    text = refused_table(with_column("score", 1.5), "--task", "regression")
    assert "target 'score' is 1.5 in every training record" in text


def test_fewer_records_than_a_batch(refused_table):
    text = refused_table(pd.concat([table(), table(10, ["tiny"])]), "--small-silos", "refuse")
    assert "Silo 'tiny' has 8 training records, fewer than the batch size 32" in text
    assert "--batch-size 8" in text
    assert "--small-silos full-batch" in text


# --- files


def test_table_that_is_not_there(refused, tmp_path):
    text = refused("--data", tmp_path / "no.csv", *TABLE)
    assert "no.csv does not exist: check the path" in text


def test_table_of_another_kind(refused, file):
    assert "save the table as CSV, Excel" in refused("--data", file("t.ods", "x"), *TABLE)
    assert "save it as .xlsx" in refused("--data", file("t.xls", "x"), *TABLE)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x00\xff\xfe\x80" * 50, "not text"),
        (b"\xff\xfe\x00", "not utf-16 text"),
        (b"silo,age,score\na,1,2\na,1,2,3\n", "line 3"),
        (b'silo,age,score\na,1,"2\n', "cannot be read as CSV"),
        (b"silo,age,age\na,1,2\n", "'age' is used more than once"),
        (b"silo,,score\na,1,2\na,2,3.5\n", "column 2 has no name"),
    ],
)
def test_corrupt_csv(refused, file, content, told):
    text = refused("--data", file("table.csv", content), *TABLE)
    assert "table.csv" in text
    assert told in text


@pytest.mark.parametrize("keep", [0, 3, 0.5, 0.99])
def test_truncated_parquet(refused, tmp_path, keep):
    pytest.importorskip("pyarrow")
    path = tmp_path / "table.parquet"
    table().to_parquet(path, index=False)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole)) if isinstance(keep, float) else keep])
    text = refused("--data", path, *TABLE)
    assert "table.parquet cannot be read as Parquet" in text
    assert "copy it again" in text


def test_folder_without_tables(refused, tmp_path):
    folder = tmp_path / "silos"
    folder.mkdir()
    text = refused("--data", folder, "--target", "score", "--epsilon", "3")
    assert "put one file a silo there" in text


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("age,score\n", "south.csv has a header but no rows"),
        ("", "south.csv is empty"),
        ("dose,score\n1,2\n", "south.csv has no column 'age'"),
        ("age,score,dose\n1,2,3\n", "south.csv has a column 'dose'"),
    ],
)
def test_folder_with_a_silo_that_does_not_fit(refused, file, content, told):
    folder = file("silos/north.csv", "age,score\n1,2\n").parent
    file("silos/south.csv", content)
    assert told in refused("--data", folder, "--target", "score", "--epsilon", "3")


def test_folder_with_silo_column(refused, file):
    folder = file("silos/north.csv", "age,score\n1,2\n").parent
    assert "leave silo_column out" in refused("--data", folder, *TABLE)


@pytest.mark.parametrize("content", [b"", b"MATLAB 5.0", b"MATLAB 5.0 garbage" * 20, b"\x00" * 500])
def test_corrupt_school(refused, file, content):
    path = file("school.mat", content)
    text = refused("--data", "school", "--epsilon", "3", "--data-dir", path.parent)
    assert "school.mat cannot be read as a MATLAB file" in text
    assert "silodp data get school" in text


def test_truncated_school(refused, file, tmp_path):
    cells = {name: np.empty((1, 2), dtype=object) for name in "XY"}
    for school in (0, 1):
        cells["X"][0, school], cells["Y"][0, school] = np.ones((50, 28)), np.ones((50, 1))
    scipy.io.savemat(tmp_path / "school.mat", cells)
    whole = (tmp_path / "school.mat").read_bytes()
    path = file("school.mat", whole[: len(whole) // 2])
    text = refused("--data", "school", "--epsilon", "3", "--data-dir", path.parent)
    assert "school.mat cannot be read as a MATLAB file (it is cut short)" in text
    assert "silodp data get school" in text


def test_school_that_is_not_there(refused, tmp_path):
    text = refused("--data", "school", "--epsilon", "3", "--data-dir", tmp_path / "nowhere")
    assert "school.mat was not found in" in text
    assert str(tmp_path / "nowhere") in text
    assert "silodp data get school" in text


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[levels", "not valid TOML"),
        ("[bonds]\nage = [0, 1]", "did you mean 'bounds'"),
        (None, "check the"),
    ],
)
def test_schema_that_is_not_sound(refused_table, file, tmp_path, content, told):
    path = tmp_path / "schema.toml" if content is None else file("schema.toml", content)
    text = refused_table(table(), "--schema", path)
    assert "schema.toml" in text
    assert told in text


# --- names


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--silo-column", "sillo"), "silo_column names the column 'sillo', which is not there"),
        (("--target", "scores"), "target names the column 'scores', which is not there"),
    ],
)
def test_unknown_column(refused_table, args, told):
    text = refused_table(table(), *args)
    assert told in text
    assert f"did you mean '{'silo' if 'sillo' in args else 'score'}'?" in text


@pytest.mark.parametrize(
    ("given", "told"),
    [(("--target", "score"), "--silo-column"), (("--silo-column", "silo"), "--target")],
)
def test_column_that_is_not_given(refused, tmp_path, given, told):
    table().to_csv(tmp_path / "table.csv", index=False)
    text = refused("--data", tmp_path / "table.csv", "--epsilon", "3", *given)
    assert told in text
    assert "one of " in text


def test_unknown_data_set(refused):
    text = refused("--data", "scool", "--epsilon", "3")
    assert "There is no data set, table or folder 'scool': did you mean 'school'?" in text


def test_unknown_method(refused):
    text = refused("--method", "mrtml", "--epsilon", "3")
    assert "Method 'mrtml' is unknown: did you mean 'mrmtl'?" in text


def test_unknown_model(refused):
    text = refused("--model", "liner", "--epsilon", "3")
    assert "Model 'liner' is unknown: did you mean 'linear'?" in text


def test_unknown_model_names_the_closest(refused):
    text = refused("--model", "sofmax", "--epsilon", "3")
    assert "did you mean 'softmax'?" in text


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--model", "svm"), "--model linear"),
        (("--model", "softmax"), "--model linear"),
        (("--model", "linear", "--task", "binary"), "--model svm or logistic"),
        (("--model", "convnet"), "choose a linear model"),
    ],
)
def test_model_that_does_not_fit_the_task(refused, args, told):
    text = refused("--epsilon", "3", *args)
    assert f"Model '{args[1]}'" in text
    assert told in text


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("sampling", "possion", "poisson, shuffle"),
        ("accountant", "pdl", "pld, rdp"),
        ("regulariser", "outsid", "outside, inside"),
        ("weights", "record", "records, uniform"),
        ("engine", "simulate", "simulation, debug"),
        ("optimiser", "adm", "adam"),
        ("small-silos", "drop", "refuse, full-batch"),
        ("task", "regresion", "regression, binary, multiclass"),
    ],
)
def test_unknown_choice(refused, option, value, remedy):
    text = refused("--epsilon", "3", f"--{option}", value)
    assert f"--{option} is '{value}': choose one of " in text
    assert remedy in text


def test_unknown_preprocessing(refused_table):
    text = refused_table(table(), "--preprocess", "bouns")
    assert "no preprocessing 'bouns': choose 'bounds'" in text


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (("--data", "school", "--silo-column", "x"), "silo_column"),
        (("--data", "school", "--silos", "3"), "silos"),
        (("--data", "synthetic", "--target", "x"), "target"),
        (("--data", "synthetic", "--data-dir", "."), "data_dir"),
    ],
)
def test_option_that_does_not_fit_the_data(refused, args, option):
    text = refused("--epsilon", "3", *args)
    assert f"Data set '{args[1]}' does not use the option '{option}': leave it out" in text


def test_option_that_does_not_fit_a_table(refused_table):
    assert "does not use the option 'silos': leave it out" in refused_table(table(), "--silos", "3")


def test_names_are_printed_as_they_are(refused):
    assert "'a:warning:b[red]'" in refused("--data", "a:warning:b[red]", "--epsilon", "3")


# --- numbers


@pytest.mark.parametrize(
    ("option", "values", "remedy"),
    [
        ("epsilon", ("0", "-1", "nan", "-inf"), "above 0"),
        ("delta", ("0", "1", "2", "-1", "nan", "inf"), "above 0 and below 1"),
        ("lr", ("0", "-1", "nan"), "above 0"),
        ("lr", ("inf",), "below 1e+30"),
        ("clip", ("0", "-1", "nan"), "above 0"),
        ("lam", ("-1", "nan"), "at least 0"),
        ("lam", ("1e31",), "below 1e+30"),
        ("lam", ("inf",), "a finite number"),
        ("finetune-fraction", ("-0.1", "1.1", "nan"), "from 0 to 1"),
        ("rounds", ("0", "-1"), "at least 1"),
        ("batch-size", ("0", "-1"), "at least 1"),
        ("epochs", ("0",), "at least 1"),
        ("seeds", ("0", "-1"), "at least 1"),
        ("evaluate-every", ("0",), "at least 1"),
        ("silos", ("0",), "at least 1"),
        ("first-seed", ("-1",), "at least 0"),
    ],
)
def test_number_out_of_range(refused, option, values, remedy):
    method = {"finetune-fraction": ("--method", "finetune"), "lam": ("--method", "mrmtl")}
    for value in values:
        text = refused(*method.get(option, ()), "--epsilon", "3", f"--{option}", value)
        assert f"--{option} is " in text
        assert remedy in text


@pytest.mark.parametrize("value", ["0", "1", "-0.5", "nan"])
def test_test_fraction_out_of_range(refused, value):
    text = refused("--epsilon", "3", "--test-fraction", value)
    assert f"test_fraction is {float(value)}" in text
    assert "such as 0.2" in text


def test_test_fraction_that_leaves_no_training_records(refused):
    text = refused("--epsilon", "3", "--test-fraction", "0.9999")
    assert "Silo 'silo-01' has 125 records, too few for training and testing" in text


@pytest.mark.parametrize("value", ["-1", "inf", "nan"])
def test_heterogeneity_out_of_range(refused, value):
    assert "'heterogeneity' is " in refused("--epsilon", "3", "--heterogeneity", value)


def test_seed_that_is_too_large(refused):
    assert "give a whole number from 0 to 4294967295" in refused(
        "--epsilon", "3", "--first-seed", "5000000000"
    )


def test_infinite_clip(refused):
    assert "--clip is " in refused("--epsilon", "3", "--clip", "inf", *TINY)


def test_no_budget(refused):
    text = refused()
    assert "No privacy budget is given" in text
    assert "--epsilon" in text
    assert "--policies" in text


@pytest.mark.parametrize(
    "args", [("--rounds", "ten"), ("--rounds", "1.5"), ("--epsilon", "much"), ("--epsilom", "3")]
)
def test_what_cannot_be_parsed(cli, tmp_path, args):
    out = tmp_path / "out"
    done = cli("run", "--out", out, *args)
    assert done.exit_code == 2
    assert args[0] in done.stderr
    assert "Traceback" not in done.stderr
    assert not out.exists()


def test_training_that_diverges(refused):
    text = refused("--epsilon", "3", "--lr", "1e30", *TINY)
    assert "Silo 'silo-01': the model is not finite any more" in text
    assert "lower --lr" in text


# --- policies and config files


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "does not exist: check the path"),
        ("[default\nepsilon = 3", "not valid TOML"),
        (b"\xff\xfe\x00", "not text: save it as UTF-8"),
        ('[silos."silo-1"]\nepsilon = 1', "'silo-1' is unknown: did you mean 'silo-01'"),
        ('[silos."silo-01"]\nepsilon = 0', '[silos."silo-01"] epsilon is 0'),
        ('[silos."silo-01"]\nepsilon = -1', '[silos."silo-01"] epsilon is -1'),
        ('[silos."silo-01"]\nepsilon = nan', '[silos."silo-01"] epsilon is nan'),
        ('[silos."silo-01"]\ndelta = 1', '[silos."silo-01"] delta is 1'),
        ('[silos."silo-01"]\nepsilon = "three"', "epsilon is 'three', which is not a number"),
        ('[silos."silo-01"]\nepsilon = true', "epsilon is True, which is not a number"),
        ('[silos."silo-01"]\nepsilom = 3', "did you mean 'epsilon'"),
        ('[silos]\n"silo-01" = 3', "must be a table"),
        ('[silos."silo-01"]\nepsilon = 3', "silo 'silo-02' has no epsilon"),
        ("[defaults]\nepsilon = 3", "did you mean 'default'"),
    ],
)
def test_policies_that_are_not_sound(refused, file, tmp_path, content, told):
    path = tmp_path / "policies.toml" if content is None else file("policies.toml", content)
    text = refused(*SMALL, "--policies", path)
    assert "policies.toml" in text
    assert told in text


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "does not exist: check --config"),
        ("epsilon = ", "is not valid TOML: fix line 1 ("),
        (b"\xff\xfe\x00", "is not text: save it as UTF-8"),
        ("epsilom = 3", "option 'epsilom' is unknown: did you mean 'epsilon'"),
        ("[run]\nepsilon = 3", "option 'run' is unknown"),
        ('rounds = "ten"', "rounds is 'ten'"),
        ("rounds = 1.5", "rounds is 1.5"),
        ("rounds = true", "rounds is True"),
        ("epsilon = [1, 2]", "epsilon is [1, 2]"),
        ("data = 3", "data is 3"),
        ("policies = 3", "policies is 3"),
        ('drop-missing = "yes"', "drop_missing is 'yes'"),
    ],
)
def test_config_that_is_not_sound(refused, file, tmp_path, content, told):
    path = tmp_path / "run.toml" if content is None else file("run.toml", content)
    text = refused("--config", path)
    assert "run.toml" in text
    assert told in text


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("epsilon = -3", "--epsilon is -3"),
        ("epsilon = nan", "--epsilon is nan"),
        ("epsilon = 3\ndelta = 1", "--delta is 1"),
        ('epsilon = 3\nmethod = "mrtml"', "did you mean 'mrmtl'"),
        ('epsilon = 3\nsampling = "possion"', "--sampling is 'possion'"),
    ],
)
def test_config_with_a_bad_value(refused, file, content, told):
    assert told in refused("--config", file("run.toml", content))


def test_flags_go_before_the_config(cli, file, tmp_path):
    config = file(
        "run.toml",
        "silos = 1\nrounds = 9\nbatch-size = 20\nlr = 0.3\nepsilon = inf\nmethod = 'local'",
    )
    done = cli("run", "--config", config, "--rounds", 2, "--lr", 0.1, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    options = result["options"]
    assert (options["rounds"], options["lr"]) == (2, 0.1)
    assert (options["batch_size"], options["silos"], options["epsilon"]) == (20, 1, "inf")
    assert result["method"] == options["method"] == "local"


def test_policies_are_found_beside_the_config(refused, file):
    file("there/policies.toml", "[default]\nepsilon = -7")
    config = file("there/run.toml", 'silos = 2\npolicies = "policies.toml"')
    assert "epsilon is -7" in refused("--config", config)


def test_data_are_found_beside_the_config(refused, file):
    file("there/table.csv", "silo,age,score\n")
    config = file(
        "there/run.toml",
        'data = "table.csv"\nsilo-column = "silo"\ntarget = "score"\nepsilon = 3',
    )
    assert "table.csv has a header but no rows" in refused("--config", config)


# --- the folder for results


@pytest.fixture
def finished(tmp_path):
    """A folder with a result that must not be lost."""
    folder = tmp_path / "finished"
    folder.mkdir()
    (folder / "result.json").write_text("{}")
    return folder


def test_finished_run_is_kept(cli, sentence, finished):
    text = sentence(cli("run", *SMALL, "--epsilon", 3, "--out", finished))
    assert "holds a finished run" in text
    assert "--overwrite" in text
    assert (finished / "result.json").read_text() == "{}"
    assert os.listdir(finished) == ["result.json"]


def test_finished_run_is_kept_if_its_successor_is_refused(cli, sentence, finished):
    args = (*SMALL, "--epsilon", 3, "--batch-size", 1000000)
    sentence(cli("run", *args, "--out", finished, "--overwrite"))
    assert (finished / "result.json").read_text() == "{}"
    assert os.listdir(finished) == ["result.json"]


def test_overwrite_replaces(cli, finished):
    done = cli("run", *TINY, "--epsilon", "inf", "--out", finished, "--overwrite")
    assert done.exit_code == 0, done.stderr
    assert json.loads((finished / "result.json").read_text())["data"] == "synthetic"
    assert sorted(os.listdir(finished)) == ["history.png", "result.json"]


@pytest.mark.parametrize("below", [".", "below"])
def test_out_that_is_a_file(cli, sentence, file, below):
    path = file("taken", "mine")
    text = sentence(cli("run", *TINY, "--epsilon", "inf", "--out", path / below))
    assert "taken" in text
    assert "--out" in text
    assert path.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_out_that_may_not_be_written(cli, sentence, tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    text = sentence(cli("run", *TINY, "--epsilon", "inf", "--out", folder))
    assert "--out" in text
    assert os.listdir(folder) == []


# --- the same as a real command


@pytest.fixture
def asked(file, tmp_path):
    """Arguments of what is refused, and what is to be told; one of each kind."""
    with_value("age", 45, np.nan).to_csv(tmp_path / "nan.csv", index=False)
    return {
        "nan": (("--data", tmp_path / "nan.csv", *TABLE), "column 'age' of silo 'south'"),
        "config": (("--config", file("run.toml", "epsilom = 3")), "did you mean 'epsilon'"),
    }


@pytest.mark.parametrize("name", ["nan", "config"])
def test_real_command(asked, command, sentence, name, tmp_path):
    args, told = asked[name]
    assert told in sentence(command("run", *args, "--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()
