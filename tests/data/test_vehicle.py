import json
import math
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from cell_files import column, row, sensor_silos, write_cells
from hypothesis import given, settings
from hypothesis import strategies as st

from silodp.base.errors import SilodpError
from silodp.data.federation import Records
from silodp.data.registry import DataOptions, resolve
from silodp.data.scaling import STANDARDISED
from silodp.data.sources.sensors import STANDARDISED_BEFORE
from silodp.data.sources.vehicle import FILE, SOURCE
from silodp.data.split import PAPER_SPLIT, authors_seed, split_silo


@pytest.fixture
def real():
    """Options that lead to the real json, which the project may not hold itself."""
    folder = os.environ.get("SILODP_DATA")
    if not folder or not (Path(folder) / "vehicle" / FILE.names[2]).is_file():
        pytest.skip(f"SILODP_DATA has no vehicle/{FILE.names[2]}")
    # That folder itself, so that a vehicle.mat elsewhere is not taken instead.
    return DataOptions(data_dir=Path(folder) / "vehicle")


def leaf(xs, ys, brackets=True):
    users = [f"f_{index:05d}" for index in range(len(xs))]
    data = {
        user: {"x": x.tolist(), "y": (y if brackets else y.ravel()).tolist()}
        for user, x, y in zip(users, xs, ys, strict=True)
    }
    return {"users": users, "num_samples": [len(x) for x in xs], "user_data": data}


def everything(federation):
    return np.concatenate([np.concatenate([s.train.x, s.test.x]) for s in federation.silos])


# --- the real json


def test_real_json(real):
    federation = SOURCE.load(0, real)
    assert (len(federation.silos), federation.input_shape) == (23, (100,))
    assert (federation.names[0], federation.names[-1]) == ("f_00000", "f_00022")
    counts = federation.train_counts + federation.test_counts
    assert (counts.sum(), counts.min(), counts.max()) == (1860, 7, 534)
    assert federation.uncovered == (STANDARDISED_BEFORE, PAPER_SPLIT)
    # Left as it is by "paper".
    raw = json.loads((real.data_dir / FILE.names[2]).read_text())
    silo = federation.silos[3]
    x = np.array(raw["user_data"][silo.name]["x"], np.float32)
    np.testing.assert_array_equal(
        np.unique(np.concatenate([silo.train.x, silo.test.x]), axis=0), np.unique(x, axis=0)
    )


def test_real_json_has_both_classes_in_every_silo(real):
    for seed in range(10):
        for silo in SOURCE.load(seed, real).silos:
            assert len(np.unique(silo.train.y)) == 2


@pytest.mark.slow
def test_private_run_on_the_real_json(real, cli, tmp_path):
    out = tmp_path / "out"
    done = cli(
        *("run", "--data", "vehicle", "--data-dir", real.data_dir),
        *("--epsilon", 1, "--rounds", 1, "--out", out),
    )
    assert done.exit_code == 0, done.stderr
    result = json.loads((out / "result.json").read_text())
    assert len(result["privacy"]) == 23
    assert all(0.99 < silo["epsilon"] <= 1 for silo in result["privacy"])
    assert not any(silo["proven"] for silo in result["privacy"])
    assert 0 <= result["test"]["mean"] <= 1


# --- written files


@pytest.mark.parametrize("name", FILE.names)
@pytest.mark.parametrize("kind", ["row", "column", "json", "json without brackets"])
def test_told_apart_by_content(tmp_path, name, kind):
    xs, ys = sensor_silos()
    if kind.startswith("json"):
        content = json.dumps(leaf(xs, ys, brackets=kind == "json"))
        (tmp_path / name).write_text("\n " + content)
    else:
        write_cells(tmp_path / "file.mat", xs, ys, row if kind == "row" else column)
        (tmp_path / "file.mat").rename(tmp_path / name)
    federation = SOURCE.load(0, DataOptions(data_dir=tmp_path, preprocess="none"))
    assert federation.names[0] == ("f_00000" if kind.startswith("json") else "sensor-001")
    before = (STANDARDISED_BEFORE,) if kind.startswith("json") else ()
    assert federation.uncovered == (*before, PAPER_SPLIT)
    assert federation.test_counts.tolist() == [3, 6, 10]
    expected = np.concatenate(xs).astype(np.float32)
    np.testing.assert_array_equal(
        np.sort(everything(federation), axis=0), np.sort(expected, axis=0)
    )


def test_the_full_file_goes_first(tmp_path):
    xs, ys = sensor_silos()
    (tmp_path / "vehicle.json").write_text(json.dumps(leaf(xs, ys)))
    write_cells(tmp_path / "vehicle.mat", xs[:2], ys[:2])
    assert len(SOURCE.load(0, DataOptions(data_dir=tmp_path)).silos) == 2


