"""All that is random in a release, round by round, drawn on the host.

Batches (`coins`), noise (`rounded_gaussian`) and the words of selections come from `keystream`s of
the run's secret, and go into the compiled program as they are: nothing that protects a record is
worked out in single precision.

The bytes of a round belong to the silos in the federation's order, each as many as it needs: how an
engine pads and groups them changes nothing.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from silodp.errors import SilodpError
from silodp.privacy.coins import coins, packed, shuffled, threshold_of
from silodp.privacy.keystream import key_of, pass_stream
from silodp.privacy.lattice import Lattice
from silodp.privacy.plan import SiloPlan
from silodp.privacy.randomness import PassRandomness
from silodp.privacy.rounded_gaussian import rounded_gaussian
from silodp.privacy.training import PassShape

# Among so many candidates a silo can choose: words are drawn before it is known how many there are.
MOST_CANDIDATES = 256


class RoundDraws(NamedTuple):
    """What is random for the silos of a group in one round.

    Attributes:
      passes: samples (see `training.PassShape`) and noise in grains, [silos, passes, ...].
      select: words for a selection, uint32 [silos, MOST_CANDIDATES, 2]; none if none is asked for.
    """

    passes: PassRandomness
    select: np.ndarray


def host_words(words: Any, candidates: int) -> Any:
    """The words for a selection among so many, of those that the host has drawn for a silo."""
    if candidates > MOST_CANDIDATES:
        raise SilodpError(
            f"The method lets a silo choose among {candidates} candidates, and a release among "
            f"{MOST_CANDIDATES} at most: give fewer."
        )
    return words[:candidates]


class SiloGroup(NamedTuple):
    """Silos that an engine pads to one shape: their places in the federation, and the shape."""

    members: np.ndarray
    shape: PassShape


class ReleaseDraws:
    """The draws of one run, for silos that are held in groups."""

    def __init__(
        self,
        secret: bytes,
        seed: int,
        trial: int,
        plans: Sequence[SiloPlan],
        held: Sequence[int],
        lattices: Sequence[Lattice],
        parameters: int,
        groups: Sequence[SiloGroup],
    ):
        """The draws of one run.

        Args:
          secret: of the run, 32 bytes.
          seed: of the run.
          trial: of a silo that tries several hyperparameters.
          plans: of all silos.
          held: how many records (or subjects) each has for training.
          lattices: of the silos; a deviation of 0 is no noise.
          parameters: numbers in the model.
          groups: as the engine holds the silos.
        """
        self._key = key_of(secret, "release", seed, trial)
        self._plans, self._held, self._groups = plans, held, groups
        self._parameters = parameters
        self._deviations = np.repeat(
            [lattice.deviation for lattice in lattices],
            [plan.steps * parameters for plan in plans],
        )
        by_coin = [plan.draw != "shuffle" and plan.batch < plan.records for plan in plans]
        sizes = [
            plan.steps * count if tossed else 0
            for plan, count, tossed in zip(plans, held, by_coin, strict=True)
        ]
        thresholds = [
            threshold_of(plan.batch, plan.records) if tossed else np.uint64(0)
            for plan, tossed in zip(plans, by_coin, strict=True)
        ]
        self._thresholds = np.repeat(np.array(thresholds, np.uint64), sizes)
        self._coin_ends = np.cumsum(sizes)[:-1]
        # Which rows of all steps' noise, silo after silo, are those of a group, and where in it.
        firsts = np.cumsum([plan.steps for plan in plans]) - [plan.steps for plan in plans]
        self._noise_rows = [_noise_rows(group, plans, firsts) for group in groups]

    def of_round(self, number: int) -> list[RoundDraws]:
        """Of each group, in the round of that number."""
        schedule = self._plans[0].schedule
        passes = [self._pass(number, asked) for asked in range(schedule.train)]
        selections = self._selections(number) if number < schedule.select_rounds else None
        drawn = []
        for place, group in enumerate(self._groups):
            samples, noises = zip(*(one[place] for one in passes), strict=True)
            several = PassRandomness(np.stack(samples, axis=1), np.stack(noises, axis=1))
            if selections is None:
                words = np.zeros((len(group.members), MOST_CANDIDATES, 2), np.uint32)
            else:
                words = selections[group.members]
            drawn.append(RoundDraws(several, words))
        return drawn

    def _pass(self, number: int, asked: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Samples and noise of one pass, for each group."""
        samples = self._samples(number, asked)
        noise = self._noise(number, asked)
        drawn = []
        for group, (rows, places) in zip(self._groups, self._noise_rows, strict=True):
            own = np.zeros((len(group.members) * group.shape.steps, self._parameters), np.int32)
            own[places] = noise[rows]
            drawn.append(
                (
                    _padded([samples[member] for member in group.members], group.shape),
                    own.reshape(len(group.members), group.shape.steps, self._parameters),
                )
            )
        return drawn

    def _samples(self, number: int, asked: int) -> list[np.ndarray]:
        """Of each silo: which records are drawn in each step, or their numbers."""
        stream = pass_stream(self._key, number, asked, "sample")
        refined = pass_stream(self._key, number, asked, "sample refined")
        tossed = np.split(coins(self._thresholds, stream, refined), self._coin_ends)
        samples = []
        for plan, count, own in zip(self._plans, self._held, tossed, strict=True):
            if plan.draw == "shuffle":
                samples.append(shuffled(count, plan.records, plan.batch, plan.epochs, stream))
                continue
            drawn = own.reshape(plan.steps, -1) if len(own) else np.ones((plan.steps, count), bool)
            samples.append(packed(drawn, plan.slots) if plan.draw == "gaps" else drawn)
        return samples

    def _noise(self, number: int, asked: int) -> np.ndarray:
        """In grains, of all steps of all silos: int32 [steps, parameters]."""
        words = pass_stream(self._key, number, asked, "noise").words(len(self._deviations))
        refined = pass_stream(self._key, number, asked, "noise refined")
        drawn = rounded_gaussian(words, self._deviations, refined.read)
        # Modulo 2^32, as sums are: see `lattice`.
        return drawn.astype(np.int32).reshape(-1, self._parameters)

    def _selections(self, number: int) -> np.ndarray:
        stream = pass_stream(self._key, number, 0, "selection")
        words = stream.words(len(self._plans) * MOST_CANDIDATES).view(np.uint32)
        return words.reshape(len(self._plans), MOST_CANDIDATES, 2)


def _noise_rows(
    group: SiloGroup, plans: Sequence[SiloPlan], firsts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    steps = [np.arange(plans[member].steps) for member in group.members]
    rows = [firsts[member] + own for member, own in zip(group.members, steps, strict=True)]
    places = [place * group.shape.steps + own for place, own in enumerate(steps)]
    return np.concatenate(rows), np.concatenate(places)


def _padded(samples: Sequence[np.ndarray], shape: PassShape) -> np.ndarray:
    """[silos, steps, slots]: flags (False in empty slots), or numbers of records (-1)."""
    flags = samples[0].dtype == bool
    empty = False if flags else -1
    padded = np.full((len(samples), shape.steps, shape.slots), empty, samples[0].dtype)
    for place, own in enumerate(samples):
        padded[place, : own.shape[0], : own.shape[1]] = own
    return padded
