"""Models that silos take home: the same numbers as the run's own, and no harm by any file."""

import contextlib
import io
import json
import math
import os
import re
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from cell_files import write_cells
from federations import small
from handovers import (
    AGE,
    NASTY,
    RUN,
    WARD,
    handed,
    loaded_from_memory,
    own_test_rows,
    patients,
    schema_file,
    silos_of,
    trained,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from site_folders import make_coordinator, make_sites, proposal, run_in_one_process

import silodp
from silodp import SilodpError
from silodp.base.arrays import arrays_content, read_arrays
from silodp.base.text import folder_names
from silodp.data import coins
from silodp.data.preparation import Preparation, Scaling, preparation_of
from silodp.data.registry import DataOptions, resolve
from silodp.data.tables.columns import NO_LEVEL, Column, Encoder
from silodp.data.tables.table import table_of_frames
from silodp.data.tables.target import Target
from silodp.results.model_export.card import checked_card
from silodp.results.model_export.described import described, preparation_of_card
from silodp.results.model_export.files import (
    CARD_FILE,
    MODEL_FILE,
    READABLE_CARD_FILE,
    handover_files,
)
from silodp.sites.agreed_schema import table_options
from silodp.sites.site_setup import site_models

pytestmark = pytest.mark.usefixtures("kept_programs")

# Single precision, added up in another order than in the compiled run.
CLOSE = {"rel": 2e-5, "abs": 1e-7}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    trained(patients(), folder)
    return folder


def same_as_the_run(result, folder, frame, seed=0):
    """Each silo's model, on the rows that the run tested on, scores what the run says."""
    for place, silo in enumerate(silos_of(frame)):
        model = silodp.load_model(handed(folder, silo))
        own = result.per_silo[place]
        assert own["silo"] == model.card["silo"] == silo
        score = model.score(own_test_rows(frame, silo, seed))
        assert score.metric == result.metric == model.card["test"]["metric"]
        assert score.records == own["test_records"] == model.card["test"]["records"]
        assert model.card["test"]["value"] == own["per_seed"][0]
        assert score.value == pytest.approx(own["per_seed"][0], **CLOSE)
        yield model


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("score", {}),  # standardised by each silo, the target by all silos
        ("score", {"preprocess": "none", "lr": 1e-5}),
        ("score", {"declared": {"range": [-20, 100]}}),
        (
            "score",
            {"declared": {"range": [20, 60]}, "statistics_share": 0.3},
        ),  # clipped targets
        ("score", {"seeds": 2, "first_seed": 5}),
        pytest.param("score", {"engine": "debug"}, marks=pytest.mark.slow),
        ("ill", {"epsilon": math.inf}),
        ("ill", {"model": "svm"}),
        ("ill", {"declared": {"classes": ["no", "yes"]}}),
        ("grade", {}),
        # Two seeds, classes and methods with a server are above; models are taken home alike.
        pytest.param("grade", {"method": "ebmtl", "seeds": 2}, marks=pytest.mark.slow),
    ],
)
def test_predictions_are_those_of_the_run(tmp_path, target, options):
    frame = patients()
    result = trained(frame, tmp_path, target, **options)
    seed = options.get("first_seed", 0)
    for place, model in enumerate(same_as_the_run(result, tmp_path, frame, seed)):
        assert model.card["training"]["seed"] == seed
        # The first seed's, whichever did best.
        np.testing.assert_array_equal(model.params, result.models[0, place])
        said = model.predict(frame)
        assert len(said.values) == len(frame)
        if target == "score":
            assert said.probabilities is None
            assert model.score(frame).error == pytest.approx(
                np.sqrt(np.mean((said.values - _as_trained(frame["score"], options)) ** 2)),
                rel=1e-4,
            )
        else:
            right = np.mean([a == str(b) for a, b in zip(said.values, frame[target], strict=True)])
            assert model.score(frame).value == pytest.approx(right)
        if target != "score" and options.get("model") != "svm":
            np.testing.assert_allclose(said.probabilities.sum(axis=1), 1)
            classes = model.about.preparation.target.classes
            assert said.values == [classes[i] for i in said.probabilities.argmax(axis=1)]


def _as_trained(score, options):
    return np.clip(score, *options.get("declared", {}).get("range", (-np.inf, np.inf)))


