import os

import numpy as np
import pytest
from pictures import draw, png_that_claims
from PIL import Image

from silodp.base.cache import cache_dir
from silodp.base.errors import SilodpError
from silodp.data.images import folders as image_folders
from silodp.data.images.images import read_image
from silodp.data.registry import DataOptions, defaults_without_reading, resolve


@pytest.fixture(autouse=True)
def empty_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SILODP_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def root(tmp_path):
    """Ten images of each of two classes in each of two silos; 8 x 8, so as to stay as they are."""
    fill(tmp_path / "scans")
    return tmp_path / "scans"


def fill(root, classes=("benign", "malign"), each=10, **drawn):
    for number, (silo, name) in enumerate((s, c) for s in ("north", "south") for c in classes):
        for image in range(each):
            seed = 1000 * number + image
            draw(root / silo / name / f"{image}.png", seed, **{"side": 8, **drawn})


def load(path, seed=0, **options):
    given = DataOptions(**{"image_size": 8, **options})
    return resolve(path, given).load(seed, given)


def refused(words, path, **options):
    with pytest.raises(SilodpError, match=words) as error:
        load(path, **options)
    assert str(error.value).endswith(".")
    assert "\n" not in str(error.value)


def entries():
    return sorted((cache_dir() / "decoded").glob("*"))


def test_folders_are_silos_and_classes(root):
    federation = load(root)
    assert federation.name == "scans"
    assert federation.names == ("north", "south")
    assert federation.task == "binary"
    assert federation.class_names == ("benign", "malign")
    assert federation.input_shape == (8, 8, 3)
    assert federation.public_counts.tolist() == [16, 16]
    assert federation.public_test_counts.tolist() == [4, 4]
    assert federation.declared == ("feature bounds",)
    assert "classes were taken from the names" in federation.uncovered[0]
    assert len(federation.uncovered) == 1
    # Every image is there once, with its class.
    for silo in federation.silos:
        found = {}
        for records in (silo.train, silo.test):
            found |= {x[..., 0].tobytes(): y for x, y in zip(records.x, records.y, strict=True)}
        for name, label in (("benign", -1), ("malign", 1)):
            for file in (root / silo.name / name).iterdir():
                assert found.pop(np.asarray(Image.open(file)).tobytes()) == label
        assert not found
    assert not np.array_equal(load(root, seed=1).silos[0].train.x, federation.silos[0].train.x)


def test_an_image_less_moves_no_other(root):
    """Neither if it was kept for testing, nor if it was trained on."""

    def trained():
        return [{x.tobytes() for x in silo.train.x} for silo in load(root).silos]

    everyone, moved = trained(), 0
    for number in range(5):
        file = root / "north" / "benign" / f"{number}.png"
        own = np.repeat(np.asarray(Image.open(file))[..., None], 3, axis=2).tobytes()
        file.unlink()
        left = trained()
        assert left == [everyone[0] - {own}, everyone[1]]
        moved += left != everyone
        everyone = left
    assert moved


def test_preprocessings_and_density(root):
    assert load(root).pixels == (0, 1)
    assert load(root, preprocess="bounds").pixels == (-1, 1)
    assert load(root, density=0.5).public_counts.tolist() == [8, 8]
    assert load(root, test_fraction=0.5).public_test_counts.tolist() == [10, 10]
    refused("has no preprocessing 'none'", root, preprocess="none")
    refused("does not use the option 'target'", root, target="class")


def test_declared_classes(root, tmp_path):
    federation = load(root, classes=["malign", "benign"])
    assert federation.uncovered == ()
    assert federation.declared == ("feature bounds", "class list")
    assert federation.class_names == ("malign", "benign")
    schema = tmp_path / "schema.toml"
    schema.write_text('[target]\nclasses = ["benign", "malign", "unsure"]')
    federation = load(root, schema=schema)
    assert (federation.task, federation.num_classes) == ("multiclass", 3)
    refused("Silo 'north': the folder 'malign' is not among", root, classes=["benign", "other"])
    refused("bounds means nothing", root, bounds={"a": (0, 1)})


def test_a_silo_may_lack_classes(root):
    draw(root / "south" / "10" / "a.png", side=8)
    federation = load(root)
    assert federation.task == "multiclass"
    assert federation.class_names == ("10", "benign", "malign")
    assert set(federation.silos[0].train.y) == {1, 2}


def test_defaults_fit(root):
    assert resolve(root).defaults.model == "convnet"
    assert resolve(root, DataOptions(image_size=8)).defaults.model == "logistic"
    draw(root / "south" / "other" / "a.png")
    assert resolve(root, DataOptions(image_size=8)).defaults.model == "softmax"
    assert defaults_without_reading(str(root), DataOptions()).model == "convnet"


