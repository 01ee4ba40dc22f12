"""`fewround` beside `ebmtl` on the same records: seconds and errors; and how its time grows.

And what `silodp advise --messages` predicts before a run, beside what the run then does.

python -m benchmarks.fewround [--quick] [--json FILE]
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import silodp
from benchmarks import machine, workloads
from silodp import Federation, Records, Silo
from silodp.results.result import Result

EPSILONS = (0.5, 1.0, 2.0, 3.0, 6.0, 10.0)
# Silos, features, records of each.
SIZES = ((100, 20, 100), (1000, 20, 100), (100, 100, 100), (1000, 100, 100))
QUICK_SIZES = ((5, 3, 20),)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="A small federation.")
    parser.add_argument("--json", type=Path, help="File for the numbers.")
    asked = parser.parse_args()
    print(machine.describe())
    rows = beside_ebmtl(asked.quick) + growth(QUICK_SIZES if asked.quick else SIZES)
    rows += predictions(asked.quick)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=2))


def beside_ebmtl(quick: bool) -> list[dict[str, Any]]:
    """School at each budget, by both methods at their defaults, one after the other."""
    work = workloads.school(quick)
    common = {**work.source, "delta": work.delta, "seeds": 1 if quick else 5}
    rounds = {"rounds": work.rounds, "small_silos": "full-batch"}
    rows = []
    for epsilon in EPSILONS[:1] if quick else EPSILONS:
        few, few_seconds = _timed(method="fewround", epsilon=epsilon, **common)
        many, many_seconds = _timed(method="ebmtl", epsilon=epsilon, **rounds, **common)
        print(
            f"epsilon {epsilon:4g}: fewround {few.mean:.5f} in {few_seconds:6.2f} s, ebmtl "
            f"{many.mean:.5f} in {many_seconds:6.2f} s ({many_seconds / few_seconds:.1f} times)"
        )
        rows.append(
            {"epsilon": epsilon, "fewround": few.mean, "ebmtl": many.mean}
            | {"fewround_seconds": few_seconds, "ebmtl_seconds": many_seconds}
        )
    return rows


def growth(sizes: tuple[tuple[int, int, int], ...]) -> list[dict[str, Any]]:
    """Seconds for federations of these sizes, in three messages."""
    rows = []
    for silos, features, records in sizes:
        federation = made_up(silos, features, records)
        result, seconds = _timed(method="fewround", federation=federation, epsilon=2, delta=1e-5)
        print(f"{silos:5} silos, {features:4} features, {records} records: {seconds:6.2f} s")
        sizes_of = {"silos": silos, "features": features, "records": records}
        rows.append(sizes_of | {"seconds": seconds, "mse": result.mean})
    return rows


def predictions(quick: bool) -> list[dict[str, Any]]:
    """What part of what features tell models have: predicted from public numbers, and found.

    The constant prediction has nothing, and the same run without privacy has all.
    """
    work = workloads.school(quick)
    # Of the made-up silos: the deviation of labels, and what a common model loses.
    guesses: dict[str, dict[str, Any]] = {"made up": {"sigma": 0.34, "tau": 0.15}}
    sources: dict[str, dict[str, Any]] = {
        "School": {**work.source, "delta": work.delta},
        "made up": {
            "federation": made_up(*(QUICK_SIZES[0] if quick else (30, 8, 80))),
            "delta": 1e-4,
        },
    }
    rows = []
    for name, source in sources.items():
        common = {**source, "method": "fewround", "seeds": 1 if quick else 5}
        best = silodp.run(epsilon=float("inf"), **common)
        for epsilon in EPSILONS[:1] if quick else (0.25, *EPSILONS):
            for messages in (1, 3):
                asked = source | guesses.get(name, {})
                advice = silodp.advise_messages(epsilon=epsilon, messages=messages, **asked)
                low, high = advice.at(messages)
                result = silodp.run(epsilon=epsilon, messages=messages, **common)
                constant = result.metrics[0]["no_skill"]["mean"]
                found = (constant - result.mean) / (constant - best.mean)
                print(f"{name}, {epsilon:4g}, {messages}: {low:.2f} to {high:.2f}, {found:.2f}")
                rows.append(
                    {"data": name, "epsilon": epsilon, "messages": messages}
                    | {"low": low, "high": high, "found": found}
                )
    return rows


def made_up(silos: int, features: int, records: int) -> Federation:
    """Silos with linear truths that differ from silo to silo."""
    random = np.random.default_rng(0)
    mean = random.normal(size=features) / np.sqrt(features)

    def drawn(count: int, truth: np.ndarray) -> Records:
        x = np.clip(0.5 * random.normal(size=(count, features)), -1, 1)
        return Records(x, x @ truth + 0.1 * random.normal(size=count))

    def silo(number: int) -> Silo:
        truth = mean + 0.3 * random.normal(size=features) / np.sqrt(features)
        return Silo(f"silo {number}", drawn(records, truth), drawn(20, truth))

    made = tuple(silo(number) for number in range(silos))
    return Federation("made up", made, "regression", feature_bound=1.0)


def _timed(**options: Any) -> tuple[Result, float]:
    start = time.perf_counter()
    result = silodp.run(**options)
    return result, time.perf_counter() - start


if __name__ == "__main__":
    main()
