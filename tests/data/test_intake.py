"""Bad tables get all their problems told, each with a remedy; and a proposed schema that works."""

import datetime
import json
import tomllib

import numpy as np
import pandas as pd
import pytest

import silodp
from silodp.base.progress import Reporter
from silodp.config.options import RunRequest
from silodp.data.problems import Problems
from silodp.data.registry import DataOptions, resolve
from silodp.data.tables.files import FileForm, read_table
from silodp.data.tables.propose import proposed_schema
from silodp.data.tables.schema import read_schema
from silodp.results.model_export.onnx_file import onnx_content
from silodp.runs.prepare import check_all


def people(n=60, seed=0):
    """Three silos in turn, of which nothing is wrong."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "site": ["north", "south", "west"] * (n // 3),
            "age": rng.integers(20, 80, n),
            "ward": rng.choice(["a", "b", "c"], n),
            "bmi": rng.normal(25, 4, n).round(3),
            "who": [f"p{row}" for row in rng.integers(0, 25, n)],
            "day": [f"2024-01-{1 + row % 28:02}" for row in range(n)],
            "score": rng.normal(50, 10, n).round(3),
            "ill": rng.choice(["no", "yes"], n),
        }
    ).astype({"age": object, "bmi": object, "score": object})


def put(frame, row, column, value):
    frame.loc[row, column] = value
    return frame


BASE = {"--ignore": "who,day"}
BAD = {
    # Values: (the table, options, what is found in silo and column).
    "a word among numbers": (lambda f: put(f, 0, "age", "old"), {}, {("north", "age")}),
    "3+": (lambda f: put(f, 1, "age", "3+"), {}, {("south", "age")}),
    "<5": (lambda f: put(f, 1, "age", "<5"), {}, {("south", "age")}),
    "a question mark": (lambda f: put(f, 1, "bmi", "?"), {}, {("south", "bmi")}),
    "a unit": (lambda f: put(f, 2, "bmi", "25 kg"), {}, {("west", "bmi")}),
    "a percentage": (lambda f: put(f, 2, "bmi", "25%"), {}, {("west", "bmi")}),
    "a decimal comma": (lambda f: put(f, 2, "bmi", "25,5"), {}, {("west", "bmi")}),
    "infinite": (lambda f: put(f, 0, "bmi", "inf"), {}, {("north", "bmi")}),
    "too large": (lambda f: put(f, 0, "bmi", "1e39"), {}, {("north", "bmi")}),
    "missing": (lambda f: put(f, 0, "bmi", None), {}, {("north", "bmi")}),
    "missing in two silos": (
        lambda f: put(put(f, 0, "bmi", None), 1, "ward", None),
        {},
        {("north", "bmi"), ("south", "ward")},
    ),
    "no target": (lambda f: put(f, 0, "score", None), {}, {("north", "score")}),
    "a word as target": (lambda f: put(f, 0, "score", "high"), {}, {("north", "score")}),
    "no silo": (lambda f: put(f, 0, "site", None), {}, {("", "site")}),
    "blank silo": (lambda f: put(f, 0, "site", "  "), {}, {("", "site")}),
    "no silo, and missing": (
        lambda f: put(put(f, 0, "site", None), 1, "bmi", None),
        {},
        {("", "site"), ("south", "bmi")},
    ),
    "a date": (lambda f: f, {"--ignore": "who"}, {("north", "day")}),
    "too many words": (
        lambda f: f.assign(ward=[f"n{row}" for row in range(len(f))] if len(f) > 100 else f.who),
        {"--ignore": "day", "size": 150},
        {("", "ward")},
    ),
    "an unnamed index": (lambda f: f, {"index": True}, {("", "column 1 (no name)")}),
    "a target of one value": (lambda f: f.assign(ill="yes"), {"--target": "ill"}, {("", "ill")}),
    "a target of words for regression": (
        lambda f: f,
        {"--target": "ill", "--task": "regression"},
        {("", "ill")},
    ),
    "a target that is constant": (lambda f: f.assign(score=1.5), {}, {("", "")}),
    "a target that is not there": (lambda f: f, {"--target": "scroe"}, {("", "scroe")}),
    "a silo column that is not there": (lambda f: f, {"--silo-column": "sit"}, {("", "sit")}),
    "a column to ignore that is not there": (
        lambda f: f,
        {"--ignore": "who,day,wrd"},
        {("", "wrd")},
    ),
    "two roles": (
        lambda f: f,
        {"--subject-column": "score", "--test-fraction": "0.5"},
        {("", "score"), ("north", "score")},
    ),
    "times that are none": (
        lambda f: put(f, 0, "day", "yesterday"),
        {"--ignore": "who", "--time-column": "day"},
        {("north", "day")},
    ),
    "subjects without a name": (
        lambda f: put(f, 0, "who", " "),
        {"--ignore": "day", "--subject-column": "who", "--test-fraction": "0.5"},
        {("north", "who")},
    ),
    "subjects that are missing": (
        lambda f: put(f, 0, "who", None),
        {"--ignore": "day", "--subject-column": "who", "--test-fraction": "0.5"},
        {("north", "who")},
    ),
    "nothing but a target": (
        lambda f: f[["site", "score"]],
        {"--ignore": ""},
        {("", "")},
    ),
    "a batch larger than silos": (
        lambda f: f,
        {"--batch-size": "30", "--small-silos": "refuse"},
        {("north", ""), ("south", ""), ("west", "")},
    ),
    "numbers in one silo, words in another": (
        lambda f: f.assign(age=["x" if s == "west" else a for s, a in zip(f.site, f.age,
                                                                          strict=True)]),
        {},
        {("west", "age")},
    ),
    "a level that is not declared": (
        lambda f: put(f, 0, "ward", "z"),
        {"schema": '[levels]\nward = ["a", "b", "c"]'},
        {("north", "ward")},
    ),
    "a level in two silos": (
        lambda f: put(put(f, 0, "ward", "z"), 1, "ward", "y"),
        {"schema": '[levels]\nward = ["a", "b", "c"]'},
        {("north", "ward"), ("south", "ward")},
    ),
    "bounds without a range": (
        lambda f: f,
        {"schema": "[bounds]\nage = [0, 120]"},
        {("", "bmi"), ("", "score")},
    ),
    "bounds of words": (
        lambda f: f,
        {"schema": "[bounds]\nage = [0, 120]\nbmi = [0, 99]\nward = [0, 1]\n[target]\n"
                   "range = [0, 100]"},
        {("", "ward")},
    ),
    "a declared column that is not there": (
        lambda f: f,
        {"schema": "[bounds]\nagee = [0, 120]"},
        {("", "agee"), ("", "age"), ("", "bmi"), ("", "score")},
    ),
    "dates that are none": (
        lambda f: put(f, 0, "day", "soon"),
        {"--ignore": "who", "schema": '[dates]\nday = {origin = "2024-01-01"}'},
        {("north", "day")},
    ),
    "a word without a number": (
        lambda f: put(put(f, 0, "age", "3+"), 1, "age", "old"),
        {"schema": '[words.age]\n"3+" = 3'},
        {("south", "age")},
    ),
    "a class that is not declared": (
        lambda f: put(f, 0, "ill", "maybe"),
        {"--target": "ill", "schema": '[target]\nclasses = ["no", "yes"]'},
        {("north", "ill")},
    ),
    "all rows of a silo lack something": (
        lambda f: f.assign(bmi=[None if s == "west" else b for s, b in zip(f.site, f.bmi,
                                                                           strict=True)]),
        {"--drop-missing": None},
        {("west", "")},
    ),
    "many at once": (
        lambda f: put(put(put(f, 1, "age", "x"), 2, "bmi", None), 4, "bmi", "inf"),
        {},
        {("south", "age"), ("west", "bmi"), ("south", "bmi")},
    ),
}  # fmt: skip


def outcomes(frame):
    """Counts over years, times with a status, pain: of which nothing is wrong."""
    n = np.arange(len(frame))
    return (
        frame[["site", "age"]]
        .assign(
            falls=n % 4,
            years=(n % 5 + 1) / 2,
            days=n % 50 * 7.5,
            status=n % 2,
            pain=np.array(["none", "mild", "severe"])[n * 7 // 4 % 3],
        )
        .astype(object)
    )


COUNT = {"--target": "falls", "--task": "count", "--ignore": "days,status,pain"}
EXPOSED = COUNT | {"--exposure-column": "years"}
TIMES = {
    **{"--target": "days", "--task": "hazard", "--ignore": "falls,years,pain"},
    **{"--event-column": "status", "--cut-points": "90,180"},
}
PAIN = {"--target": "pain", "--task": "ordinal", "--ignore": "falls,years,days,status"}
ORDERED = '[target]\nclasses = ["none", "mild", "severe"]'
BAD_OUTCOMES = {
    "counts that are none": (
        lambda f: put(put(f, 0, "falls", -1), 1, "falls", 1.5),
        COUNT | {"--ignore": "days,status,pain,years"},
        {("north", "falls"), ("south", "falls")},
    ),
    "a count beyond single precision": (
        lambda f: put(f, 0, "falls", 10**9),
        EXPOSED,
        {("north", "falls")},
    ),
    "exposures of nothing, and a count below it": (
        lambda f: put(put(put(f, 0, "years", 0), 1, "years", -2), 1, "falls", -1),
        EXPOSED,
        {("north", "years"), ("south", "years"), ("south", "falls")},
    ),
    "an exposure of nothing, within a declared range": (
        lambda f: put(f, 0, "years", 0),
        {
            **COUNT,
            "schema": "[bounds]\nage = [0, 99]\n[target]\nrange = [0, 9]\n"
            'exposure_column = "years"\nexposure_range = [0.1, 3]',
        },
        {("north", "years")},
    ),
    "a word as exposure": (lambda f: put(f, 1, "years", "long"), EXPOSED, {("south", "years")}),
    "no exposure": (lambda f: put(f, 1, "years", None), EXPOSED, {("south", "years")}),
    "no falls": (lambda f: f.assign(falls=0), EXPOSED, {("", "falls")}),
    "events that are none": (
        lambda f: put(put(f, 0, "status", 2), 2, "status", "lost"),
        TIMES,
        {("north", "status"), ("west", "status")},
    ),
    "an event and a time that are none": (
        lambda f: put(put(put(f, 0, "status", 2), 0, "days", -1), 1, "days", -0.5),
        TIMES,
        {("north", "status"), ("north", "days"), ("south", "days")},
    ),
    "no event": (lambda f: f.assign(status=0), TIMES, {("", "status"), ("", "")}),
    "no event before the last cut point": (
        lambda f: f.assign(days=400),
        TIMES,
        {("", "status")},
    ),
    "an unknown event column": (
        lambda f: f,
        TIMES | {"--event-column": "statsu"},
        {("", "statsu")},
    ),
    "columns for three roles that are not there": (
        lambda f: f,
        EXPOSED | {"--exposure-column": "yeasr", "--group-column": "grp", "--ignore": "pian"},
        {("", "yeasr"), ("", "grp"), ("", "pian")},
    ),
    "no order of classes": (lambda f: f, PAIN, {("", "")}),
    "classes that are not in the order": (
        lambda f: put(put(f, 0, "pain", "awful"), 1, "pain", "bad"),
        PAIN | {"schema": ORDERED},
        {("north", "pain"), ("south", "pain")},
    ),
    "silos that are not there": (
        lambda f: f,
        EXPOSED | {"--exclude-silos": "nort,west,sout"},
        {("nort", ""), ("sout", "")},
    ),
    "the silo's column, which is no feature": (
        lambda f: f,
        {**COUNT, "--ignore": "days,status,pain,years,site"},
        {("", "site")},
    ),
    "words in several silos": (
        lambda f: put(put(f, 0, "age", "old"), 2, "age", "young"),
        EXPOSED,
        {("north", "age"), ("west", "age")},
    ),
}


@pytest.mark.parametrize("what", BAD_OUTCOMES)
def test_bad_outcomes(cli, tmp_path, what):
    change, options, expected = BAD_OUTCOMES[what]
    arguments = check_arguments(tmp_path, change(outcomes(people())), options)
    done = cli("data", "check", *arguments, "--json")
    assert done.exit_code == 2, done.output
    problems = json.loads(done.stdout)["problems"]
    assert {(one["silo"], one["column"]) for one in problems} == expected
    for one in problems:
        assert one["what"]
        assert one["remedy"]
        assert "train y" not in one["what"], "people know nothing of that"


def test_all_that_is_wrong_with_a_schema_is_told_at_once(cli, sentence, tmp_path):
    schema = """
        ignroe = ["who"]
        [levels]
        ward = ["a"]
        [bounds]
        age = [99, 0]
        bmi = [10, inf]
        [dates]
        day = {origin = "x"}
        [other]
        ward = "z"
        [missing]
        age = "old"
        [target]
        range = [9, 1]
        exposure_range = [0, 1]
        """
    arguments = check_arguments(tmp_path, people(), {"schema": schema})
    done = cli("data", "check", *arguments, "--json")
    assert done.exit_code == 2, done.output
    told = [one["what"] for one in json.loads(done.stdout)["problems"]]
    for words in ("'ignroe' is unknown", "'ward' are ['a']", "'age': [99, 0]", "'bmi': [10, inf]",
                  "origin is 'x'", "'age' is 'old'", "target range: [9, 1]",
                  "exposure_range is given"):  # fmt: skip
        assert any(words in one for one in told), words
    assert len(told) == 8
    text = sentence(cli("run", "--data", *arguments, "--epsilon", "3"))
    assert "7 more problems: `silodp data check` with the same options shows all" in text


@pytest.mark.parametrize("options", [COUNT, EXPOSED, TIMES, PAIN | {"schema": ORDERED}])
def test_good_outcomes_have_no_problem(cli, tmp_path, options):
    arguments = check_arguments(tmp_path, outcomes(people()), options)
    assert cli("data", "check", *arguments).exit_code == 0


def check_arguments(tmp_path, frame, options):
    options = {"--silo-column": "site", "--target": "score", **BASE, **options}
    options.setdefault("--small-silos", "full-batch")
    path = tmp_path / "a.csv"
    frame.to_csv(path, index=options.pop("index", False))
    if (schema := options.pop("schema", None)) is not None:
        (tmp_path / "schema.toml").write_text(schema)
        options["--schema"] = str(tmp_path / "schema.toml")
    given = [text for pair in options.items() for text in pair if text is not None]
    return [str(path), *given]


@pytest.mark.parametrize("what", BAD)
def test_bad_tables(cli, tmp_path, what):
    change, options, expected = BAD[what]
    frame = people(options.get("size", 60))
    options = {name: value for name, value in options.items() if name != "size"}
    arguments = check_arguments(tmp_path, change(frame), options)
    done = cli("data", "check", *arguments, "--json")
    assert done.exit_code == 2, done.output
    problems = json.loads(done.stdout)["problems"]
    assert {(one["silo"], one["column"]) for one in problems} == expected
    for one in problems:
        assert one["what"]
        assert one["remedy"]


def test_a_good_table_has_none(cli, tmp_path):
    arguments = check_arguments(tmp_path, people(), {})
    done = cli("data", "check", *arguments, "--seeds", "3", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["problems"] == []


def test_the_table_of_problems_is_for_people(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    change, options, _ = BAD["many at once"]
    done = cli("data", "check", *check_arguments(tmp_path, change(people()), options))
    assert done.exit_code == 2
    for words in ("silo", "remedy", "'x' where numbers stand", "in 2 silos", "[words]"):
        assert words in done.output
    assert "--write-schema schema.toml proposes a schema" in done.stderr


def test_a_run_tells_the_first_and_how_many_more(cli, sentence, tmp_path):
    change, options, _ = BAD["many at once"]
    path, *given = check_arguments(tmp_path, change(people()), options)
    asked = ("--epsilon", "3", "--method", "local", "--rounds", "1")
    for command in ("run", "plan"):
        told = sentence(cli(command, "--data", path, *given, *asked))
        assert "more problems: `silodp data check` with the same options shows all" in told


def test_every_seed_is_checked(tmp_path):
    # Where the one row that differs is for testing, nothing is left to learn: with some seeds.
    frame = put(people(60).assign(score=1.0), 7, "score", 2.0)
    frame.to_csv(tmp_path / "a.csv", index=False)

    def found(seeds):
        problems = Problems()
        request = RunRequest(
            **{"data": str(tmp_path / "a.csv"), "silo_column": "site", "target": "score"},
            **{"ignore": "who,day", "method": "local", "epsilon": float("inf"), "seeds": seeds},
            task="regression",
        )
        with problems.noted():
            check_all(request, Reporter(), problems)
        return len(problems)

    assert (found(1), found(30)) == (0, 1)


# --- a proposed schema


def messy(n=120, seed=1):
    """A table with everything that people write."""
    rng = np.random.default_rng(seed)
    frame = people(n, seed).assign(
        visits=rng.choice(["0", "1", "2", "3+", "unknown"], n),
        weight=[f"{value:.1f}".replace(".", ",") for value in rng.normal(70, 9, n)],
        income=[f"{value // 1000}.{value % 1000:03}" for value in rng.integers(1000, 9999, n)],
        smoker=rng.choice(["yes", "no"], n),
        grade=rng.integers(1, 5, n),
        coded=rng.integers(0, 2, n),
        code=rng.choice(["007", "012", "101"], n),
        seen=[
            (datetime.date(2020, 3, 1) + datetime.timedelta(days=int(day))).strftime("%d.%m.%Y")
            for day in rng.integers(0, 900, n)
        ],
        rare=["often"] * (n - 2) + ["once", "twice"],
        record=range(n),
        always="x",
        nothing=None,
        name=[f"person {row}" for row in range(n)],
    )
    frame["bmi"] = [str(value).replace(".", ",") for value in frame.bmi]
    frame["score"] = [str(value).replace(".", ",") for value in frame.score]
    for row, column in enumerate(("visits", "weight", "smoker", "coded", "seen", "ward", "score")):
        frame = frame.astype({column: object})
        frame.loc[10 + row, column] = None
    frame.loc[30, "site"] = None
    return frame


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A messy table as German Excel saves it."""
    path = tmp_path_factory.mktemp("messy") / "messy.csv"
    messy().rename(columns={"rare": "größe"}).to_csv(path, sep=";", encoding="cp1252", index=False)
    return path


