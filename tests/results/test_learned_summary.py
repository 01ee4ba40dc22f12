"""What a method learned, in words and pictures: made-up numbers, and one run from end to end."""

import json
import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from federations import two_kinds

import silodp
from silodp.pictures.learned_picture import PICTURES
from silodp.results.learned import (
    MOST_RELATED,
    along_one_line,
    by_budget,
    feature_names,
    found_beyond_noise,
    groups_of,
    is_summed_up,
    kept_lately,
    summed_up,
)

pytestmark = pytest.mark.usefixtures("kept_programs")

ONE_LINE = "\x1b[31m[bold]red$"
STRANGE = f"{ONE_LINE}\nline"


def relations_of(own):
    """Cosines between rows, and how long they are, once their mean is taken off."""
    own = own - own.mean(axis=0)
    sizes = np.maximum(np.linalg.norm(own, axis=1), 1e-30)
    return own @ own.T / np.outer(sizes, sizes), sizes


def centres(number, of_each, noise, seed=0, d=20):
    """Rows around so many centres in turn."""
    rng = np.random.default_rng(seed)
    places = np.arange(number * of_each) % number
    return rng.normal(size=(number, d))[places] + noise * rng.normal(size=(len(places), d))


def learned_of(own, kept=0.5, seeds=2, **more):
    """As a method learns it, equal in all seeds: arrays [seeds, ...]."""
    relations, sizes = relations_of(own)
    found = {
        "kept": np.broadcast_to(kept, (8, len(own))),
        "relations": relations,
        "sizes": sizes,
        "differs": np.sqrt(np.mean((own - own.mean(axis=0)) ** 2, axis=0)),
        "shares": np.ones((3, 1)) / 3,
    }
    return {name: np.stack([value] * seeds) for name, value in found.items()} | more


def told(own, epsilons=None, names=None, features=None, **learned):
    """What is said of made-up silos."""
    names = names or [f"silo {place}" for place in range(len(own))]
    learned = learned_of(own, **learned)
    return summed_up(learned, names, epsilons or [3.0] * len(own), features)


# --- groups


def found(own):
    return groups_of(found_beyond_noise(*relations_of(own), own.shape[1]))


# The last as measured on MNIST: cosines of 0.45 within a group, and of -0.17 between them.
@pytest.mark.parametrize(
    ("number", "of_each", "noise", "d"),
    [(4, 10, 0.2, 20), (4, 3, 0.2, 20), (2, 6, 0.2, 20), (3, 30, 0.2, 20), (4, 10, 1.1, 2000)],
)
def test_groups_are_found(number, of_each, noise, d):
    groups = found(centres(number, of_each, noise, d=d))
    assert groups == [list(range(k, number * of_each, number)) for k in range(number)]


@pytest.mark.parametrize(("silos", "d"), [(139, 1), (139, 29), (40, 3), (12, 500), (40, 5)])
def test_silos_that_are_evenly_spread_are_no_groups(silos, d):
    own = np.random.default_rng(0).normal(size=(silos, d))
    assert found(own) == []
    # Along few directions, with a little noise in all the others.
    assert found(np.c_[own[:, :2], 0.01 * np.random.default_rng(1).normal(size=(silos, 20))]) == []


def test_silos_along_one_line():
    own = np.outer(np.random.default_rng(0).normal(size=60), np.ones(5))
    assert along_one_line(*relations_of(own)) == pytest.approx(1)
    sentence = "No groups of silos stand out: 100 % of how they differ is more or less of one"
    assert any(said.startswith(sentence) for said in told(own)["summary"])


@pytest.mark.parametrize("own", [np.array([[1.0, 2], [3, 4]]), np.ones((5, 2))])
def test_two_silos_and_silos_all_alike(own):
    said = told(own)
    assert said["groups"] == []
    assert len(said["silos"]) == len(own)
    assert ("No groups of silos stand out." in said["summary"]) == (len(own) > 2)


def test_long_groups_are_cut():
    said = told(centres(2, 9, noise=0.1))["summary"][1]
    assert said.startswith(
        "2 groups of silos stand out: silo 0, silo 2, silo 4, silo 6, silo 8 and"
    )
    assert said.count("and 4 more") == 2