def test_every_row_is_answered_and_those_left_out_of_training_are_not_scored(tmp_path):
    frame = patients(rows=63)  # of which 60 are whole, as many as in other tests
    frame.loc[[3, 70], AGE] = np.nan
    frame.loc[[5, 90], WARD] = None
    frame.loc[[8, 100], "score"] = np.nan
    result = trained(frame, tmp_path, drop_missing=True)
    whole = frame.dropna(subset=[AGE, WARD, "score"])
    model, _ = same_as_the_run(result, tmp_path, whole)
    said = model.predict(frame)
    assert len(said.values) == len(frame)
    assert np.flatnonzero(~said.whole).tolist() == [3, 5, 70, 90]
    assert np.isfinite(said.values).all()
    # A row without a target gets its prediction, but has no part in the score.
    assert model.score(frame).records == len(whole)
    assert model.score(frame).value == pytest.approx(model.score(whole).value)
    alone = model.predict(frame.loc[[3, 5]])  # no row is answered by what others hold
    assert alone.values == pytest.approx([said.values[3], said.values[5]])
    nothing_known = frame.assign(score=np.nan)
    assert model.score(nothing_known) is None
    assert model.score(frame.drop(columns="score")) is None


def test_odd_values_count_as_in_training(tmp_path):
    frame = patients()
    frame.loc[[3, 70], AGE] = np.nan
    frame.loc[[5, 90], WARD] = "elsewhere"
    schema = schema_file(tmp_path, range=[-20, 100])
    rules = f'[other]\n{json.dumps(WARD)} = "y"\n[missing]\n{json.dumps(AGE)} = 40\n'
    schema.write_text(f"{schema.read_text()}\n{rules}")
    result = trained(frame, tmp_path, schema=schema)
    mended = frame.fillna({AGE: 40}).replace({WARD: {"elsewhere": "y"}})
    model, _ = same_as_the_run(result, tmp_path, mended)
    assert model.predict(frame).values == model.predict(mended).values
    odd = mended.astype(object)
    odd.loc[3, AGE], odd.loc[5, WARD] = "unknown", "nowhere"
    assert model.predict(odd).values == model.predict(mended).values
    assert {AGE, WARD} <= model.text_columns


def test_a_missing_value_says_nothing(home):
    """Whatever is refused in training: a number is the mean one, a category none of the levels."""
    model, frame = silodp.load_model(handed(home, "north")), patients()
    odd = frame.astype({WARD: object})
    odd.loc[4, AGE], odd.loc[6, WARD], odd.loc[8, "dose"] = np.nan, None, np.nan
    said, usual = model.predict(odd), model.predict(frame)
    others = np.setdiff1d(np.arange(len(frame)), [4, 6, 8])
    assert [said.values[row] for row in others] == [usual.values[row] for row in others]
    assert np.flatnonzero(~said.whole).tolist() == [4, 6, 8]
    # The mean of the silo's own training records, which the card names.
    preparation = model.about.preparation
    means = dict(zip(np.flatnonzero(preparation.encoder.is_number), preparation.scaling.first,
                     strict=True))  # fmt: skip
    place = preparation.encoder.feature_names.index(AGE)
    mended = frame.assign(**{AGE: frame[AGE].where(frame.index != 4, means[place])})
    assert said.values[4] == pytest.approx(model.predict(mended).values[4], rel=1e-5)


def test_values_that_mean_nothing_are_refused_as_in_training(home):
    model = silodp.load_model(handed(home, "north"))
    with pytest.raises(silodp.SilodpError, match="'z', which is not among its levels"):
        model.predict(patients().assign(**{WARD: "z"}))
    with pytest.raises(silodp.SilodpError, match="holds 'old', which is not a number"):
        model.predict(patients().assign(**{AGE: "old"}))
    with pytest.raises(silodp.SilodpError, match=r"beyond 1e\+12"):
        model.predict(patients().assign(dose=1e30))
    with pytest.raises(silodp.SilodpError, match=r"no column 'dose'.*nearest is 'does'"):
        model.predict(patients().rename(columns={"dose": "does"}))
    with pytest.raises(silodp.SilodpError, match="used more than once"):
        model.predict(pd.concat([patients(), patients()[["dose"]]], axis=1))
    with pytest.raises(silodp.SilodpError, match="not categories"):
        model.predict(patients().assign(**{WARD: [["x"]] * 120}))


