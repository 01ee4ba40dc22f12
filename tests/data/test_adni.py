import numpy as np
import pytest
from pictures import draw
from PIL import Image

from silodp.base.errors import SilodpError
from silodp.data.registry import SOURCES, DataOptions, resolve
from silodp.data.sources.adni import read_labels
from silodp.data.split import PAPER_SPLIT, authors_seed, train_test_split

ADNI = SOURCES["adni"]


def file_name(patient, image):
    return (
        f"ADNI_016_S_{patient}_PT_AV45_Coreg,_Avg,_Std_Img_and_Vox_Siz,_Uniform_Resolution_Br_"
        f"20100927170934088_44_S92690_{image}.png"
    )


def suvr(maker, number):
    return round(0.8 + 0.05 * number + (0.5 if maker == "SIEMENS" else 0), 3)


def fill(home, folder="adni_data2", labels="labels_2.txt", each=12):
    """Two makers; every three images are of one patient. The images are small, but for some."""
    lines = []
    for start, maker in enumerate(("SIEMENS", "GEMS")):
        for number in range(each):
            patient, image = f"{start}{number // 3:03}", f"I{start}{number:05}"
            draw(home / folder / maker / file_name(patient, image), start * 100 + number, side=32)
            lines.append(f"{patient},{image},{suvr(maker, number)}")
    (home / labels).write_text("\n".join(lines) + "\n")


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    monkeypatch.delenv("SILODP_DATA", raising=False)
    monkeypatch.setenv("SILODP_CACHE", str(tmp_path / "cache"))
    fill(tmp_path / "data" / "adni")
    return tmp_path / "data"


def load(data_dir, seed=0, **options):
    return ADNI.load(seed, DataOptions(data_dir=data_dir, **options))


def refused(words, data_dir, **options):
    with pytest.raises(SilodpError, match=words) as error:
        load(data_dir, **options)
    assert str(error.value).endswith(".")
    assert "\n" not in str(error.value)


def labels_of(data_dir):
    return data_dir / "adni" / "labels_2.txt"


def test_makers_are_silos(data_dir):
    federation = load(data_dir, seed=2)
    assert federation.names == ("GEMS", "SIEMENS")
    assert federation.task == "regression"
    assert federation.input_shape == (32, 32, 1)
    assert federation.pixels == (0, 1)
    assert federation.declared == ("feature bounds",)
    assert federation.uncovered == (PAPER_SPLIT,)
    assert not federation.by_subject
    # Each silo is split with a seed of its own, and the values stay as they are.
    for index, silo in enumerate(federation.silos):
        train, test = train_test_split(12, 0.25, authors_seed(2) + index)
        np.testing.assert_allclose(silo.train.y, [suvr(silo.name, n) for n in train], rtol=1e-6)
        np.testing.assert_allclose(silo.test.y, [suvr(silo.name, n) for n in test], rtol=1e-6)
        first = sorted((data_dir / "adni" / "adni_data2" / silo.name).iterdir())[train[0]]
        np.testing.assert_array_equal(silo.train.x[0, ..., 0], np.asarray(Image.open(first)))
    assert load(data_dir, preprocess="bounds").pixels == (-1, 1)


def test_other_places(data_dir, tmp_path):
    fill(tmp_path / "plain" / "adni", folder="", labels="labels.csv")
    path = tmp_path / "plain" / "adni" / "labels.csv"
    path.write_text("\ufeffPatient, image, value\r\n" + path.read_text() + "\n")
    one, two = load(data_dir), load(tmp_path / "plain")
    np.testing.assert_array_equal(one.silos[1].train.x, two.silos[1].train.x)
    np.testing.assert_array_equal(one.silos[1].train.y, two.silos[1].train.y)


def test_images_become_small_and_grey(data_dir):
    folder = data_dir / "adni" / "adni_data2" / "GEMS"
    draw(folder / file_name("1000", "I100000"), side=160, colour=True)
    assert load(data_dir).input_shape == (32, 32, 1)
    assert load(data_dir, image_size=20).input_shape == (20, 20, 1)


def test_patients_are_subjects(data_dir):
    federation = load(data_dir, subject_column="patient")
    assert federation.unit_counts.tolist() == [3, 3]
    assert federation.train_counts.tolist() == [9, 9]
    refused("subject_column is 'person'.* give 'patient'", data_dir, subject_column="person")


