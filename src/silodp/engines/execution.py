"""Runs of many seeds and settings, in parts that fit memory, with checkpoints and progress."""

import hashlib
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from silodp.base import signals as interrupts
from silodp.base.errors import SilodpError
from silodp.base.progress import Reporter
from silodp.data.federation import Federation
from silodp.engines import checkpoint
from silodp.engines.checkpoint import Checkpoint, CheckpointFolder
from silodp.engines.debug import run_debug
from silodp.engines.job import Job, Setting
from silodp.engines.messages import run_messages
from silodp.engines.programs import Programs
from silodp.engines.simulation import Simulation
from silodp.privacy.session import RunSession

# Memory that the records of a part, and the runs of a part, may take. Records are held twice (as
# they are, and prepared for the model).
MEMORY_FOR_RECORDS = 1.2e9
MEMORY_FOR_RUNS = 0.8e9
# More settings than this at a time gain nothing: their arrays no longer fit the cache.
MOST_SETTINGS = 64
# Trials share nothing that a cache could hold, and each part of them would train the pivot again.
MOST_TRIALS = 256
SECONDS_BETWEEN_CHECKPOINTS = 20.0
SECONDS_BETWEEN_REPORTS = 0.5


class Execution(NamedTuple):
    """What was trained.

    Attributes:
      rounds: at which the metric was evaluated.
      metrics: [evaluations, seeds, settings, silos].
      models: one for each setting, if kept: pytrees with leading axes [seeds, silos].
      learned: what the method found out, for each setting: leaves have a leading axis [seeds].
      seconds: for compiling and for training.
    """

    rounds: list[int]
    metrics: np.ndarray
    models: list[Any] | None
    learned: list[dict[str, Any]]
    seconds: dict[str, float]


class _Part(NamedTuple):
    seeds: slice
    settings: list[int]


class _Kept:
    """A pytree of each finished part, with leading axes [seeds, settings].

    Attributes:
      leaves: the leaves of each part, as a checkpoint keeps them.
    """

    def __init__(self, leaves: Sequence[list[np.ndarray]]):
        """Starts with the parts that were finished before an interruption."""
        self.leaves = list(leaves)
        self._structure = jax.tree.structure(())

    def add(self, tree: Any) -> None:
        """Adds the tree of one part; all have one structure."""
        self._structure = jax.tree.structure(tree)
        self.leaves.append(checkpoint.flatten(tree))

    def joined(self, parts: list[_Part]) -> list[Any]:
        """The tree of each setting, with all seeds: leaves [seeds, ...]."""
        # The last part is never finished before an interruption: the structure is known.
        by_setting: dict[int, dict[int, list[np.ndarray]]] = {}
        for part, leaves in zip(parts, self.leaves, strict=True):
            for place, setting in enumerate(part.settings):
                own = [leaf[:, place] for leaf in leaves]
                by_setting.setdefault(setting, {})[part.seeds.start] = own
        return [
            jax.tree.unflatten(
                self._structure,
                [np.concatenate(a) for a in zip(*by_setting[setting].values(), strict=True)],
            )
            for setting in sorted(by_setting)
        ]


class Shown(NamedTuple):
    """What may be known of a run while it goes on.

    Attributes:
      metric: its test metric, which has a price where it is released with noise.
      rounds: how many rounds there are, of all parts together; else their share in percent.
    """

    metric: bool = True
    rounds: bool = True

    def report(self, reporter: Reporter, done: int, total: int, metric: float) -> None:
        """Reports rounds done of all rounds, and the metric there."""
        if not self.rounds:
            done, total = math.floor(100 * done / total), 100
        reporter.trained(done, total, metric if self.metric else math.nan)


EVERYTHING_SHOWN = Shown()