def test_columns_are_found_by_name_in_any_order(home):
    frame = patients()
    model = silodp.load_model(handed(home, "south"))
    turned = frame[frame.columns[::-1]].assign(more=1)
    np.testing.assert_array_equal(model.predict(turned).outputs, model.predict(frame).outputs)
    few = frame[list(model.columns)].iloc[[7]]
    assert model.predict(few).values == pytest.approx([model.predict(frame).values[7]])


def test_a_tuned_model_can_be_taken_home(tmp_path):
    frame = patients(rows=120)
    frame.to_csv(tmp_path / "patients.csv", index=False)
    result = silodp.tune(
        grid={"lam": [0.1, 1.0]},
        data=str(tmp_path / "patients.csv"),
        silo_column="site",
        target="score",
        ignore=["ill", "grade"],
        split="paper",
        keep_models=True,
        out=tmp_path / "run",
        **RUN | {"epsilon": 8.0},
    )
    for model in same_as_the_run(result, tmp_path, frame):
        # What tuning adds to the assumptions is on the card as well.
        assert model.card["privacy"]["assumptions"] == result.assumptions


def test_a_site_can_use_what_it_got(tmp_path):
    agreed = proposal(task="binary", method="mrmtl")
    folders = make_sites(tmp_path / "sites", agreed)
    fed = make_coordinator(tmp_path / "fed", agreed)
    run_in_one_process(fed, folders, agreed)
    for folder in folders.values():
        (told,) = site_models(folder)
        model = silodp.load_model(told["model"])
        assert model.card["silo"] == folder.name
        records = pd.read_csv(folder / "records.csv")
        options = table_options(agreed.schema)
        used = records.loc[:, list(agreed.schema.columns)]
        table = table_of_frames(folder.name, {folder.name: used}, options, total=True)
        identities = table.identities[folder.name]
        tested = records[coins.toss(identities, 0.2, "test", folder.name, 0)]
        score = model.score(tested)
        assert score.value == pytest.approx(told["test"])
        assert model.card["privacy"]["proven"]
        assert model.card["test"]["noisy"] is False
        assert all(c["source"].startswith("declared") for c in model.card["preparation"]["columns"])


def test_noise_on_metrics_is_said_where_it_is(tmp_path):
    frame = patients()
    result = trained(frame, tmp_path, metric_share=0.1, declared={"range": [-20, 100]})
    card = silodp.load_model(handed(tmp_path, "north")).card
    assert card["test"]["noisy"] is True
    assert card["test"]["value"] == result.per_silo[0]["per_seed"][0]


# What the card says


def test_the_card_is_honest(tmp_path):
    frame = patients()
    trained(frame, tmp_path, seeds=2)
    card = json.loads((handed(tmp_path, "north") / CARD_FILE).read_text())
    privacy = card["privacy"]
    assert privacy["proven"] is False
    assert "This is not proven" in " ".join(privacy["meaning"])
    assert "keep it where the records are" in " ".join(privacy["meaning"])
    assert "first one's" in card["training"]["meaning"]
    assert "several seeds" in " ".join(privacy["assumptions"])
    sources = [column["source"] for column in card["preparation"]["columns"]]
    assert "own training records; epsilon does not cover it" in sources[0]
    assert "all silos; epsilon does not cover it" in sources[-1]
    assert "all silos" in card["preparation"]["target"]["source"]
    (tmp_path / "open").mkdir()
    trained(frame, tmp_path / "open", epsilon=math.inf)
    card = silodp.load_model(handed(tmp_path / "open", "north")).card
    assert card["privacy"]["epsilon"] == "inf"
    assert "Treat this file as you treat the records" in card["privacy"]["meaning"][0]


# Data that are no table


def test_features_that_were_given_ready_made():
    federation = small("multiclass")
    result = silodp.run(federation=federation, keep_models=True, **RUN)
    for place, model in enumerate(loaded_from_memory(result)):
        test = federation.silos[place].test
        by_array = model.predict(test.x)
        frame = pd.DataFrame(test.x, columns=[f"feature {i}" for i in range(4)]).assign(y=test.y)
        by_table = model.predict(frame)
        np.testing.assert_allclose(by_array.outputs, by_table.outputs, rtol=1e-6)
        assert by_array.values == [str(number) for number in by_array.outputs.argmax(1)]
        expected = result.per_silo[place]["per_seed"][0]
        assert model.score(frame).value == pytest.approx(expected)
        assert model.card["preparation"]["ready_made"] is True
        with pytest.raises(silodp.SilodpError, match="takes numbers \\[records, 4\\]"):
            model.predict(test.x[:, :3])


