"""Chunks of a sweep: runs that are trained together in one compiled program."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from silodp.config.options import OPTIONS, RunRequest
from silodp.data import registry as datasets
from silodp.engines.execution import MOST_SETTINGS
from silodp.models.model import is_heavy
from silodp.runs.prepare import data_options
from silodp.sweeps.grid import Point


class Chunk(NamedTuple):
    """Points of one program with the same seeds; their rows are added all at once or not at all."""

    points: tuple[Point, ...]
    seeds: range

    @property
    def title(self) -> str:
        """Method and data, for messages."""
        first = self.points[0].options
        return f"{first.method} on {first.data}"

    @property
    def runs(self) -> int:
        """The number of runs."""
        return len(self.points) * len(self.seeds)

    @property
    def requests(self) -> list[RunRequest]:
        """The request of each point, with the chunk's own seeds."""
        return [
            replace(point.options, first_seed=self.seeds[0], seeds=len(self.seeds))
            for point in self.points
        ]


def make_chunks(points: Iterable[Point], finished: set[tuple[str, int]]) -> list[Chunk]:
    """Chunks of all runs that are not finished yet.

    Chunks do not depend on what is finished: after an interruption, the same ones are trained.
    """
    by_program: dict[tuple, list[Point]] = {}
    for point in points:
        by_program.setdefault(_program(point.options), []).append(point)
    return [
        chunk
        for group in by_program.values()
        for block in _blocks(group, _number(group[0].options, len(group)))
        for chunk in _unfinished(block, finished)
    ]


def data_key(request: RunRequest) -> tuple:
    """A key that is equal for settings that are trained on the same records."""
    return (request.data, repr(data_options(request)), request.seeds, request.first_seed)


def _program(request: RunRequest) -> tuple:
    """A key that is equal for settings of one compiled program."""
    fixed = tuple(
        repr(getattr(request, name))
        for name, option in OPTIONS.items()
        if "swept" not in option.tags
    )
    # Standardised by noisy statistics, the records themselves depend on the budget.
    return (*fixed, request.epsilon, request.policies) if request.statistics_share else fixed


def _number(request: RunRequest, settings: int) -> int:
    """The number of chunks: of one size if possible, so that one program fits all of them."""
    defaults = datasets.defaults_without_reading(request.data, data_options(request))
    if is_heavy(request.model or defaults.model):
        # A run takes minutes: small chunks are in the table sooner; two runs keep two cores busy.
        return math.ceil(settings / (1 if request.seeds % 2 == 0 else 2))
    least = math.ceil(settings / MOST_SETTINGS)
    return next((n for n in range(least, 2 * least) if settings % n == 0), least)


def _blocks(points: Sequence[Point], number: int) -> Iterator[Sequence[Point]]:
    """Blocks of every n-th point, so that each spans all budgets, which need different padding."""
    return (points[start::number] for start in range(number))


def _unfinished(block: Sequence[Point], finished: set[tuple[str, int]]) -> Iterator[Chunk]:
    """Chunks of the unfinished runs of a block; points that lack the same seeds stay together."""
    missing: dict[tuple[int, ...], list[Point]] = {}
    for point in block:
        seeds = tuple(seed for seed in point.seeds if (point.run, seed) not in finished)
        missing.setdefault(seeds, []).append(point)
    for seeds, points in missing.items():
        for stretch in _stretches(seeds):
            yield Chunk(tuple(points), stretch)


def _stretches(seeds: Sequence[int]) -> Iterator[range]:
    """Splits numbers into ranges: 0, 1, 2, 5, 6 -> 0..2 and 5..6."""
    for _, group in groupby(enumerate(seeds), lambda pair: pair[1] - pair[0]):
        numbers = [seed for _, seed in group]
        yield range(numbers[0], numbers[-1] + 1)