@pytest.mark.parametrize("density", [None, 0.5])
def test_standardisation_equals_scikit_learn(tmp_path, density):
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    xs, ys = sensor_silos(sizes=(40, 61))
    xs[0][:, 2] = 0.1  # without any variance
    write_cells(tmp_path / "vehicle.mat", xs, ys)
    federation = SOURCE.load(3, DataOptions(data_dir=tmp_path, density=density))
    assert federation.uncovered == (STANDARDISED, PAPER_SPLIT)
    assert (federation.declared, federation.feature_bound) == (("class list",), None)
    assert federation.train_counts.tolist() == ([30, 45] if density is None else [15, 22])
    for silo, x, y in zip(federation.silos, xs, ys, strict=True):
        records = Records(x, y.ravel())
        train, test, _ = split_silo(silo.name, records, 0.25, authors_seed(3), density)
        scaler = preprocessing.StandardScaler().fit(train.x)
        np.testing.assert_allclose(silo.train.x, scaler.transform(train.x), atol=1e-5)
        np.testing.assert_allclose(silo.test.x, scaler.transform(test.x), atol=1e-5)
        np.testing.assert_array_equal(silo.train.y, train.y)
        np.testing.assert_array_equal(silo.test.y, test.y)


@pytest.mark.parametrize("from_json", [False, True])
def test_norm(tmp_path, from_json):
    xs, ys = sensor_silos()
    xs[0][4] = 0
    if from_json:
        (tmp_path / "vehicle.json").write_text(json.dumps(leaf(xs, ys)))
    else:
        write_cells(tmp_path / "vehicle.mat", xs, ys)
    federation = SOURCE.load(0, DataOptions(data_dir=tmp_path, preprocess="norm"))
    norms = np.linalg.norm(everything(federation), axis=1)
    assert (norms == 0).sum() == 1
    np.testing.assert_allclose(norms[norms > 0], 1, rtol=1e-6)
    assert federation.feature_bound == 1.0
    assert federation.declared == ("class list",)
    assert federation.uncovered == (
        *((STANDARDISED_BEFORE,) if from_json else ()),
        PAPER_SPLIT,
    )


def test_wrong_cells(tmp_path):
    xs, ys = sensor_silos()
    options = DataOptions(data_dir=tmp_path)

    def refused(words, xs=xs, ys=ys):
        write_cells(tmp_path / "vehicle.mat", xs, ys)
        with pytest.raises(SilodpError, match=words):
            SOURCE.load(0, options)

    refused("'sensor-001': Y holds the label 0, but -1 and", ys=[(y + 1) / 2 for y in ys])
    refused("'sensor-003': Y holds the label 2, but -1", ys=[*ys[:2], 2 * np.abs(ys[2])])
    refused("'sensor-002': Y holds the label nan", ys=[ys[0], ys[1] * np.nan, ys[2]])
    unknown, huge = xs[1].copy(), xs[1].copy()
    unknown[2, 2], huge[2, 2] = np.nan, 1e200
    refused("'sensor-002': X holds NaN, ", xs=[xs[0], unknown, xs[2]])
    refused("'sensor-002': X holds NaN, .* beyond 1e", xs=[xs[0], huge, xs[2]])
    refused("'sensor-002': X has shape", xs=[xs[0], xs[1][:, :4], xs[2]])
    refused("'sensor-002': X has shape", ys=[ys[0], ys[1][1:], ys[2]])
    refused("'sensor-001' has 1 record, too few", [xs[0][:1], *xs[1:]], [ys[0][:1], *ys[1:]])
    refused("plain matrix of numbers", xs=["words", *xs[1:]])
    refused("3 sensors in X, but 2 in Y: .*silodp data get vehicle", ys=ys[:2])