def test_classes_that_were_found_are_not_called_declared():
    found = replace(small("multiclass"), uncovered=("The classes were found.",))
    declared = replace(found, declared=("class list",))
    for federation, told in ((found, False), (declared, True), (small("multiclass"), True)):
        assert preparation_of(federation, federation.silos[0]).target.declared is told


@pytest.mark.parametrize("statistics", [0.0, 0.3])
def test_images_are_taken_as_bytes(statistics):
    rng = np.random.default_rng(0)

    def records(n):
        y = np.arange(n) % 2 * 2 - 1
        x = np.clip(rng.normal(100, 30, (n, 6, 6, 1)) + 40 * y[:, None, None, None], 0, 255)
        return silodp.Records(x.astype(np.uint8), y)

    silos = tuple(silodp.Silo(name, records(60), records(30)) for name in "ab")
    federation = silodp.Federation("bytes", silos, "binary", pixels=(-1.0, 1.0))
    result = silodp.run(federation=federation, keep_models=True, statistics_share=statistics, **RUN)
    for place, model in enumerate(loaded_from_memory(result)):
        test = silos[place].test
        said = model.predict(test.x)
        right = np.mean([(v == "1") == (y > 0) for v, y in zip(said.values, test.y, strict=True)])
        assert right == pytest.approx(result.per_silo[place]["per_seed"][0])
        # As numbers they are the same images.
        numbers = model.predict(-1 + 2 / 255 * test.x.astype(np.float32))
        np.testing.assert_allclose(numbers.outputs, said.outputs, atol=1e-4)
        with pytest.raises(silodp.SilodpError, match="no rows of a table"):
            model.predict(pd.DataFrame({"a": [1]}))


def test_a_model_of_ones_own_needs_itself(tmp_path):
    def init(key):
        import jax

        return {"w": 0.1 * jax.random.normal(key, (4, 1)), "b": np.zeros(1, np.float32)}

    def apply(params, x):
        return x @ params["w"] + params["b"]

    own = silodp.custom_model(init, apply, "regression", name="linear")  # also a built-in's name
    federation = small()
    result = silodp.run(federation=federation, custom_model=own, keep_models=True, **RUN)
    result.write(tmp_path)
    with pytest.raises(silodp.SilodpError, match="a custom one"):
        silodp.load_model(tmp_path, silo="silo 0")
    model = silodp.load_model(tmp_path, silo="silo 0", custom_model=own)
    test = federation.silos[0].test
    error = np.mean((model.predict(test.x).outputs - test.y) ** 2)
    assert error == pytest.approx(result.per_silo[0]["per_seed"][0], rel=1e-4)
    other = silodp.custom_model(lambda key: np.zeros(3, np.float32), apply, "regression")
    with pytest.raises(silodp.SilodpError, match="does not hold the model"):
        silodp.load_model(tmp_path, silo="silo 0", custom_model=other)


@pytest.mark.parametrize(
    ("data", "preprocess"),
    [("school", "paper"), ("school", "bounds"), ("vehicle", "paper"), ("vehicle", "norm")],
)
def test_data_sets_of_the_paper_take_their_raw_columns(tmp_path, data, preprocess):
    rng = np.random.default_rng(1)
    xs = [rng.normal(3, 2, (50, 5)) for _ in range(2)]
    if data == "school":
        xs = [rng.integers(0, 2, (50, 28)).astype(float) for _ in range(2)]
    ys = [rng.integers(1, 71, 50) if data == "school" else rng.choice([-1, 1], 50) for _ in xs]
    write_cells(tmp_path / f"{data}.mat", xs, [y[:, None].astype(float) for y in ys])
    result = silodp.run(
        data=data, data_dir=tmp_path, preprocess=preprocess, keep_models=True, **RUN
    )
    options = DataOptions(data_dir=tmp_path, preprocess=preprocess)
    federation = resolve(data, options).load(0, options)
    for place, model in enumerate(loaded_from_memory(result)):
        raw = pd.DataFrame(xs[place], columns=list(model.columns))
        raw[model.card["preparation"]["target"]["name"]] = ys[place]
        prepared = model.about.preparation.features("", raw)
        # The run's test records are among the prepared rows, and are scored alike.
        test = federation.silos[place].test
        rows = [int(np.flatnonzero((prepared == x).all(axis=1))[0]) for x in test.x]
        np.testing.assert_array_equal(prepared[rows], test.x)
        expected = result.per_silo[place]["per_seed"][0]
        assert model.score(raw.iloc[rows]).value == pytest.approx(expected, **CLOSE)


