import contextlib
import gzip
import hashlib
import lzma
import os
import pickle
import pickletools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silodp.base.cache import cache_dir
from silodp.base.errors import SilodpError
from silodp.data.formats.cifar import CLASSES, read_batch
from silodp.data.images import decoded
from silodp.data.registry import SOURCES, DataOptions, resolve
from silodp.data.sources.cifar10 import PUBLISHED, coin_rows_of, deal_classes, shares_of
from silodp.data.split import PAPER_DEAL

CIFAR10 = SOURCES["cifar10"]


@pytest.fixture
def real():
    folder = os.environ.get("SILODP_DATA")
    if not folder or not (Path(folder) / "cifar10").is_dir():
        pytest.skip("SILODP_DATA has no cifar10 folder")
    return Path(folder)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SILODP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def batches(count=40, seed=0):
    """Small batches: labels in turn, pixels at random."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.integers(0, 256, (count, 3072)).astype(np.uint8), np.arange(count) % 10)
        for name in PUBLISHED
    }


def as_binary(x, y):
    return np.concatenate([y.astype(np.uint8)[:, None], x], axis=1).tobytes()


def as_python2(x, y):
    """As the official files are: of Python 2, with text in bytes."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85U\x01b\x87R("
        b"K\x01M" + len(x).to_bytes(2, "little") + b"M\x00\x0c\x86cnumpy\ndtype\nq\x03U\x02u1"
        b"K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + (3072 * len(x)).to_bytes(4, "little")
        + x.tobytes()
        + b"tb"
    )
    labels = b"](" + b"".join(b"K" + bytes([label]) for label in y) + b"e"
    words = b"U\x0bbatch_labelU\x05of 5.U\x09filenames](U\x05a.pngU\x05b.pnge"
    return b"\x80\x02}q\x00(" + words + b"U\x06labels" + labels + b"U\x04data" + array + b"u."


FORMS = {
    "binary": (".bin", as_binary),
    "xz": (".bin.xz", lambda x, y: lzma.compress(as_binary(x, y))),
    "gzip": (".bin.gz", lambda x, y: gzip.compress(as_binary(x, y))),
    "python 2": ("", as_python2),
    "python 3": ("", lambda x, y: pickle.dumps({b"data": x, b"labels": y.tolist()}, 4)),
    "python 3 as 2": ("", lambda x, y: pickle.dumps({"data": x, "labels": y.tolist()}, 2)),
}


def written(folder, form="binary", made=None, under="cifar10"):
    ending, pack = FORMS[form]
    place = folder / under
    place.mkdir(parents=True, exist_ok=True)
    for name, (x, y) in (made or batches()).items():
        (place / f"{name}{ending}").write_bytes(pack(x, y))
    return folder


def load(folder, seed=0, **options):
    given = DataOptions(data_dir=folder, **options)
    return resolve("cifar10", given).load(seed, given)


def same(one, other):
    for a, b in zip(one.silos, other.silos, strict=True):
        for part in ("train", "test"):
            np.testing.assert_array_equal(getattr(a, part).x, getattr(b, part).x)
            np.testing.assert_array_equal(getattr(a, part).y, getattr(b, part).y)


@pytest.mark.slow
def test_the_papers_table(real, tmp_path, monkeypatch):
    monkeypatch.setenv("SILODP_CACHE", str(tmp_path))
    federation = load(real)
    paper = CIFAR10.in_paper
    assert paper is not None
    assert len(federation.silos) == paper.silos
    assert federation.input_shape == paper.features
    # The paper's own draw has 1515 to 1839.
    assert 1450 < federation.train_counts.min() < 1560
    assert 1790 < federation.train_counts.max() < 1900
    assert 49_850 < federation.train_counts.sum() <= 50_000
    for silo in federation.silos:
        for records in (silo.train, silo.test):
            assert len(np.unique(records.y)) == 5
        assert set(np.unique(silo.train.y)) == set(np.unique(silo.test.y))
    assert federation.uncovered == (PAPER_DEAL,)
    for part, each in (("train", 5000), ("test", 1000)):
        labels = np.concatenate([getattr(silo, part).y for silo in federation.silos])
        counts = np.bincount(labels, minlength=10)
        assert (counts > each - 15).all()
        assert (counts <= each).all()
    # One seed's images are another's, in other hands.
    other = load(real, 1)
    assert not np.array_equal(other.silos[0].train.x, federation.silos[0].train.x)
    np.testing.assert_array_equal(other.train_counts, federation.train_counts)
    # What was decoded is what was published.
    (entry,) = (cache_dir() / "decoded").glob("cifar10-*")
    arrays = decoded._read(entry)
    x = np.concatenate([arrays["train_x"], arrays["test_x"]])
    y = np.concatenate([arrays["train_y"], arrays["test_y"]])
    for number, md5 in enumerate(PUBLISHED.values()):
        rows = slice(10_000 * number, 10_000 * (number + 1))
        batch = as_binary(x[rows].transpose(0, 3, 1, 2).reshape(10_000, 3072), y[rows])
        assert hashlib.md5(batch).hexdigest() == md5


