import contextlib
import io
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from cell_files import row as cells
from hypothesis import given, settings
from hypothesis import strategies as st

from silodp.base.errors import SilodpError
from silodp.base.text import numbered
from silodp.data.files import has_checksum
from silodp.data.registry import SOURCES, DataOptions, resolve
from silodp.data.sources.cell_silos import read_cell_silos
from silodp.data.sources.school import COLUMN_BOUNDS, FILE
from silodp.data.split import PAPER_SPLIT

SCHOOL = SOURCES["school"]


@pytest.fixture
def real():
    """Options that lead to the real file, which the project may not hold itself."""
    folder = os.environ.get("SILODP_DATA")
    if not folder or not (Path(folder) / "school" / FILE.name).is_file():
        pytest.skip("SILODP_DATA has no school/school.mat")
    return DataOptions(data_dir=Path(folder))


def schools(sizes=(10, 25, 40), features=28, dtype="u1", seed=0):
    rng = np.random.default_rng(seed)
    xs = [rng.integers(0, 2, (size, features)).astype(dtype) for size in sizes]
    ys = [rng.integers(1, 71, (size, 1)).astype(dtype) for size in sizes]
    return xs, ys


def written(folder, xs, ys, **more):
    scipy.io.savemat(folder / "school.mat", {"X": cells(*xs), "Y": cells(*ys), **more})
    return DataOptions(data_dir=folder)


def small_file(compressed):
    xs, ys = schools(sizes=(4, 5), features=3)
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, {"X": cells(*xs), "Y": cells(*ys)}, do_compression=compressed)
    return buffer.getvalue()


SMALL_FILES = {compressed: small_file(compressed) for compressed in (False, True)}

# --- the real file


def real_schools(options):
    path = options.data_dir / "school" / FILE.name
    return list(read_cell_silos("school", "school", path).values())


def test_real_file(real):
    assert has_checksum(real.data_dir / "school" / FILE.name, FILE.checksum)
    raw = real_schools(real)
    assert len(raw) == 139
    assert {school.x.shape[1] for school in raw} == {28}
    assert sum(map(len, raw)) == 15362
    scores = np.concatenate([school.y for school in raw])
    assert (scores.min(), scores.max()) == (1, 70)


def test_real_file_has_the_columns_of_the_code_book(real):
    x = np.concatenate([school.x for school in real_schools(real)])
    low, high = np.array(COLUMN_BOUNDS).T
    assert ((x >= low) & (x <= high)).all()
    # Year, gender, school gender and denomination: one indicator of each group is 1 at most.
    for first, after in ((0, 3), (5, 7), (7, 10), (10, 21), (21, 24), (24, 27)):
        assert set(np.unique(x[:, first:after].sum(axis=1))) <= {0, 1}
    assert (x[:, 27] == 1).all()


def test_real_federation(real):
    federation = SCHOOL.load(0, real)
    assert federation.names[0] == "school-001"
    assert federation.names[-1] == "school-139"
    assert federation.input_shape == (28,)
    assert federation.feature_names[3] == "school: free meals"
    assert federation.task == "regression"
    assert (federation.train_counts.min(), federation.train_counts.max()) == (17, 200)
    assert (federation.train_counts + federation.test_counts).sum() == 15362
    y = np.concatenate([np.concatenate([s.train.y, s.test.y]) for s in federation.silos])
    assert (y.min(), y.max()) == (0, 1)
    assert federation.uncovered == (PAPER_SPLIT,)  # epsilon covers all else that is done
    assert federation.declared == ("feature bounds", "label range")
    assert federation.feature_bound == 1.0
    paper = SCHOOL.load(0, replace(real, preprocess="paper"))
    assert "standardised" in paper.uncovered[0]
    assert paper.declared == ("label range",)
    assert paper.feature_bound is None


# The appendix's three splits; the first is the one of the paper's figures.
@pytest.mark.parametrize(("seed", "fraction"), [(0, 0.2), (3, 0.2), (0, 0.5), (0, 0.8)])
def test_real_split_and_scaling_equal_scikit_learn(real, seed, fraction):
    model_selection = pytest.importorskip("sklearn.model_selection")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    options = replace(real, preprocess="paper", test_fraction=fraction)
    federation = SCHOOL.load(seed, options)
    for silo, school in zip(federation.silos, real_schools(real), strict=True):
        x_train, x_test, y_train, y_test = model_selection.train_test_split(
            school.x, (school.y - 1) / 69, test_size=fraction, random_state=100 + 1000 * seed
        )
        assert (len(silo.train), len(silo.test)) == (len(y_train), len(y_test))
        scaler = preprocessing.StandardScaler().fit(x_train)
        np.testing.assert_allclose(silo.train.x, scaler.transform(x_train), atol=1e-5)
        np.testing.assert_allclose(silo.test.x, scaler.transform(x_test), atol=1e-4)
        np.testing.assert_allclose(silo.train.y, y_train, atol=1e-6)
        np.testing.assert_allclose(silo.test.y, y_test, atol=1e-6)


