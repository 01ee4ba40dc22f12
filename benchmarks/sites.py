"""Seconds a round and memory of a federation of real processes on this machine.

    python -m benchmarks.sites [--sites 3] [--rounds 200] [--quick]

Mutual TLS over loopback, `ebmtl` with a linear model, so that the engine is what is measured.
Beside it the same rounds in one process without an engine between: what is above that is FLARE's.
"""

import argparse
import contextlib
import itertools
import json
import secrets
import statistics
import tempfile
import threading
import time
from pathlib import Path

import psutil

from benchmarks import machine
from silodp.privacy.policy import Policy
from silodp.sites.consents import consent
from silodp.sites.coordinator import Coordinator
from silodp.sites.demo import free_port, let_in
from silodp.sites.federation_setup import progress_of, set_up_federation
from silodp.sites.flare.processes import SERVER_PID, SITE_PID, start_server, start_site, stop
from silodp.sites.flare.submission import run_job
from silodp.sites.made_up import NAMES, fed_text, in_rounds, made_up_table
from silodp.sites.membership.authority import open_authority
from silodp.sites.proposal import Proposal
from silodp.sites.site_data import DataAtSite
from silodp.sites.site_setup import SiteSettings, set_up
from silodp.sites.worker import SiteWorker

# Enough for two runs.
POLICY = Policy(3.0, 1e-4, 10.0, 1e-3)


def main() -> None:
    """Prints each measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="2 sites, 3 rounds, to try it out")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    given = parser.parse_args()
    if given.quick:
        given.sites, given.rounds = 2, 3
    print(machine.describe())
    with tempfile.TemporaryDirectory() as folder:
        told = measured(Path(folder), given.sites, given.rounds)
    print(f"{given.sites} sites, {given.rounds} rounds, loopback, mutual TLS")
    for name, value in told.items():
        print(f"  {name:28} {value:10.3f}")
    if given.json:
        given.json.write_text(json.dumps(told, indent=2))


def measured(folder: Path, sites: int, rounds: int) -> dict[str, float]:
    """Trains once; the numbers."""
    names = NAMES[:sites]
    (folder / "fed.toml").write_text(fed_text(names, free_port(), in_rounds(rounds)))
    passphrase = secrets.token_hex()
    made = set_up_federation(folder / "fed.toml", folder / "coordinator", passphrase)
    authority = open_authority(made.folder, passphrase)
    folders = []
    for place, (name, invitation) in enumerate(zip(names, made.invitations, strict=True)):
        path = folder / f"{name}.csv"
        made_up_table(place).to_csv(path, index=False)
        settings = SiteSettings(DataAtSite(path=path), POLICY)
        folders.append(set_up(invitation, folder / name, settings))
        consent(folders[-1], made.proposal)
        let_in(made.folder, authority, folders[-1])
    job = made.proposal.job()
    with contextlib.ExitStack() as stack:
        stack.callback(stop, made.folder / SERVER_PID)
        began = time.perf_counter()
        start_server(made.folder)
        for own in folders:
            stack.callback(stop, own / SITE_PID)
            start_site(own)
        up = time.perf_counter() - began
        times: list[float] = []
        memory: dict[str, float] = {}
        done = threading.Event()
        watcher = threading.Thread(target=_watch, args=(made.folder, job, times, memory, done))
        watcher.start()
        began = time.perf_counter()
        run_job(
            made.folder,
            job,
            names,
            patience=60,
            report=lambda told: None,
            say=print,
        )
        whole = time.perf_counter() - began
        done.set()
        watcher.join()
    steps = [b - a for a, b in itertools.pairwise(times)]
    alone = _without_engine(made.folder, dict(zip(names, folders, strict=True)), made.proposal)
    return {
        "seconds until all are up": up,
        "seconds of the job": whole,
        "seconds a round, median": statistics.median(steps),
        "in one process, median": alone,
        "ratio": statistics.median(steps) / alone,
        "seconds a round, mean": statistics.mean(steps),
        "MB of a site": memory.get("site", 0.0) / sites,
        "MB of a site's job": memory.get("job", 0.0) / sites,
        "MB of the coordinator": memory.get("server", 0.0),
    }


def _without_engine(fed: Path, folders: dict[str, Path], proposal: Proposal) -> float:
    """Seconds of a round, of a further run, with the sites one after another in this process."""
    coordinator = Coordinator(fed, proposal.job(2))
    times = []
    with contextlib.ExitStack() as stack:
        workers = {
            site: stack.enter_context(contextlib.closing(SiteWorker(own)))
            for site, own in folders.items()
        }
        while (request := coordinator.next_request()) is not None:
            began = time.perf_counter()
            replies = {site: workers[site].answer(request) for site in coordinator.targets}
            coordinator.receive(replies)
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def _watch(
    folder: Path, job: str, times: list[float], memory: dict[str, float], done: threading.Event
) -> None:
    """Notes when each round ended, and what the processes hold."""
    seen, looked = 0, 0.0
    while not done.is_set():
        told = progress_of(folder, job)
        if told is not None and told["round"] > seen:
            times.extend([time.perf_counter()] * (told["round"] - seen))
            seen = told["round"]
        if time.monotonic() - looked > 5:
            looked = time.monotonic()
            for kind, size in _memory().items():
                memory[kind] = max(memory.get(kind, 0.0), size)
        time.sleep(0.005)


def _memory() -> dict[str, float]:
    found: dict[str, float] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = " ".join(process.cmdline())
            kind = next((k for word, k in _KINDS.items() if word in words), None)
            if kind is not None:
                found[kind] = found.get(kind, 0.0) + process.memory_info().rss / 1e6
    return found


_KINDS = {
    "silodp.sites.flare.site_process": "site",
    "silodp.sites.flare.site_job": "job",
    "server_train": "server",
    "runner_process": "server",
}


if __name__ == "__main__":
    main()