def proposed(cli, path, schema, *more):
    done = cli(
        *("data", "check", path, "--silo-column", "site", "--target", "score"),
        *("--write-schema", schema, "--small-silos", "full-batch", "--json", *more),
    )
    return done, tomllib.loads(schema.read_text())


def test_a_proposed_schema_reads_what_people_write(cli, exported, tmp_path):
    done, schema = proposed(cli, exported, tmp_path / "schema.toml")
    assert done.exit_code == 0, done.output
    assert schema["file"] == {
        **{"delimiter": ";", "decimal": ",", "thousands": ".", "encoding": "cp1252"},
    }
    assert set(schema["ignore"]) == {"record", "always", "nothing", "name"}
    assert schema["words"] == {"visits": {"3+": 3, "unknown": "missing"}}
    assert schema["dates"]["seen"]["format"] == "%d.%m.%Y"
    assert schema["levels"]["smoker"] == ["no", "yes", "missing"]
    assert schema["levels"]["code"] == ["007", "012", "101", "other"]
    assert schema["levels"]["coded"] == ["0", "1", "missing"]
    assert schema["missing"]["weight"]["indicator"] is True
    assert schema["missing"]["score"] == schema["missing"]["site"] == "drop"
    assert schema["bounds"]["income"] == [0, 10000]
    assert "grade" in schema["bounds"]
    text = (tmp_path / "schema.toml").read_text()
    assert 'grade = ["1", "2", "3", "4"]  if these are codes' in text
    for line in text.splitlines():
        if " = " in line and not line.startswith(
            ("#", "from_records", "ignore", "[", "delim", "decimal")
        ):
            assert "# from the records" in line or "a guess" in line or "encoding" in line


