"""`silodp data show`, and the pictures of a federation."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from federations import small
from matplotlib.image import imread

from silodp import Federation, Records, Silo
from silodp.base.errors import SilodpError
from silodp.base.text import as_file_name, in_picture, shown
from silodp.data.registry import SOURCES, find_file
from silodp.pictures import data_pictures
from silodp.pictures.data_pictures import draw_contact_sheet, draw_heterogeneity, holds_images


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Pictures go below the folder that one is in."""
    monkeypatch.chdir(tmp_path)


def sides(path):
    """Width and height of a picture, which must not be empty."""
    assert Path(path).read_bytes().startswith(b"\x89PNG")
    picture = imread(path)
    assert picture[..., :3].std() > 0.01
    return picture.shape[1], picture.shape[0]


def images(silos=3, side=8, channels=1, pixels=True, task="multiclass", **more):
    rng = np.random.default_rng(0)

    def records(n):
        x = rng.integers(0, 256, (n, side, side, channels)).astype(np.uint8)
        y = rng.normal(size=n) if task == "regression" else np.arange(n) % 2
        return Records(x if pixels else x / 100 - 1, y)

    return Federation(
        "images",
        tuple(Silo(f"silo {k}", records(6), records(3)) for k in range(silos)),
        task,
        2 if task == "multiclass" else 0,
        pixels=(0.0, 1.0) if pixels else None,
        **more,
    )


# --- the command


def test_synthetic(cli):
    done = cli("data", "show", "synthetic", "--task", "binary", "--silos", "3", "--json")
    assert done.exit_code == 0
    content = json.loads(done.stdout)
    source = SOURCES["synthetic"]
    for field in ("name", "summary", "citation", "licence"):
        assert content[field] == getattr(source, field)
    assert content["defaults"]["model"] == "logistic"
    assert (content["in_paper"], content["by_hand"]) == (None, None)
    assert (content["task"], content["metric"], content["features"]) == ("binary", "accuracy", [20])
    assert [silo["name"] for silo in content["silos"]] == ["silo-01", "silo-02", "silo-03"]
    assert content["records"]["train"] == sum(silo["train"] for silo in content["silos"])
    for silo in content["silos"]:
        assert sum(silo["labels"].values()) == silo["train"]
    assert content["pictures"] == ["runs/data/synthetic/heterogeneity.png"]
    width, height = sides(content["pictures"][0])
    assert 800 < width < 3000
    assert 500 < height < 3000


def test_no_pictures_and_another_folder(cli, tmp_path):
    done = cli("data", "show", "synthetic", "--no-pictures")
    assert done.exit_code == 0
    assert "Default training: model linear, 50 rounds" in done.stdout
    assert "12 silos, regression" in done.stdout
    assert "Picture" not in done.stdout
    assert os.listdir() == []
    assert cli("data", "show", "synthetic", "--out", "here/mine").exit_code == 0
    assert os.listdir("here/mine") == ["heterogeneity.png"]
    Path("file").write_text("")
    done = cli("data", "show", "synthetic", "--out", "file")
    assert done.exit_code == 2
    assert "choose another --out" in done.stderr


def test_the_seed_draws_another_split(cli):
    def labels(seed):
        done = cli("data", "show", "synthetic", "--no-pictures", "--json", "--seed", seed)
        return [silo["labels"] for silo in json.loads(done.stdout)["silos"]]

    assert labels(0) == labels(0) != labels(1)


def test_options_are_those_of_a_run(cli, sentence):
    assert "--task is 'sorting'" in sentence(cli("data", "show", "synthetic", "--task", "sorting"))
    assert "--silos is 0" in sentence(cli("data", "check", "synthetic", "--silos", "0"))
    assert "'rotations'" in sentence(cli("data", "show", "synthetic", "--rotations", "2"))
    done = cli("data", "check", "synthetic", "--silos", "3", "--density", "0.5", "--json")
    assert len(json.loads(done.stdout)["silos"]) == 3


def test_school(cli):
    try:
        find_file("school", "school.mat")
    except SilodpError:
        pytest.skip("school.mat is not here; set SILODP_DATA")
    content = json.loads(cli("data", "show", "school", "--json", "--no-pictures").stdout)
    assert len(content["silos"]) == 139
    paper = {"silos": 139, "features": [28], "least": 15, "most": 175, "before_split": False}
    assert content["in_paper"] == paper
    assert content["records"] == {"train": 12238, "test": 3124}
    assert content["origins"] == [SOURCES["school"].files[0].origin]
    printed = cli("data", "show", "school", "--no-pictures").stdout
    assert (
        "Paper: 139 silos, 15 to 175 training records, 28 features; here: 139 silos, 17 to 200 "
        "training records, 28 features." in printed
    )