def test_images_are_read_once_for_all_seeds(root, monkeypatch):
    calls = []
    read = image_folders.read_images
    monkeypatch.setattr(
        image_folders, "read_images", lambda *a, **k: calls.append(1) or read(*a, **k)
    )
    options = DataOptions(image_size=8)
    source = resolve(root, options)
    source.load(0, options)
    source.load(1, options)
    assert len(calls) == 1
    source.load(1, DataOptions(image_size=4))
    assert len(calls) == 2


# --- what becomes of an image


def test_grey_or_colour_is_asked_for_and_not_found(root):
    """Or one record would decide the shape of the model."""
    pixels = draw(root / "north" / "benign" / "0.png", side=8, colour=True)
    for classes, uncovered in ((None, 1), (["benign", "malign"], 0)):
        federation = load(root, classes=classes)
        assert federation.input_shape == (8, 8, 3)
        assert len(federation.uncovered) == uncovered
    silo = federation.silos[0]
    every = np.concatenate([silo.train.x, silo.test.x])
    assert (every == pixels).all(axis=(1, 2, 3)).sum() == 1
    assert (every[..., :1] == every).all(axis=(1, 2, 3)).sum() == 19
    grey = load(root, channels="grey", classes=["benign", "malign"])
    assert grey.input_shape == (8, 8, 1)
    assert grey.uncovered == ()
    refused("channels is 'blue': choose", root, channels="blue")


def test_sizes_and_formats(tmp_path):
    ramp = np.repeat(np.arange(64, dtype=np.uint8)[None] * 4, 64, axis=0)
    for ending in ("png", "bmp", "tif", "jpeg"):
        path = tmp_path / f"ramp.{ending}"
        Image.fromarray(ramp).save(path)
        small = read_image(path, 16, grey=True)[..., 0]
        assert small.dtype == np.uint8
        # The middle of each four.
        np.testing.assert_allclose(
            small[:, 1:-1], np.tile(np.arange(1, 15) * 16 + 6, (16, 1)), atol=4
        )


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_modes(tmp_path, mode):
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    white = np.full((12, 12), 255 if mode != "I;16" else 65535, np.uint16)
    if mode == "I;16":
        Image.fromarray(white).save(path)
    elif mode == "CMYK":
        Image.new("CMYK", (12, 12), (0, 0, 0, 0)).save(path)
    else:
        image = Image.fromarray(white.astype(np.uint8)).convert(mode)
        image.save(path, **({"transparency": bytes(256)} if mode == "P" else {}))
    for grey, shape in ((False, (8, 8, 3)), (True, (8, 8, 1))):
        found = read_image(path, 8, grey)
        assert found.shape == shape
        assert (found == 255).all()


def test_sixteen_bits_of_which_eight_are_used_would_be_black(root):
    Image.fromarray(np.full((8, 8), 200, np.uint16)).save(root / "north" / "benign" / "0.png")
    refused("0.png has pixels of 16 bits, but uses the lower 8", root)


# --- the cache


def test_cache(root):
    first = load(root)
    (entry,) = entries()
    assert entry.stat().st_mode & 0o077 == 0
    for content in (entry.read_bytes(), b"not an entry", entry.read_bytes()[:-500]):
        entry.write_bytes(content)
        again = load(root)
        np.testing.assert_array_equal(again.silos[1].train.x, first.silos[1].train.x)
        assert again.silos[1].train.x.dtype == np.uint8
    load(root, image_size=4)
    assert len(entries()) == 2
    os.rename(root / "north", root / "west")
    load(root)
    assert len(entries()) == 3


def test_what_is_in_the_cache_is_used(root, monkeypatch):
    load(root)
    monkeypatch.setattr("silodp.data.images.images.read_image", None)
    load(root)


def test_no_cache_leaves_nothing(root):
    federation = load(root, no_cache=True)
    assert entries() == []
    np.testing.assert_array_equal(federation.silos[0].test.x, load(root).silos[0].test.x)


# --- what is refused, and what is passed over


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (png_that_claims(100_000, 100_000), "claims .* pixels, but at most 64 million"),
        (png_that_claims(10_000, 10_000), "claims .* pixels, but at most 64 million"),
        (png_that_claims(9_000, 8_000), "claims 9000 x 8000 pixels, but at most 64 million"),
        (png_that_claims(0, 5), "cannot be read as an image"),
        (png_that_claims(50, 50), "cannot be read as an image"),
        (b"", "it is none of PNG, JPEG, BMP, TIFF"),
        (b"no image, but text", "it is none of PNG, JPEG, BMP, TIFF"),
        (b"GIF89a\x01\x00\x01\x00\x00\x00\x00;", "it is none of PNG, JPEG, BMP, TIFF"),
    ],
    ids=["huge", "large", "over", "flat", "hollow", "empty", "text", "gif"],
)
def test_bad_images(root, content, words):
    (root / "south" / "benign" / "bad.png").write_bytes(content)
    refused(rf"south/benign/bad\.png.*{words}", root)


