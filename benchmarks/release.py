"""What it costs that a run is a release: School as an experiment and as a release, side by side.

An experiment draws its noise from a seed, as fast as can be; a release (`--entropy os`, a ledger, a
site) draws noise that may be published. Both run in this process and in turns, one seed each, so
that they share whatever else the machine does. Everything counts in the total, compiling included;
only what can be kept on disk (calibrated noise, programs) is there for both.

python -m benchmarks.release [--quick] [--times 3] [--json FILE]
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import silodp
from benchmarks import machine, workloads
from silodp.config.choices import Entropy

TIMES = 3
MOST = 3.0  # times an experiment, in training
ENTROPY: dict[str, Entropy] = {"experiment": "seed", "release": "os"}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a small federation, few rounds")
    parser.add_argument("--times", type=int, default=TIMES, help="of each, of which the median")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to this file")
    asked = parser.parse_args()
    print(machine.describe())
    work = workloads.school(asked.quick)
    for note in work.notes:
        print(note)
    found = measure(work, 1 if asked.quick else asked.times)
    print(f"{work.name}, {work.rounds} rounds, {found['silos']} silos, one seed, seconds:")
    print(f"{'':12} {'train':>8} {'total':>8}")
    for kind in ENTROPY:
        print(f"{kind:12} {found[kind]['train']:8.3f} {found[kind]['total']:8.3f}")
    ratio = found["ratio"]
    late = "" if asked.quick or ratio["train"] <= MOST else f"  more than {MOST:g} times"
    print(f"{'ratio':12} {ratio['train']:8.2f} {ratio['total']:8.2f}{late}")
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def measure(work: workloads.Work, times: int) -> dict[str, Any]:
    """Medians of seconds, the two in turns, and how many times an experiment a release takes."""
    options: dict[str, Any] = work.options | {"lam": workloads.LAMBDA, "seeds": 1}
    for entropy in ENTROPY.values():  # calibrates, and fills the cache of programs
        silodp.run(**options, entropy=entropy)
    seconds: dict[str, list[dict[str, float]]] = {kind: [] for kind in ENTROPY}
    silos = 0
    for _ in range(times):
        for kind, entropy in ENTROPY.items():
            result = silodp.run(**options, entropy=entropy)
            assert result.options["entropy"] == entropy
            seconds[kind].append(result.seconds)
            silos = len(result.per_silo)
    medians = {
        kind: {part: statistics.median(one[part] for one in own) for part in ("train", "total")}
        for kind, own in seconds.items()
    }
    experiment, release = medians["experiment"], medians["release"]
    ratio = {part: release[part] / experiment[part] for part in experiment}
    return {"silos": silos, "rounds": work.rounds, **medians, "ratio": ratio, "samples": seconds}


if __name__ == "__main__":
    main()
