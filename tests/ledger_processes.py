"""Processes that charge at the same time, or are killed while they do: run by test_ledger.py.

A process of its own, started once, because a test process that has used JAX must not fork.
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
from multiprocessing import get_context
from pathlib import Path

from dp_accounting import GaussianDpEvent, SelfComposedDpEvent

from silodp.errors import SilodpError
from silodp.privacy.charging import Charge, charge_all
from silodp.privacy.spending import Allowance

FORK = get_context("fork")


def charge(noise, rounds=1):
    def event(rounds):
        return SelfComposedDpEvent(GaussianDpEvent(noise), rounds)

    return Charge(event(rounds), 0.0, {}, rounds, event)


def race(folder, repeats=10):
    """Two processes want a budget that is enough for one; says how each fared."""
    outcomes = []
    for repeat in range(repeats):
        directory = folder / str(repeat)
        silos = [f"silo {i}" for i in range(3)]
        allowances = dict.fromkeys(silos, Allowance(2.5, 1e-5))  # one costs 2.0, two 2.9
        if repeat % 2:  # else the ledgers are new, and both make them
            charge_all(directory, dict.fromkeys(silos, charge(1e3)), allowances, "before")
        barrier, results = FORK.Barrier(2), FORK.SimpleQueue()

        def contend(run, silos, directory, allowances, barrier, results):
            barrier.wait()
            try:
                charge_all(directory, dict.fromkeys(silos, charge(2.0)), allowances, run)
                results.put("charged")
            except SilodpError as error:
                results.put(str(error))

        common = (directory, allowances, barrier, results)
        contenders = [
            FORK.Process(target=contend, args=("a", silos, *common)),
            FORK.Process(target=contend, args=("b", silos[::-1], *common)),
        ]
        for process in contenders:
            process.start()
        for process in contenders:
            process.join(30)
        outcomes.append([results.get(), results.get()])
    return outcomes


def release(directory, name, pipe):
    """Charges for ever, and announces each release after its charge; opens ledgers on the way."""
    allowance = Allowance(100.0, 1e-5)
    number = 0
    while True:
        silos = ["steady", f"silo {name}-{number // 3}"]
        run = f"{name}-{number}"
        charges = dict.fromkeys(silos, charge(50.0))
        charge_all(directory, charges, dict.fromkeys(silos, allowance), run)
        for silo in silos:
            os.write(pipe, (json.dumps([silo, run]) + "\n").encode())
        number += 1


def killed(folder, repeats=20):
    """Kills processes that charge, at any moment; gives what they announced as released."""
    chance = random.Random(0)
    announced = []
    for repeat in range(repeats):
        read, write = os.pipe()
        process = FORK.Process(target=release, args=(folder, f"r{repeat}", write))
        process.start()
        os.close(write)
        time.sleep(chance.uniform(0.0, 0.2))
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.join(30)
        with os.fdopen(read) as lines:
            announced += [json.loads(line) for line in lines]
    return announced


if __name__ == "__main__":
    print(json.dumps({"race": race, "killed": killed}[sys.argv[1]](Path(sys.argv[2]))))
