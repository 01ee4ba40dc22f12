"""The claims of the paper, recomputed from the numbers in docs/results.

    python -m benchmarks.claims                          # are the page and its numbers at one?
    python -m benchmarks.claims --write                  # writes the numbers into the page
    python -m benchmarks.claims --results runs/results   # takes over pictures and numbers first

Each claim is a function: it reads CSV files and returns a verdict with the numbers that it rests on.
docs/results.md has a place for each of them between `<!-- claim: NAME -->` and `<!-- end -->`.
"""

import argparse
import math
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "results.md"
RESULTS = DOCS / "results"
LABELS = {
    "local": "local",
    "fedavg": "FedAvg",
    "finetune": "finetuning",
    "ditto": "Ditto",
    "mocha": "Mocha",
    "mrmtl": "MR-MTL",
    "meanpull": "mean pull",
    "ebmtl": "EB-MTL",
    "ifca 10%": "IFCA (10 %)",
    "ifca every round": "IFCA (every round)",
}
OTHERS = ("finetune", "ditto", "mocha", "ifca 10%")


class Outcome(NamedTuple):
    """What came of a claim: "reproduced", "partly" or "not reproduced", and why."""

    verdict: str
    said: str


CLAIMS: dict[str, Callable[[], str]] = {}


def claim(function: Callable[[], Outcome]) -> Callable[[], Outcome]:
    """Registers a claim under its name: a verdict and numbers."""

    def text() -> str:
        outcome = function()
        return f"**{outcome.verdict.capitalize()}.** {outcome.said}"

    CLAIMS[function.__name__.replace("_", "-")] = text
    return function


def block(function: Callable[[], str]) -> Callable[[], str]:
    """Registers numbers without a verdict."""
    CLAIMS[function.__name__.replace("_", "-")] = function
    return function


class Point(NamedTuple):
    """A mean over seeds, with its standard error; `sign` is 1 where lower is better."""

    mean: float
    error: float
    sign: int

    def ahead_of(self, other: "Point") -> bool:
        """By more than twice the standard error of the difference."""
        return self.lead(other) > 2 * math.hypot(self.error, other.error)

    def lead(self, other: "Point") -> float:
        """How far it is ahead."""
        return self.sign * (other.mean - self.mean)

    def __str__(self) -> str:
        return f"{self.mean:.5f}" if self.sign > 0 else f"{100 * self.mean:.1f} %"


class Numbers:
    """The CSV file of a figure."""

    def __init__(self, name: str):
        self.rows = pd.read_csv(RESULTS / f"{name}.csv")

    def select(self, **values: object) -> pd.DataFrame:
        rows = self.rows
        for column, value in values.items():
            rows = rows[rows[column] == value]
        return pd.DataFrame(rows)

    def at(self, **values: object) -> Point:
        """The one point with these values."""
        rows = self.select(**values)
        if len(rows) != 1:
            raise SystemExit(f"{len(rows)} rows have {values}, not one: are the results complete?")
        row = rows.iloc[0]
        error = float(row["standard_error"])
        sign = 1 if row["metric"] == "mse" else -1
        return Point(float(row["mean"]), 0.0 if math.isnan(error) else error, sign)

    def best(self, curves: Sequence[str], **values: object) -> tuple[str, Point]:
        """The curve that is best, with its point."""
        points = {curve: self.at(curve=curve, **values) for curve in curves}
        name = min(points, key=lambda curve: points[curve].sign * points[curve].mean)
        return name, points[name]

    def budgets(self, **values: object) -> list[float]:
        """The finite ones."""
        return sorted(x for x in self.select(**values)["epsilon"].unique() if x < math.inf)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def listed(budgets: Sequence[float]) -> str:
    return ", ".join(f"{budget:g}" for budget in budgets) or "none"


def over_budgets(numbers: Numbers, curves: Sequence[str], **values: object) -> str:
    """A table: curves down, budgets across."""
    budgets = [*numbers.budgets(**values), math.inf]
    budgets = [b for b in budgets if not numbers.select(epsilon=b, **values).empty]
    rows = [
        [
            LABELS.get(curve, curve),
            *(numbers.at(curve=curve, epsilon=budget, **values) for budget in budgets),
        ]
        for curve in curves
    ]
    heads = ["none" if math.isinf(budget) else f"{budget:g}" for budget in budgets]
    return table(["epsilon", *heads], rows)