# Names that are meant to do harm


def test_no_name_leads_out_of_the_folder(tmp_path):
    silos = (
        *NASTY,
        "North",
        "north",
        "CON",
        "a/b",
        "a\\b",
        "..",
        ".",
        "é" * 300,
        "\u202e",
        "\x00x",
    )
    federation = small(sizes=(30,) * len(silos))
    named = tuple(
        replace(silo, name=name) for silo, name in zip(federation.silos, silos, strict=True)
    )
    result = silodp.run(
        federation=replace(federation, silos=named), keep_models=True, out=tmp_path / "run", **RUN
    )
    assert [silo["silo"] for silo in result.per_silo] == list(silos)
    assert {p.name for p in tmp_path.iterdir()} == {"run"}
    folders = list((tmp_path / "run" / "models").iterdir())
    assert len({folder.name.casefold() for folder in folders}) == len(silos)
    for folder in folders:
        assert folder.name.isascii()
        assert len(folder.name) < 70
        assert {p.name for p in folder.iterdir()} == {CARD_FILE, MODEL_FILE, READABLE_CARD_FILE}
        assert folder.stat().st_mode & 0o077 == 0 or all(
            file.stat().st_mode & 0o077 == 0 for file in folder.iterdir()
        )
    assert {silodp.load_model(folder).card["silo"] for folder in folders} == set(silos)


def test_columns_and_classes_may_be_called_anything(tmp_path):
    nasty = {AGE: "=1+1", WARD: "<script>", "ill": "@SUM\n(A1)", "dose": "$(rm -rf)"}
    frame = patients(silos=NASTY).rename(columns=nasty)
    frame[nasty["ill"]] = np.where(frame[nasty["ill"]] == "yes", "=yes()", '"no"\n')
    table = tmp_path / "t.parquet"
    frame.to_parquet(table)
    result = silodp.run(
        data=str(table),
        silo_column="site",
        target=nasty["ill"],
        ignore=["score", "grade"],
        split="paper",
        keep_models=True,
        out=tmp_path / "run",
        **RUN,
    )
    for _ in same_as_the_run(result, tmp_path, frame):
        pass


def test_overwriting_takes_old_models_away_and_nothing_else(tmp_path):
    trained(patients(silos=("a", "b")), tmp_path)
    (handed(tmp_path, "b") / "mine.txt").write_text("keep")
    trained(patients(silos=("a", "d")), tmp_path, overwrite=True)
    left = {p.name for p in (tmp_path / "run" / "models").iterdir()}
    assert left == set("abd")
    assert [p.name for p in (tmp_path / "run" / "models" / "b").iterdir()] == ["mine.txt"]
    frame = patients(silos=("a", "d"))
    frame.to_csv(tmp_path / "patients.csv", index=False)
    silodp.run(
        data=str(tmp_path / "patients.csv"), silo_column="site", target="score",
        ignore=["ill", "grade"], out=tmp_path / "run", overwrite=True, **RUN,
    )  # fmt: skip
    left = list((tmp_path / "run" / "models").rglob("*"))
    own = tmp_path / "run" / "models" / "b"
    assert left == [own, own / "mine.txt"]


# Files that are not what they were


@pytest.fixture
def copy(home, tmp_path):
    """The hand-over to a silo, to be damaged."""
    own = tmp_path / "north"
    own.mkdir()
    for file in handed(home, "north").iterdir():
        (own / file.name).write_bytes(file.read_bytes())
    return own


def refused(path):
    with pytest.raises(silodp.SilodpError) as caught:
        silodp.load_model(path)
    told = str(caught.value)
    assert told.endswith(".")
    return told


def test_a_damaged_or_exchanged_model_is_refused(copy, home):
    model = (copy / MODEL_FILE).read_bytes()
    for content in (
        b"",
        model[:-1],
        model + b"\0",
        model[:100] + bytes([model[100] ^ 1]) + model[101:],
        (handed(home, "south") / MODEL_FILE).read_bytes(),
    ):
        (copy / MODEL_FILE).write_bytes(content)
        assert "another sha256" in refused(copy)
    (copy / MODEL_FILE).unlink()
    assert "does not exist, but its card does" in refused(copy)


