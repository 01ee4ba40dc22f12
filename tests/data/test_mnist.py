import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from silodp.base.errors import SilodpError
from silodp.data.files import digest_of
from silodp.data.formats.idx import read_idx
from silodp.data.images.rotated_masked import mask
from silodp.data.registry import SOURCES, DataOptions, resolve
from silodp.data.sources.mnist import PUBLISHED
from silodp.data.split import PAPER_DEAL

MNIST = SOURCES["mnist"]


@pytest.fixture
def real():
    folder = os.environ.get("SILODP_DATA")
    if not folder or not (Path(folder) / "mnist").is_dir():
        pytest.skip("SILODP_DATA has no mnist folder")
    return Path(folder)


def idx(array):
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def written(folder, train=80, test=40, side=6, packed=False, seed=0, labels=None):
    """Small files of the right layout: an image is black but for its label's row."""
    rng = np.random.default_rng(seed)
    contents = {}
    for part, count in (("train", train), ("t10k", test)):
        y = (np.arange(count) % 10 if labels is None else labels[:count]).astype(np.uint8)
        x = rng.integers(1, 200, (count, side, side)).astype(np.uint8)
        contents[f"{part}-images-idx3-ubyte"] = idx(x)
        contents[f"{part}-labels-idx1-ubyte"] = idx(y)
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return DataOptions(data_dir=folder)


def load(folder, seed=0, **options):
    given = DataOptions(data_dir=folder, **options)
    return resolve("mnist", given).load(seed, given)


def test_the_real_files_are_the_published_ones(real, tmp_path):
    for name, (_, content) in PUBLISHED.items():
        unpacked = tmp_path / name
        unpacked.write_bytes(gzip.decompress((real / "mnist" / f"{name}.gz").read_bytes()))
        assert digest_of(unpacked, "md5") == content


def test_the_papers_table(real):
    federation = load(real)
    paper = MNIST.in_paper
    assert paper is not None
    assert len(federation.silos) == paper.silos
    assert federation.input_shape == paper.features
    assert set(federation.train_counts) == {paper.least}
    assert set(federation.test_counts) == {250}
    labels = np.concatenate([silo.train.y for silo in federation.silos])
    # As published, for the digits 0 to 9.
    assert np.bincount(labels).tolist() == [
        *(5923, 6742, 5958, 6131, 5842),
        *(5421, 5918, 6265, 5851, 5949),
    ]
    for silo in federation.silos:  # "roughly uniform distribution on the labels"
        assert np.bincount(silo.train.y, minlength=10).min() > 90
    assert federation.uncovered == (PAPER_DEAL,)


def test_packed_or_not_is_the_same(tmp_path):
    written(tmp_path / "plain")
    written(tmp_path / "packed", packed=True)
    one, other = (load(tmp_path / name, silos=4) for name in ("plain", "packed"))
    for a, b in zip(one.silos, other.silos, strict=True):
        np.testing.assert_array_equal(a.train.x, b.train.x)
        np.testing.assert_array_equal(a.test.y, b.test.y)


def test_every_image_is_dealt_once(tmp_path):
    written(tmp_path, train=83, test=41)
    federation = load(tmp_path, silos=8, rotations=1, mask_ratio=0)
    images = read_idx(tmp_path / "train-images-idx3-ubyte", 3, "mend it")
    dealt = np.concatenate([silo.train.x for silo in federation.silos])[..., 0]
    assert sorted(map(bytes, dealt)) == sorted(map(bytes, images))
    assert set(federation.train_counts) == {10, 11}


def test_groups_are_turned(tmp_path):
    written(tmp_path)
    plain = load(tmp_path, silos=8, rotations=1, mask_ratio=0)
    turned = load(tmp_path, silos=8, mask_ratio=0)
    for number, (a, b) in enumerate(zip(plain.silos, turned.silos, strict=True)):
        for part in ("train", "test"):
            x, y = getattr(a, part).x, getattr(b, part).x
            np.testing.assert_array_equal(np.rot90(x, number // 2, axes=(1, 2)), y)
        assert b.name == f"rotated-{90 * (number // 2):03d}-{number + 1:02d}"
    halves = load(tmp_path, silos=8, rotations=2, mask_ratio=0)
    np.testing.assert_array_equal(
        halves.silos[7].train.x, np.rot90(plain.silos[7].train.x, 2, axes=(1, 2))
    )


def test_one_mask_a_silo_on_training_and_test_images(tmp_path):
    written(tmp_path, side=7)
    bare = load(tmp_path, silos=8, mask_ratio=0)
    masked = load(tmp_path, silos=8, mask_ratio=0.3)
    masks = []
    for a, b in zip(bare.silos, masked.silos, strict=True):
        # The images written above have no white pixel of their own.
        white = {
            part: (getattr(b, part).x == 255).all(axis=0)[..., 0] for part in ("train", "test")
        }
        np.testing.assert_array_equal(white["train"], white["test"])
        for part in ("train", "test"):
            x = getattr(b, part).x
            np.testing.assert_array_equal(
                x, np.where(white["train"][..., None], 255, getattr(a, part).x)
            )
        # Whole 2x2 patches; the last row and column are cut, as 7 is odd.
        patches = white["train"]
        np.testing.assert_array_equal(patches[0:6:2], patches[1:6:2])
        np.testing.assert_array_equal(patches[:, 0:6:2], patches[:, 1:6:2])
        masks.append(patches.tobytes())
    assert len(set(masks)) == len(masks)


def test_the_ratio_is_the_expected_share_of_white():
    rng = np.random.default_rng(0)
    share = np.mean([mask(rng, (28, 28), 0.25).mean() for _ in range(200)])
    # 200 masks of 196 patches: standard error 0.0022.
    assert share == pytest.approx(0.25, abs=0.01)
    low, high = (mask(np.random.default_rng(1), (28, 28), ratio) for ratio in (0.1, 0.5))
    assert (high[low]).all()
    assert not mask(rng, (28, 28), 0.0).any()
    assert mask(rng, (28, 28), 1.0).all()


def test_seeds(tmp_path):
    written(tmp_path)
    first, again, other = (load(tmp_path, seed, silos=4) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.silos[2].train.x, again.silos[2].train.x)
    assert not np.array_equal(first.silos[2].train.x, other.silos[2].train.x)
    np.testing.assert_array_equal(first.train_counts, other.train_counts)
    assert first.names == other.names


def test_density_thins_training_alone(tmp_path):
    written(tmp_path)
    whole, half = (load(tmp_path, silos=4, density=density) for density in (None, 0.5))
    np.testing.assert_array_equal(half.train_counts, whole.train_counts // 2)
    np.testing.assert_array_equal(half.test_counts, whole.test_counts)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"silos": 6}, "6.*4 equal groups.*multiple of 4"),
        ({"rotations": 3}, "rotations.*3.*choose 1"),
        ({"mask_ratio": 1.5}, "mask_ratio.*1.5.*from 0 to 1"),
        ({"mask_ratio": float("nan")}, "mask_ratio"),
        ({"silos": 44}, "40 test images, too few for 44 silos"),
        ({"test_fraction": 0.5}, "does not use the option 'test_fraction'"),
        ({"density": 0.0}, "density is 0"),
        ({"silos": 20, "density": 0.1}, "has 4 records for training, of which density 0.1 leaves"),
    ],
)
def test_options_that_do_not_fit(tmp_path, options, words):
    written(tmp_path)
    with pytest.raises(SilodpError, match=words):
        load(tmp_path, **options)


