"""Features: each record by itself, kept for the next time, of unit norm."""

import os
import stat

import numpy as np
import pandas as pd
import pytest
from encoders import letters
from pictures import draw

from silodp.base.cache import cache_dir
from silodp.base.errors import SilodpError
from silodp.base.progress import Reporter, heard_by
from silodp.config.data_options import DataOptions
from silodp.data.encoders.encoder import EncoderInfo, PublicEncoder, info_of_plain
from silodp.data.encoders.encoding import features_of
from silodp.data.encoders.functions import encoder
from silodp.data.encoders.named import asked_for, encoder_info, encoder_of
from silodp.data.encoders.scattering import WIDTH, scattering
from silodp.data.registry import resolve


@pytest.fixture(autouse=True)
def empty_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SILODP_CACHE", str(tmp_path_factory.mktemp("cache")))


class Counted:
    """An encoder that can be kept, and counts what it is asked for."""

    def __init__(self, width=3):
        self.asked = []
        info = EncoderInfo("counted", "text", "ab" * 32, "own", "nothing", width)
        self.encoder = PublicEncoder(info, self.encode)

    def encode(self, text):
        self.asked.append(text)
        return np.array([len(text), text.count("a"), 1.0])


class Heard(Reporter):
    def __init__(self):
        self.events = []

    def encoded(self, name, done, total, made, seconds):
        self.events.append((name, done, total, made))


def images(count, side=32, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def scans(root, each=12):
    for number, (silo, name) in enumerate(
        (silo, name) for silo in ("north", "south") for name in ("benign", "malign")
    ):
        for image in range(each):
            draw(root / silo / name / f"{image}.png", 100 * number + image, colour=True)
    return root


# --- scattering


def test_scattering_has_unit_norm_and_tells_pictures_apart():
    x = features_of(scattering(32), list(images(4)))
    assert x.shape == (4, WIDTH)
    assert x.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, rtol=1e-6)
    assert len(np.unique(x.round(4), axis=0)) == 4


def test_scattering_knows_directions():
    """Stripes along one axis answer at one direction more than at the one across it."""
    stripes = np.zeros((32, 32, 3), np.uint8)
    stripes[:, ::4] = 255
    along, across = (
        scattering(32).features(one)[3 * 4 : 3 * 4 * 17].reshape(3, 2, 8, 4)
        for one in (stripes, stripes.transpose(1, 0, 2))
    )
    np.testing.assert_allclose(along[0, 1, 0].mean(), across[0, 1, 4].mean(), rtol=1e-3)
    assert (along[0, 1, 0] > along[0, 1, 4] + 0.01).all()


def test_grey_and_other_sizes_are_brought_to_what_it_takes():
    grey = images(1, side=20)[..., :1]
    assert features_of(scattering(32), list(grey)).shape == (1, WIDTH)


@pytest.mark.parametrize("size", [8, 33, 1000])
def test_sizes_that_scattering_does_not_take(size):
    with pytest.raises(SilodpError, match="image_size"):
        scattering(size)


# --- a function of one record alone


def test_features_do_not_hang_on_other_records():
    """Neighbours differ in one row of features, and in no bit of any other."""
    x = list(images(6))
    other = [*x[:2], images(1, seed=9)[0], *x[3:]]
    one, two = (features_of(scattering(32), own) for own in (x, other))
    assert np.flatnonzero((one != two).any(axis=1)).tolist() == [2]
    np.testing.assert_array_equal(features_of(scattering(32), x[4:5]), one[4:5])


def test_neighbouring_folders_differ_in_one_record(tmp_path):
    """One image more: all others keep their side, and their features to the last bit."""
    root, options = scans(tmp_path / "scans"), DataOptions(features="scattering")

    def rows():
        silo = resolve(root, options).load(0, options).silos[0]
        parts = (("train", silo.train), ("test", silo.test))
        return {
            (name, x.tobytes(), float(y))
            for name, records in parts
            for x, y in zip(records.x, records.y, strict=True)
        }

    before = rows()
    draw(root / "north" / "benign" / "00.png", 999, colour=True)
    after = rows()
    assert len(after - before) == 1
    assert not before - after


def test_one_that_draws_at_random_is_refused():
    rng = np.random.default_rng(0)
    own = encoder(lambda text: rng.normal(size=4), takes="text", name="dropout")
    with pytest.raises(SilodpError, match="no function of one record alone"):
        features_of(own, ["a", "b"])