def test_images_without_a_value(data_dir):
    path = labels_of(data_dir)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[1:-1]))
    words = (
        r"no value for 2 images \(the first is of silo 'GEMS', patient '1003', image 'I100011'\)"
    )
    refused(words, data_dir)
    federation = load(data_dir, drop_missing=True)
    assert (federation.train_counts + federation.test_counts).tolist() == [11, 11]
    path.write_text("\n".join(lines[:12]))
    refused("Silo 'GEMS' has no image with a value", data_dir, drop_missing=True)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0702,I1,nan", "the value 'nan' is no SUVR"),
        ("0702,I1,inf", "the value 'inf' is no SUVR"),
        ("0702,I1,0", "the value '0' is no SUVR"),
        ("0702,I1,-1.2", "the value '-1.2' is no SUVR"),
        ("0702,I1,10.5", "the value '10.5' is no SUVR"),
        ("0702,I1,high", "the value 'high' is no SUVR"),
        ("0702,I1", "is '0702,I1': write patient,image,value"),
        (",I1,1.2", "write patient,image,value"),
        ("0702,I1,1,2", "write patient,image,value"),
        ("0000,I000000,1.75", "has the value 1.75, but 1.3 before"),
    ],
)
def test_bad_labels(data_dir, line, words):
    path = labels_of(data_dir)
    path.write_text(path.read_text() + line + "\n")
    refused(f"labels_2.txt, line 25.*{words}", data_dir)


def test_labels_may_repeat_themselves_and_must_be_there(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_text("0702,I1,1.2\n\n0702,I1,1.20\n0702,I2,1.3\n")
    assert read_labels(path) == {("0702", "I1"): 1.2, ("0702", "I2"): 1.3}
    path.write_text("patient,image,value\n")
    with pytest.raises(SilodpError, match="holds no labels"):
        read_labels(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SilodpError, match="UTF-8"):
        read_labels(path)


def test_strange_files(data_dir):
    folder = data_dir / "adni" / "adni_data2"
    (folder / "GEMS" / ".DS_Store").write_bytes(b"")
    (folder / "GEMS" / "notes.txt").write_text("no image")
    (folder / "HERMES").mkdir()  # without images it is no silo
    assert load(data_dir).names == ("GEMS", "SIEMENS")
    draw(folder / "HERMES" / "more" / file_name("0001", "I1"))
    refused("HERMES: the images in the folder 'more' would be left out", data_dir)
    draw(folder / "GEMS" / "more" / file_name("0001", "I1"))
    refused("GEMS: the images in the folder 'more' would be left out", data_dir)


@pytest.mark.parametrize("name", ["scan.png", "ADNI_016_S_0702_S92690.png", "a_b_c_0702_I1.jpg"])
def test_strange_names(data_dir, name):
    draw(data_dir / "adni" / "adni_data2" / "GEMS" / name)
    refused(f"Silo 'GEMS': the image '{name}' is not named as ADNI's", data_dir)


def test_a_silo_of_one_image(data_dir):
    draw(data_dir / "adni" / "adni_data2" / "MiE" / file_name("0000", "I000000"))
    refused("Silo 'MiE' has 1 record, too few", data_dir)


def test_what_is_missing_is_said(tmp_path, data_dir):
    refused(
        r"not found at \S*nowhere/adni, .*apply for access at https://adni", tmp_path / "nowhere"
    )
    labels_of(data_dir).unlink()
    refused(r"none of labels_2.txt, labels.txt, labels.csv is in", data_dir)
    (tmp_path / "bare" / "adni").mkdir(parents=True)
    (tmp_path / "bare" / "adni" / "labels.txt").write_text("0702,I1,1.2")
    refused("no folder beside .* holds images", tmp_path / "bare")


def test_settings_are_those_of_the_paper():
    source = resolve("adni")
    defaults = source.defaults
    assert (defaults.model, defaults.rounds, defaults.batch_size) == ("convnet5", 500, 64)
    assert (defaults.clip, defaults.small_silos) == (0.5, "full-batch")
    assert "Data_Use_Agreement" in source.by_hand
    assert "acknowledgement" in source.licence


@pytest.mark.slow
def test_private_run(data_dir, cli):
    done = cli("run", "--data", "adni", "--data-dir", data_dir, "--epsilon", "8", "--rounds", "1")
    assert done.exit_code == 0, done.output


def test_the_folder_given_may_be_adni_itself(data_dir):
    one, other = load(data_dir), load(data_dir / "adni")
    assert one.names == other.names
    np.testing.assert_array_equal(one.silos[0].train.x, other.silos[0].train.x)
