"""The chunks of a sweep on the workers of a Ray cluster; records are sent along with them."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from silodp.engines.devices import prepare_jax
from silodp.engines.execution import Reporter
from silodp.errors import SilodpError
from silodp.prepare import Loaded
from silodp.sweeps.chunks import Chunk, data_key
from silodp.sweeps.grid import Sweep
from silodp.sweeps.table import Row
from silodp.sweeps.training import Loader, naming, train_chunk

# A worker trains on one core; more chunks than there are workers wait in line, so that none idles.
CORES_OF_A_CHUNK = 1
WAITING = 2


def train_on_ray(
    address: str, chunks: list[Chunk], sweep: Sweep, loader: Loader, reporter: Reporter
) -> Iterator[tuple[Chunk, list[Row]]]:
    """Each chunk with its rows, in the order in which the workers finish."""
    ray = _connected(address)
    try:
        train = ray.remote(num_cpus=CORES_OF_A_CHUNK, max_retries=3)(_train)
        most = WAITING + int(ray.cluster_resources().get("CPU", 1)) // CORES_OF_A_CHUNK
        sender = _Sender(ray, loader)
        running: dict[Any, Chunk] = {}
        waiting = iter(chunks)
        while True:
            for chunk in waiting:
                records = sender.sent(chunk, reporter)
                running[train.remote(chunk, records, sweep.columns, sweep.history)] = chunk
                if len(running) >= most:
                    break
            if not running:
                return
            (first,), _ = ray.wait(list(running), num_returns=1)
            chunk = running.pop(first)
            yield chunk, _rows(ray, chunk, first)
    finally:
        ray.shutdown()


class _Sender:
    """Puts records where workers find them, once for all chunks that share them."""

    def __init__(self, ray: Any, loader: Loader):
        self._ray, self._loader = ray, loader
        self._key, self._sent = (), None

    def sent(self, chunk: Chunk, reporter: Reporter) -> Any:
        key = data_key(chunk.asked[0])
        if self._key != key:
            with naming(chunk):
                self._sent = self._ray.put(self._loader.loaded(chunk, reporter))
            self._key = key
        return self._sent


def _train(chunk: Chunk, loaded: Loaded, columns: tuple[str, ...], history: bool) -> Any:
    """On a worker: the rows, or the sentence that says what is wrong."""
    prepare_jax(cores=CORES_OF_A_CHUNK)
    try:
        return train_chunk(chunk, loaded, columns, history, None, Reporter())
    except SilodpError as error:
        return str(error)


def _rows(ray: Any, chunk: Chunk, task: Any) -> list[Row]:
    try:
        rows = ray.get(task)
    except Exception as error:  # of any kind: it comes from another machine
        said = " ".join(str(error).split("\n")[-1].split()) or type(error).__name__
        rows = f"a worker of the Ray cluster failed ({said}): see Ray's logs."
    if isinstance(rows, str):
        with naming(chunk):
            raise SilodpError(rows)
    return rows


def _connected(address: str) -> Any:
    if find_spec("ray") is None:
        raise SilodpError(
            "--ray needs Ray, which is not installed: pip install 'silodp[ray]' here and on every "
            "worker."
        )
    import ray

    try:
        ray.init(address, configure_logging=True, log_to_driver=False, logging_level="error")
    except Exception as error:  # ConnectionError, ValueError, RuntimeError, by version
        said = " ".join(str(error).split())
        raise SilodpError(
            f"No Ray cluster answers at {address!r} ({said}): start one with `ray start --head`, "
            "and give its address, or leave out --ray."
        ) from None
    return ray
