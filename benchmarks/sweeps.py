"""A sweep on School, all told, beside the same runs with one call of `silodp.run` a setting.

Everything counts on both sides: loading, calibrating, compiling, training, writing the table. Noise
and programs that are kept on disk are kept for both. The loop is timed on some settings and scaled.

python -m benchmarks.sweeps [--quick] [--json FILE]
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import silodp
from benchmarks import machine
from silodp.engines.devices import prepare_jax
from silodp.sweeps import run_sweep, sweep_of

SWEEP: dict[str, Any] = {
    "data": "school",
    "preprocess": "paper",
    "method": "mrmtl",
    "epsilon": [1, 2, 4, 6, 8, 10],
    "lr": [0.003, 0.01, 0.03],
    "lam": [0.01, 0.03, 0.1, 0.3, 1, 3, 10],
    "seeds": 5,
}
QUICK = SWEEP | {"data": "synthetic", "preprocess": None, "rounds": 20, "lam": [0.1, 1], "seeds": 2}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="Made-up data, few rounds.")
    parser.add_argument("--json", type=Path, help="File for the numbers.")
    asked = parser.parse_args()
    print(machine.describe())
    found = measure(QUICK if asked.quick else SWEEP, 2 if asked.quick else 6)
    print(f"{found['runs']} runs of {found['settings']} settings, seconds a run:")
    print(f"  silodp sweep            {found['sweep']:.4f}")
    print(f"  a loop over silodp.run  {found['loop']:.4f}  ({found['ratio']:.1f} times as long)")
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2))


def measure(content: dict[str, Any], alone: int) -> dict[str, Any]:
    """The sweep first; then some of its settings one by one."""
    prepare_jax()
    content = {name: value for name, value in content.items() if value is not None}
    sweep = sweep_of(content, "benchmark", Path())
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        run_sweep(sweep, folder)
        swept = (time.perf_counter() - began) / sweep.runs
    step = len(sweep.points) // alone
    chosen = sweep.points[::step][:alone]
    began = time.perf_counter()
    for point in chosen:
        options = {name: getattr(point.options, name) for name in (*content, "rounds")}
        silodp.run(**options)
    looped = (time.perf_counter() - began) / (len(chosen) * content["seeds"])
    return {
        "settings": len(sweep.points),
        "runs": sweep.runs,
        "sweep": swept,
        "loop": looped,
        "ratio": looped / swept,
    }


if __name__ == "__main__":
    main()
