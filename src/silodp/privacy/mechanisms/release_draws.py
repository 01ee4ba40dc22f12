"""All that is random in a release, round by round, drawn on the host.

Batches (`poisson_batches`), noise (`rounded_gaussian`) and the words of selections come from
`keystream`s of the run's secret, and go into the compiled program as they are: nothing that
protects a record is worked out in single precision.

The bytes of a round belong to the silos in the federation's order, each as many as it needs: how an
engine pads and groups them changes nothing.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Int32, Shaped, UInt32, UInt64

from silodp.base.errors import SilodpError
from silodp.privacy.mechanisms.keystream import Keystream, Purpose, key_of, pass_stream
from silodp.privacy.mechanisms.lattice import Lattice
from silodp.privacy.mechanisms.poisson_batches import (
    DrawnCounts,
    coins,
    shuffled,
    subsets,
    threshold_of,
)
from silodp.privacy.mechanisms.randomness import PassRandomness
from silodp.privacy.mechanisms.rounded_gaussian import rounded_gaussian
from silodp.privacy.mechanisms.training import PassShape
from silodp.privacy.plan import SiloPlan

# Among so many candidates a silo can choose: words are drawn before it is known how many there are.
MOST_CANDIDATES = 256


# Of a group in one pass: flags or numbers of records, and noise in grains. No two groups are alike.
Samples = Shaped[np.ndarray, "_ _ _ _"]  # seeds, silos, steps, slots
Noise = Int32[np.ndarray, "_ _ _ _"]  # seeds, silos, steps, params


class RoundDraws(NamedTuple):
    """What is random for the silos of a group in one round.

    Attributes:
      passes: samples (see `training.PassShape`) and noise in grains, [seeds, silos, passes, ...].
      select: words for a selection among MOST_CANDIDATES; 0 in rounds that ask for none, and none
        at all if no round does.
    """

    passes: PassRandomness
    select: UInt32[np.ndarray, "seeds silos candidates 2"]


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

    members: Int[np.ndarray, " silos"]
    shape: PassShape


class ReleaseDraws:
    """The draws of runs of one setting, one a seed, for silos in groups."""

    def __init__(
        self,
        secret: bytes,
        seeds: Sequence[int],
        trial: int,
        plans: Sequence[SiloPlan],
        true_counts: Sequence[Sequence[int]],
        lattices: Sequence[Lattice],
        parameters: int,
        groups: Sequence[SiloGroup],
    ):
        """The draws of these runs.

        Args:
          secret: the runs' secret, 32 bytes.
          seeds: the seed of each run.
          trial: number of the trial, where a silo tries several hyperparameters.
          plans: the plan of each silo.
          true_counts: training records (or subjects) of each silo, in each run; secret.
          lattices: the lattice of each silo; a deviation of 0 is no noise.
          parameters: numbers in the model.
          groups: the groups in which the engine holds the silos.
        """
        self._run_keys = [key_of(secret, "release", seed, trial) for seed in seeds]
        self._keys = self._run_keys
        self._plans, self._groups = plans, groups
        self._parameters = parameters
        self._deviations = np.repeat(
            [lattice.deviation for lattice in lattices],
            [plan.steps * parameters for plan in plans],
        )
        # Seeds whose silos hold as many records are worked on together.
        self._alike: dict[tuple[int, ...], list[int]] = {}
        for seed, own in enumerate(true_counts):
            self._alike.setdefault(tuple(own), []).append(seed)
        thresholds = [
            threshold_of(plan.expected_batch, plan.public_count)
            if plan.expected_batch < plan.public_count
            else np.uint64(0)
            for plan in plans
        ]
        self._thresholds = [np.zeros(0, np.uint64)] * len(seeds)
        for own, alike in self._alike.items():
            counts = [_coins_of(*pair) for pair in zip(plans, own, strict=True)]
            shared = np.repeat(np.array(thresholds, np.uint64), counts)
            for seed in alike:
                self._thresholds[seed] = shared
        self._counts = {
            (place, count): DrawnCounts(
                count, plan.expected_batch, plan.public_count, plan.batch_capacity
            )
            for own in self._alike
            for place, (plan, count) in enumerate(zip(plans, own, strict=True))
            if plan.draw == "gaps"
        }
        # Which rows of all steps' noise, silo after silo, are those of a group, and where in it.
        firsts = np.cumsum([plan.steps for plan in plans]) - [plan.steps for plan in plans]
        self._noise_rows = [_noise_rows(group, plans, firsts) for group in groups]

    def of_round(self, number: int, start_digest: bytes = b"") -> list[RoundDraws]:
        """The draws of each group in the round of that number: leaves are [seeds, silos, ...].

        With a `start_digest` of what the round starts from, another start has other draws: no noise
        is ever used for two questions.
        """
        self._keys = [
            key_of(key, start_digest.hex()) if start_digest else key for key in self._run_keys
        ]
        schedule = self._plans[0].schedule
        passes = [self._pass(number, number_of_pass) for number_of_pass in range(schedule.train)]
        # Nothing is handed to the program that it never reads: it would be most of what is handed.
        candidates = MOST_CANDIDATES if schedule.select_rounds else 0
        shape = (len(self._keys), len(self._plans), candidates, 2)
        selections = np.zeros(shape, np.uint32)
        if number < schedule.select_rounds:
            words = self._words(number, 0, "selection", shape[1] * shape[2])
            selections = words.view(np.uint32).reshape(shape)
        drawn = []
        for place, group in enumerate(self._groups):
            samples, noises = zip(*(one[place] for one in passes), strict=True)
            several = PassRandomness(np.stack(samples, axis=2), np.stack(noises, axis=2))
            drawn.append(RoundDraws(several, selections[:, group.members]))
        return drawn

    def _streams(self, number: int, number_of_pass: int, purpose: Purpose) -> list[Keystream]:
        """The stream of each seed."""
        return [pass_stream(key, number, number_of_pass, purpose) for key in self._keys]

    def _words(
        self, number: int, number_of_pass: int, purpose: Purpose, count: int
    ) -> UInt64[np.ndarray, " words"]:
        """`count` words for each seed, one seed after the other."""
        streams = self._streams(number, number_of_pass, purpose)
        return np.concatenate([stream.words(count) for stream in streams])

    def _pass(self, number: int, number_of_pass: int) -> list[tuple[Samples, Noise]]:
        """Samples and noise of one pass, for each group."""
        noise = self._noise(number, number_of_pass)
        noises = []
        for group, (rows, places) in zip(self._groups, self._noise_rows, strict=True):
            silos, steps = len(group.members), group.shape.steps
            own = np.zeros((len(self._keys), silos * steps, self._parameters), np.int32)
            own[:, places] = noise[:, rows]
            noises.append(own.reshape(len(own), silos, steps, -1))
        return list(zip(self._samples(number, number_of_pass), noises, strict=True))

    def _samples(self, number: int, number_of_pass: int) -> list[Samples]:
        """Which records of each group are drawn in each step, or their numbers: see `_empty`."""
        streams = self._streams(number, number_of_pass, "sample")
        refined = self._streams(number, number_of_pass, "sample refined")
        flips = coins(self._thresholds, streams, refined)
        padded = [_empty(len(self._keys), group) for group in self._groups]
        for own, seeds in self._alike.items():
            ends = np.cumsum([_coins_of(*pair) for pair in zip(self._plans, own, strict=True)])
            parts = np.split(np.stack([flips[seed] for seed in seeds]), ends[:-1], axis=1)
            both = [(streams[seed], refined[seed]) for seed in seeds]
            drawn = [
                self._drawn(place, count, part, both)
                for place, (count, part) in enumerate(zip(own, parts, strict=True))
            ]
            for group, filled in zip(self._groups, padded, strict=True):
                for place, member in enumerate(group.members):
                    _, steps, slots = drawn[member].shape
                    filled[seeds, place, :steps, :slots] = drawn[member]
        return padded

    def _drawn(
        self,
        place: int,
        true_count: int,
        flips: Bool[np.ndarray, "seeds coins"],
        streams: Sequence[tuple[Keystream, Keystream]],
    ) -> Shaped[np.ndarray, "seeds steps slots"]:
        """A silo's samples in seeds in which it holds as many records.

        `flips` are its coins, steps * true_count or none where all records are in each batch;
        `streams` are those of each seed, and for further bits.
        """
        plan = self._plans[place]
        if plan.draw == "shuffle":
            every = [
                shuffled(true_count, plan.public_count, plan.expected_batch, plan.epochs, own)
                for own, _ in streams
            ]
            return np.stack(every)
        if plan.draw == "gaps":
            table = self._counts[place, true_count]
            return np.stack(
                [
                    subsets(
                        table.draw(own.words(plan.steps), more),
                        true_count,
                        plan.batch_capacity,
                        own,
                    )
                    for own, more in streams
                ]
            )
        flags = flips if flips.size else np.ones((len(streams), plan.steps * true_count), bool)
        return flags.reshape(len(streams), plan.steps, true_count)

    def _noise(self, number: int, number_of_pass: int) -> Int32[np.ndarray, "seeds steps params"]:
        """Noise in grains, of all steps of all silos."""
        count, seeds = len(self._deviations), len(self._keys)
        refined = self._streams(number, number_of_pass, "noise refined")
        drawn = rounded_gaussian(
            self._words(number, number_of_pass, "noise", count),
            np.tile(self._deviations, seeds),
            lambda place, more: refined[place // count].read(more),
        )
        # Modulo 2^32, as sums are: see `lattice`.
        return drawn.astype(np.int32).reshape(seeds, -1, self._parameters)


def _coins_of(plan: SiloPlan, true_count: int) -> int:
    """Coins that a pass of the silo takes: none where all records are in each batch."""
    return (
        plan.steps * true_count
        if plan.draw == "every" and plan.expected_batch < plan.public_count
        else 0
    )


def _noise_rows(
    group: SiloGroup, plans: Sequence[SiloPlan], firsts: Int[np.ndarray, " all_silos"]
) -> tuple[Int[np.ndarray, " steps"], Int[np.ndarray, " steps"]]:
    steps = [np.arange(plans[member].steps) for member in group.members]
    rows = [firsts[member] + own for member, own in zip(group.members, steps, strict=True)]
    places = [place * group.shape.steps + own for place, own in enumerate(steps)]
    return np.concatenate(rows), np.concatenate(places)


def _empty(seeds: int, group: SiloGroup) -> Samples:
    """Flags, all False, or numbers of records, all -1."""
    shape = group.shape
    size = (seeds, len(group.members), shape.steps, shape.batch_capacity)
    return np.zeros(size, bool) if shape.draw == "every" else np.full(size, -1, np.int32)