def execute(
    job: Job,
    seeds: Sequence[int],
    federations: Sequence[Federation],
    settings: Sequence[Setting],
    *,
    evaluate_every: int,
    engine: str,
    keep_models: bool,
    place: CheckpointFolder | None,
    at: Checkpoint | None,
    session: RunSession,
    reporter: Reporter,
    shown: Shown = EVERYTHING_SHOWN,
    programs: Programs | None = None,
) -> Execution:
    """Trains every seed with every setting; `place` keeps what an interrupted run has done.

    `at` is where an interrupted run stood, to go on from. `session` is paid before rounds are
    trained. What is `shown` is reported. Programs that `programs` has of calls before are not
    compiled again.
    """
    if at and keep_models and len(at.models) < at.chunk:
        raise SilodpError(
            "keep_models: the interrupted run did not keep the models of the parts that it had "
            "finished: start anew with overwrite=True."
        )
    programs = programs or Programs()
    rounds = evaluated_rounds(job.rounds, evaluate_every)
    if engine == "debug" or job.method.in_messages:
        start = time.perf_counter()
        reporter.stage("training")
        metrics, models, learned = _one_by_one(
            job, seeds, federations, settings, rounds, session, reporter, shown
        )
        seconds = {"train": time.perf_counter() - start}
        return Execution(rounds, metrics, models if keep_models else None, learned, seconds)

    metrics = np.full((len(rounds), len(seeds), len(settings), len(federations[0].silos)), np.nan)
    parts = _parts(job, federations, settings)
    models, learned = _Kept(at.models if at else []), _Kept(at.learned if at else [])
    if place is not None:
        place.models, place.learned = models.leaves, learned.leaves
    seconds = {"compile": 0.0, "train": 0.0}
    histories = list(at.history) if at else []
    for number, part in enumerate(parts):
        if at and number < at.chunk:
            metrics[:, part.seeds, part.settings] = histories[number]
            continue
        reporter.stage("compiling")
        start = time.perf_counter()
        chosen = [settings[setting] for setting in part.settings]
        simulation = Simulation(job, seeds[part.seeds], federations[part.seeds], chosen, programs)
        seconds["compile"] += time.perf_counter() - start
        start = time.perf_counter()
        weights = _weights_of_silos(job, federations[part.seeds])
        state = _train(
            *(simulation, weights, number, len(parts), rounds, at, histories),
            *(place, session, reporter, shown),
        )
        metrics[:, part.seeds, part.settings] = histories[number]
        seconds["train"] += time.perf_counter() - start
        if keep_models:
            models.add(simulation.personal_models(state))
        learned.add(simulation.learned(state))
    own = models.joined(parts) if keep_models else None
    return Execution(rounds, metrics, own, learned.joined(parts), seconds)


def evaluated_rounds(rounds: int, every: int) -> list[int]:
    """After every so many rounds, and at the end."""
    return [*range(every, rounds, every), rounds]


def check_equal_shapes(federations: Sequence[Federation]) -> None:
    """Federations of different seeds must be alike in all that is public.

    By coins, how many records of a silo are for training may differ from seed to seed.
    """
    first = federations[0]
    for other in federations[1:]:
        if (
            other.names != first.names
            or other.input_shape != first.input_shape
            or not np.array_equal(other.public_counts, first.public_counts)
        ):
            raise SilodpError(
                f"Data {first.name!r} have other silos or record counts from one seed to the next: "
                "a split must keep each silo's counts."
            )


class _Verbatim(str):
    """Text whose `repr` is the text itself."""

    __slots__ = ()
    __repr__ = str.__str__


def fingerprint(
    job: Job,
    seeds: Sequence[int],
    federations: Sequence[Federation],
    settings: Sequence[Setting],
    *,
    evaluate_every: int,
    engine: str,
) -> str:
    """A digest of all that a run's numbers depend on: records, plans (hence budgets), options."""
    digest = hashlib.sha256()
    plans_as_stored = [
        setting._replace(plans=tuple(_Verbatim(plan.stored_text()) for plan in setting.plans))
        for setting in settings
    ]
    about = (job.identity, list(seeds), plans_as_stored, evaluate_every, engine)
    digest.update(repr(about).encode())
    digest.update(repr(federations[0].pixels).encode())
    for silo in (silo for federation in federations for silo in federation.silos):
        for array in (silo.train.x, silo.train.y, silo.train.subject, silo.test.x, silo.test.y):
            if array is not None:
                digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _train(
    simulation: Simulation,
    weights: np.ndarray,
    number: int,
    parts: int,
    rounds: list[int],
    at: Checkpoint | None,
    histories: list[np.ndarray],
    place: CheckpointFolder | None,
    session: RunSession,
    reporter: Reporter,
    shown: Shown,
) -> Any:
    """Trains one part, adding its history; returns the last state.

    `known` [seeds, silos] are those that have the metric.
    """
    state, done, evaluations = simulation.initial_state(), 0, []
    if at and number == at.chunk:
        state = simulation.placed(checkpoint.unflatten(at.state, state))
        done, evaluations = at.round, list(histories.pop())
    reporter.stage("training")
    saved = time.perf_counter()
    total = parts * rounds[-1]

    def save() -> None:
        if place is not None:
            history = [*histories, np.array(evaluations)]
            place.save(number, done, history, checkpoint.flatten(state))

    at_once = 1  # rounds in one call: as many as pass between two reports
    latest = math.nan
    with interrupts.held_back():
        try:
            while done < rounds[-1]:
                evaluation = rounds[len(evaluations)]
                stop = min(done + at_once, evaluation)
                assert stop > done, "rounds that were paid for are not trained again"
                paid = session.pay(done, stop)
                began = time.perf_counter()
                state, metric = simulation.advance(state, paid, stop == evaluation)
                ended = time.perf_counter()
                at_once = max(1, int(SECONDS_BETWEEN_REPORTS * (stop - done) / (ended - began)))
                done = stop
                if done == evaluation:
                    evaluations.append(metric)
                    latest = _shown_mean(metric, weights)
                shown.report(reporter, number * rounds[-1] + done, total, latest)
                if interrupts.requested():
                    raise KeyboardInterrupt
                if ended - saved > SECONDS_BETWEEN_CHECKPOINTS:
                    save()
                    saved = ended
        except KeyboardInterrupt:
            save()
            raise
    histories.append(np.array(evaluations))
    return state


