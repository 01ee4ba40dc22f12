"""From a folder of images, or a table with texts, to predictions: the whole way, with no code."""

import json

import numpy as np
import pandas as pd
import pytest
from encoders import letters, onnx_network
from pictures import draw

import silodp
from silodp.base.errors import SilodpError
from silodp.results.model_export.card import read_card
from silodp.results.model_export.personal_model import load_model
from silodp.results.result import read_result

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytestmark = pytest.mark.usefixtures("kept_programs")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder of images, a network, and a run with features that it makes."""
    folder = tmp_path_factory.mktemp("home")
    for number, (silo, name) in enumerate(
        (silo, name) for silo in ("north", "south") for name in ("benign", "malign")
    ):
        for image in range(15):
            draw(folder / "scans" / silo / name / f"{image}.png", 100 * number + image, side=8)
    onnx_network(folder / "net.onnx")
    (folder / "net.toml").write_text('licence = "MIT"\ntrained_on = "clouds"\n')
    (folder / "schema.toml").write_text(
        '[features]\nimage = "net.onnx"\n[target]\nclasses = ["benign", "malign"]\n'
    )
    silodp.run(
        data=str(folder / "scans"),
        schema=folder / "schema.toml",
        method="fewround",
        epsilon=8,
        keep_models=True,
        out=folder / "run",
    )
    return folder


def test_name_hash_licence_and_training_data_are_told(home):
    result = read_result(home / "run")
    (encoder,) = result.encoders
    assert (encoder["name"], encoder["licence"]) == ("net.onnx", "MIT")
    (said,) = [words for words in result.assumptions if "encoder" in words]
    assert "trained on: clouds" in said
    assert encoder["sha256"][:16] in said
    assert "is public" in said
    card = load_model(home / "run", silo="north").about
    (column,) = card.preparation.encoder.columns
    assert column.encoder.sha256 == encoder["sha256"]
    readable = (card.path.parent / "card.md").read_text()
    assert encoder["sha256"][:16] in readable
    assert "Taken for granted: the encoder" in readable
    from silodp.report import write_report

    page = write_report([home / "run"], home / "report.html", overwrite=True).read_text()
    assert encoder["sha256"][:16] in page


def test_a_plan_tells_it_too(home, cli):
    done = cli(
        *("plan", "--data", home / "scans", "--features", home / "net.onnx"),
        *("--epsilon", 8, "--method", "fewround"),
    )
    assert done.exit_code == 0, done.stderr
    assert "'net.onnx'" in done.stdout
    assert "that it is public is assumed" in " ".join(done.stdout.split())


def predicted(cli, home, *more):
    done = cli("predict", home / "run", "--silo", "north", *more)
    assert done.exit_code == 0, done.stderr
    return done.stdout.splitlines()


def test_pictures_and_folders_of_them(home, cli):
    given = ("--features", home / "net.onnx")
    header, *rows = predicted(cli, home, home / "scans" / "north" / "malign", *given)
    assert header == "image,prediction,probability of benign,probability of malign"
    assert len(rows) == 15
    _, row = predicted(cli, home, home / "scans" / "north" / "malign" / "3.png", *given)
    assert row in rows


def test_a_picture_is_what_it_was_in_training(home):
    model = load_model(home / "run", silo="north", encoders=[home / "net.onnx"])
    path = home / "scans" / "north" / "benign" / "2.png"
    by_path = model.predict(pd.DataFrame({"image": [str(path)]}))
    federation = silodp.Federation.from_images(
        home / "scans", features=str(home / "net.onnx"), classes=["benign", "malign"]
    )
    silo = federation.silos[0]
    x = np.concatenate([silo.train.x, silo.test.x])
    (same,) = np.flatnonzero((x == model.features(pd.DataFrame({"image": [str(path)]}))).all(1))
    np.testing.assert_array_equal(by_path.outputs, model.predict(x[same : same + 1]).outputs)


def test_another_encoder_is_refused(home, cli, tmp_path):
    other = tmp_path / "net.onnx"
    onnx_network(other, seed=1)
    place = home / "scans" / "north" / "malign"
    done = cli("predict", home / "run", "--silo", "north", place, "--features", other)
    assert done.exit_code == 2
    assert "another encoder" in done.stderr
    done = cli("predict", home / "run", "--silo", "north", place, "--features", "scattering")
    assert done.exit_code == 2


def test_without_the_file(home, cli, monkeypatch):
    from silodp.data.encoders import encoder as encoders

    monkeypatch.setattr(encoders, "_ready", {})
    place = home / "scans" / "north" / "malign"
    done = cli("predict", home / "run", "--silo", "north", place)
    assert done.exit_code == 2
    assert "does not come with the model" in done.stderr


def test_what_predict_takes(home, cli, tmp_path):
    for more, words in (
        ((), "one of both"),
        (("--text", "a"), "no text"),
        ((tmp_path,), "holds no images"),
        ((tmp_path / "no.png",), "does not exist"),
    ):
        done = cli("predict", home / "run", "--silo", "north", *more)
        assert done.exit_code == 2, words
        assert words in " ".join(done.stderr.split())


def test_other_columns_of_a_folder(home, cli):
    done = cli("data", "check", home / "scans", "--features", "review=scattering")
    assert done.exit_code == 2
    assert "no column 'review'" in " ".join((done.stdout + done.stderr).split())


# --- texts


def reviews(rows=60):
    return pd.DataFrame(
        {
            "shop": ["a", "b"] * (rows // 2),
            "review": [f"{'seen and read' if n % 3 else 'torn'} {n}" for n in range(rows)],
            "liked": ["yes" if n % 3 else "no" for n in range(rows)],
        }
    )


def own(version="1"):
    return silodp.encoder(letters, takes="text", name="letters", version=version)


def test_texts_by_a_function(tmp_path, monkeypatch, cli):
    result = silodp.fit(
        reviews(),
        silo="shop",
        target="liked",
        classes=["no", "yes"],
        encoders={"review": own()},
        method="fewround",
        epsilon=8,
        out=tmp_path / "run",
    )
    assert result.predict(reviews()).isin(["no", "yes"]).all()
    done = cli("predict", tmp_path / "run", "--silo", "a", "--text", "seen and read")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith("1,")
    from silodp.data.encoders import encoder as encoders

    monkeypatch.setattr(encoders, "_ready", {})
    frame = reviews().head(3)
    with pytest.raises(SilodpError, match="does not come with the model"):
        load_model(tmp_path / "run", silo="a").predict(frame)
    with pytest.raises(SilodpError, match="another encoder"):
        load_model(tmp_path / "run", silo="a", encoders=[own("2")])
    model = load_model(tmp_path / "run", silo="a", encoders=[own()])
    assert model.only_encoded == "text"
    assert len(model.predict(frame).values) == 3
    card = json.loads(read_card(tmp_path / "run", "a").path.read_text())
    assert card["preparation"]["columns"][0]["encoder"]["name"] == "letters"


def test_sites_say_that_they_make_none():
    from silodp.sites.agreed_schema import agreed_schema

    with pytest.raises(SilodpError, match="not made at sites yet"):
        agreed_schema("fed.toml: [schema]", {"target": "y", "features": {"review": "minilm"}})


def test_a_proposed_schema_keeps_them(tmp_path, cli):
    path = tmp_path / "photos.csv"
    names = [f"{n}.png" for n in range(24)]
    for n, name in enumerate(names):
        draw(tmp_path / name, n)
    pd.DataFrame({"photo": names, "silo": ["a", "b"] * 12, "score": range(24)}).to_csv(
        path, index=False
    )
    out = tmp_path / "schema.toml"
    done = cli(
        *("data", "check", path, "--silo-column", "silo", "--target", "score"),
        *("--task", "regression", "--features", "photo=scattering", "--write-schema", out),
    )
    assert done.exit_code == 0, done.stderr + done.stdout
    assert "[features]" in out.read_text()
    assert 'photo = "scattering"' in out.read_text()
