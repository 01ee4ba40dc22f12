"""Tables of counts, ordered classes and times: from file to what silodp and ONNX agree on."""

import json

import numpy as np
import pandas as pd
import pytest
from handovers import handed
from scipy.special import expit

import silodp
from silodp import SilodpError
from silodp.data.tasks.hazard import labels_of_times

ROWS = 80
RUN = {"method": "fedavg", "epsilon": 4.0, "rounds": 3, "batch_size": 16, "silo_column": "site"}
SCHEMA = """
[bounds]
age = [0, 100]
[levels]
ward = ["a", "b"]
[target]
"""
DECLARED = {
    "falls": 'range = [0, 9]\nexposure_column = "days"\nexposure_range = [1, 50]',
    "pain": 'classes = ["none", "some", "much"]',
    "stay": 'event_column = "status"\nevent_value = 2\ncut_points = [5, 10, 20]',
}
TASKS = {"falls": "count", "pain": "ordinal", "stay": "hazard"}


def patients():
    rng = np.random.default_rng(0)
    age = rng.integers(20, 90, ROWS)
    return pd.DataFrame(
        {
            "site": np.repeat(["north", "south"], ROWS // 2),
            "age": age,
            "ward": rng.choice(["a", "b"], ROWS),
            "days": rng.integers(1, 50, ROWS),
            "falls": rng.poisson(age / 40),
            "pain": rng.choice(["much", "none", "some"], ROWS),
            "stay": rng.uniform(1, 30, ROWS).round(),
            "status": rng.integers(1, 3, ROWS),
        }
    )


def columns_of(target):
    beside = {"falls": ["days"], "stay": ["status"]}.get(target, [])
    return ["site", "age", "ward", target, *beside]


@pytest.fixture(scope="module", params=DECLARED)
def trained(request, tmp_path_factory):
    folder, target = tmp_path_factory.mktemp("outcome"), request.param
    frame = patients()[columns_of(target)]
    frame.to_csv(folder / "table.csv", index=False)
    (folder / "schema.toml").write_text(SCHEMA + DECLARED[target])
    data = {"data": str(folder / "table.csv"), "schema": folder / "schema.toml"}
    result = silodp.run(
        **RUN, **data, target=target, task=TASKS[target], keep_models=True, out=folder / "run"
    )
    return target, frame, result, folder, silodp.load_model(handed(folder, "north"))


def test_nothing_was_learned_from_the_records(trained):
    target, _, result, _, _ = trained
    known = "class list" if target == "pain" else "label range"
    assert f"public, because declared: feature bounds, {known}" in result.assumptions
    assert all(not silo["unproven"] for silo in result.privacy)


def test_predictions_are_in_peoples_words(trained):
    target, frame, _, _, model = trained
    said = model.predict(frame)
    if target == "falls":
        expected = np.exp(said.outputs) * frame["days"] / 50
        np.testing.assert_allclose(said.values, expected, rtol=1e-6)
        alone = model.predict(frame.drop(columns="days"))
        np.testing.assert_allclose(alone.values, np.exp(said.outputs) / 50, rtol=1e-6)
        return
    assert said.probabilities is not None
    assert said.probabilities.shape == (ROWS, 3)
    if target == "pain":
        np.testing.assert_allclose(said.probabilities.sum(axis=1), 1)
        above = 1 - said.probabilities.cumsum(axis=1)[:, :-1]
        ranks = (above > 0.5).sum(axis=1)
        assert said.values == [["none", "some", "much"][rank] for rank in ranks]
    else:
        survival = np.cumprod(1 - expit(said.outputs.astype(float)), axis=1)
        np.testing.assert_allclose(said.probabilities, survival, rtol=1e-6)
        np.testing.assert_allclose(said.values, survival[:, -1], rtol=1e-6)


def test_a_score_needs_all_columns_of_the_target(trained):
    target, frame, result, _, model = trained
    score = model.score(frame)
    assert score is not None
    assert (score.metric, score.records) == (result.metric, ROWS)
    beside = columns_of(target)[4:]
    if beside:
        assert model.score(frame.drop(columns=beside)) is None


def test_onnx_says_the_same(trained, cli):
    onnxruntime = pytest.importorskip("onnxruntime")
    target, frame, _, folder, model = trained
    file = folder / "model.onnx"
    done = cli("export", handed(folder, "north"), "--out", file, "--quiet")
    assert done.exit_code == 0, done.stderr
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    features = model.about.preparation.encoder.encode("", frame)
    found = dict(zip(names, session.run(names, {"features": features}), strict=True))
    said = model.predict(frame)
    if target == "falls":
        np.testing.assert_allclose(found["rate"] * frame["days"], said.values, rtol=1e-4)
    else:
        np.testing.assert_allclose(found["scores"], said.outputs, rtol=1e-4, atol=1e-5)
        chances = found["probabilities" if target == "pain" else "survival"]
        np.testing.assert_allclose(chances, said.probabilities, atol=1e-5)


def test_the_command_line_names_what_it_says(trained, cli):
    target, _, _, folder, _ = trained
    done = cli("predict", handed(folder, "north"), folder / "table.csv")
    assert done.exit_code == 0, done.stderr
    head, first = done.stdout.splitlines()[:2]
    last = {
        "falls": "prediction",
        "pain": "probability of much",
        "stay": "probability of no event up to 20",
    }
    assert head.endswith(last[target])
    assert len(first.split(",")) == len(head.split(","))


def test_a_card_that_contradicts_itself_is_refused(trained):
    target, _, _, folder, _ = trained
    card = handed(folder, "south") / "card.json"
    whole = json.loads(card.read_text())
    del whole["preparation"]["target"]["classes" if target == "pain" else "source"]
    about = whole["preparation"]["target"]
    about.update({"falls": {"cut_points": [1, 2]}, "stay": {"cut_points": [1, 2]}}.get(target, {}))
    card.write_text(json.dumps(whole))
    with pytest.raises(SilodpError, match=r"card\.json"):
        silodp.load_model(card)


def read(folder, target, task, declared, frame=None, **options):
    frame = patients() if frame is None else frame
    frame[columns_of(target)].to_csv(folder / "table.csv", index=False)
    (folder / "schema.toml").write_text(SCHEMA + declared)
    data = {"data": str(folder / "table.csv"), "schema": folder / "schema.toml"}
    return silodp.plan(**RUN, **data, target=target, task=task, **options).federations[0]


def test_labels_are_those_of_the_table(tmp_path):
    frame = patients()
    counts = read(tmp_path, "falls", "count", DECLARED["falls"])
    found = np.concatenate([part.y for silo in counts.silos for part in (silo.train, silo.test)])
    expected = np.column_stack([frame["falls"].clip(0, 9), frame["days"].clip(1, 50) / 50])
    np.testing.assert_allclose(np.sort(found, axis=0), np.sort(expected, axis=0), rtol=1e-6)
    times = read(tmp_path, "stay", "hazard", DECLARED["stay"])
    found = np.concatenate([part.y for silo in times.silos for part in (silo.train, silo.test)])
    expected = labels_of_times(frame["stay"], frame["status"] == 2, (5, 10, 20))
    np.testing.assert_allclose(np.sort(found, axis=0), np.sort(expected, axis=0))
    assert times.num_classes == 3
    assert times.input_shape == (3,), "neither the event nor the exposure is a feature"


def test_options_say_it_too(tmp_path):
    federation = read(
        *(tmp_path, "stay", "hazard", ""),
        frame=patients().replace({"status": {2: "yes", 1: "no"}}),
        event_column="status",
        cut_points="5, 10,20",
    )
    assert federation.num_classes == 3


@pytest.mark.parametrize(
    ("target", "task", "declared", "words"),
    [
        ("stay", "hazard", "cut_points = [5]", "event_column is missing, which a hazard task"),
        ("stay", "hazard", 'event_column = "status"', "cut_points is missing, which a hazard task"),
        ("stay", "hazard", "cut_points = [5, 5]", "give at most 1000 numbers, each above the one"),
        ("stay", "hazard", "cut_points = [0, 5]", "give times above 0"),
        (
            *("stay", "hazard", 'event_column = "status"\ncut_points = [5]'),
            "column 'status' holds '2', but it says whether the event was seen: write 1 or 0",
        ),
        (
            *("stay", "hazard", 'range = [0, 30]\nevent_column = "status"\ncut_points = [5]'),
            "'stay' is a time, whose range is that of its cut points: leave the range out",
        ),
        ("falls", "count", "range = [-3, 9]", r"counts are from 0 to 1e\+06 at most"),
        ("falls", "count", "cut_points = [5]", "which is not for a count task: .* task hazard"),
        ("falls", "count", "exposure_range = [1, 2]", "but no exposure_column: name the column"),
        (
            "falls",
            "count",
            'exposure_column = "day"',
            "exposure_column names the column 'day', which is not there: did you mean 'days'",
        ),
        ("pain", "ordinal", "", "have an order, which has to be declared"),
        ("stay", "count", 'event_column = "status"', "choose the task hazard"),
    ],
)
def test_declarations_that_do_not_fit_are_refused(tmp_path, target, task, declared, words):
    with pytest.raises(SilodpError, match=words):
        read(tmp_path, target, task, declared)


@pytest.mark.parametrize(
    ("target", "column", "value", "words"),
    [
        (
            "falls",
            "falls",
            -1,
            "'falls' holds -1, but a count task takes whole numbers from 0 to 1,000,000",
        ),
        ("falls", "falls", 1.5, "'falls' holds 1.5, but a count"),
        ("falls", "days", 0, "column 'days' holds 0, but exposures are above 0: mend the values"),
        ("stay", "stay", -2, "'stay' holds -2, but a hazard task takes times from 0"),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path, target, column, value, words):
    frame = patients().astype({column: float})
    frame.loc[[3, 50], column] = value
    declared = {"falls": 'exposure_column = "days"', "stay": DECLARED["stay"]}[target]
    with pytest.raises(SilodpError, match=words):
        read(tmp_path, target, TASKS[target], declared, frame)
