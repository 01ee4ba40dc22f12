"""Trains a chunk of a sweep: from options to rows of the table."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from silodp.base.errors import DataMissingError, SilodpError
from silodp.base.progress import Reporter
from silodp.engines.programs import Programs
from silodp.methods import METHOD_OPTIONS
from silodp.runs.prepare import Loaded, Prepared, load, prepare_loaded
from silodp.runs.run import metrics_of, train
from silodp.runs.run_folder import RunFolder
from silodp.runs.run_results import over_silos, where_measured
from silodp.runs.training_run import TrainingRun, Watch
from silodp.sweeps.chunks import Chunk, data_key
from silodp.sweeps.table import Row


class Loader:
    """Loads the records of chunks, once for all that share them and follow each other.

    Attributes:
      seen: for each data set its `silos`, and the `least` and `most` training records of one.
    """

    def __init__(self):
        self._key, self._loaded = (), Loaded([], None)  # type: ignore[arg-type]
        self.seen: dict[str, dict[str, int]] = {}

    def loaded(self, chunk: Chunk, reporter: Reporter) -> Loaded:
        """The records of a chunk; loads them only if the last chunk had others."""
        first = chunk.requests[0]
        if self._key != data_key(first):
            self._loaded = load(first, None, reporter)
            self._key = data_key(first)
            self._see(first.data)
        return self._loaded

    def _see(self, data: str) -> None:
        counts = self._loaded.federations[0].public_counts
        known = self.seen.get(data, {"silos": 0, "least": int(counts.min()), "most": 0})
        self.seen[data] = {
            "silos": max(known["silos"], len(counts)),
            "least": min(known["least"], int(counts.min())),
            "most": max(known["most"], int(counts.max())),
        }


@contextmanager
def naming(chunk: Chunk) -> Iterator[None]:
    """Adds to errors which runs they are about, and that finished ones are kept."""
    try:
        yield
    except DataMissingError:
        raise
    except SilodpError as error:
        first = chunk.points[0].options
        raise SilodpError(
            f"Runs of {first.method} on {first.data}: {error} What is finished is kept: correct "
            "the sweep, and the same command goes on."
        ) from None


def train_chunk(
    chunk: Chunk,
    loaded: Loaded,
    columns: Sequence[str],
    history: bool,
    place: RunFolder | None,
    reporter: Reporter,
    programs: Programs | None = None,
) -> list[Row]:
    """The rows of every run in the chunk.

    Args:
      chunk: the runs to train.
      loaded: their records.
      columns: the options that the table has as columns.
      history: whether there is a row for every evaluated round, or for the last one alone.
      place: the folder that keeps an unfinished chunk, if there is one.
      reporter: hears about progress.
      programs: compiled programs of chunks before.
    """
    watch = Watch(reporter)
    prepared = prepare_loaded(chunk.requests, loaded, None, watch)
    training = train(prepared, place, watch, programs=programs)
    return [
        row
        for number, point in enumerate(chunk.points)
        for row in _rows(prepared, training, number, point.run, columns, history)
    ]


def _rows(
    prepared: Prepared,
    training: TrainingRun,
    number: int,
    run: str,
    columns: Sequence[str],
    history: bool,
) -> list[Row]:
    spec = prepared.specs[number]
    has = spec.method.option_names
    options = {
        name: spec.values[name] for name in columns if name not in METHOD_OPTIONS or name in has
    }
    federations = prepared.federations
    has_value = where_measured(prepared, federations, noisy=spec.request.metric_share > 0)
    values = over_silos(metrics_of(prepared, training, number), federations, has_value)
    rounds = training.execution.rounds
    shown = range(len(rounds)) if history else [len(rounds) - 1]
    return [
        Row(
            run=run,
            options=options,
            seed=seed,
            round=rounds[at],
            metric=prepared.metric.name,
            value=float(values[at, place]),
            epsilon_spent=float(max(plan.epsilon for plan in spec.plans)),
            noise_multiplier=float(np.median([plan.noise_multiplier for plan in spec.plans])),
            proven=all(plan.statement()["proven"] for plan in spec.plans),
        )
        for place, seed in enumerate(training.seeds)
        for at in shown
    ]
