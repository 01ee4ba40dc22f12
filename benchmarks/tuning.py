"""A tuned run on School: seconds a trial, beside the same trials trained one run at a time.

Compiling and calibrating are counted on neither side. A run at a time is `silodp.run`, which a
user would otherwise call once for each trial.

python -m benchmarks.tuning [--quick] [--json FILE]
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import silodp
from benchmarks import machine, workloads

TIMES = 3
LAMBDAS = (0.1, 0.3, 1.0, 3.0, 10.0)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="A small federation, few rounds.")
    parser.add_argument("--json", type=Path, help="File for the numbers.")
    asked = parser.parse_args()
    print(machine.describe())
    found = measure(workloads.school(asked.quick), 1 if asked.quick else TIMES)
    print(f"{'':24} {'seconds a trial':>16}")
    print(f"{'silodp tune':24} {found['tuned']:16.4f}  ({found['trials']} trials and the pivot)")
    print(f"{'one run at a time':24} {found['alone']:16.4f}  {found['ratio']:.1f} times as long")
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2))


def measure(work: workloads.Work, times: int) -> dict[str, Any]:
    """Medians, the two in turns."""
    options: dict[str, Any] = work.options | {"lr": work.lr, "method": "mrmtl", "lam": 1.0}
    tuned, alone, trials = [], [], 0
    for _ in range(times):
        result = silodp.tune(grid={"lam": LAMBDAS}, **options)
        trials = _trials(result)
        tuned.append(result.seconds["train"] / (1 + trials))
        single = silodp.run(**options | {"evaluate_every": result.options["rounds"]})
        alone.append(single.seconds["train"])
    return {
        "trials": trials,
        "tuned": statistics.median(tuned),
        "alone": statistics.median(alone),
        "ratio": statistics.median(alone) / statistics.median(tuned),
    }


def _trials(result: silodp.Result) -> int:
    """How many settings were trained, so that every silo found its own trials among them."""
    assert result.tuning is not None
    return result.tuning["settings"]


if __name__ == "__main__":
    main()