def damaged(folder, name, change):
    path = folder / name
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("train-images-idx3-ubyte", lambda c: c[:-5], "80 x 6 x 6 bytes, but there are 2875"),
        ("train-images-idx3-ubyte", lambda c: c + b"0", "but there are 2881"),
        ("train-images-idx3-ubyte", lambda c: c[:9], "does not start as an idx file"),
        ("train-images-idx3-ubyte", lambda c: b"", "does not start as an idx file"),
        ("train-images-idx3-ubyte", lambda c: b"<html>" + c, "does not start as an idx file"),
        ("train-labels-idx1-ubyte", lambda c: c[:-1] + b"\x0a", "label 10, but digits go to 9"),
        ("t10k-labels-idx1-ubyte", lambda c: idx(np.zeros(7, np.uint8)), "7 labels for 40 images"),
        (
            "train-images-idx3-ubyte",
            lambda c: struct.pack(">4I", 0x803, 2**31, 2**31, 2**31) + c[16:],
            "2147483648 x 2147483648",
        ),
        ("train-labels-idx1-ubyte", lambda c: gzip.compress(c)[:-4], "cannot be unpacked"),
        ("train-labels-idx1-ubyte", lambda c: gzip.compress(c)[:-8] + b"01234567", "unpacked"),
    ],
)
def test_damaged_files(tmp_path, name, change, words):
    written(tmp_path)
    damaged(tmp_path, name, change)
    with pytest.raises(SilodpError, match=rf"{name}.*{words}.*silodp data get mnist"):
        load(tmp_path, silos=4)


@pytest.mark.parametrize("shape", [(40, 6, 5), (40, 1, 6), (40, 7, 7)])
def test_images_of_another_shape(tmp_path, shape):
    written(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros(shape, np.uint8)))
    with pytest.raises(SilodpError, match=f"t10k-images.*{shape[1]} x {shape[2]} pixels, but squ"):
        load(tmp_path, silos=4)


def test_swapped_files(tmp_path, real):
    written(tmp_path)
    images, labels = (tmp_path / f"train-{n}-ubyte" for n in ("images-idx3", "labels-idx1"))
    content = images.read_bytes()
    images.write_bytes(labels.read_bytes())
    labels.write_bytes(content)
    with pytest.raises(SilodpError, match=r"1 dimensions, but 3.*swapped"):
        load(tmp_path, silos=4)
    for part in ("images-idx3-ubyte", "labels-idx1-ubyte"):
        for one, other in (("train", "t10k"), ("t10k", "train")):
            (tmp_path / f"{one}-{part}").unlink()
            (tmp_path / f"{one}-{part}.gz").symlink_to(real / "mnist" / f"{other}-{part}.gz")
    with pytest.raises(SilodpError, match=r"train-labels.*belongs into t10k-labels"):
        load(tmp_path, silos=4)


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    written(tmp_path)
    monkeypatch.setattr("silodp.data.formats.idx.LARGEST", 1 << 20)
    zeros = gzip.compress(bytes(1 << 24))
    (tmp_path / "train-images-idx3-ubyte").write_bytes(zeros)
    with pytest.raises(SilodpError, match="holds more than 1048576 bytes"):
        load(tmp_path, silos=4)


def test_missing_files_are_named(tmp_path, monkeypatch):
    monkeypatch.delenv("SILODP_DATA", raising=False)
    with pytest.raises(
        SilodpError, match=r"train-images-idx3-ubyte.gz was not.*silodp data get mnist"
    ):
        load(tmp_path)


@pytest.mark.slow
def test_a_private_round(real, cli, tmp_path):
    done = cli(
        *("run", "--data", "mnist", "--data-dir", real, "--epsilon", 1, "--rounds", 1),
        *("--density", 0.02, "--silos", 4, "--split", "coin", "--out", tmp_path / "out", "--json"),
    )
    assert done.exit_code == 0, done.stderr
    assert '"proven": true' in done.stdout
