"""Numbers of docs/results, and what claims are made of."""

import csv
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parents[2] / "docs" / "results"
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
    "ifca 20%": "IFCA (20 %)",
    "ifca 20%+local": "local after IFCA",
    "ifca 20%+mrmtl": "MR-MTL after IFCA",
    "ifca every round": "IFCA (every round)",
}


Row = dict[str, Any]


class Outcome(NamedTuple):
    """What came of a claim: "reproduced", "partly" or "not reproduced", and why."""

    verdict: str
    said: str


def judged(*holds: bool) -> str:
    """The verdict on a claim of these parts."""
    return "reproduced" if all(holds) else "partly" if any(holds) else "not reproduced"


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
    """A mean over seeds; `sign` is 1 where lower is better."""

    values: tuple[float, ...]  # of each seed
    sign: int

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    def lead(self, other: "Point") -> float:
        """How far it is ahead."""
        return self.sign * (other.mean - self.mean)

    def ahead_of(self, other: "Point") -> bool:
        """By more than twice the standard error: seeds share splits, so their differences count."""
        if len(self.values) == 1:
            return self.lead(other) > 0
        pairs = zip(self.values, other.values, strict=True)
        differences = [self.sign * (theirs - mine) for mine, theirs in pairs]
        error = statistics.stdev(differences) / math.sqrt(len(differences))
        return statistics.fmean(differences) > 2 * error

    def __str__(self) -> str:
        return f"{self.mean:.5f}" if self.sign > 0 else f"{100 * self.mean:.1f} %"


class Numbers:
    """A CSV file of docs/results: of a figure, the points that are drawn."""

    def __init__(self, name: str):
        with (RESULTS / f"{name}.csv").open(encoding="utf-8") as file:
            self.rows = [{n: _value(v) for n, v in row.items()} for row in csv.DictReader(file)]

    def select(self, **values: object) -> list[Row]:
        """The rows with these values."""
        return [row for row in self.rows if all(row[n] == v for n, v in values.items())]

    def row(self, **values: object) -> Row:
        """The one row with these values."""
        rows = self.select(**values)
        if len(rows) != 1:
            raise SystemExit(f"{len(rows)} rows have {values}, not one: are the results complete?")
        return rows[0]

    def at(self, **values: object) -> Point:
        """Its mean."""
        row = self.row(**values)
        seeds = tuple(float(value) for value in str(row["per_seed"]).split())
        return Point(seeds, 1 if row["metric"] == "mse" else -1)

    def different(self, column: str, **values: object) -> list[Any]:
        """The values of a column, in order."""
        return sorted({row[column] for row in self.select(**values)})

    def budgets(self, **values: object) -> list[float]:
        """The finite ones."""
        return [x for x in self.different("epsilon", **values) if x < math.inf]

    def curves(self, **values: object) -> list[str]:
        """The names of those that have a point."""
        known = self.different("curve", **values)
        return [curve for curve in LABELS if curve in known]

    def best(self, curves: Sequence[str], **values: object) -> tuple[str, Point]:
        """The curve that is best, with its point."""
        points = {curve: self.at(curve=curve, **values) for curve in curves}
        name = min(points, key=lambda curve: points[curve].sign * points[curve].mean)
        return name, points[name]


def _value(cell: str) -> Any:
    if cell in ("True", "False"):
        return cell == "True"
    try:
        return float(cell)
    except ValueError:
        return cell


def table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def listed(budgets: Sequence[float]) -> str:
    return ", ".join(f"{budget:g}" for budget in budgets) or "none"


def over_budgets(numbers: Numbers, curves: Sequence[str], **values: object) -> str:
    """A table: curves down, budgets across."""
    budgets = [*numbers.budgets(**values), math.inf]
    budgets = [b for b in budgets if numbers.select(epsilon=b, **values)]
    rows = [
        [
            LABELS[curve],
            *(numbers.at(curve=curve, epsilon=budget, **values) for budget in budgets),
        ]
        for curve in curves
    ]
    heads = ["none" if math.isinf(budget) else f"{budget:g}" for budget in budgets]
    return table(["epsilon", *heads], rows)


def budgets_where(numbers: Numbers, ahead: str, *behind: str, **values: object) -> list[float]:
    """The budgets at which a curve is ahead of all others named."""
    return [
        budget
        for budget in numbers.budgets(**values)
        if all(
            numbers.at(curve=ahead, epsilon=budget, **values).ahead_of(
                numbers.at(curve=other, epsilon=budget, **values)
            )
            for other in behind
        )
    ]


def per_cent(better: Point, worse: Point) -> str:
    """How much lower an error is; of accuracies, how many points more."""
    if better.sign > 0:
        return f"{100 * (worse.mean - better.mean) / worse.mean:.1f} %"
    return f"{100 * (better.mean - worse.mean):.1f} points"