def test_truncated_images(root):
    draw(root / "south" / "benign" / "bad.jpg", side=200, colour=True)
    draw(root / "south" / "benign" / "worse.png", side=200)
    for name in ("bad.jpg", "worse.png"):
        path = root / "south" / "benign" / name
        path.write_bytes(path.read_bytes()[:3000])
        refused(rf"{name} cannot be read as an image", root)
        path.unlink()


def test_images_that_say_too_little_or_too_much(root):
    path = root / "south" / "benign" / "a.tif"
    Image.fromarray(np.zeros((8, 8), np.float32)).save(path)
    refused("has pixels of 32 bits", root)
    Image.fromarray(np.zeros((8, 8), np.int32)).save(path)
    refused("has pixels of 32 bits", root)
    page = Image.fromarray(np.zeros((8, 8), np.uint8))
    page.save(path, save_all=True, append_images=[page])
    refused("holds more than one image", root)


def test_what_systems_leave_is_passed_over(root):
    for place in (root, root / "north", root / "north" / "benign"):
        (place / ".DS_Store").write_bytes(b"")
        (place / "Thumbs.db").write_bytes(b"")
        (place / ".hidden.png").write_bytes(b"")
        (place / ".thumbnails").mkdir()
    (root / "README.txt").write_text("about these images")
    assert load(root).public_counts.tolist() == [16, 16]


def test_layouts_that_would_leave_out_images(root):
    draw(root / "a.png")
    refused("image 'a.png' lies beside the folders of the silos", root)
    (root / "a.png").rename(root / "south" / "a.png")
    refused("image 'a.png' lies beside its silo's folders", root)
    (root / "south" / "a.png").unlink()
    draw(root / "south" / "benign" / "more" / "a.png")
    refused("south/benign holds the folder 'more'", root)


def test_folders_that_lack_something(root):
    (root / "empty").mkdir()
    refused("Silo 'empty' has no images", root)
    draw(root / "empty" / "benign" / "a.png")
    assert load(root).silos[0].max_count == 1  # one image, of one class: it takes part


def test_one_class_in_all(tmp_path):
    fill(tmp_path, classes=("benign",))
    refused("has 1 folders of classes", tmp_path)


def test_other_files_among_the_images(root):
    path = root / "south" / "benign" / "notes.txt"
    path.write_text("no image")
    refused("'notes.txt' does not end in .png", root)
    path.unlink()
    os.mkfifo(root / "south" / "benign" / "pipe.png")  # opening it would wait for ever
    refused("pipe.png is no file that can be read", root)


def test_links(root, tmp_path):
    draw(tmp_path / "elsewhere" / "secret.png")
    link = root / "south" / "benign" / "link.png"
    link.symlink_to(tmp_path / "elsewhere" / "secret.png")
    refused("link.png is a link that leads out", root)
    link.unlink()
    link.symlink_to(root / "south" / "benign" / "0.png")
    assert load(root).silos[1].max_count == 21  # a link is an image too
    link.unlink()
    link.symlink_to(link)
    refused("link.png is no file", root)
    link.unlink()
    (root / "west").symlink_to(tmp_path / "elsewhere")
    refused("west is a link that leads out", root)


@pytest.mark.parametrize("name", ["we\nst", "we\x1b[31mst", b"we\xffst"])
def test_names_that_cannot_be_shown(root, name):
    os.rename(os.fsencode(root / "south"), os.fsencode(root) + b"/" + os.fsencode(name))
    refused("silo folder .* has a name with characters that cannot be shown", root)


def test_names_are_not_markup(root, cli):
    (root / "south").rename(root / "[red]south")
    done = cli("data", "check", root)
    assert done.exit_code == 0, done.output
    assert "[red]south" in done.stdout


def test_tables_and_images_in_one_folder(root):
    (root / "people.csv").write_text("a,b\n1,2\n")
    refused("holds the table 'people.csv' and the folder 'north'", root)


@pytest.mark.parametrize("size", [0, 2000, 1.5, True])
def test_image_size(root, size):
    refused("image_size is", root, image_size=size)


def test_too_many_pixels_in_all(root, monkeypatch):
    monkeypatch.setattr("silodp.data.images.images.MAX_BYTES", 40 * 64 * 3 - 1)
    refused("40 images of 8 x 8 pixels take more than", root)


@pytest.mark.slow
def test_private_run(tmp_path, cli):
    fill(tmp_path / "scans", each=25, side=24)
    options = ("--image-size", "16", "--epsilon", "8", "--rounds", "1", "--no-cache")
    done = cli("run", "--data", tmp_path / "scans", *options, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "convnet" in (tmp_path / "out" / "result.json").read_text()
    assert entries() == []
