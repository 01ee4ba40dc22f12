import json

import numpy as np
import pytest
from cell_files import column, row, sensor_silos, write_cells

from silodp.base.errors import SilodpError
from silodp.data.registry import SOURCES, DataOptions, resolve
from silodp.data.scaling import STANDARDISED
from silodp.data.sources.gleam import FILE, SOURCE
from silodp.data.split import PAPER_SPLIT


def test_rows_and_columns_of_cells_are_alike(tmp_path):
    xs, ys = sensor_silos(features=180)
    loaded = []
    for cells in (row, column):
        write_cells(tmp_path / FILE.name, xs, ys, cells)
        loaded.append(SOURCE.load(0, DataOptions(data_dir=tmp_path)))
    first, second = loaded
    assert first.names == second.names == ("wearer-001", "wearer-002", "wearer-003")
    assert first.input_shape == (180,)
    assert first.uncovered == (STANDARDISED, PAPER_SPLIT)
    assert first.test_counts.tolist() == [3, 6, 10]  # a quarter, rounded up
    for one, other in zip(first.silos, second.silos, strict=True):
        np.testing.assert_array_equal(one.train.x, other.train.x)
        np.testing.assert_allclose(one.train.x.mean(axis=0), 0, atol=1e-6)
        np.testing.assert_array_equal(one.test.y, other.test.y)


def test_is_read_as_vehicle_is(tmp_path):
    xs, ys = sensor_silos(sizes=(30, 50))
    for source in (SOURCE, SOURCES["vehicle"]):
        write_cells(tmp_path / source.files[0].name, xs, ys)
    for preprocess in ("paper", "norm", "none"):
        options = DataOptions(
            data_dir=tmp_path, preprocess=preprocess, density=0.5, test_fraction=0.3
        )
        mine, theirs = SOURCE.load(2, options), SOURCES["vehicle"].load(2, options)
        assert (mine.uncovered, mine.declared) == (theirs.uncovered, theirs.declared)
        for one, other in zip(mine.silos, theirs.silos, strict=True):
            np.testing.assert_array_equal(one.train.x, other.train.x)
            np.testing.assert_array_equal(one.test.x, other.test.x)


def test_wrong_files(tmp_path):
    xs, ys = sensor_silos()
    write_cells(tmp_path / FILE.name, xs, [(y + 1) / 2 for y in ys])
    with pytest.raises(SilodpError, match="'wearer-001': Y holds the label 0, but -1 and"):
        SOURCE.load(0, DataOptions(data_dir=tmp_path))
    (tmp_path / FILE.name).write_text('{"users": []}')
    with pytest.raises(SilodpError, match=r"as a MATLAB file .*silodp data get gleam"):
        SOURCE.load(0, DataOptions(data_dir=tmp_path))


def test_private_run(tmp_path, cli):
    write_cells(tmp_path / FILE.name, *sensor_silos(sizes=(90, 100), features=180))
    out = tmp_path / "out"
    done = cli(
        *("run", "--data", "gleam", "--data-dir", tmp_path, "--preprocess", "norm"),
        *("--epsilon", 1, "--rounds", 1, "--split", "coin", "--out", out),
    )
    assert done.exit_code == 0, done.stderr
    privacy = json.loads((out / "result.json").read_text())["privacy"]
    assert [silo["silo"] for silo in privacy] == ["wearer-001", "wearer-002"]
    assert all(not silo["unproven"] and silo["delta"] == 1e-4 for silo in privacy)


def test_defaults_are_the_papers():
    defaults = resolve("gleam").defaults
    assert (defaults.model, defaults.rounds, defaults.batch_size) == ("svm", 200, 64)
    assert (defaults.clip, defaults.lr, defaults.delta) == (6, 0.01, 1e-4)
    assert (defaults.preprocess, defaults.small_silos) == ("paper", "refuse")
