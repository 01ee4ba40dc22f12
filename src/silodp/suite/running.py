"""Runs what the suite lacks: a row of a federation at a time, in this process or in several."""

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from silodp.base.errors import DataMissingError
from silodp.base.files import check_writable
from silodp.base.progress import Reporter
from silodp.methods import get_method
from silodp.suite.cases import Case, load
from silodp.suite.cells import BEST, SIMPLE, is_finished, place_of, write_cell
from silodp.suite.training import method_of, request_of, train_row

EPSILONS = (0.5, 1.0, 4.0, 10.0, float("inf"))
SEEDS = 5
# What a pull request can wait for.
PART_EPSILONS, PART_SEEDS, PART_METHODS = (1.0,), 2, ("ebmtl", "fewround")
DEFAULT_METHODS = (
    *("ebmtl", "ebmtl 50 full batches", "fewround", "local", "fedavg"),
    *("finetune", "mrmtl", "meanpull", "ditto"),
)


@dataclass(frozen=True)
class Task:
    """A row of a federation at the epsilons that it lacks."""

    case: Case
    row: str
    epsilons: tuple[float, ...]
    seeds: int


def rows_of(methods: Sequence[str], best: Sequence[str] = ()) -> list[str]:
    """The rows of the table: the simple choices, methods at their defaults, others at their best.

    The constant comes first: it shows at once whether data are there.
    """
    return list(dict.fromkeys([*SIMPLE, *methods, *(f"{BEST}{method}" for method in best)]))


def lacking(
    out: Path, cases: Sequence[Case], rows: Sequence[str], epsilons: Sequence[float], seeds: int
) -> list[Task]:
    """What is not finished in the folder, federation by federation."""
    tasks = []
    for case in cases:
        if case.waits_for:
            continue
        for row in rows:
            request = request_of(case, row)
            left = tuple(
                one for one in epsilons if not is_finished(out, case.name, row, one, request, seeds)
            )
            if left:
                tasks.append(Task(case, row, left, seeds))
    return tasks


def run_suite(
    out: Path,
    cases: Sequence[Case],
    rows: Sequence[str],
    epsilons: Sequence[float],
    seeds: int,
    jobs: int = 1,
    reporter: Reporter | None = None,
    *,
    overwrite: bool = False,
) -> dict[str, str]:
    """Trains what is lacking (all of it, with `overwrite`), and keeps every row once finished.

    Returns what to do about each federation that could not be run, by name.
    """
    check_writable(out)
    if overwrite:
        for case, row, epsilon in itertools.product(cases, rows, epsilons):
            place_of(out, case.name, row, epsilon).unlink(missing_ok=True)
    reporter = reporter or Reporter()
    missing = {case.name: case.waits_for for case in cases if case.waits_for}
    wanted = sum(not case.waits_for for case in cases) * len(rows)
    tasks = lacking(out, cases, rows, epsilons, seeds)
    done = wanted - len(tasks)
    reporter.swept(done, wanted, None)
    for task, why in _done(out, tasks, jobs, reporter, done, wanted):
        done += 1
        if why:
            missing[task.case.name] = why
        reporter.swept(done, wanted, _title(task))
    return missing


def _done(
    out: Path, tasks: list[Task], jobs: int, reporter: Reporter, done: int, wanted: int
) -> Iterator[tuple[Task, str]]:
    """Each task once it is over, and what it lacked."""
    if jobs == 1:
        absent: dict[str, str] = {}
        for number, task in enumerate(tasks):
            if task.case.name not in absent:
                reporter.swept(done + number, wanted, _title(task))
                if why := _finish(out, task):
                    absent[task.case.name] = why
            yield task, absent.get(task.case.name, "")
        return
    # Not forked: JAX has threads, which a fork would lose.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(_finish_apart, out, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _finish(out: Path, task: Task) -> str:
    """Trains a task and keeps its cells; says what is missing, if data are."""
    try:
        for cell in train_row(task.case, task.row, task.epsilons, task.seeds):
            write_cell(out, cell)
    except DataMissingError as error:
        return str(error)
    return ""


def _finish_apart(out: Path, task: Task) -> str:
    """In a process of its own, which takes one core: the others have theirs."""
    from silodp.engines.devices import prepare_jax

    prepare_jax(1)
    return _finish(out, task)


def _title(task: Task) -> str:
    return f"{task.row} on {task.case.name}"


def cases_of(names: Sequence[str], part: bool) -> list[Case]:
    """The federations of these names; of those in the part alone, if asked for."""
    cases = [load(name) for name in names]
    return [case for case in cases if case.part] if part else cases


def check_methods(methods: Sequence[str]) -> None:
    """Refuses unknown methods before anything is trained."""
    for method in methods:
        get_method(method_of(method))