def test_a_proposed_schema_runs_unedited_and_says_what_it_is(cli, exported, tmp_path):
    schema, out = tmp_path / "schema.toml", tmp_path / "run"
    proposed(cli, exported, schema)
    done = cli(
        *("run", "--data", exported, "--silo-column", "site", "--target", "score"),
        *("--schema", schema, "--epsilon", "3", "--method", "fedavg", "--rounds", "2"),
        *("--small-silos", "full-batch", "--save-models", "--out", out),
    )
    assert done.exit_code == 0, done.output
    result = json.loads((out / "result.json").read_text())
    assert "from_records" in json.dumps(result)
    # And each silo's model answers for rows that lack everything.
    frame = messy().head(12).assign(visits="4", seen="yesterday", weight=None, ward="new")
    frame = frame.rename(columns={"rare": "größe"})
    frame.to_csv(tmp_path / "new.csv", sep=";", index=False, encoding="cp1252")
    model = sorted((out / "models").iterdir())[0]
    told = cli("predict", model, tmp_path / "new.csv", "--schema", schema, "--json")
    assert told.exit_code == 0, told.output
    assert len(json.loads(told.stdout)["predictions"]) == 12


def test_rules_travel_with_a_model(cli, exported, tmp_path):
    """Card, predictions and ONNX prepare a row as training did."""
    ort = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    schema, out = tmp_path / "schema.toml", tmp_path / "run"
    proposed(cli, exported, schema)
    options = {"silo_column": "site", "target": "score", "schema": schema}
    silodp.run(
        **{"data": str(exported), "epsilon": 3, "method": "fedavg", "rounds": 2, "out": str(out)},
        **{**options, "small_silos": "full-batch", "keep_models": True},
    )
    (silo, *_) = resolve(exported, DataOptions(**options)).load(0, DataOptions(**options)).silos
    folder = next(path for path in sorted((out / "models").iterdir()) if "north" in path.name)
    model = silodp.load_model(folder)
    assert model.about.preparation == silo.preparation
    frame = read_table(exported, model.text_columns, form=FileForm(read_schema(schema).dialect))
    frame = frame.assign(visits=["3+", None, "unknown"] * 40, seen=["1.3.2020", None, "x"] * 40)
    x = model.about.preparation.encoder.encode("north", frame.loc[:, list(model.columns)])
    session = ort.InferenceSession(onnx_content(model))
    np.testing.assert_allclose(
        np.ravel(session.run(None, {"features": x})[0]), model.predict(frame).values, rtol=1e-5
    )