def test_damaged_cells(tmp_path):
    write_cells(tmp_path / "vehicle.mat", *sensor_silos())
    whole = (tmp_path / "vehicle.mat").read_bytes()
    for content in (b"", b"words", whole[:3], whole[:200], whole[: len(whole) // 2], whole[1:]):
        (tmp_path / "vehicle.mat").write_bytes(content)
        with pytest.raises(SilodpError, match="silodp data get vehicle"):
            SOURCE.load(0, DataOptions(data_dir=tmp_path))


def changed(**fields):
    """A json with other fields, and with other data of its second user."""
    content = leaf(*sensor_silos(sizes=(8, 12), features=2))
    user = content["user_data"]["f_00001"]
    user.update({field: fields.pop(field) for field in ("x", "y") if field in fields})
    return json.dumps({**content, **fields})


def twelve(record):
    return [[1.0, 2.0]] * 11 + [record]


@pytest.mark.parametrize(
    ("words", "content"),
    [
        ("cannot be read as json", "{ this is not json"),
        ("cannot be read as json", changed()[:-40]),
        ("cannot be read as json", b"{\xff\xfe\x80}"),
        ("nested too deeply", '{"users":' + "[" * 200_000),
        ("nested too deeply", '{"a":' * 200_000),
        ("neither as a MATLAB file nor as json", "[1, 2]"),
        ("it holds NaN", changed(x=twelve([1.0, math.nan]))),
        ("it holds -Infinity", changed(y=[[-math.inf]] * 12)),
        ("'f_00001': X holds NaN, infinite", changed(x=twelve([1, 5])).replace(" 5]", " 1e999]")),
        ("'f_00001': X holds NaN, infinite", changed(x=twelve([1, 10**400]))),
        ("'f_00001': X holds .* beyond 1e", changed(x=twelve([1, 1e200]))),
        ("'f_00001': Y holds the label inf", changed(y=[1] * 11 + [5]).replace(" 5]", " 1e999]")),
        ("'f_00001': Y holds the label 0, but -1 and", changed(y=[0, 1] * 6)),
        ("has not the lists users", json.dumps({"users": ["a"], "num_samples": [1]})),
        ("has not the lists users", changed(users="f_00000")),
        ("2 users, but num_samples are not as many numbers", changed(num_samples=[8])),
        ("2 users, but num_samples are not", changed(num_samples=[8, "12"])),
        ("0 users", changed(users=[], num_samples=[])),
        ("each must be named once", changed(users=["f_00000", "f_00000"])),
        ("each must be named once", changed(users=["f_00000", "other"])),
        ("each must be named once", changed(users=["f_00000"], num_samples=[8])),
        ("not printable", changed(users=["f_00000", 1])),
        ("not printable", changed(users=["f_00000", "\ud800"])),
        ("'f_00001': num_samples is 11, but x has 12", changed(num_samples=[8, 11])),
        ("'f_00000': user_data has no x and y", changed(user_data={"f_00000": [], "f_00001": []})),
        ("'f_00001': x is not a list of records", changed(x=twelve([1.0]))),
        ("'f_00001': x is not a list of records", changed(x=twelve([1.0, "2"]))),
        ("'f_00001': x is not a list of records", changed(x=twelve([1.0, None]))),
        ("'f_00001': x is not a list of records", changed(x=twelve([1.0, True]))),
        ("'f_00001': x is not a list of records", changed(x=twelve([1.0, [2.0]]))),
        ("'f_00001': x is not a list of records", changed(x=[1.0] * 12)),
        ("'f_00001': x is not a list of records", changed(x=[[]] * 12)),
        ("'f_00001': x is not a list of records", changed(x=[])),
        ("'f_00001': x has 3 features, but silo 'f_00000' has 2", changed(x=[[1.0] * 3] * 12)),
        ("'f_00001': y is not a list of one number", changed(y="1" * 12)),
        ("'f_00001': y is not a list of one number", changed(y=[[1, 1]] * 12)),
        ("'f_00001': y is not a list of one number", changed(y=[1, "-1"] * 6)),
        ("'f_00001': x has 12 records, but y has 6", changed(y=[1, -1] * 3)),
    ],
)
def test_wrong_json(tmp_path, words, content):
    content = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "vehicle.json").write_bytes(content)
    with pytest.raises(SilodpError, match=words) as error:
        SOURCE.load(0, DataOptions(data_dir=tmp_path))
    str(error.value).encode()  # can be printed
    assert "vehicle.json" in str(error.value)


SMALL_JSON = changed(x=[[0.5, -1.0]] * 12).encode()


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_damaged_json_is_read_or_refused(data):
    content = bytearray(SMALL_JSON)
    for _ in range(data.draw(st.integers(0, 2))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "vehicle.json").write_bytes(content)
        try:
            SOURCE.load(0, DataOptions(data_dir=Path(folder)))
        except SilodpError:
            return


def test_missing_file(tmp_path, monkeypatch):
    monkeypatch.delenv("SILODP_DATA", raising=False)
    with pytest.raises(SilodpError, match=r"vehicle.mat was.*other names.*data get vehicle"):
        SOURCE.load(0, DataOptions(data_dir=tmp_path))


def test_defaults_are_the_papers():
    defaults = resolve("vehicle").defaults
    assert (defaults.model, defaults.rounds, defaults.batch_size) == ("svm", 400, 64)
    assert (defaults.clip, defaults.lr, defaults.delta) == (6, 0.01, 1e-7)
    assert (defaults.preprocess, defaults.small_silos) == ("paper", "full-batch")