def test_one_that_learns_from_what_it_sees_is_refused():
    seen = []

    def centred(text):
        seen.append(len(text))
        return [len(text) - sum(seen) / len(seen), 1.0]

    with pytest.raises(SilodpError, match="no function of one record alone"):
        features_of(encoder(centred, takes="text"), ["a", "bcd", "efghi"])


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (np.nan, "NaN, infinite"),
        (np.inf, "NaN, infinite"),
        (1e30, "beyond"),
    ],
)
def test_numbers_that_are_none(made, words):
    own = encoder(lambda text: [1.0, made if len(text) == 3 else 1.0], takes="text", name="odd")
    with pytest.raises(SilodpError, match=words) as error:
        features_of(own, ["a", "bcd"])
    assert "'odd'" in str(error.value)


def test_another_number_of_features_is_refused():
    own = encoder(lambda text: [1.0] * len(text), takes="text")
    with pytest.raises(SilodpError, match="as many of every record"):
        features_of(own, ["abc"])


@pytest.mark.parametrize("made", [[], 1.0, [[1.0]], ["a"]])
def test_functions_that_make_no_features(made):
    with pytest.raises(SilodpError, match="numbers of each record"):
        encoder(lambda text: made, takes="text")


# --- kept


def test_features_are_kept_for_their_owner_alone():
    own = Counted()
    texts = [f"{'a' * (n % 7)} {n}" for n in range(600)]
    heard = Heard()
    with heard_by(heard):
        x = features_of(own.encoder, texts)
    assert heard.events[0] == ("counted", 256, 600, 256)
    assert heard.events[-1] == ("counted", 600, 600, 600)
    own.asked.clear()
    np.testing.assert_array_equal(features_of(own.encoder, texts[::-1])[::-1], x)
    assert own.asked == []
    folder = cache_dir() / "features"
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o600


def test_an_interrupted_run_goes_on_where_it_was():
    own = Counted()
    texts = [f"text {n}" for n in range(600)]

    def stopped(text):
        if text == texts[300]:
            raise KeyboardInterrupt
        return own.encode(text)

    with pytest.raises(KeyboardInterrupt):
        features_of(PublicEncoder(own.encoder.info, stopped), texts)
    own.asked.clear()
    features_of(own.encoder, texts)
    assert not {*own.asked} & {*texts[:256]}
    assert {*own.asked} == {*texts[256:]}


def test_what_is_alike_is_encoded_once():
    own = Counted()
    features_of(own.encoder, ["same"] * 50)
    assert len(own.asked) == 3  # one, and twice to see that it stays the same


def test_a_damaged_file_costs_time_alone():
    own = Counted()
    x = features_of(own.encoder, ["a", "b"])
    (file,) = (cache_dir() / "features").iterdir()
    content = bytearray(file.read_bytes())
    place = bytes(content).index(x[0].tobytes())
    content[place] ^= 1  # a bit of a number
    file.write_bytes(content)
    np.testing.assert_array_equal(features_of(own.encoder, ["a", "b"]), x)
    file.write_bytes(b"no database" * 100)
    np.testing.assert_array_equal(features_of(own.encoder, ["a", "b"]), x)


def test_nothing_is_kept_where_that_is_asked_for():
    info = encoder_info("scattering", no_cache=True)
    features_of(encoder_of(info), list(images(1)))
    assert not (cache_dir() / "features").exists()


def test_functions_leave_nothing():
    features_of(encoder(letters, takes="text"), ["a"])
    assert not (cache_dir() / "features").exists()


# --- names


def test_what_is_asked_for():
    assert asked_for(None) == asked_for("none") == {}
    assert asked_for("scattering") == {"image": "scattering"}
    assert asked_for(["review=minilm", "photo = a=b.onnx"]) == {
        "review": "minilm",
        "photo = a": "b.onnx",
    }
    for wrong in ("=minilm", "review=", ["a=x", "a=y"]):
        with pytest.raises(SilodpError, match="column=encoder"):
            asked_for(wrong)


def test_names_that_are_unknown():
    for wrong, words in (
        ("efficientnet", "efficientnet-lite0"),
        ("nowhere/net.onnx", "does not exist"),
        (letters, "silodp.encoder"),
    ):
        with pytest.raises(SilodpError, match=words):
            encoder_info(wrong)


def test_texts_are_not_images(tmp_path):
    root = scans(tmp_path / "scans", each=2)
    own = encoder(letters, takes="text")
    options = DataOptions(encoders={"image": own})
    source = resolve(root, options)
    with pytest.raises(SilodpError, match="made of texts, but these are images"):
        source.load(0, options)


@pytest.mark.parametrize("change", [{"takes": "sound"}, {"width": 0}, {"sha256": 3}, {"more": 1}])
def test_cards_that_do_not_say_which(change):
    plain = EncoderInfo("own", "text", "00", "own", "none", 3).to_plain()
    assert info_of_plain("here", plain).width == 3
    with pytest.raises(SilodpError, match="here"):
        info_of_plain("here", plain | change)