def test_what_a_person_replaced_is_covered(exported, tmp_path):
    """Without `from_records`, the schema is what a person declares."""
    text = """
        ignore = ["who", "day", "record", "always", "nothing", "name", "income", "weight", "ill"]
        [file]
        delimiter = ";"
        decimal = ","
        encoding = "cp1252"
        [levels]
        ward = ["a", "b", "c", "?"]
        smoker = ["no", "yes"]
        coded = [0, 1]
        code = ["007", "012", "101"]
        "größe" = ["often", "other"]
        [other]
        "größe" = "other"
        [missing]
        site = "drop"
        score = "drop"
        smoker = "drop"
        ward = "?"
        coded = {value = 1, indicator = true}
        visits = 1
        seen = {value = 400, indicator = true}
        [words.visits]
        "3+" = 3
        unknown = "missing"
        [dates]
        seen = {origin = "2020-01-01", format = "%d.%m.%Y"}
        [bounds]
        age = [0, 120]
        bmi = [10, 60]
        visits = [0, 5]
        grade = [1, 4]
        seen = [0, 1000]
        [target]
        range = [0, 100]
        """
    (tmp_path / "schema.toml").write_text(text)
    options = DataOptions(
        silo_column="site", target="score", schema=tmp_path / "schema.toml", test_fraction=0.5
    )
    federation = resolve(exported, options).load(0, options)
    assert federation.uncovered == ()
    assert federation.feature_bound == 1.0
    names = federation.feature_names
    assert {"coded is missing", "seen is missing"} <= set(names)
    rows = np.concatenate([[*silo.train.x, *silo.test.x] for silo in federation.silos])
    assert len(rows) == 120 - 3  # without a silo, a target, or whether they smoke
    assert rows[:, names.index("seen is missing")].sum() == 1
    assert rows[:, names.index("coded is missing")].sum() == 1
    # 400 of 0 to 1000 days, scaled to -1 to 1.
    lacking = rows[rows[:, names.index("seen is missing")] == 1]
    assert lacking[0, names.index("seen")] == pytest.approx(-0.2, abs=1e-6)
    raw = messy()
    visits = raw.loc[raw.site.notna() & raw.score.notna() & raw.smoker.notna(), "visits"]
    expected = visits.map({"0": 0, "1": 1, "2": 2, "3+": 3}).fillna(1)
    found = np.sort((rows[:, names.index("visits")] + 1) / 2 * 5)
    np.testing.assert_allclose(found, np.sort(expected), atol=1e-5)


