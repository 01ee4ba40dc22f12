"""Processes that use a ledger at the same time, or are killed while they do: run by tests.

A process of its own, started once, because a test process that has used JAX must not fork.
"""

import contextlib
import itertools
import json
import os
import random
import signal
import sys
import time
from multiprocessing import get_context
from pathlib import Path

from ledgers import gaussian

from silodp.base.errors import SilodpError
from silodp.privacy.ledger.account import Allowance, account_of, history
from silodp.privacy.ledger.charging import BudgetSpentError, charge_all, close_all, reserve_all
from silodp.privacy.ledger.storage import backup, ledger_path, read_ledger, read_path

FORK = get_context("fork")


def race(folder, repeats=10):
    """Two processes want a budget that is enough for one; says how each fared."""
    outcomes = []
    for repeat in range(repeats):
        directory = folder / str(repeat)
        silos = [f"silo {i}" for i in range(3)]
        allowances = dict.fromkeys(silos, Allowance(2.5, 1e-5))  # one takes 70 % of it
        if repeat % 2:  # else the ledgers are new, and both make them
            before = dict.fromkeys(silos, gaussian(1e3))
            reserve_all(directory, before, allowances, "before")
            charge_all(directory, before, "before", -1, 2)
        barrier, results = FORK.Barrier(2), FORK.SimpleQueue()

        def contend(run, silos, directory, allowances, barrier, results):
            barrier.wait()
            try:
                wanted = dict.fromkeys(silos, gaussian(2.0))
                reserve_all(directory, wanted, allowances, run)
                charge_all(directory, wanted, run, 0, 1)
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


def many(folder, count=10, runs=8):
    """Ten processes share one lifetime: each run reserves a tenth, and charges half or all of it.

    Says how many blocks each charged, how many runs were refused, and the most that ever counted,
    as a share of the lifetime, by the ledger's own history.
    """
    allowance = Allowance(3.0, 1e-5)
    noise = (allowance.opened().order / 2 / allowance.opened().budget * 10 * 1.001) ** 0.5
    barrier, results = FORK.Barrier(count), FORK.SimpleQueue()

    def work(name, folder, barrier, results):
        chance = random.Random(name)
        charged = refused = 0
        wanted = {"shared": gaussian(noise * 2**0.5, rounds=2, blocks=2)}
        barrier.wait()
        for number in range(runs):
            run = f"{name}-{number}"
            try:
                reserve_all(folder, wanted, {"shared": allowance}, run)
            except BudgetSpentError:
                refused += 1
                continue
            for first in range(chance.choice((0, 1, 2))):
                charge_all(folder, wanted, run, first, first + 1)
                charged += 1
            close_all(folder, ["shared"], run, "done")
        results.put((charged, refused))

    workers = [FORK.Process(target=work, args=(n, folder, barrier, results)) for n in range(count)]
    for process in workers:
        process.start()
    told = [results.get() for _ in workers]
    for process in workers:
        process.join(30)
    most = 0.0
    for _, account in history(read_ledger(folder, "shared")):
        if account.promises:
            filtered = account.promises[-1].lifetime
            taken = sum(cost.taken(filtered) for cost in account.counted)
            most = max(most, taken / filtered.budget)
    return {
        "charged": [charged for charged, _ in told],
        "refused": sum(refused for _, refused in told),
        "most_counted": most,
    }


def release(directory, name, pipe):
    """Runs for ever: reserves, charges, releases, closes; opens ledgers on the way.

    Each release is announced after its charge, and each close after it was written.
    """
    allowance, chance = Allowance(1000.0, 1e-5), random.Random(name)

    def announce(kind, silos, run, number):
        lines = [json.dumps([kind, silo, run, number]) + "\n" for silo in silos]
        os.write(pipe, "".join(lines).encode())

    for count in range(10**6):
        silos, run = ["steady", f"silo {name}-{count // 3}"], f"{name}-{count}"
        wanted = dict.fromkeys(silos, gaussian(50.0, rounds=6, blocks=3))
        reserve_all(directory, wanted, dict.fromkeys(silos, allowance), run)
        first = 0
        while first < 6 and chance.random() < 0.8:
            charge_all(directory, wanted, run, first, first + 2)
            for number in range(first, first + 2):
                announce("released", silos, run, number)
            first += 2 * chance.choice((1, 1, 2))  # some are missed
        close_all(directory, silos, run, "done")
        announce("closed", silos, run, -1)


def killed(folder, repeats=20):
    """Kills processes at any moment; gives what they announced."""
    chance = random.Random(0)
    announced = []
    for repeat in itertools.count():
        # On a busy machine most are killed before they have announced anything.
        if (
            repeat >= repeats
            and len(announced) > 20
            and any(kind == "closed" for kind, *_ in announced)
        ):
            break
        read, write = os.pipe()
        process = FORK.Process(target=release, args=(folder, f"r{repeat}", write))
        process.start()
        os.close(write)
        time.sleep(chance.uniform(0.0, 0.25))
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.join(30)
        with os.fdopen(read) as lines:
            announced += [json.loads(line) for line in lines]
    return announced


def copied(folder, copies=12):
    """Copies a ledger while another process writes to it; entries of each copy, and its heads."""
    read, write = os.pipe()
    process = FORK.Process(target=release, args=(folder / "ledgers", "busy", write))
    process.start()
    os.close(write)
    told = []
    with os.fdopen(read) as lines:
        for _ in range(copies):
            lines.readline()  # it has gone on meanwhile
            backup(ledger_path(folder / "ledgers", "steady"), folder / "copies")
            copy = read_path(ledger_path(folder / "copies", "steady"))
            account_of(copy)  # understood, and the chain is whole
            told.append([len(copy.entries), copy.head])
        os.kill(process.pid, signal.SIGKILL)
        process.join(30)
    return told


if __name__ == "__main__":
    what = {"race": race, "many": many, "killed": killed, "copied": copied}
    print(json.dumps(what[sys.argv[1]](Path(sys.argv[2]))))