def test_a_damaged_card_is_refused(copy):
    card = copy / CARD_FILE
    text = card.read_text()
    for content, words in (
        ("", "is not valid JSON"),
        (text[: len(text) // 2], "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ("[]", "is not the card"),
        ('{"format": "something else"}', "is not the card"),
        (text.replace('"version": 1', '"version": 2'), "use a newer silodp"),
        (text.replace('"version": 1', '"version": "1"'), "version is not a whole number"),
        (text.replace('"regression"', '"binary"'), "has no 'classes'"),
        (text.replace('"linear"', '"svm"'), "is for a binary task"),
        (text.replace('"linear"', '"quadratic"'), "is unknown"),
    ):
        card.write_text(content)
        assert words in refused(copy)
        assert words in refused(card)
    card.write_bytes(b"\xff\xfe")
    assert "is not valid JSON" in refused(copy)


def test_what_is_no_model_is_said_so(home, tmp_path):
    assert "does not exist" in refused(tmp_path / "none")
    assert "holds no card.json" in refused(tmp_path)
    told = refused(home / "run")
    assert "folder of a run" in told
    assert "--silo 'north' or 'south'" in told
    assert "is not the card" in refused(home / "run" / "result.json")
    assert "is not valid JSON" in refused(home / "run" / "models.npz")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def places(value, at=()):
    """Every place in a document."""
    yield at
    if isinstance(value, dict | list):
        for key, inside in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inside, (*at, key))


@settings(max_examples=300, deadline=None)
@given(data=st.data(), value=JSON)
def test_whatever_a_card_holds_is_used_or_refused(home, data, value):
    path = handed(home, "north") / CARD_FILE
    card = json.loads(path.read_text())
    *way, last = data.draw(st.sampled_from([p for p in places(card) if p]))
    inside = card
    for key in way:
        inside = inside[key]
    if data.draw(st.booleans()):
        inside[last] = value
    else:
        del inside[last]
    with contextlib.suppress(silodp.SilodpError):
        checked_card(path, card)


def test_a_file_that_claims_much_takes_no_more_than_expected(tmp_path):
    like = {"model": np.zeros((2, 3), np.float32)}
    whole = np.arange(6, dtype=np.float32).reshape(2, 3)
    read = read_arrays("file", arrays_content({"model": whole}), like)["model"]
    np.testing.assert_array_equal(read, whole)
    turned = read_arrays("file", arrays_content({"model": whole.T.copy().T}), like)["model"]
    np.testing.assert_array_equal(turned, whole)  # by columns

    def archive(content, name="model.npy", how=zipfile.ZIP_DEFLATED):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", how) as zipped:
            zipped.writestr(name, content)
        return file.getvalue()

    for content in (
        archive(bytes(100_000_000)),  # packed a thousand times
        archive(b"\x93NUMPY\x01\x00" + bytes(3)),
        archive(b"nothing"),
        archive(b"", name="another.npy"),
        arrays_content({"model": whole.astype(np.float64)}),
        arrays_content({"model": whole[:1]}),
        b"PK\x03\x04",
    ):
        with pytest.raises(silodp.SilodpError, match="does not hold the model"):
            read_arrays("file", content, like)


# The preparation, there and back

names = st.text(min_size=1, max_size=8)
finite = st.floats(allow_nan=False, allow_infinity=False)


def with_rules(column):
    """The column as it is, or with rules for odd values."""
    if not column.levels:
        ruled = st.builds(Column, st.just(column.name), by_value=st.just(True),
                          missing=st.none() | finite)  # fmt: skip
    else:
        place = st.none() | st.integers(NO_LEVEL, len(column.levels) - 1)
        ruled = st.tuples(place, place).map(
            lambda rules: replace(column, by_value=True, unlisted=rules[0], missing=rules[1])
        )
    return st.just(column) | ruled


@st.composite
def preparations(draw):
    texts = draw(st.lists(names, min_size=2, max_size=6, unique=True))
    *columns, target = texts
    levels = st.lists(st.text(max_size=4), min_size=1, max_size=4, unique=True).map(tuple)
    encoder = Encoder(
        tuple(
            draw(with_rules(Column(name, draw(levels), draw(st.booleans()))))
            if draw(st.booleans())
            else draw(with_rules(Column(name)))
            for name in columns
        )
    )
    numbers = int(encoder.is_number.sum())
    kind = (
        draw(st.sampled_from(("none", "standardised", "bounds", "unit norm")))
        if numbers
        else "none"
    )
    of_each = st.tuples(*[finite] * numbers) if kind in ("standardised", "bounds") else st.just(())
    task = draw(st.sampled_from(("regression", "binary", "multiclass")))
    ends = draw(st.none() | st.tuples(finite, finite).filter(lambda pair: pair[0] < pair[1]))
    if task != "regression":
        classes = draw(levels)
        aim = Target(target, task, classes, declared=draw(st.booleans()))
    elif draw(st.booleans()):
        aim = Target(target, task, range=ends, declared=ends is not None)
    else:
        aim = Target(target, task, spread=ends)
    width = len(encoder.feature_names)
    moments = st.tuples(*[finite] * width)
    noisy = Scaling("standardised", draw(moments), draw(moments)) if draw(st.booleans()) else None
    return Preparation(
        encoder,
        Scaling(kind, draw(of_each), draw(of_each)),
        aim,
        drop_missing=draw(st.booleans()),
        noisy=noisy,
        ready_made=draw(st.booleans()),
    )


@settings(deadline=None)
@given(preparations())
def test_a_card_keeps_the_preparation_to_the_bit(preparation):
    text = json.dumps(described(preparation), allow_nan=False)
    again = preparation_of_card("card", json.loads(text), preparation.target.task)
    assert again == preparation


def test_the_same_model_gives_the_same_file(home):
    path = handed(home, "north") / MODEL_FILE
    model = silodp.load_model(path.parent)
    assert arrays_content({"model": np.asarray(model.params)}) == path.read_bytes()
    assert os.stat(path).st_mode & 0o077 == 0  # for its owner alone


def test_results_without_models_have_no_cards():
    result = silodp.run(federation=small(), **RUN)
    assert result.cards is None
    assert list(handover_files(result)) == []
    assert "cards" not in result.as_json()


# --- the folder of a run, and whose model


def test_folders_are_named_after_silos():
    names = ["DL", "North Clinic", "Süd", "a/b", "a:b", "Ward", "ward", "..", "CON", "北京"]
    folders = folder_names(names)
    assert folders[:3] == ["DL", "North_Clinic", "Sud"]
    assert len({folder.casefold() for folder in folders}) == len(names)
    for folder in folders:
        assert re.fullmatch(r"[A-Za-z0-9][\w.-]*", folder)
        assert folder.casefold() != "con"


def test_a_silo_is_named_beside_the_run(home, cli, tmp_path):
    run = handed(home, "north").parent.parent
    new = tmp_path / "new.csv"
    patients(silos=("north",)).drop(columns="site").to_csv(new, index=False)
    done = cli("predict", run, new, "--silo", "north")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == cli("predict", handed(home, "north"), new).stdout
    for more, words in (
        ((), "say whose model, by --silo 'north' or 'south'"),
        (("--silo", "noth"), "no model of a silo 'noth' (--silo): did you mean 'north'?"),
    ):
        refused = cli("predict", run, new, *more)
        assert refused.exit_code == 2
        assert words in " ".join(refused.stderr.split())
    with pytest.raises(SilodpError, match="is the card of silo 'north', not of 'south'"):
        silodp.load_model(handed(home, "north"), silo="south")


def test_predictions_beside_the_rows_of_a_table(home, cli, tmp_path):
    frame = patients(silos=("north",)).drop(columns="site")
    frame.to_csv(tmp_path / "new.csv", index=False)
    alone = cli("predict", handed(home, "north"), tmp_path / "new.csv").stdout
    beside = cli("predict", handed(home, "north"), tmp_path / "new.csv", "--append").stdout
    own, both = (pd.read_csv(io.StringIO(text)) for text in (alone, beside))
    assert list(both.columns)[: len(frame.columns)] == list(frame.columns)
    assert both.iloc[:, len(frame.columns) :].equals(own.drop(columns="row"))
    for column in frame.columns:  # what was in the file, letter by letter
        text = pd.read_csv(tmp_path / "new.csv", dtype=str)[column]
        assert pd.read_csv(io.StringIO(beside), dtype=str)[column].equals(text)