def test_swapped_batches(real, tmp_path):
    written(tmp_path)
    place = tmp_path / "cifar10"
    (place / "data_batch_3.bin").unlink()
    (place / "data_batch_3.bin.xz").symlink_to(real / "cifar10" / "test_batch.bin.xz")
    with pytest.raises(SilodpError, match=r"data_batch_3.bin.xz.*belongs into test_batch"):
        load(tmp_path, silos=4)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same(tmp_path, form):
    expected = load(written(tmp_path / "a"), silos=4)
    same(expected, load(written(tmp_path / "b", form), silos=4))


@pytest.mark.parametrize(
    ("form", "under"),
    [("binary", "cifar10/cifar-10-batches-bin"), ("python 2", "cifar-10-batches-py")],
)
def test_as_tar_unpacks_it(tmp_path, form, under):
    assert len(load(written(tmp_path, form, under=under), silos=4).silos) == 4


def test_channels_come_last(tmp_path):
    x = np.arange(3072, dtype=np.uint8)[None]
    (tmp_path / "batch").write_bytes(as_binary(x, np.array([3])))
    image = read_batch(tmp_path / "batch", "mend it").x[0]
    assert image.shape == (32, 32, 3)
    assert image[0, 1].tolist() == [1, (1024 + 1) % 256, (2048 + 1) % 256]
    assert image[2, 0, 0] == 64


@given(st.sampled_from([(10, 5), (30, 5), (5, 2), (20, 3), (7, 10), (10, 9)]), st.integers(0, 99))
def test_classes_are_dealt_evenly(sizes, seed):
    silos, per_silo = sizes
    hands = deal_classes(silos, per_silo, np.random.default_rng(seed))
    assert all(len(set(hand)) == per_silo for hand in hands)
    dealt = np.bincount(np.concatenate(hands), minlength=10)
    assert set(dealt) == {silos * per_silo // 10}


def test_shares_are_those_of_the_cited_scheme():
    shares = shares_of(30, 5)
    np.testing.assert_allclose(shares.sum(axis=0), 1)
    assert ((shares > 0).sum(axis=1) == 5).all()
    assert ((shares > 0).sum(axis=0) == 15).all()
    # u/sum(u), u from 0.4 to 0.6: no share is half as large again as another.
    for column in shares.T:
        used = column[column > 0]
        assert used.max() / used.min() <= 1.5


def test_by_coins_an_image_less_moves_no_other(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (600, 4, 4, 3), dtype=np.uint8), np.arange(600) % 10
    shares = shares_of(6, 5)
    hands = coin_rows_of(images, labels, shares)
    assert sorted(np.concatenate(hands)) == list(range(600))
    for share, hand in zip(shares, hands, strict=True):
        assert (share[labels[hand]] > 0).all()  # of its own classes only
    for left_out in (0, 17, 599):
        kept = np.flatnonzero(np.arange(600) != left_out)
        left = coin_rows_of(images[kept], labels[kept], shares)
        for hand, other in zip(hands, left, strict=True):
            assert set(kept[other]) == set(hand) - {left_out}
    written(tmp_path, made=batches(100))
    one, two = (load(tmp_path, seed=seed, silos=2, split="coin", density=0.5) for seed in (0, 1))
    assert one.uncovered == ()
    np.testing.assert_array_equal(one.public_counts, two.public_counts)
    assert one.silos[0].expected.train == round(0.5 * one.silos[0].max_count)


def test_density(tmp_path):
    written(tmp_path)
    whole, half = (load(tmp_path, silos=4, density=density) for density in (None, 0.5))
    np.testing.assert_array_equal(half.train_counts, whole.train_counts // 2)
    np.testing.assert_array_equal(half.test_counts, whole.test_counts)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"silos": 7}, "7 silos with 5 classes.*multiple of 10"),
        ({"silos": -10}, "'silos' is -10: give a whole number"),
        ({"silos": 0}, "'silos' is 0: give a whole number"),
        ({"silos": 2.0}, "'silos' is 2.0: give a whole number"),
        ({"silos": 600}, "too few images for 600 silos: give fewer"),
        ({"silos": 4, "density": 0.001}, "'silo-01' has .* density 0.001 leaves none"),
        ({"classes_per_silo": 11}, "classes_per_silo.*11.*from 2 to 10"),
        ({"classes_per_silo": 1}, "classes_per_silo.*1.*from 2 to 10"),
        ({"rotations": 4}, "does not use the option 'rotations'"),
    ],
)
def test_options_that_do_not_fit(tmp_path, options, words):
    with pytest.raises(SilodpError, match=words):
        load(written(tmp_path), **options)


