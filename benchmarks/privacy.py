"""What privacy costs in time: calibrating, the lattice, the ledger.

Calibration is measured against dp-accounting's own `calibrate_dp_mechanism`, in the same process.

python -m benchmarks.privacy
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from dp_accounting import calibrate_dp_mechanism
from dp_accounting.pld import PLDAccountant

import silodp
from benchmarks import machine
from silodp.privacy.calibration import CalibrationRequest, calibrate_many
from silodp.privacy.training import training_event

# Like School: 139 silos of 18 to 201 records, batches of 32, 200 rounds.
_SIZES = np.random.default_rng(0).integers(33, 201, 139).tolist()
_PEER_SIZES = _SIZES[:3]
_OPTIONS: dict[str, Any] = {
    "data": "synthetic",
    "silos": 100,
    "rounds": 200,
    "epsilon": 3,
    "method": "mrmtl",
}


def main() -> None:
    """Prints each measurement."""
    print(machine.describe())
    ours, peer = _seconds(_calibrate_ours), _seconds(_calibrate_peer) * 139 / len(_PEER_SIZES)
    print(
        f"calibrating 139 silos, cold: {ours:.1f} s; dp-accounting (PLD), at the rate of 3 silos:"
    )
    print(f"  {peer:.0f} s, {peer / ours:.0f} times as long")
    on, off = _lattice()
    print(
        f"training with the lattice {on:.2f} s, without {off:.2f} s: {on / off:.3f} times as long"
    )
    charged, plain = _ledger()
    print(f"a run of 100 silos: {plain:.2f} s; charged to 100 ledgers {charged:.2f} s")


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _event_of(n: int) -> Callable:
    return lambda noise: training_event(noise, 32 / n, 200 * (n // 32))


def _calibrate_ours() -> None:
    requests = [CalibrationRequest(_event_of(n), 6.0, 1e-3) for n in _SIZES]
    calibrate_many(requests, cache=False)


def _calibrate_peer() -> None:
    for n in _PEER_SIZES:
        calibrate_dp_mechanism(PLDAccountant, _event_of(n), 6.0, 1e-3)


def _train_seconds() -> float:
    return silodp.run(**_OPTIONS).seconds["train"]


def _lattice() -> tuple[float, float]:
    """Medians of five, taken in turns."""
    with_it, without = [], []
    _train_seconds()
    for _ in range(5):
        with_it.append(_train_seconds())
        with mock.patch("silodp.privacy.training.on_lattice", lambda values, grain: values):
            without.append(_train_seconds())
    return statistics.median(with_it), statistics.median(without)


def _ledger() -> tuple[float, float]:
    options: dict[str, Any] = _OPTIONS | {"entropy": "os"}
    silodp.run(**options)
    plain = _seconds(lambda: silodp.run(**options))
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger"
        charged = _seconds(lambda: silodp.run(**_OPTIONS, ledger=ledger))
    return charged, plain


if __name__ == "__main__":
    main()