@pytest.mark.parametrize(
    ("fraction", "least", "most"), [(0.2, 17, 200), (0.5, 11, 125), (0.8, 4, 50)]
)
def test_real_counts(real, fraction, least, most):
    federation = SCHOOL.load(0, replace(real, test_fraction=fraction))
    assert (federation.train_counts.min(), federation.train_counts.max()) == (least, most)
    assert (federation.train_counts + federation.test_counts).sum() == 15362


def test_real_density(real):
    whole = SCHOOL.load(2, real)
    half = SCHOOL.load(2, replace(real, density=0.5))
    np.testing.assert_array_equal(half.train_counts, whole.train_counts // 2)
    for thinned, silo in zip(half.silos, whole.silos, strict=True):
        np.testing.assert_array_equal(thinned.test.x, silo.test.x)
        np.testing.assert_array_equal(thinned.test.y, silo.test.y)
        rows = {tuple(record) for record in np.column_stack([silo.train.x, silo.train.y]).tolist()}
        kept = np.column_stack([thinned.train.x, thinned.train.y]).tolist()
        assert {tuple(record) for record in kept} <= rows


def test_by_coins_nothing_is_uncovered_and_seeds_share_what_is_public(real):
    one, two = (SCHOOL.load(seed, replace(real, split="coin")) for seed in (0, 1))
    assert one.uncovered == ()
    np.testing.assert_array_equal(one.public_counts, two.public_counts)
    totals = [silo.max_count for silo in one.silos]
    np.testing.assert_array_equal(one.train_counts + one.test_counts, totals)
    # Of 15,362 students, each by a coin.
    assert one.test_counts.sum() == pytest.approx(0.2 * 15362, abs=4.5 * np.sqrt(0.16 * 15362))
    assert (one.train_counts != two.train_counts).mean() > 0.8


def test_real_bounds(real):
    federation = SCHOOL.load(0, DataOptions(data_dir=real.data_dir, preprocess="bounds"))
    assert federation.uncovered == (PAPER_SPLIT,)
    x = np.concatenate([silo.train.x for silo in federation.silos])
    assert (np.abs(x) <= 1).all()
    assert (x[:, 27] == 1).all()


# --- written files


def test_preprocess_none_keeps_the_numbers(tmp_path):
    xs, ys = schools()
    xs[0][:, 3] = 200  # in one byte, 200 + 200 would be 144
    options = written(tmp_path, xs, ys)
    federation = SCHOOL.load(1, DataOptions(data_dir=tmp_path, preprocess="none"))
    assert federation.uncovered == (PAPER_SPLIT,)
    silo = federation.silos[0]
    assert (np.concatenate([silo.train.x, silo.test.x])[:, 3] == 200).all()
    got = np.concatenate([silo.train.y, silo.test.y])
    np.testing.assert_allclose(np.sort(got), np.sort((ys[0].ravel().astype(float) - 1) / 69))
    paper = SCHOOL.load(1, replace(options, preprocess="paper"))
    np.testing.assert_allclose(paper.silos[0].train.x.mean(axis=0), 0, atol=1e-6)
    assert (paper.silos[0].train.x[:, 3] == 0).all()


def test_bounds_clip_into_the_code_book(tmp_path):
    xs, ys = schools()
    xs[0][:, 3] = 200
    written(tmp_path, xs, ys)
    federation = SCHOOL.load(0, DataOptions(data_dir=tmp_path, preprocess="bounds"))
    assert (federation.silos[0].train.x[:, 3] == 1).all()
    assert set(np.unique(federation.silos[0].train.x[:, 0])) == {-1, 1}


def test_seeds_and_fractions(tmp_path):
    options = written(tmp_path, *schools())
    first, again, other = SCHOOL.load(0, options), SCHOOL.load(0, options), SCHOOL.load(1, options)
    np.testing.assert_array_equal(first.silos[1].train.x, again.silos[1].train.x)
    assert not np.array_equal(first.silos[1].train.y, other.silos[1].train.y)
    np.testing.assert_array_equal(first.train_counts, other.train_counts)
    half = SCHOOL.load(0, DataOptions(data_dir=tmp_path, test_fraction=0.5))
    assert half.test_counts.tolist() == [5, 13, 20]


def test_another_file_of_the_same_layout(tmp_path):
    options = written(tmp_path, *schools(sizes=(5, 6), features=3, dtype="f8"))
    other = SCHOOL.load(0, replace(options, preprocess="paper"))
    assert (other.input_shape, other.feature_names) == ((3,), ())
    with pytest.raises(SilodpError, match="3 columns"):
        SCHOOL.load(0, DataOptions(data_dir=tmp_path, preprocess="bounds"))


def test_names_sort_in_order():
    for count in (9, 139, 1500):
        names = [numbered("school", number, count) for number in range(count)]
        assert names == sorted(names)


def test_missing_file(tmp_path, monkeypatch):
    monkeypatch.delenv("SILODP_DATA", raising=False)
    monkeypatch.setenv("SILODP_CACHE", str(tmp_path / "cache"))
    with pytest.raises(SilodpError, match="silodp data get school"):
        SCHOOL.load(0)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"\x00" * 200,
        b"MATLAB 7.3 MAT-file".ljust(124, b" ") + b"\x00\x02IM" + b"\x00" * 400,
        b"MATLAB 5.0 MAT-file".ljust(124, b" ") + b"\x00\x01IM" + os.urandom(3000),
    ],
    ids=["empty", "text", "zeros", "version 7.3", "random"],
)
def test_not_a_matlab_file(tmp_path, content):
    (tmp_path / "school.mat").write_bytes(content)
    with pytest.raises(SilodpError, match="silodp data get school") as error:
        SCHOOL.load(0, DataOptions(data_dir=tmp_path))
    assert str(tmp_path / "school.mat") in str(error.value)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_bytes_are_read_or_refused(data):
    """scipy's own reader crashes the process on some of these."""
    content = bytearray(SMALL_FILES[data.draw(st.sampled_from([False, True]))])
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "school.mat").write_bytes(content)
        with contextlib.suppress(SilodpError):
            SCHOOL.load(0, DataOptions(data_dir=Path(folder)))