def schema_of_table(frame, tmp_path, target="score", **options):
    """What is proposed for a table of three silos with this target, as text and as TOML."""
    frame.to_csv(tmp_path / "t.csv", index=False)
    text = proposed_schema(
        tmp_path / "t.csv", DataOptions(silo_column="site", target=target, **options)
    )
    return text, tomllib.loads(text)


def test_what_becomes_of_rows_by_rule_is_one_sentence_for_all_silos(tmp_path):
    frame = people(60)
    frame.loc[[0, 1, 3], "score"] = None
    frame.loc[[2], "age"] = "old"
    schema = tmp_path / "s.toml"
    schema.write_text('ignore = ["who", "day"]\n[missing]\nscore = "drop"\nage = 50\n')
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = DataOptions(silo_column="site", target="score", schema=schema)
    assert resolve(tmp_path / "t.csv", options).said == (
        "Left out by the schema, for want of 'score': 3 rows of 2 silos (north, south).",
        "Taken as missing in 'age', where numbers stand ('old'): 1 row of 1 silo (west).",
    )


def test_names_that_begin_with_a_number_are_no_numbers(tmp_path):
    frame = people(120).assign(
        kind=["1Fam", "2fmCon", "1Fam", "Duplex"] * 30,
        volume=["<1l", "1-1.5l", "1.5-2l", ">2l"] * 30,
    )
    _, schema = schema_of_table(frame, tmp_path)
    assert schema["levels"]["kind"] == ["1Fam", "2fmCon", "Duplex", "other"]
    assert schema["words"] == {"volume": {"1-1.5l": 1.25, "1.5-2l": 1.75, "<1l": 1, ">2l": 2}}