def test_without_the_files(cli, monkeypatch, tmp_path):
    monkeypatch.delenv("SILODP_DATA", raising=False)
    monkeypatch.setenv("SILODP_CACHE", str(tmp_path / "nowhere"))
    source = replace(SOURCES["school"], by_hand="Ask the owners.")
    monkeypatch.setitem(SOURCES, "school", source)
    done = cli("data", "show", "school")
    assert done.exit_code == 2
    for known in (
        source.summary,
        source.citation,
        source.licence,
        "Ask the owners.",
        "model linear",
    ):
        assert known in done.stdout
    assert "school.mat was not found" in done.stderr
    done = cli("data", "show", "school", "--json")
    assert done.exit_code == 2
    content = json.loads(done.stdout)
    assert content["licence"] == source.licence
    assert "silos" not in content
    assert not Path("runs").exists()


def test_own_table_with_strange_names(cli):
    rows = ["site,age,score"]
    for site in ('"$\\frac{$"', '"new\nline"', '"\x1b[31mred"', "[b]old", "x" * 300):
        rows += [f"{site},{age},{age / 2}" for age in range(30)]
    Path("my $data$ [b].csv").write_text("\n".join(rows))
    options = ("my $data$ [b].csv", "--silo-column", "site", "--target", "score")
    done = cli("data", "show", *options)
    assert done.exit_code == 0
    assert "\x1b[31m" not in done.stdout
    assert "epsilon does not cover them" in done.stdout
    sides("runs/data/my_data_b/heterogeneity.png")
    done = cli("data", "show", *options, "--json")
    assert json.loads(done.stdout)["pictures"] == ["runs/data/my_data_b/heterogeneity.png"]
    assert "epsilon does not cover them" in done.stderr


# --- names


def test_names():
    assert shown("a\nb\x1b[0m\u202e") == r"a\nb\x1b[0m\u202e"
    assert len(shown("x" * 300)) == 40
    assert in_picture("$x$") == r"\$x\$"
    assert as_file_name("../../etc/pass wd") == "etc_pass_wd"
    assert as_file_name("..") == as_file_name("") == "data"
    federation = small("binary")
    assert (federation.class_name(-1.0), federation.class_name(1.0)) == ("-1", "1")
    named = replace(federation, class_names=("well", "ill"))
    assert (named.class_name(-1.0), named.class_name(1.0)) == ("well", "ill")


# --- pictures


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass"])
@pytest.mark.parametrize("silos", [1, 60])
def test_heterogeneity(tmp_path, task, silos):
    federation = small(task, sizes=[20 + 40 * k for k in range(silos)])
    path = draw_heterogeneity(federation, tmp_path / "a" / "b.png")
    assert sides(path) == (1600, 1152)
    assert os.listdir(path.parent) == ["b.png"]


def test_shares_of_classes():
    shares = data_pictures._class_shares(small("multiclass", classes=3))
    assert shares.shape == (3, 3)
    np.testing.assert_allclose(shares.sum(1), 1)
    binary = small("binary")
    shares = data_pictures._class_shares(binary)
    assert shares[0, 1] == np.mean(binary.silos[0].train.y > 0)


@pytest.mark.parametrize("pixels", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
def test_contact_sheet(tmp_path, pixels, channels):
    federation = images(channels=channels, pixels=pixels, class_names=("cat $", "dog\n"))
    assert holds_images(federation)
    sides(draw_contact_sheet(federation, tmp_path / "sheet.png"))


def test_images_have_one_size_and_all_parts_of_a_federation_show(tmp_path):
    few = sides(draw_contact_sheet(images(2), tmp_path / "few.png"))
    many = sides(draw_contact_sheet(images(40), tmp_path / "many.png"))
    assert few[0] == many[0]
    row = data_pictures._ROW_HEIGHT * data_pictures._INCHES * 160
    assert many[1] - few[1] == pytest.approx(10 * row, abs=2)
    places = data_pictures._spread(40, 12)
    assert (len(places), places[0], places[-1]) == (12, 0, 39)
    assert {place % 4 for place in places} == {0, 1, 2, 3}
    assert data_pictures._spread(3, 12) == [0, 1, 2]


def test_regression_on_images(cli, tmp_path, monkeypatch):
    federation = images(task="regression", channels=3)
    source = replace(SOURCES["synthetic"], read=lambda seed, options: federation)
    monkeypatch.setitem(SOURCES, "synthetic", source)
    done = cli("data", "show", "synthetic", "--json")
    pictures = json.loads(done.stdout)["pictures"]
    assert [re.sub(".*/", "", picture) for picture in pictures] == [
        "heterogeneity.png",
        "contact_sheet.png",
    ]
    for picture in pictures:
        sides(picture)


def test_no_image():
    assert not holds_images(small())
    assert not holds_images(images(channels=2))
