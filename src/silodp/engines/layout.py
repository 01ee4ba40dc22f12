"""Ragged silos as a few rectangular arrays.

Compiled programs want fixed shapes. Padding every silo to the largest would multiply the work, so
silos of like size share a group, and only within a group are they padded.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np

from silodp.data.federation import Federation, Records
from silodp.engines.job import Job, Setting
from silodp.models.subjects import blocks_of, largest_subject
from silodp.privacy.mechanisms.lattice import Lattice, lattice_of
from silodp.privacy.mechanisms.queries import SiloNoise, SiloRecords
from silodp.privacy.mechanisms.release_draws import SiloGroup
from silodp.privacy.mechanisms.sampling import threshold_of
from silodp.privacy.mechanisms.selection import sharpness
from silodp.privacy.mechanisms.training import PassShape
from silodp.privacy.plan import SiloPlan

MOST_GROUPS = 8
# What a group costs by itself (compiling it, starting its operations), in padded rows of work.
GROUP_OVERHEAD = 2500.0


def group_silos(plans: Sequence[SiloPlan], release: bool = False) -> tuple[SiloGroup, ...]:
    """The partition into at most MOST_GROUPS groups with the least padded work."""
    groups: list[SiloGroup] = []

    def kind(plan: SiloPlan) -> tuple[str, bool]:
        # In a release, sums of silos that are private are of another type.
        return plan.draw, release and plan.private

    kinds = sorted({kind(plan) for plan in plans})
    for own in kinds:
        members = [number for number, plan in enumerate(plans) if kind(plan) == own]
        members.sort(key=lambda number: (plans[number].steps, plans[number].batch_capacity))
        max_groups = max(1, MOST_GROUPS // len(kinds))
        for start, stop in _cuts([plans[number] for number in members], max_groups):
            groups.append(_group(plans, np.array(members[start:stop]), release))
    return tuple(groups)


def _group(plans: Sequence[SiloPlan], members: np.ndarray, release: bool) -> SiloGroup:
    chosen = [plans[number] for number in members]
    steps = [plan.steps for plan in chosen]
    shape = PassShape(
        draw=chosen[0].draw,
        epochs=chosen[0].epochs,
        steps=int(max(steps)),
        batch_capacity=int(max(plan.batch_capacity for plan in chosen)),
        rows=int(max(1, *(plan.true_count for plan in chosen))),
        even=bool(min(steps) == max(steps)),
        release=release,
        whole=release and chosen[0].private,
    )
    return SiloGroup(members, shape)


def _cuts(plans: Sequence[SiloPlan], max_groups: int) -> list[tuple[int, int]]:
    """Where to cut the sorted silos: dynamic programming over (silos taken, groups used)."""
    # Silos of equal steps and capacity never need parting, so only their ends are candidates.
    ends = [
        stop
        for stop in range(1, len(plans) + 1)
        if stop == len(plans)
        or (plans[stop].steps, plans[stop].batch_capacity)
        != (plans[stop - 1].steps, plans[stop - 1].batch_capacity)
    ]
    if len(ends) > 200:  # a thousand sizes: the exact optimum is not worth the time
        ends = sorted({ends[i] for i in np.linspace(0, len(ends) - 1, 200).astype(int)})
    starts = np.array([0, *ends])
    widest = np.array(
        [max((p.batch_capacity for p in plans[a:b]), default=0) for a, b in pairwise(starts)]
    )
    longest = np.array([plans[end - 1].steps for end in ends])
    best = {(0, 0): (0.0, -1)}
    for j in range(1, len(starts)):
        for used in range(1, min(j, max_groups) + 1):
            options = []
            for i in range(used - 1, j):
                if (i, used - 1) in best:
                    capacity = widest[i:j].max()
                    work = (starts[j] - starts[i]) * longest[j - 1] * capacity + GROUP_OVERHEAD
                    options.append((best[i, used - 1][0] + work, i))
            if options:
                best[j, used] = min(options)
    last = len(starts) - 1
    used = min(
        (best[last, used][0], used) for used in range(1, max_groups + 1) if (last, used) in best
    )[1]
    cuts = []
    j = last
    while j > 0:
        i = best[j, used][1]
        cuts.append((int(starts[i]), int(starts[j])))
        j, used = i, used - 1
    return cuts[::-1]


def widest(settings: Sequence[Setting]) -> tuple[SiloPlan, ...]:
    """The plan of each silo with the largest capacity: all settings must fit the compiled shape."""
    return tuple(
        max(plans, key=lambda plan: plan.batch_capacity)
        for plans in zip(*(setting.plans for setting in settings), strict=True)
    )


class Knobs(NamedTuple):
    """What differs between settings, as arrays [settings]."""

    lr: Any
    trial: Any
    options: dict[str, Any]


def knobs_of(settings: Sequence[Setting]) -> Knobs:
    """What differs between the settings, besides noise."""
    names = settings[0].options
    return Knobs(
        lr=np.array([setting.lr for setting in settings], np.float32),
        trial=np.array([setting.trial for setting in settings], np.uint32),
        options={
            name: np.array([setting.options[name] for setting in settings], np.float32)
            for name in names
        },
    )


class GroupData(NamedTuple):
    """The silos of one group; features are prepared for the model on the devices."""

    train: Any  # SiloRecords [seeds, silos, ...]: a row is a record, or a subject's block
    test: Any  # the same, and a row is a record
    number: Any  # [seeds, silos]: the place in the federation, which a silo's keys come from
    noise: Any  # SiloNoise [silos, settings]
    options: Any  # of the method, by name, at each silo: [silos, settings]


def group_data(
    job: Job,
    group: SiloGroup,
    federations: Sequence[Federation],
    settings: Sequence[Setting],
) -> GroupData:
    """The group's records of every seed, padded, and its noise in every setting."""
    members, shape = group
    plans = [settings[0].plans[number] for number in members]
    silos = [[federation.silos[number] for number in members] for federation in federations]
    width = max(largest_subject(s.train) for row in silos for s in row) if job.subjects else 0

    def units_of(part: str) -> list[list[tuple[Any, np.ndarray]]]:
        return [
            [_units(getattr(silo, part), width if part == "train" else 0) for silo in row]
            for row in silos
        ]

    def stacked(units: list[list[tuple[Any, np.ndarray]]], rows: int) -> tuple[Any, np.ndarray]:
        def stack(*arrays: np.ndarray) -> np.ndarray:
            flat = np.stack([pad_rows(array, rows) for array in arrays])
            return flat.reshape(len(federations), len(members), *flat.shape[1:])

        return jax.tree.map(stack, *(unit for row in units for unit in row))

    def records(part: str, rows: int) -> SiloRecords:
        def of_each(values: Sequence[Any], dtype) -> np.ndarray:
            return np.tile(np.array(values, dtype), (len(federations), 1))

        units = units_of(part)
        features, y = stacked(units, rows)
        return SiloRecords(
            features=features,
            y=y,
            # They may differ between seeds: coins decide.
            true_count=np.array([[len(y) for _, y in row] for row in units], np.int32),
            public_count=of_each([plan.public_count for plan in plans], np.int32),
            expected_batch=of_each([plan.expected_batch for plan in plans], np.int32),
            steps=of_each([plan.steps for plan in plans], np.int32),
            threshold=of_each(
                [threshold_of(p.expected_batch / p.public_count) for p in plans], np.uint32
            ),
        )

    return GroupData(
        train=records("train", shape.rows),
        test=records("test", max(1, *(len(silo.test) for row in silos for silo in row))),
        number=np.tile(members, (len(federations), 1)),
        noise=silo_noise([[s.plans[number] for s in settings] for number in members]),
        options={
            name: np.array(
                [[s.options_of(number)[name] for s in settings] for number in members], np.float32
            )
            for name in settings[0].options
        },
    )


