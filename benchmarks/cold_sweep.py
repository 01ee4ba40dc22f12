"""A child of `throughput`: one sweep in a fresh process, told in one line of JSON.

The parent times the whole process: start, imports, data, calibration, compilation, training.
"""

import json
import sys

import silodp
from benchmarks import workloads
from benchmarks.machine import peak_memory


def main() -> None:
    """Runs the sweep of case (a); `--quick` makes it small."""
    work = workloads.school(quick="--quick" in sys.argv)
    results = silodp.sweep(**work.options, seeds=work.seeds, lam=list(work.lambdas))
    print(json.dumps({"seconds": results[0].seconds, "peak_gb": peak_memory() / 1e9}))


if __name__ == "__main__":
    main()
