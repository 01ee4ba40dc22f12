"""`ebmtl` with one setting against every other method at its best: the tables of docs/ebmtl.md.

The others get the best of a grid of lambda and learning rate for each budget, at no charge to
them; `ebmtl` gets one learning rate for all. With --choices: what each part of it is worth.

python -m benchmarks.ebmtl [--quick] [--preprocess paper] [--choices] [--budgets] [--json FILE]
"""

import argparse
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import silodp
from benchmarks import machine, workloads
from silodp.config.options import tagged
from silodp.results.result import Result

EPSILONS = (0.5, 1.0, 2.0, 3.0, 6.0, 10.0, math.inf)
LEARNING_RATES = [0.003, 0.01, 0.03, 0.1]
LR = 0.02  # of ebmtl, for all budgets
GRIDS: dict[str, dict[str, Any]] = {
    "local": {},
    "fedavg": {},
    "finetune": {"finetune_fraction": [0.25, 0.5, 0.75]},
    "mrmtl": {"lam": [0.01, 0.03, 0.1, 0.3, 1, 3, 10]},
    "meanpull": {"lam": [0.003, 0.01, 0.03, 0.1, 0.3, 1, 3]},
    "ditto": {"lam": [0.03, 0.1, 0.3, 1, 3, 10]},
    "mocha": {"lam": [0.1, 0.3, 1, 3, 10]},
    "ifca": {"clusters": 3},
    "ifca+mrmtl": {"clusters": 3, "lam": [0.1, 0.3, 1, 3]},
    "ifca+meanpull": {"clusters": 3, "lam": [0.03, 0.1, 0.3]},
}
QUICK = ("local", "mrmtl")  # of them, in a quick run
CHOICES: dict[str, dict[str, float] | None] = {
    "ebmtl": None,
    "the last model, no mean over rounds": {"average": 0},
    "no account of sampling": {"sampling": 0},
    "the mean by records alone": {"precision": 0},
    "by coordinate alone": {"only": 1},
    "by relations alone": {"only": 2},
    "all of its own (local)": {"only": 3},
}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="A small federation, few rounds.")
    parser.add_argument("--preprocess", default="bounds", help="School's: bounds or paper.")
    parser.add_argument("--choices", action="store_true", help="What each part is worth.")
    parser.add_argument("--budgets", action="store_true", help="Three budgets in one federation.")
    parser.add_argument("--json", type=Path, help="File for the numbers.")
    asked = parser.parse_args()
    print(machine.describe())
    common: dict[str, Any] = dict(workloads.school(asked.quick).options)
    common = {
        name: value for name, value in common.items() if name not in (*tagged("swept"), "method")
    }
    common["seeds"] = 2 if asked.quick else 5
    if "data" in common:  # records from Python, where School is missing, are as they are
        common["preprocess"] = asked.preprocess
    if asked.budgets:
        rows = three_budgets(common)
    elif asked.choices:
        rows = each_choice(common)
    else:
        rows = against_the_best(common, QUICK if asked.quick else tuple(GRIDS))
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=2))


def against_the_best(common: dict[str, Any], methods: Sequence[str]) -> list[dict[str, Any]]:
    """Each of these methods, tuned; and ebmtl, which is not."""
    best: dict[str, list[Result]] = {}
    for method in methods:
        best[method] = tuned(common, method, lr=LEARNING_RATES, **GRIDS[method])
        _print(method, best[method])
    ours = tuned(common, "ebmtl", lr=LR)
    _print("ebmtl", ours)
    rows = []
    for place, epsilon in enumerate(EPSILONS):
        method = min(best, key=lambda name: best[name][place].mean)
        other, own = best[method][place], ours[place]
        change = own.mean / other.mean - 1
        error = _standard_error(own, other)
        rows.append(
            {
                "epsilon": str(epsilon),
                "ebmtl": own.mean,
                "best": other.mean,
                "method": method,
                "lr": other.options["lr"],
                "lam": other.options.get("lam"),
                "change": change,
                "standard_error": error / other.mean,
            }
        )
        print(
            f"epsilon {epsilon:4g}: ebmtl {own.mean:.5f}, best other {other.mean:.5f} ({method}): "
            f"{100 * change:+.1f} % (standard error {100 * error / other.mean:.1f} %)"
        )
    return rows


def each_choice(common: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each part that is left out."""
    rows = []
    for name, options in CHOICES.items():
        results = tuned(common, "ebmtl", lr=LR, method_options=options)
        _print(name, results)
        rows.append({"choice": name, "mse": [result.mean for result in results]})
    return rows


def three_budgets(common: dict[str, Any]) -> list[dict[str, Any]]:
    """A third of the silos each at epsilon 1, 3 and 10: by budget, and weights compared."""
    names = silodp.plan(**common, method="local", epsilon=6).federations[0].names
    budgets = [(1, 3, 10)[number % 3] for number in range(len(names))]
    lines = [
        f"[silos.{json.dumps(n)}]\nepsilon = {e}\n" for n, e in zip(names, budgets, strict=True)
    ]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policies.toml"
        path.write_text("[default]\nepsilon = 1\ndelta = 1e-3\n" + "".join(lines))
        kinds = {
            "ebmtl": {"method": "ebmtl"},
            "ebmtl, equal weighting": {
                "method": "ebmtl",
                "method_options": {"precision": 0},
                "weights": "uniform",
            },
            "ebmtl, weights by records": {"method": "ebmtl", "method_options": {"precision": 0}},
            "fedavg": {"method": "fedavg"},
            "meanpull, lambda 0.3": {"method": "meanpull", "lam": 0.3},
        }
        asked = {n: v for n, v in common.items() if n not in ("delta", "epsilon")}
        for kind, options in kinds.items():
            result = silodp.run(**asked, **options, lr=LR, policies=path)
            by_silo = np.array([silo["mean"] for silo in result.per_silo])
            by_budget = [float(by_silo[np.array(budgets) == e].mean()) for e in (1, 3, 10)]
            print(
                f"{kind:28} {result.mean:.5f}  by budget 1, 3, 10: "
                + " ".join(f"{m:.5f}" for m in by_budget)
            )
            rows.append(
                {
                    "kind": kind,
                    "mse": result.mean,
                    "by_budget": by_budget,
                    "by_silo": by_silo.tolist(),
                }
            )
    return rows


def tuned(common: dict[str, Any], method: str, **options: Any) -> list[Result]:
    """The best result of the grid for each budget."""
    results = silodp.sweep(**common, method=method, epsilon=list(EPSILONS), **options)
    by_budget: dict[float, list[Result]] = {epsilon: [] for epsilon in EPSILONS}
    for result in results:
        if math.isfinite(result.mean):
            by_budget[float(result.options["epsilon"])].append(result)
    return [min(of_budget, key=lambda result: result.mean) for of_budget in by_budget.values()]


def _standard_error(own: Result, other: Result) -> float:
    """Of the difference of means: seeds have the same split of the data."""
    gaps = np.subtract(own.test["per_seed"], other.test["per_seed"])
    return float(gaps.std(ddof=1) / math.sqrt(len(gaps)))


def _print(name: str, results: list[Result]) -> None:
    print(f"{name:36}" + " ".join(f"{result.mean:.5f}" for result in results), flush=True)


if __name__ == "__main__":
    main()
