"""Every method on School: seconds a run, side by side with `mrmtl`, in one table.

All get the same work: 5 seeds x 12 learning rates at once, 200 rounds. Compiling and calibrating
are not counted; the table has compiling beside it.

python -m benchmarks.methods [--quick] [--only NAME,NAME] [--json FILE]
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np

import silodp
from benchmarks import machine, workloads
from silodp.methods import METHODS, get_method, warm_starts

TIMES = 3
YARDSTICK = "mrmtl"
MOST = 3.0  # times the yardstick


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="A small federation, few rounds.")
    parser.add_argument("--only", help=f"These methods, separated by commas, and {YARDSTICK}.")
    parser.add_argument("--json", type=Path, help="File for the numbers.")
    asked = parser.parse_args()
    print(machine.describe())
    names = [*METHODS, *warm_starts()]
    if asked.only:
        names = list(dict.fromkeys([YARDSTICK, *asked.only.split(",")]))
    rows = measure(workloads.school(asked.quick), names, 1 if asked.quick else TIMES)
    print(f"{'method':16} {'seconds a run':>14} {'times ' + YARDSTICK:>12} {'compiling':>10}  asks")
    for row in rows:
        late = "  more than three times" if row["ratio"] > MOST else ""
        print(
            f"{row['method']:16} {row['seconds']:14.4f} {row['ratio']:12.2f} "
            f"{row['compile']:9.1f}s  {row['asks']}{late}"
        )
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=2))


def measure(work: workloads.Work, names: list[str], times: int) -> list[dict[str, Any]]:
    """One row a method; the methods take turns, so that a busy moment hits all of them."""
    lrs = np.geomspace(work.lr / 3, work.lr * 3, len(work.lambdas)).tolist()
    options: dict[str, Any] = work.options | {
        "lr": lrs,
        "seeds": work.seeds,
    }
    seconds: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(times):
        for name in names:
            request: dict[str, Any] = {**options, "method": name}
            if "lam" in get_method(name).option_names:
                request["lam"] = workloads.LAMBDA
            seconds[name].append(silodp.sweep(**request)[0].seconds)
    runs = work.seeds * len(lrs)

    def median(name: str, part: str) -> float:
        return statistics.median(one[part] for one in seconds[name])

    return [
        {
            "method": name,
            "seconds": median(name, "train") / runs,
            "ratio": median(name, "train") / median(YARDSTICK, "train"),
            "compile": seconds[name][0]["compile"],
            "asks": get_method(name).cost,
        }
        for name in names
    ]


if __name__ == "__main__":
    main()
