"""Loading CIFAR-10 as 30 silos: seconds and peak memory, each in a process of its own.

The peer is the usual way, that of torchvision and of the code that the split comes from: unpickle
the six official batches one after another, turn them into float32 tensors, take each silo's. It
trusts the files; silodp does not, and keeps images in bytes until a model uses them.

python -m benchmarks.loading          (CIFAR-10 must be here: silodp data get cifar10)
python -m benchmarks.loading --quick  (a few made-up images in its place)
"""

import argparse
import os
import pickle
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import machine
from silodp.data.files import find_file
from silodp.data.formats.cifar import CHANNELS, SIDE, Batch, read_batch
from silodp.data.registry import DataOptions, resolve
from silodp.data.sources.cifar10 import FILES, rows_of, shares_of

TIMES = 3
MEGABYTE = 1024  # of the kilobytes in which the system counts


def main() -> None:
    """Prints a table, or (as a process of its own) one measurement."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a few made-up images, once")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.case:
        began = time.perf_counter()
        kept = CASES[asked.case](asked.folder)
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MEGABYTE
        print(f"{seconds} {peak} {len(kept)}")
        return
    print(machine.describe())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_official(folder / "cifar-10-batches-py", made_up if asked.quick else official)
        _in_own_process("cache", folder)  # fills it
        measured = {case: [] for case in CASES}
        for _ in range(1 if asked.quick else TIMES):
            for case in CASES:
                measured[case].append(_in_own_process(case, folder))
    peer = statistics.median(seconds for seconds, _ in measured["peer"])
    print(f"{'':34} {'seconds':>8} {'peak MB':>8} {'peer / it':>10}")
    for case, runs in measured.items():
        seconds = statistics.median(s for s, _ in runs)
        memory = statistics.median(m for _, m in runs)
        print(f"{_TITLES[case]:34} {seconds:8.2f} {memory:8.0f} {peer / seconds:10.2f}")


def official(name: str) -> Batch:
    """One of the six batches, as it is here."""
    return read_batch(find_file("cifar10", FILES[name].names), "fetch it again")


def made_up(name: str) -> Batch:
    """Noise, of each class as much; enough for each silo to get some."""
    random = np.random.default_rng(list(FILES).index(name))
    y = random.permutation(np.repeat(np.arange(10, dtype=np.uint8), 30))
    return Batch(random.integers(0, 256, (len(y), SIDE, SIDE, CHANNELS), np.uint8), y)


def _write_official(folder: Path, batch_of: Callable[[str], Batch]) -> None:
    """The six batches in python form, as they are published."""
    folder.mkdir()
    for name in FILES:
        x, y = batch_of(name)
        flat = np.ascontiguousarray(x.transpose(0, 3, 1, 2)).reshape(len(x), -1)
        (folder / name).write_bytes(pickle.dumps({b"data": flat, b"labels": y.tolist()}, 2))


def _in_own_process(case: str, folder: Path) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.loading", "--case", case, "--folder", folder]
    environment = {**os.environ, "SILODP_CACHE": str(folder / "cache")}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    seconds, peak, silos = done.stdout.split()
    assert silos == "30"
    return float(seconds), float(peak)


def _load(folder: Path, no_cache: bool) -> tuple:
    options = DataOptions(data_dir=folder, no_cache=no_cache)
    return resolve("cifar10", options).load(0, options).silos


def _peer(folder: Path) -> list:
    """As torchvision's ToTensor and Normalize leave them: float32, channels first."""
    parts = {"train": [], "test": []}
    for name in FILES:
        with (folder / "cifar-10-batches-py" / name).open("rb") as file:
            batch = pickle.load(file, encoding="bytes")
        x = batch[b"data"].reshape(-1, 3, 32, 32).astype(np.float32) / 255
        parts["test" if name == "test_batch" else "train"].append((x, batch[b"labels"]))
    random, shares = np.random.default_rng(0), shares_of(30, 5)
    silos = [[] for _ in shares]
    for batches in parts.values():
        x = np.concatenate([x for x, _ in batches])
        y = np.concatenate([y for _, y in batches])
        for silo, rows in zip(silos, rows_of(y, shares, random), strict=True):
            silo.append(((x[rows] - 0.5) / 0.5, y[rows]))
    return silos


CASES = {
    "cache": lambda folder: _load(folder, no_cache=False),
    "anew": lambda folder: _load(folder, no_cache=True),
    "peer": _peer,
}
_TITLES = {
    "cache": "silodp, from its cache",
    "anew": "silodp, decoding the pickles safely",
    "peer": "peer: pickle, float32 tensors",
}


if __name__ == "__main__":
    main()