def test_columns_that_name_persons_are_no_features(tmp_path):
    """Several rows each: who protects rows protects none of them."""
    rng = np.random.default_rng(0)
    frame = people(120).assign(patient_id=rng.integers(1, 60, 120), visit_no=[1, 2, 3] * 40)
    frame = frame.assign(Pupil=frame.patient_id, student=["no", "yes"] * 60)
    text, schema = schema_of_table(frame, tmp_path)
    assert schema["ignore"] == ["patient_id", "Pupil"]
    assert schema["levels"]["student"] == ["no", "yes"]
    assert "--subject-column" in text
    assert "patient_id" not in schema["from_records"]
    assert "visit_no" in schema["bounds"]


def test_bounds_pulled_out_by_a_slip_are_pointed_at(tmp_path):
    frame = people(300).assign(hours=np.linspace(1, 9, 300))
    assert "narrower bounds" not in schema_of_table(frame, tmp_path)[0]
    text, _ = schema_of_table(put(frame, 7, "hours", 61370.2), tmp_path)
    (line,) = [line for line in text.splitlines() if line.startswith("hours")]
    assert "98 % of values are from 1.0" in line
    assert "narrower bounds would tell more" in line


def test_a_proposal_is_for_the_task_that_was_asked_for(tmp_path):
    """Few whole numbers are classes, unless an option says what they are."""
    frame = people(60).assign(falls=[0, 1, 2, 3] * 15, died=[0, 1, 1] * 20)
    found = {
        task: schema_of_table(frame, tmp_path, "falls", task=task)[1]["target"]
        for task in (None, "count", "regression", "ordinal")
    }
    classes = {"classes": ["0", "1", "2", "3"]}
    assert found[None] == found["ordinal"] == classes
    assert found["count"] == found["regression"] == {"range": [0, 3]}
    as_floats = frame.assign(falls=frame.falls.astype(float))  # as pandas writes them with gaps
    assert schema_of_table(as_floats, tmp_path, "falls")[1]["target"] == classes
    exposed = frame.assign(beds=np.linspace(0.5, 39, 60))
    _, schema = schema_of_table(exposed, tmp_path, "falls", task="count", exposure_column="beds")
    assert schema["target"]["exposure_column"] == "beds"
    assert schema["target"]["exposure_range"] == [0.5, 40]
    assert "beds" not in schema["bounds"]
    days = frame.assign(falls=np.arange(60) * 7 + 1)
    _, schema = schema_of_table(days, tmp_path, "falls", task="hazard")
    assert schema["target"]["event_column"] == "died"
    assert schema["target"]["cut_points"] == sorted(schema["target"]["cut_points"])
    assert "died" not in schema["levels"]
    text, _ = schema_of_table(days, tmp_path, "falls")
    assert "--task count" in text
    assert "--task hazard" in text


def test_a_schema_is_not_written_over(cli, sentence, exported, tmp_path):
    schema = tmp_path / "schema.toml"
    schema.write_text("mine")
    asked = ("data", "check", exported, "--silo-column", "site", "--target", "score")
    assert "--overwrite" in sentence(cli(*asked, "--write-schema", schema))
    assert schema.read_text() == "mine"
    assert "your own table" in sentence(cli("data", "check", "digits", "--write-schema", schema))
