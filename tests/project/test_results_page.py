"""docs/results.md says what its numbers say, and the numbers are what runs give."""

import csv
import math
import os
import random
from pathlib import Path

import numpy as np
import pytest

import silodp
from benchmarks.results.__main__ import PAGE, with_numbers
from benchmarks.results.numbers import RESULTS, Numbers, Point

needs_school = pytest.mark.skipif(
    not (Path(os.environ.get("SILODP_DATA") or "nowhere") / "school" / "school.mat").exists(),
    reason="school.mat is not at hand: set SILODP_DATA to a folder that holds school/school.mat",
)
SETTINGS = ("method", "epsilon", "lr", "lam", "finetune_fraction", "clusters", "select_fraction")


def test_every_number_of_the_page_is_computed_from_the_files():
    page = PAGE.read_text(encoding="utf-8")
    assert with_numbers(page) == page


def test_every_picture_of_the_page_is_there():
    page = PAGE.read_text(encoding="utf-8")
    named = [part.split(")")[0] for part in page.split("](results/")[1:]]
    assert len(named) > 8
    for name in named:
        assert (RESULTS / name).stat().st_size > 10_000
        assert (RESULTS / name).with_suffix(".csv").exists()


def test_a_wrong_number_on_the_page_is_found():
    page = PAGE.read_text(encoding="utf-8")
    number = Numbers("school").at(panel="paper", curve="mrmtl", epsilon=6.0)
    assert str(number) in page
    wrong = page.replace(str(number), "0.01234")
    assert with_numbers(wrong) == page


def test_ahead_is_judged_seed_by_seed():
    # Seeds differ by far more than the two: their differences do not.
    better, worse = Point((1.0, 2.0, 3.0), 1), Point((1.1, 2.1, 3.2), 1)
    assert better.ahead_of(worse)
    assert not worse.ahead_of(better)
    assert not Point((1.0, 2.0, 3.0), 1).ahead_of(Point((0.5, 2.0, 4.0), 1))
    assert Point((0.9, 0.8), -1).ahead_of(Point((0.7, 0.6), -1))


def settings_of_school() -> list[dict[str, str]]:
    with (RESULTS / "school-settings.csv").open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["mean"]]


def check(row: dict[str, str]) -> None:
    kinds = {"method": str, "clusters": lambda cell: int(float(cell))}
    options = {name: kinds.get(name, float)(row[name]) for name in SETTINGS if row[name]}
    found = silodp.run(data="school", preprocess=row["preprocess"], seeds=2, **options)
    told = [float(value) for value in row["per_seed"].split()][:2]
    # Their last bits depend on what was trained beside them.
    np.testing.assert_allclose(found.test["per_seed"], told, rtol=2e-4)
    assert max(found.epsilons) == pytest.approx(float(row["epsilon_spent"]), rel=1e-6)
    assert max(found.epsilons) <= float(row["epsilon"]) or math.isinf(float(row["epsilon"]))


@pytest.mark.slow
@needs_school
def test_a_setting_of_the_table_is_what_a_run_gives():
    rows = settings_of_school()
    (row,) = [
        row
        for row in rows
        if (row["panel"], row["method"], row["epsilon"], row["lr"], row["lam"])
        == ("paper", "mrmtl", "3", "0.01", "3")
    ]
    check(row)


@pytest.mark.slow
@needs_school
@pytest.mark.parametrize("seed", range(8))
def test_settings_drawn_at_random_are_what_runs_give(seed):
    check(random.Random(seed).choice(settings_of_school()))
