"""What privacy costs in time: calibrating, the ledger. What a release costs: `benchmarks.release`.

Calibration is measured against dp-accounting's own `calibrate_dp_mechanism`, in the same process.

python -m benchmarks.privacy [--quick]
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    SelfComposedDpEvent,
    calibrate_dp_mechanism,
)
from dp_accounting.pld import PLDAccountant

import silodp
from benchmarks import machine
from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.calibration import CalibrationRequest, calibrate_many
from silodp.privacy.ledger.account import Allowance
from silodp.privacy.ledger.charging import Reservation
from silodp.privacy.mechanisms.selection import selection_event
from silodp.privacy.mechanisms.statistics import gaussian_event
from silodp.privacy.mechanisms.training import training_event
from silodp.privacy.session import RunLedgers, RunSession
from silodp.privacy.trials import Trials
from silodp.privacy.tuning import Tuning, tuned_event

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
    reserved, block, by_pld = _with_a_past(sizes, rounds, peers)
    print(
        f"a run against {len(sizes)} ledgers with six kinds of past events, cold: reserved in "
        f"{reserved:.1f} s, a block charged in {block:.1f} s;"
    )
    print(f"  to compose the past of each by PLD, at the rate of {peers} silos: {by_pld:.0f} s")


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


def _past(n: int, rounds: int) -> list[DpEvent]:
    """Six kinds of runs; sampling rates, and so prices, are each silo's own."""
    steps = rounds * (n // 32)
    tuning = Tuning(Trials(10.0), (), "noisy", 2.0, pivot=True)
    return [
        training_event(8.0, 32 / n, steps),
        training_event(12.0, 16 / n, 2 * steps),
        ComposedDpEvent(
            [
                training_event(9.0, 32 / n, steps),
                SelfComposedDpEvent(selection_event(0.01, "exponential"), 3),
            ]
        ),
        ComposedDpEvent([gaussian_event(40.0, 1), training_event(10.0, 32 / n, steps)]),
        gaussian_event(60.0, 4),
        tuned_event(
            tuning,
            [training_event(60.0, 32 / n, steps)],
            [training_event(30.0, 32 / n, steps)],
            60.0,
        ),
    ]


def _with_a_past(sizes: Sequence[int], rounds: int, peers: int) -> tuple[float, float, float]:
    """Seconds to reserve a run, to charge its first block, and to compose the past by PLD."""
    silos = [f"silo {number}" for number in range(len(sizes))]
    allowances = dict.fromkeys(silos, Allowance(40.0, 1e-5))
    pasts = [_past(n, rounds) for n in sizes]

    def session(folder: Path, name: str, events: Sequence[DpEvent]) -> RunSession:
        reservations = {
            silo: Reservation(0.0, {}, rounds, partial(_part_of, event, rounds), 4)
            for silo, event in zip(silos, events, strict=True)
        }
        return RunSession(RunLedgers(folder, reservations, allowances), silos, rounds, name)

    with tempfile.TemporaryDirectory() as folder:
        for number, events in enumerate(zip(*pasts, strict=True)):
            before = session(Path(folder), f"past {number}", events)
            before.reserve()
            before.pay(0, rounds)
            before.close("finished")
        _forget()
        now = session(Path(folder), "now", [_event_of(n, rounds)(11.0) for n in sizes])
        reserved = _seconds(now.reserve)
        block = _seconds(partial(now.pay, 0, 1))
    _forget()
    # What is tuned has no loss distribution: it was added to the others' by its Rényi curve.
    composed = [ComposedDpEvent(past[:-1]) for past in pasts[:peers]]
    by_pld = _seconds(lambda: [epsilon_of(event, 1e-5, "pld") for event in composed])
    return reserved, block, by_pld * len(sizes) / peers


def _part_of(event: DpEvent, rounds: int, first: int, last: int) -> DpEvent:
    """All is released in the last round, but for a run that is trained round by round."""
    if isinstance(event, SelfComposedDpEvent) and event.count % rounds == 0:
        trained = max(0, min(last, rounds) - max(first, 0))
        return SelfComposedDpEvent(event.event, event.count // rounds * trained)
    return ComposedDpEvent([event] if first < rounds <= last else [])


def _forget() -> None:
    """As in a new process: no price is known."""
    for module in [m for name, m in sys.modules.items() if name.startswith("silodp.privacy")]:
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


if __name__ == "__main__":
    main()