def test_truncated_files(tmp_path):
    options = written(tmp_path, *schools())
    whole = (tmp_path / "school.mat").read_bytes()
    for length in range(0, len(whole), max(1, len(whole) // 40)):
        (tmp_path / "school.mat").write_bytes(whole[:length])
        with pytest.raises(SilodpError, match="silodp data get school"):
            SCHOOL.load(0, options)


def test_wrong_contents(tmp_path):
    xs, ys = schools()
    path = tmp_path / "school.mat"
    options = DataOptions(data_dir=tmp_path)

    def refused(words, x, y):
        scipy.io.savemat(path, {"X": x, "Y": y})
        with pytest.raises(SilodpError, match=words):
            SCHOOL.load(0, options)

    scipy.io.savemat(path, {"X": cells(*xs)})
    with pytest.raises(SilodpError, match="no cell array Y"):
        SCHOOL.load(0, options)
    refused("X is not a cell array", np.ones((3, 3)), cells(*ys))
    refused("3 schools in X, but 2 in Y", cells(*xs), cells(*ys[:2]))
    refused("'school-002': X has shape", cells(xs[0], xs[1][:, :5], xs[2]), cells(*ys))
    refused("'school-002': X has shape", cells(*xs), cells(ys[0], ys[1][:4], ys[2]))
    refused("plain matrix of numbers", cells("words", *xs[1:]), cells(*ys))
    refused("plain matrix of numbers", cells(xs[0] * 1j, *xs[1:]), cells(*ys))
    refused("plain matrix of numbers", cells(scipy.sparse.eye(3), *xs[1:]), cells(*ys))
    refused("plain matrix of numbers", cells(cells(*xs), *xs[1:]), cells(*ys))
    refused("'school-003': Y holds scores outside 1 to 70", cells(*xs), cells(*ys[:2], ys[2] + 70))
    refused("'school-003': Y holds scores outside 1 to 70", cells(*xs), cells(*ys[:2], ys[2] * 0))
    unknown = xs[1].astype(float)
    unknown[2, 2] = np.nan
    refused("'school-002': X holds NaN", cells(xs[0], unknown, xs[2]), cells(*ys))
    refused("'school-001' .* too few", cells(xs[0][:1], *xs[1:]), cells(ys[0][:1], *ys[1:]))


def test_unused_options_are_refused_by_name():
    for options in (DataOptions(silo_column="a"), DataOptions(heterogeneity=1.0)):
        with pytest.raises(SilodpError, match="does not use the option"):
            resolve("school", options)
    with pytest.raises(SilodpError, match="'silo_column'"):
        SCHOOL.load(0, DataOptions(silo_column="a"))
    with pytest.raises(SilodpError, match="test_fraction"):
        SCHOOL.load(0, DataOptions(test_fraction=1.0))
    with pytest.raises(SilodpError, match="choose 'paper', "):
        SCHOOL.load(0, DataOptions(preprocess="papper"))
    with pytest.raises(SilodpError, match="Seed"):
        SCHOOL.load(-1)


def test_defaults_are_the_papers():
    defaults = resolve("school").defaults
    assert (defaults.model, defaults.rounds, defaults.batch_size) == ("linear", 200, 32)
    assert (defaults.clip, defaults.lr, defaults.delta) == (1, 0.01, 1e-3)
    assert defaults.small_silos == "full-batch"
    assert defaults.preprocess in SCHOOL.preprocessings