def _units(records: Records, width: int) -> tuple[Any, np.ndarray]:
    """Rows as epsilon protects them: records, or subjects with up to `width` records each."""
    return blocks_of(records, width) if width else (records.x, records.y)


def silo_lattice(plan: SiloPlan) -> Lattice:
    """Where the silo's sums are released; without privacy there is neither grain nor noise."""
    if not plan.private:
        return Lattice(0.0, 0.0)
    return lattice_of(
        plan.clip, plan.noise_multiplier, plan.expected_batch * plan.max_count / plan.public_count
    )


def silo_noise(plans: Sequence[Sequence[SiloPlan]]) -> SiloNoise:
    """Clip and noise of [silos][settings] plans; a run without privacy is not clipped."""

    def of_plan(plan: SiloPlan) -> tuple[float, float, float, float]:
        select = sharpness(plan.select_epsilon, plan.relation, plan.public_count)
        lattice = silo_lattice(plan)
        clip = plan.clip if plan.private else np.inf
        return clip, lattice.scale, lattice.grain, select

    values = np.array([[of_plan(plan) for plan in row] for row in plans], np.float32)
    return SiloNoise(*np.moveaxis(values, -1, 0))


def pad_rows(array: np.ndarray, rows: int) -> np.ndarray:
    """Zeros below, up to `rows` rows."""
    padded = np.zeros((rows, *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    return padded