def replaced(folder, content, name="data_batch_2"):
    for old in (folder / "cifar10").glob(f"{name}*"):
        old.unlink()
    (folder / "cifar10" / name).write_bytes(content)
    return folder


class Payload:
    """A pickle that would write a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_with_a_payload_is_refused_and_not_run(tmp_path):
    x, y = batches()["data_batch_2"]
    trace = tmp_path / "trace"
    for protocol in (2, 5):
        hostile = {"data": x, "labels": y.tolist(), "more": Payload(trace)}
        replaced(written(tmp_path), pickle.dumps(hostile, protocol))
        with pytest.raises(SilodpError, match=r"data_batch_2.*which is refused"):
            load(tmp_path, silos=4)
        assert not trace.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x80\x02cos\nsystem\nU\x04true\x85R.", "os.system"),
        (b"\x80\x02cnumpy\nload\nU\x01a\x85R.", "numpy.load"),
        (b"\x80\x02cbuiltins\neval\nU\x011\x85R.", "builtins.eval"),
        (b"\x80\x02(i__builtin__\nexec\n.", "data_batch_2"),
        (b"\x80\x02c_codecs\nencode\n}U\x01aK\x01sb.", "fills what is no array"),
        (b"\x80\x04" + 500_000 * b"N" + b".", "more than 400000 operations"),
        (b"\x80\x04\x8f\x8f.", "data_batch_2"),  # sets
        (b"\x80\x02U\x01aP1\n.", "data_batch_2"),  # a persistent id
        (b"\x80\x02K\x01r\xff\xff\xff\x7f.", "data_batch_2"),  # room for 2^31 values
        (b"\x80\x05\x96\xff\xff\xff\xff\xff\x00\x00\x00.", "data_batch_2"),  # 2^40 bytes
        (b"\x80\x02]q\x00h\x00a.", "data_batch_2"),  # a list that holds itself
        (b"\x80\x02}.", "data_batch_2"),
        (b"\x80", "data_batch_2"),
        (b"\x80\x02N.", "data_batch_2"),
    ],
)
def test_hostile_pickles(tmp_path, content, words):
    replaced(written(tmp_path), content)
    with pytest.raises(SilodpError, match=rf"{words}.*silodp data get cifar10"):
        load(tmp_path, silos=4)


@pytest.mark.parametrize(
    "hostile",
    [
        {"data": np.zeros((3, 3072), "u1"), "labels": [0, 1]},
        {"data": np.zeros((2, 3071), "u1"), "labels": [0, 1]},
        {"data": np.zeros((2, 3072), "f4"), "labels": [0, 1]},
        {"data": np.zeros((2, 3072), "u1"), "labels": [0, 0.5]},
        {"data": np.zeros((2, 3072), "u1"), "labels": [0, 10]},
        {"data": np.zeros((2, 3072), "u1"), "labels": [0, -1]},
        {"data": np.zeros((2, 3072), "u1"), "labels": ["a", "b"]},
        {"data": np.zeros((2, 3072), "u1"), "labels": [[0], [1, 2]]},
        {"data": np.zeros((2, 3072), "u1"), "labels": [[0], [1]]},
        {"data": np.zeros((2, 3072), "u1"), "labels": [0, 2**80]},
        {"data": np.zeros((2, 3072), "u1"), "labels": [True, False]},
        {"data": np.zeros((2, 3072), "u1"), "labels": 2 * [1000 * [1000 * [1000 * [0]]]]},
        {"data": np.zeros((2, 3072), "u1")},
        {"labels": [0, 1]},
        {"data": np.array([None, None]), "labels": [0, 1]},
        [1, 2],
    ],
)
def test_pickles_of_something_else(tmp_path, hostile):
    replaced(written(tmp_path), pickle.dumps(hostile, 2))
    with pytest.raises(SilodpError, match=r"data_batch_2.*silodp data get cifar10"):
        load(tmp_path, silos=4)


SMALL = as_python2(np.zeros((2, 3072), np.uint8), np.array([1, 2]))
# What is not pixels: every opcode but the long string.
INTERESTING = [
    position + shift
    for op, _, position in pickletools.genops(SMALL)
    if position is not None
    for shift in range(3)
]


@given(st.sampled_from(INTERESTING), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_any_changed_byte_is_read_or_refused(tmp_path_factory, position, value):
    path = tmp_path_factory.getbasetemp() / "changed"
    path.write_bytes(SMALL[:position] + bytes([value]) + SMALL[position + 1 :])
    with contextlib.suppress(SilodpError):
        assert read_batch(path, "mend it").x.shape[1:] == (32, 32, 3)


DAMAGED = {
    "empty": (b"", "0 bytes, which are no whole number of images"),
    "cut": (bytes(3073 * 2 - 1), "6145 bytes, which are no whole number"),
    "label": (bytes([10]) + bytes(3072), "label 10, but the classes are numbered 0 to 9"),
    "xz end": (lzma.compress(bytes(3073))[:-20], "cannot be unpacked"),
    "xz start": (lzma.compress(bytes(3073))[:30], "cannot be unpacked"),
    "gzip end": (gzip.compress(bytes(3073))[:-9], "cannot be unpacked"),
    "bomb": (lzma.compress(bytes(70_000_000), preset=0), "holds more than 61460000 bytes"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_files(tmp_path, damage):
    content, words = DAMAGED[damage]
    replaced(written(tmp_path), content)
    with pytest.raises(SilodpError, match=rf"data_batch_2.*{words}.*silodp data get cifar10"):
        load(tmp_path, silos=4)


def test_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SILODP_CACHE", str(tmp_path / "cache"))
    folder = written(tmp_path / "data")
    kept = tmp_path / "cache" / "decoded"
    fresh = load(folder, silos=4, no_cache=True)
    assert not kept.exists()
    same(fresh, load(folder, silos=4))
    (entry,) = kept.iterdir()
    assert entry.stat().st_mode & 0o077 == 0
    # Read from the cache alone: the decoder is not called.
    with monkeypatch.context() as patch:
        patch.setattr("silodp.data.sources.cifar10.read_batches", None)
        same(fresh, load(folder, silos=4))
    # Damaged or cut short: made anew.
    content = entry.read_bytes()
    smaller = content.replace(b"[200, 32, 32, 3]", b"[100, 32, 32, 3]", 1)
    assert smaller != content
    for damage in (content[:-200], content[:500_000] + b"x" + content[500_001:], b"", smaller):
        entry.write_bytes(damage)
        same(fresh, load(folder, silos=4))
        assert entry.read_bytes() == content
    # Other content, another entry.
    written(folder, made=batches(seed=1))
    assert not np.array_equal(load(folder, silos=4).silos[0].train.x, fresh.silos[0].train.x)
    assert len(list(kept.iterdir())) == 2


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SILODP_CACHE", str(tmp_path / "file"))
    assert len(load(written(tmp_path / "data"), silos=4).silos) == 4


def test_classes_are_public_and_have_names(tmp_path):
    federation = load(written(tmp_path), silos=4)
    assert federation.class_names == CLASSES
    assert federation.declared == ("feature bounds", "class list")


@pytest.mark.slow
def test_a_private_round(tmp_path, cli):
    written(tmp_path, made=batches(100))
    done = cli(
        *("run", "--data", "cifar10", "--data-dir", tmp_path, "--epsilon", 4, "--rounds", 1),
        *("--silos", 2, "--split", "coin", "--json"),
    )
    assert done.exit_code == 0, done.stderr
    assert '"proven": true' in done.stdout
