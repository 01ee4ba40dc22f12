"""Cost grows linearly in silos, records and rounds; each point in a process of its own.

python -m benchmarks.scaling [--json FILE] [--quick]
"""

import argparse
import json
import tempfile
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import silodp
from benchmarks.machine import describe, peak_memory, run_child
from benchmarks.workloads import LAMBDAS, made_up

FEATURES = 50
# 1,000 silos of 1,000 records must run in less.
MEMORY_LIMIT_GB = 4.0


@dataclass(frozen=True)
class Point:
    """A sweep of `runs` lambdas over equal silos."""

    silos: int
    records: int
    rounds: int
    runs: int = len(LAMBDAS)


def series(quick: bool) -> dict[str, list[Point]]:
    """What is varied, with the points of each."""
    base = Point(10, 100, 4, 2) if quick else Point(100, 1000, 20)
    silos = (5, 10, 20) if quick else (10, 100, 1000)
    records = (50, 100, 200) if quick else (100, 1000, 10_000)
    rounds = (2, 4, 8) if quick else (20, 80, 320)
    return {
        "silos": [replace(base, silos=k) for k in silos],
        "records": [replace(base, records=n) for n in records],
        "rounds": [replace(base, rounds=t) for t in rounds],
        # A single run as well: it is what most people start with.
        "memory": [Point(20, 200, 4, 1)] if quick else [Point(1000, 1000, 20, 1)],
    }


def measure(point: Point) -> dict[str, Any]:
    """In this process: seconds and the peak memory."""
    counts = np.full(point.silos, point.records)
    results = silodp.sweep(
        federation=partial(made_up, "scaling", counts, FEATURES, "regression"),
        method="mrmtl",
        model="linear",
        lam=list(np.geomspace(0.01, 10, point.runs)),
        rounds=point.rounds,
        batch_size=32,
        clip=1.0,
        lr=0.01,
        epsilon=1.0,
        delta=1e-5,
    )
    seconds = results[0].seconds
    return {
        **asdict(point),
        "seconds_per_run": seconds["train"] / point.runs,
        "seconds": seconds,
        "peak_gb": peak_memory() / 1e9,
    }


def measure_all(console: Console, quick: bool) -> dict[str, Any]:
    """The object of `--json`; prints the table."""
    points: dict[Point, dict[str, Any]] = {}
    varied = series(quick)
    for point in dict.fromkeys(point for chosen in varied.values() for point in chosen):
        console.print(f"  {point}", style="dim")
        # An empty cache: reading a compiled program takes less memory than compiling it.
        with tempfile.TemporaryDirectory() as cache:
            _, points[point] = run_child(
                "benchmarks.scaling", "--point", json.dumps(asdict(point)), cache=Path(cache)
            )
    table = Table(title="Cost against size" + (" (QUICK: not comparable)" if quick else ""))
    for column in ("varied", "silos", "records", "rounds", "runs"):
        table.add_column(column)
    for column in ("seconds a run", "growth", "compile", "peak GB"):
        table.add_column(column, justify="right")
    growth: dict[str, list[float]] = {}
    for name, chosen in varied.items():
        growth[name] = [
            _growth(name, points[a], points[b]) for a, b in pairwise(chosen) if name != "memory"
        ]
        for point, grown in zip(chosen, [None, *growth[name]], strict=True):
            row = points[point]
            table.add_row(
                name,
                *(str(row[field]) for field in ("silos", "records", "rounds", "runs")),
                f"{row['seconds_per_run']:.4f}",
                "" if grown is None else f"{grown:.2f}",
                f"{row['seconds']['compile']:.1f}",
                f"{row['peak_gb']:.2f}",
            )
    console.print(table)
    console.print("growth: seconds grow as size to this power; 1 is linear, less is better.")
    peak = max(row["peak_gb"] for row in points.values())
    verdict = "met" if peak < MEMORY_LIMIT_GB else "MISSED"
    console.print(f"Largest peak: {peak:.2f} GB, the limit is {MEMORY_LIMIT_GB:g} GB: {verdict}.")
    return {
        "case": "scaling",
        "seconds_ours": None,
        "seconds_loop": None,
        "seconds_opacus": None,
        "ratio_loop": None,
        "ratio_opacus": None,
        "points": list(points.values()),
        "growth": growth,
        "peak_gb": peak,
        "target_peak_gb": MEMORY_LIMIT_GB,
        "features": FEATURES,
        "quick": quick,
        "machine": describe(),
    }


def _growth(name: str, small: dict[str, Any], large: dict[str, Any]) -> float:
    times = np.log(large["seconds_per_run"] / small["seconds_per_run"])
    return float(times / np.log(large[name] / small[name]))


def main() -> None:
    """The command line; with `--point`, the child that measures one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try it out")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.point is not None:
        print(json.dumps(measure(Point(**json.loads(asked.point)))))
        return
    found = measure_all(Console(), asked.quick)
    if asked.json is not None:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps([found], indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
