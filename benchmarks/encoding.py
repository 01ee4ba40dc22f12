"""Features a second: each record by itself in one thread, side by side on all cores.

The peer is the usual way: batches of 64, with all cores within each operation. There, what a
record becomes hangs (in its last bits) on the batch that it is in; here, on nothing else.

python -m benchmarks.encoding          (encoders that are installed: pip install 'silodp[features]')
python -m benchmarks.encoding --quick  (a few records each)
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np

from benchmarks import machine
from silodp.base.errors import SilodpError
from silodp.data.encoders import efficientnet
from silodp.data.encoders.encoder import PublicEncoder
from silodp.data.encoders.encoding import features_of
from silodp.data.encoders.named import BUILT_IN, encoder_info, encoder_of
from silodp.data.encoders.packaged import packaged_file
from silodp.data.encoders.runtime import need_onnx

TIMES, RECORDS, QUICK = 3, 1024, 6
BATCH = 64


def main() -> None:
    """Prints a table: records a second, and ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a few records, once")
    quick = parser.parse_args().quick
    count, times = (QUICK, 1) if quick else (RECORDS, TIMES)
    print(machine.describe())
    print(
        f"{'':20} {'one core':>9} {'all cores':>9} {'kept':>9} {'to one core':>12} {'to peer':>8}"
    )
    for name in BUILT_IN:
        try:
            info = encoder_info(name)
        except SilodpError as error:
            print(f"{name:20} left out: {error}")
            continue
        one, cores, kept, peer = _measured(encoder_of(info), count, times)
        to_peer = f"{cores / peer:8.2f}" if peer else f"{'':8}"
        print(f"{name:20} {one:9.0f} {cores:9.0f} {kept:9.0f} {cores / one:12.2f} {to_peer}")


def _measured(encoder: PublicEncoder, count: int, times: int) -> list[float]:
    """Records a second: on one core, on all, kept from before, and by the peer (0 without one)."""
    info = encoder.info
    records = _texts(count) if info.takes == "text" else _pictures(count)
    few = [_as_taken(record, info.size) for record in records[: max(2, count // 4)]]
    rates: dict[str, list[float]] = {"one": [], "all": [], "kept": [], "peer": []}
    batches = _in_batches(few) if info.name == efficientnet.NAME else None
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder, _cache_in(folder):
            rates["all"].append(_rate(lambda: features_of(encoder, records), count))
            rates["kept"].append(_rate(lambda: features_of(encoder, records), count))
        rates["one"].append(_rate(lambda: [encoder.features(one) for one in few], len(few)))
        rates["peer"].append(_rate(batches, len(few)) if batches else 0.0)
    return [statistics.median(rates[case]) for case in ("one", "all", "kept", "peer")]


def _cache_in(folder: str) -> Any:
    """An empty cache: nothing is kept from before."""
    return mock.patch.dict(os.environ, SILODP_CACHE=folder)


def _pictures(count: int) -> list[Any]:
    rng = np.random.default_rng(0)
    return list(rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8))


def _texts(count: int) -> list[Any]:
    rng = np.random.default_rng(0)
    words = np.array(["the", "nurse", "said", "that", "nothing", "had", "been", "found", "home"])
    return [" ".join(rng.choice(words, rng.integers(5, 60))) for _ in range(count)]


def _as_taken(record: Any, size: int) -> Any:
    if isinstance(record, str):
        return record
    times = -(-size // len(record))
    return np.tile(record, (times, times, 1))[:size, :size]


def _in_batches(images: Sequence[np.ndarray]) -> Callable[[], Any]:
    """The same network, as it is usually run."""
    import onnxruntime

    onnx = need_onnx(efficientnet.NAME)
    weights = efficientnet.weights_of(
        packaged_file(
            efficientnet.NAME,
            efficientnet.PACKAGE,
            efficientnet.FILE,
            efficientnet.SHA256,
            efficientnet.INSTALL,
        )
    )
    session = onnxruntime.InferenceSession(
        efficientnet.graph(onnx, weights, batch="records"), providers=["CPUExecutionProvider"]
    )
    batches = [np.stack(images[start : start + BATCH]) for start in range(0, len(images), BATCH)]
    return lambda: [session.run(None, {"image": batch}) for batch in batches]


def _rate(work: Callable[[], Any], count: int) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
