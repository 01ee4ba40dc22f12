"""Trains the chunks of a sweep on the workers of a Ray cluster, and sends records along."""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from silodp.base.errors import SilodpError
from silodp.base.progress import Reporter
from silodp.engines.devices import prepare_jax
from silodp.engines.programs import Programs
from silodp.results.result import versions
from silodp.runs.prepare import Loaded
from silodp.sweeps.chunks import Chunk, data_key
from silodp.sweeps.grid import Sweep
from silodp.sweeps.ray_connection import Connection, connected, one_line
from silodp.sweeps.sent_files import Content, files_of, unpacked
from silodp.sweeps.table import Row
from silodp.sweeps.training import Loader, naming, train_chunk

# A worker trains on one core; some chunks more than there are workers wait, so that none idles.
CORES_OF_A_CHUNK = 1
WAITING = 2
# Workers die now and then, for their memory or with their machine; a chunk is tried this often.
MOST_TRIES = 3
# While nothing is finished, the cluster is checked after this time.
SECONDS_BETWEEN_LOOKS = 5


class _GoneError(SilodpError):
    """Raised where the cluster is gone."""


class _Task(NamedTuple):
    """A chunk for a worker, the records and files that it needs, and the number of failures."""

    chunk: Chunk
    records: Any
    files: dict[Path, Content]
    failed: int


def train_on_ray(
    address: str, chunks: Sequence[Chunk], sweep: Sweep, loader: Loader, reporter: Reporter
) -> Iterator[tuple[Chunk, list[Row]]]:
    """Yields each chunk with its rows, in the order in which the workers finish.

    Once a chunk is refused no more are sent; those at work are awaited, so that none is lost.
    """
    if not chunks:
        return
    with connected(address) as connection:
        cluster = _Cluster(connection, sweep, loader, reporter)
        waiting, refusal = deque(_by_records(chunks)), None
        while (waiting and refusal is None) or cluster.at_work:
            finished = None
            try:
                while waiting and refusal is None and cluster.has_room():
                    cluster.send(waiting.popleft())
                reporter.stage(f"{cluster.at_work} chunks sent to {cluster.cores} cores of Ray")
                finished = cluster.next_finished()
            except _GoneError:
                raise
            except SilodpError as error:
                refusal = refusal or error
            if finished is not None:
                yield finished
        if refusal is not None:
            raise refusal


def _by_records(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Chunks in an order in which those of one data set are together: it is sent once."""
    keys = [data_key(chunk.requests[0]) for chunk in chunks]
    first = {key: place for place, key in reversed(list(enumerate(keys)))}
    order = sorted(range(len(chunks)), key=lambda place: first[keys[place]])
    return [chunks[place] for place in order]


class _Cluster:
    """Sends chunks to the workers, and collects their rows."""

    def __init__(self, connection: Connection, sweep: Sweep, loader: Loader, reporter: Reporter):
        self._connection, self._ray = connection, connection.ray
        self._sweep, self._loader, self._reporter = sweep, loader, reporter
        # We retry ourselves: Ray would retry without end where memory is short.
        self._train = self._ray.remote(num_cpus=CORES_OF_A_CHUNK, max_retries=0)(_train)
        self._key, self._records = (), None
        self._tasks: dict[Any, _Task] = {}

    @property
    def cores(self) -> int:
        """The number of cores of the cluster now: machines may come and go."""
        return int(self._ray.cluster_resources().get("CPU", 0))

    @property
    def at_work(self) -> int:
        """The number of chunks that were sent and did not come back yet."""
        return len(self._tasks)

    def has_room(self) -> bool:
        """Whether another chunk would start soon."""
        return self.at_work < WAITING + self.cores // CORES_OF_A_CHUNK

    def send(self, chunk: Chunk) -> None:
        """Sends a chunk to a worker, and its records unless they are those of the last chunk."""
        key = data_key(chunk.requests[0])
        with naming(chunk):
            if self._key != key:
                self._records = self._put(self._loader.loaded(chunk, self._reporter))
                self._key = key
            self._start(_Task(chunk, self._records, files_of(chunk), 0))

    def next_finished(self) -> tuple[Chunk, list[Row]] | None:
        """Waits for a worker: a chunk with its rows, or None if it has to be tried again."""
        first = self._first()
        task = self._tasks.pop(first)
        try:
            rows = self._ray.get(first)
        except self._ray.exceptions.RayTaskError as error:
            rows = _failure(error)
        except self._ray.exceptions.RayError as error:  # the worker is gone
            self._check_alive()
            if task.failed + 1 < MOST_TRIES:
                self._start(task._replace(failed=task.failed + 1))
                return None
            rows = _failure(error)
        if isinstance(rows, str):
            with naming(task.chunk):
                raise SilodpError(rows)
        return task.chunk, rows

    def _first(self) -> Any:
        """Waits until a task has ended, and returns it."""
        while True:
            try:
                ended, _ = self._ray.wait(list(self._tasks), timeout=SECONDS_BETWEEN_LOOKS)
            except ConnectionError as error:
                raise _gone(one_line(error)) from None
            if ended:
                return ended[0]
            self._check_alive()

    def _check_alive(self) -> None:
        if not self._connection.is_alive():
            raise _gone("nothing listens")

    def _start(self, task: _Task) -> None:
        how = (self._sweep.columns, self._sweep.history, versions())
        self._tasks[self._train.remote(task.chunk, task.records, task.files, *how)] = task

    def _put(self, loaded: Loaded) -> Any:
        try:
            return self._ray.put(loaded)
        except self._ray.exceptions.RayError as error:
            raise SilodpError(
                f"The records could not be sent to the Ray cluster ({one_line(error)}): give it "
                "more memory for objects (ray start --object-store-memory)."
            ) from None


def _train(
    chunk: Chunk,
    loaded: Loaded,
    files: dict[Path, Content],
    columns: tuple[str, ...],
    history: bool,
    needed: dict[str, str],
) -> list[Row] | str:
    """Runs on a worker: returns the rows, or a sentence that says what is wrong."""
    for name, version in versions().items():
        # Ray itself checks the version of Python.
        if name not in ("python", "platform") and version != needed[name]:
            return (
                f"a worker of the Ray cluster has {name} {version}, but {needed[name]} is needed: "
                "install there what is installed here."
            )
    prepare_jax(cores=CORES_OF_A_CHUNK)
    with unpacked(chunk, files) as own:
        try:
            rows = train_chunk(own.chunk, loaded, columns, history, None, Reporter(), _programs())
        except SilodpError as error:
            return own.original(str(error))
        return own.original_rows(rows)


@cache
def _programs() -> Programs:
    """The compiled programs of a worker; Ray gives each sweep workers of its own."""
    return Programs()


def _gone(reason: str) -> _GoneError:
    return _GoneError(
        f"The Ray cluster is gone ({reason}): start it again, and the same command goes on; what "
        "is finished is kept."
    )


def _failure(error: Exception) -> str:
    return (
        f"a worker of the Ray cluster failed ({one_line(error)}): see Ray's logs there, and "
        "whether silodp is installed."
    )