def _weights_of_silos(job: Job, federations: Sequence[Federation]) -> np.ndarray:
    """[seeds, silos]: test records, as in the result; 0 in silos that do not have the metric."""
    counts = np.stack([one.public_test_counts for one in federations])
    return counts * job.metric.where_known(federations)


def _shown_mean(metric: np.ndarray, weights: np.ndarray) -> float:
    """The mean to be shown of [seeds, settings, silos], with weights [seeds, silos]."""
    some = weights.sum(axis=1) > 0
    if not some.any():
        return math.nan
    metric, weights = metric[some], weights[some][:, None]
    sums = (np.where(weights > 0, metric, 0.0) * weights).sum(axis=2)
    return float((sums / weights.sum(axis=2)).mean())


def _one_by_one(
    job: Job,
    seeds: Sequence[int],
    federations: Sequence[Federation],
    settings: Sequence[Setting],
    rounds: list[int],
    session: RunSession,
    reporter: Reporter,
    shown: Shown,
) -> tuple[np.ndarray, list[Any], list[dict[str, Any]]]:
    """Runs that are not compiled together, one after the other.

    Metrics [evaluations, seeds, settings, silos], and of each setting models and learned.
    """
    shape = (len(rounds), len(seeds), len(settings), len(federations[0].silos))
    metrics = np.full(shape, np.nan)
    kept: list[list[Any]] = [[] for _ in settings]
    weights = _weights_of_silos(job, federations)
    runs = [(s, r) for s in range(len(seeds)) for r in range(len(settings))]
    for number, (s, r) in enumerate(runs):

        def report(done: int, metric: np.ndarray, s=s, r=r, number=number) -> None:
            metrics[rounds.index(done), s, r] = metric
            so_far, total = number * job.rounds + done, len(runs) * job.rounds
            latest = _shown_mean(metric[None, None], weights[s : s + 1])
            shown.report(reporter, so_far, total, latest)

        train = run_messages if job.method.in_messages else run_debug
        kept[r].append(train(job, seeds[s], federations[s], settings[r], rounds, session, report))
    stacked = [jax.tree.map(lambda *each: np.stack(each), *of_seeds) for of_seeds in kept]
    return metrics, [models for models, _ in stacked], [learned for _, learned in stacked]


def _parts(job: Job, federations: Sequence[Federation], settings: Sequence[Setting]) -> list[_Part]:
    """Seeds and settings in blocks whose records and working arrays fit memory."""
    first = federations[0]
    records = sum(silo.train.x.nbytes + silo.test.x.nbytes for silo in first.silos)
    if first.pixels is not None and not job.model.heavy:
        records *= 5  # the bytes, and the numbers that the model makes of them
    # Padding to groups of like size adds about a quarter.
    a_seed = 2.5 * records
    slots = sum(plan.batch_capacity for plan in settings[0].plans)
    passes = sum(plan.steps * plan.batch_capacity for plan in settings[0].plans)
    a_run = 4.0 * (6 * len(first.silos) * job.parameters + 6 * slots)
    if job.model.heavy:
        a_run = 4.0 * 4 * len(first.silos) * job.parameters
    else:
        draws = 4.0 * 4 * passes + 4.0 * slots * math.prod(first.input_shape)
        apart = len({setting.trial for setting in settings}) > 1
        a_seed, a_run = (a_seed, a_run + draws) if apart else (a_seed + draws, a_run)
    if job.release:  # what the host draws for a round is each run's own
        a_step = [plan.steps * (plan.batch_capacity + job.parameters) for plan in settings[0].plans]
        a_run += 4.0 * 2 * job.schedule.train * sum(a_step)
    seeds_a_part = _at_once(len(federations), MEMORY_FOR_RECORDS / a_seed)
    # Settings of a release share nothing, and which silos are private is part of the program.
    at_most = MOST_TRIALS if job.pivot else 1 if job.release else MOST_SETTINGS
    max_settings = min(at_most, MEMORY_FOR_RUNS / (a_run * seeds_a_part))
    pivots = [0] if job.pivot else []  # trained in every part: trials need its broadcasts
    others = list(range(len(pivots), len(settings)))
    blocks = _blocks(len(others), _at_once(len(others), max_settings - len(pivots))) or [slice(0)]
    return [
        _Part(seeds, [*pivots, *others[chosen]])
        for seeds in _blocks(len(federations), seeds_a_part)
        for chosen in blocks
    ]


def _at_once(total: int, limit: float) -> int:
    """At most `limit` (but one) at a time, in blocks of about equal size."""
    blocks = math.ceil(total / max(1, math.floor(limit)))
    return math.ceil(total / max(1, blocks))


def _blocks(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, max(1, size))]
