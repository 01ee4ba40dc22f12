"""What the host draws for the rounds of a release, for all seeds and settings of a simulation.

The draws themselves are those of `release_draws`: here is how many rounds are drawn at once, and
which settings share them.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from silodp.data.federation import Federation
from silodp.engines.job import Job, Setting
from silodp.engines.one_silo import release_draws_of
from silodp.privacy.mechanisms.release_draws import RoundDraws, SiloGroup

# What the host may draw at once for a release: bytes, and rounds.
_DRAWN_BYTES = 3.2e7
_DRAWN_ROUNDS = 16


class HostDraws:
    """What is random in a release, of all seeds and settings.

    Attributes:
      rounds: number of rounds drawn at once; the program is compiled for so many.
    """

    def __init__(
        self,
        job: Job,
        seeds: Sequence[int],
        federations: Sequence[Federation],
        settings: Sequence[Setting],
        groups: Sequence[SiloGroup],
    ):
        self._job, self._groups = job, groups
        self._federations = federations
        # What is drawn depends on the trial and the plans alone: settings share it that share them.
        unlike: dict[Any, Setting] = {}
        about = [(setting.trial, setting.plans) for setting in settings]
        for own, setting in zip(about, settings, strict=True):
            unlike.setdefault(own, setting)
        self._unlike = list(unlike.values())
        self._places = [list(unlike).index(own) for own in about]
        self.reseed(seeds)
        a_round = sum(
            len(group.members)
            * group.shape.steps
            * (4 * group.shape.batch_capacity + 4 * job.parameters)
            for group in groups
        )
        fits = _DRAWN_BYTES / (a_round * job.schedule.train * len(seeds) * len(settings))
        self.rounds = max(1, min(int(fits), _DRAWN_ROUNDS, job.rounds))

    def reseed(self, seeds: Sequence[int]) -> None:
        """Goes on with draws for these seeds."""
        self._draws = [
            release_draws_of(self._job, seeds, self._federations, setting, self._groups)
            for setting in self._unlike
        ]

    def of_rounds(self, start: int, stop: int) -> tuple[RoundDraws, ...]:
        """Draws of each group: [rounds, seeds, silos, settings, ...]; unused rounds are 0."""

        def of_round(number: int) -> list[RoundDraws]:
            drawn = [own.of_round(number) for own in self._draws]
            by_setting = [drawn[place] for place in self._places]
            return [_stacked(of_group, axis=2) for of_group in zip(*by_setting, strict=True)]

        drawn = [of_round(number) for number in range(start, stop)]
        empty = [jax.tree.map(np.zeros_like, group) for group in drawn[0]]
        drawn += [empty] * (self.rounds - len(drawn))
        return tuple(_stacked(rounds, axis=0) for rounds in zip(*drawn, strict=True))


def _stacked(trees: Sequence[Any], axis: int) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis=axis), *trees)