# --- data


def test_a_folder_of_images(tmp_path):
    root = scans(tmp_path / "scans")
    options = DataOptions(features="scattering", classes=["benign", "malign"])
    source = resolve(root, options)
    federation = source.load(0, options)
    assert source.defaults.model == "logistic"
    assert federation.input_shape == (WIDTH,)
    assert federation.pixels is None
    assert federation.feature_bound == 1
    assert federation.uncovered == ()
    assert [one.name for one in federation.encoders] == ["scattering"]


def test_images_in_memory():
    options = DataOptions(features="scattering", silos=4, rotations=2)
    try:
        federation = resolve("digits", options).load(0, options)
    except SilodpError as error:
        pytest.skip(str(error))
    assert federation.input_shape == (WIDTH,)
    assert federation.silos[1].preparation.target.classes == tuple("0123456789")


def test_data_without_images():
    options = DataOptions(features="scattering")
    with pytest.raises(SilodpError, match="has no images"):
        resolve("synthetic", options).load(0, options)


def reviews(rows=40):
    return pd.DataFrame(
        {
            "shop": ["a", "b"] * (rows // 2),
            "review": [f"number {n}, {'really good' if n % 3 else 'not so'}" for n in range(rows)],
            "age": range(rows),
            "liked": ["yes" if n % 3 else "no" for n in range(rows)],
        }
    )


def loaded(frame, **options):
    from silodp.data.federation import Federation

    own = {"encoders": {"review": encoder(letters, takes="text")}, "bounds": {"age": (0, 40)}}
    return Federation.from_frame(
        frame, silo="shop", target="liked", **{"classes": ["no", "yes"], **own, **options}
    )


def test_a_column_of_texts_beside_one_of_numbers():
    federation = loaded(reviews())
    assert federation.feature_names == (*(f"review[{n}]" for n in range(8)), "age")
    assert federation.uncovered == ()
    x = federation.silos[0].train.x
    np.testing.assert_allclose(np.linalg.norm(x[:, :8], axis=1), 1, rtol=1e-6)
    assert np.abs(x[:, 8]).max() <= 1


def test_missing_texts():
    frame = reviews()
    frame.loc[4, "review"] = None
    with pytest.raises(SilodpError, match="missing: 1 in column 'review'"):
        loaded(frame)
    federation = loaded(frame, missing={"review": "drop"})
    assert sum(len(s.train) + len(s.test) for s in federation.silos) == 39
    with pytest.raises(SilodpError, match="write 'drop'"):
        loaded(frame, missing={"review": 0})


def test_declared_for_two_things():
    with pytest.raises(SilodpError, match="both an encoder"):
        loaded(reviews(), levels={"review": ["a", "b"]})
    with pytest.raises(SilodpError, match="reviw"):
        loaded(reviews(), encoders={"reviw": encoder(letters, takes="text")})


def table_of_photos(folder, paths):
    for name in ("a", "b", "c", "d"):
        draw(folder / "photos" / f"{name}.png", ord(name), colour=True)
    rows = [(paths[n % len(paths)], "ab"[n % 2], n % 5) for n in range(40)]
    table = pd.DataFrame(rows, columns=["photo", "silo", "score"])
    table.to_csv(folder / "table.csv", index=False)
    return folder / "table.csv"


def load_photos(path):
    options = DataOptions(
        silo_column="silo", target="score", task="regression", features=["photo=scattering"]
    )
    return resolve(path, options).load(0, options)


def test_a_column_of_paths(tmp_path):
    path = table_of_photos(tmp_path, [f"photos/{name}.png" for name in "abcd"])
    federation = load_photos(path)
    assert federation.input_shape == (WIDTH,)
    assert len(np.unique(federation.silos[0].train.x, axis=0)) == 2


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("photos/e.png", "is no file"),
        ("/etc/hostname", "leads out of the table's folder"),
        ("../outside.png", "leads out of the table's folder"),
        ("table.csv", "is no image"),
    ],
)
def test_paths_that_are_not_read(tmp_path, path, words):
    draw(tmp_path / "outside.png")
    folder = tmp_path / "inside"
    folder.mkdir()
    with pytest.raises(SilodpError, match=words):
        load_photos(table_of_photos(folder, ["photos/a.png", path]))


def test_neighbouring_tables_differ_in_one_row_of_features():
    frame = reviews()

    def rows(own):
        silos = loaded(own).silos
        parts = [part for silo in silos for part in (silo.train, silo.test)]
        return {x.tobytes() for part in parts for x in part.x}

    other = frame.copy()
    other.loc[7, "review"] = "something else: nine trees, 9"
    before, after = rows(frame), rows(other)
    assert len(after - before) == len(before - after) == 1
