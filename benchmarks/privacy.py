"""What privacy costs in time: calibrating, the ledger. What a release costs: `benchmarks.release`.

Calibration is measured against dp-accounting's own `calibrate_dp_mechanism`, in the same process.

python -m benchmarks.privacy [--quick]
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from dp_accounting import calibrate_dp_mechanism
from dp_accounting.pld import PLDAccountant

import silodp
from benchmarks import machine
from silodp.privacy.calibration import CalibrationRequest, calibrate_many
from silodp.privacy.training import training_event

# Like School: 139 silos of 18 to 201 records, batches of 32, 200 rounds.
_SIZES = np.random.default_rng(0).integers(33, 201, 139).tolist()
_PEER_SILOS = 3  # it takes seconds a silo
_OPTIONS: dict[str, Any] = {
    "data": "synthetic",
    "silos": 100,
    "rounds": 200,
    "epsilon": 3,
    "method": "mrmtl",
}


def main() -> None:
    """Prints each measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few silos and rounds, to try it out")
    quick = parser.parse_args().quick
    sizes, peers, options = _SIZES, _PEER_SILOS, _OPTIONS
    if quick:
        sizes, peers = _SIZES[:2], 1
        options = _OPTIONS | {"silos": 3, "rounds": 2}
    rounds = options["rounds"]
    print(machine.describe())
    ours = _seconds(partial(_calibrate_ours, sizes, rounds))
    peer = _seconds(partial(_calibrate_peer, sizes[:peers], rounds)) * len(sizes) / peers
    print(
        f"calibrating {len(sizes)} silos, cold: {ours:.1f} s; dp-accounting (PLD), at the rate of "
        f"{peers} silos:"
    )
    print(f"  {peer:.0f} s, {peer / ours:.0f} times as long")
    charged, plain = _ledger(options)
    silos = options["silos"]
    print(f"a run of {silos} silos: {plain:.2f} s; charged to {silos} ledgers {charged:.2f} s")


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _event_of(n: int, rounds: int) -> Callable:
    return lambda noise: training_event(noise, 32 / n, rounds * (n // 32))


def _calibrate_ours(sizes: Sequence[int], rounds: int) -> None:
    requests = [CalibrationRequest(_event_of(n, rounds), 6.0, 1e-3) for n in sizes]
    calibrate_many(requests, cache=False)


def _calibrate_peer(sizes: Sequence[int], rounds: int) -> None:
    for n in sizes:
        calibrate_dp_mechanism(PLDAccountant, _event_of(n, rounds), 6.0, 1e-3)


def _ledger(options: dict[str, Any]) -> tuple[float, float]:
    options = options | {"entropy": "os"}
    silodp.run(**options)
    plain = _seconds(lambda: silodp.run(**options))
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger"
        charged = _seconds(lambda: silodp.run(**options, ledger=ledger))
    return charged, plain


if __name__ == "__main__":
    main()