def test_relations_of_many_silos_are_left_out():
    said = told(centres(2, MOST_RELATED // 2 + 1, noise=0.1))
    assert len(said["groups"]) == 2
    assert any("left out" in sentence for sentence in said["summary"])


# --- how much is kept


def test_kept_is_that_of_the_last_quarter():
    kept = np.r_[np.ones((6, 2)), [[0.1, 0.3], [0.3, 0.5]]]
    np.testing.assert_allclose(kept_lately(kept), [0.2, 0.4])
    np.testing.assert_allclose(kept_lately(kept[:1]), [1, 1])


@pytest.mark.parametrize(
    ("kept", "verdict"),
    [
        ((0.12, 0.45), "the stricter lean more on the others"),
        ((0.45, 0.12), "the stricter keep more of their own"),
        ((0.301, 0.304), "budgets make no difference"),
    ],
)
def test_budgets(kept, verdict):
    said = told(centres(2, 2, 1.0), epsilons=[1.0, 10.0] * 2, kept=np.array(kept * 2))["summary"]
    first, second = (round(100 * one) for one in kept)
    expected = f"Silos with epsilon 1 keep {first} %, those with epsilon 10 keep {second} %"
    assert f"{expected}: {verdict}." in said


def test_budgets_without_order():
    own, kept = centres(3, 1, 1.0), np.array([0.1, 0.5, 0.3])
    said = told(own, epsilons=[1.0, 2.0, float("inf")], kept=kept)["summary"]
    assert any("epsilon inf keep 30 %: not in the order of their budgets." in one for one in said)


def test_equal_budgets_need_no_word():
    assert not any("epsilon" in sentence for sentence in told(centres(2, 3, 1.0))["summary"])


def test_many_budgets_are_three_parts():
    parts = by_budget([5.0, 1, 2, 3, 4, 6, 1])
    assert list(parts) == ["1 to 2", "3 to 4", "5 to 6"]
    assert [places.tolist() for places in parts.values()] == [[1, 2, 6], [3, 4], [0, 5]]


# --- in what silos differ


def test_features_are_ranked():
    scales = np.array([1.0, 5, 2, 3])
    own = scales * np.random.default_rng(0).choice([-1.0, 1], size=(8, 4))
    said = told(own, features=("age", STRANGE, "dose"))
    assert said["features"][0]["feature"] == STRANGE
    assert {row["feature"] for row in said["features"]} == {"age", STRANGE, "dose", "bias"}
    assert said["summary"][-1].isprintable()
    assert "bias; dose" in said["summary"][-1]


def test_features_of_several_classes_and_layers():
    by_class = np.array([[3.0, 4], [0, 1], [2, 0]])[None]
    own = centres(2, 3, 1.0)
    said = told(own, differs=by_class, features=("a", "b"))
    assert said["features"][:2] == [
        {"feature": "a", "differs": 5.0},
        {"feature": "bias", "differs": 2.0},
    ]
    layers = {"conv": {"w": np.full((1, 2, 2), 0.5), "b": np.zeros((1, 2))}}
    assert told(own, differs=layers)["layers"] == [
        {"layer": "model/conv/w", "differs": 0.5},
        {"layer": "model/conv/b", "differs": 0.0},
    ]


def test_features_without_names():
    assert feature_names((2,)) == ("feature 0", "feature 1")
    assert feature_names((1, 2, 1)) == ("feature (0, 0)", "feature (0, 1)")
    assert feature_names((2,), ("a", "b")) == ("a", "b")


def test_what_is_not_finite_or_not_there_is_left_alone():
    assert told(centres(2, 2, 1.0), kept=np.nan) == {}
    assert told(np.ones((1, 3))) == {}
    assert summed_up({"norms": np.ones(3)}, ["a"], [1.0], None) == {}


# --- from end to end


@pytest.fixture(scope="module")
def done(cli, tmp_path_factory):
    """Four silos of two kinds, two budgets, and a name that would command a terminal."""
    folder = tmp_path_factory.mktemp("learned")
    names = ["north", "south", "west", ONE_LINE]
    tables = []
    for name, silo in zip(names, two_kinds().silos, strict=True):
        x, y = (np.r_[getattr(silo.train, at), getattr(silo.test, at)] for at in "xy")
        tables.append(pd.DataFrame(x, columns=["age", "dose", "height", "weight"]))
        tables[-1] = tables[-1].assign(silo=name, target=y)
    pd.concat(tables).to_csv(folder / "table.csv", index=False)
    (folder / "policies.toml").write_text("[default]\nepsilon = 40\n[silos.north]\nepsilon = 10\n")
    args = ("--data", folder / "table.csv", "--silo-column", "silo", "--target", "target")
    args += ("--preprocess", "none", "--policies", folder / "policies.toml", "--delta", 1e-3)
    args += ("--method", "ebmtl", "--rounds", 20, "--lr", 0.3, "--out", folder / "out")
    done = cli("run", *args)
    assert done.exit_code == 0, done.stderr
    return folder / "out", done, args


def test_run_tells_what_was_learned(done):
    folder, shown, _ = done
    text = " ".join(shown.stdout.split())
    assert "What ebmtl learned:" in text
    assert "\x1b[31m" not in shown.stdout
    result = silodp.read_result(folder)
    assert is_summed_up(result)
    for sentence in result.learned["summary"]:
        assert " ".join(sentence.split()) in text
    budgets = {silo["silo"]: silo["epsilon"] for silo in result.learned["silos"]}
    assert budgets == {ONE_LINE: 40, "north": 10, "south": 40, "west": 40}
    assert result.learned["groups"] == [[ONE_LINE, "south"], ["north", "west"]]
    assert {row["feature"] for row in result.learned["features"]} > {"age", "weight", "bias"}
    assert np.shape(result.learned["kept"]) == (20, 4)
    assert result.learned.keys() > {"relations", "sizes", "differs", "shares"}
    assert json.loads((folder / "result.json").read_text())["learned"] == result.learned


def test_pictures_are_drawn(done, tmp_path):
    folder, _, _ = done
    assert {*PICTURES, "history.png"} == {name for name in os.listdir(folder) if "png" in name}
    result = silodp.read_result(folder)
    for path in silodp.draw_learned(result, tmp_path):
        assert path.read_bytes() == (folder / path.name).read_bytes()
    # Of so many silos that neither lines nor names have room.
    many = told(centres(3, 20, 0.2), epsilons=[1.0, 2.0] * 30)
    many |= {"kept": np.random.default_rng(0).random((40, 60)).tolist()}
    assert len(silodp.draw_learned(replace(result, learned=many), tmp_path / "many")) == 2
    with pytest.raises(silodp.SilodpError, match="holds nothing learned"):
        silodp.draw_learned(replace(result, learned=None), tmp_path)


def test_pictures_of_an_overwritten_run_go(done, cli):
    """Last, since it replaces what the others look at."""
    folder, _, args = done
    assert cli("run", *args, "--method", "local", "--overwrite", "--quiet").stdout == ""
    assert sorted(os.listdir(folder)) == ["history.png", "result.json"]
