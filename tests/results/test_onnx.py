"""A model as ONNX says what silodp says."""

import json
import sys

import numpy as np
import pytest
from cell_files import sensor_silos, write_cells
from federations import small
from handovers import RUN, handed, loaded_from_memory, patients, trained

import silodp
from silodp.results.model_export.onnx_file import onnx_content

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.usefixtures("kept_programs")


def run(content, features):
    """The graph's results by name, from another program's hands."""
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"features": features}), strict=True))


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("score", {}),
        ("score", {"preprocess": "none", "lr": 1e-5}),
        ("score", {"declared": {"range": [20, 60]}}),
        ("score", {"declared": {"range": [20, 60]}, "statistics_share": 0.3}),
        ("ill", {}),
        ("ill", {"model": "svm"}),
        ("grade", {"declared": {"classes": ["0", "1", "2"]}}),
    ],
)
def test_tables(cli, tmp_path, target, options):
    frame = patients()
    trained(frame, tmp_path, target, **options)
    folder, file = handed(tmp_path, "south"), tmp_path / "model.onnx"
    done = cli("export", folder, "--out", file, "--quiet")
    assert done.exit_code == 0, done.stderr
    model = silodp.load_model(folder)
    said = model.predict(frame)
    encoded = model.about.preparation.encoder.encode("", frame)
    results = run(file.read_bytes(), encoded)
    if target == "score":
        assert set(results) == {"prediction"}
        np.testing.assert_allclose(results["prediction"], said.values, rtol=1e-5)
    else:
        scores = said.outputs.reshape(len(frame), -1)
        np.testing.assert_allclose(results["scores"], scores, rtol=1e-4, atol=1e-6)
        if said.probabilities is None:
            assert set(results) == {"scores"}
        else:
            np.testing.assert_allclose(results["probabilities"], said.probabilities, atol=1e-6)
    about = {entry.key: json.loads(entry.value) for entry in onnx.load(file).metadata_props}
    assert len(about["features"]) == encoded.shape[1]
    assert about["card"] == model.card
    assert about["target"] == target


def test_records_of_norm_one(tmp_path):
    write_cells(tmp_path / "vehicle.mat", *sensor_silos())
    result = silodp.run(
        data="vehicle", data_dir=tmp_path, preprocess="norm", keep_models=True, **RUN
    )
    model = loaded_from_memory(result)[0]
    raw = np.random.default_rng(0).normal(2, 3, (20, 5))
    raw[3] = 0  # stays so
    prepared = model.about.preparation.scaled(raw).astype(np.float32)
    expected = model.predict(prepared).outputs[:, None]
    got = run(onnx_content(model), raw)["scores"]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("statistics", [pytest.param(0.0, marks=pytest.mark.slow), 0.3])
def test_images(statistics):
    rng = np.random.default_rng(0)

    def records(n):
        x = rng.integers(0, 256, (n, 13, 15, 2)).astype(np.uint8)
        return silodp.Records(x, np.arange(n) % 3)

    silos = tuple(silodp.Silo(name, records(40), records(10)) for name in "ab")
    federation = silodp.Federation("bytes", silos, "multiclass", 3, pixels=(-1.0, 1.0))
    result = silodp.run(
        federation=federation,
        model="convnet",
        keep_models=True,
        statistics_share=statistics,
        **RUN | {"rounds": 1},
    )
    model = loaded_from_memory(result)[1]
    x = silos[1].test.x
    results = run(onnx_content(model), x)
    said = model.predict(x)
    np.testing.assert_allclose(results["scores"], said.outputs, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(results["probabilities"], said.probabilities, atol=1e-4)


def test_what_cannot_be_written_is_said(tmp_path, cli, sentence, monkeypatch):
    trained(patients(), tmp_path)
    folder, out = handed(tmp_path, "north"), tmp_path / "model.onnx"
    out.write_text("mine")
    assert "already" in sentence(cli("export", folder, "--out", out))
    assert out.read_text() == "mine"
    monkeypatch.setitem(sys.modules, "onnx", None)
    told = sentence(cli("export", folder, "--out", tmp_path / "other.onnx"))
    assert "silodp[onnx]" in told
    assert not (tmp_path / "other.onnx").exists()
    monkeypatch.undo()
    own = silodp.custom_model(lambda key: np.zeros(4, np.float32), lambda p, x: x @ p, "regression")
    result = silodp.run(federation=small(), custom_model=own, keep_models=True, **RUN)
    with pytest.raises(silodp.SilodpError, match="a custom one"):
        onnx_content(loaded_from_memory(result, custom_model=own)[0])
