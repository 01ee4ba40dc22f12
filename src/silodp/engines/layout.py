"""Ragged silos as a few rectangular arrays.

Compiled programs want fixed shapes. Padding every silo to the largest would multiply the work, so
silos of like size share a group, and only within a group are they padded.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from silodp.engines.job import Job, Setting
from silodp.federation import Federation
from silodp.privacy.plan import SiloPlan
from silodp.privacy.queries import PassShape, SiloNoise, SiloRecords
from silodp.privacy.sampling import threshold_of

MOST_GROUPS = 8
# What a group costs by itself (compiling it, starting its operations), in padded rows of work.
GROUP_OVERHEAD = 2500.0


class Group(NamedTuple):
    """Silos that are padded to one shape: their places in the federation, and the shape."""

    members: np.ndarray
    shape: PassShape


def group_silos(plans: Sequence[SiloPlan]) -> tuple[Group, ...]:
    """The partition into at most MOST_GROUPS groups with the least padded work."""
    groups: list[Group] = []
    kinds = sorted({plan.draw for plan in plans})
    for draw in kinds:
        members = [number for number, plan in enumerate(plans) if plan.draw == draw]
        members.sort(key=lambda number: (plans[number].steps, plans[number].slots))
        most = max(1, MOST_GROUPS // len(kinds))
        for start, stop in _cuts([plans[number] for number in members], most):
            groups.append(_group(plans, np.array(members[start:stop])))
    return tuple(groups)


def _group(plans: Sequence[SiloPlan], members: np.ndarray) -> Group:
    chosen = [plans[number] for number in members]
    steps = [plan.steps for plan in chosen]
    shape = PassShape(
        draw=chosen[0].draw,
        epochs=chosen[0].epochs,
        steps=int(max(steps)),
        slots=int(max(plan.slots for plan in chosen)),
        rows=int(max(plan.records for plan in chosen)),
        even=bool(min(steps) == max(steps)),
    )
    return Group(members, shape)


def _cuts(plans: Sequence[SiloPlan], most: int) -> list[tuple[int, int]]:
    """Where to cut the sorted silos: dynamic programming over (silos taken, groups used)."""
    # Silos of equal steps and slots never need parting, so only their ends are candidates.
    ends = [
        stop
        for stop in range(1, len(plans) + 1)
        if stop == len(plans)
        or (plans[stop].steps, plans[stop].slots) != (plans[stop - 1].steps, plans[stop - 1].slots)
    ]
    if len(ends) > 200:  # a thousand sizes: the exact optimum is not worth the time
        ends = sorted({ends[i] for i in np.linspace(0, len(ends) - 1, 200).astype(int)})
    starts = np.array([0, *ends])
    widest = np.array([max((p.slots for p in plans[a:b]), default=0) for a, b in pairwise(starts)])
    longest = np.array([plans[end - 1].steps for end in ends])
    best = {(0, 0): (0.0, -1)}
    for j in range(1, len(starts)):
        for used in range(1, min(j, most) + 1):
            options = []
            for i in range(used - 1, j):
                if (i, used - 1) in best:
                    slots = widest[i:j].max()
                    work = (starts[j] - starts[i]) * longest[j - 1] * slots + GROUP_OVERHEAD
                    options.append((best[i, used - 1][0] + work, i))
            if options:
                best[j, used] = min(options)
    last = len(starts) - 1
    used = min((best[last, used][0], used) for used in range(1, most + 1) if (last, used) in best)[
        1
    ]
    cuts = []
    j = last
    while j > 0:
        i = best[j, used][1]
        cuts.append((int(starts[i]), int(starts[j])))
        j, used = i, used - 1
    return cuts[::-1]


def widest(settings: Sequence[Setting]) -> tuple[SiloPlan, ...]:
    """Of each silo, the plan that needs most slots: all settings must fit the compiled shape."""
    return tuple(
        max(plans, key=lambda plan: plan.slots)
        for plans in zip(*(setting.plans for setting in settings), strict=True)
    )


class Knobs(NamedTuple):
    """What differs between settings, as arrays [settings]."""

    lr: Any
    options: dict[str, Any]


def knobs_of(settings: Sequence[Setting]) -> Knobs:
    """What differs between the settings, besides noise."""
    names = settings[0].options
    return Knobs(
        lr=np.array([setting.lr for setting in settings], np.float32),
        options={
            name: np.array([setting.options[name] for setting in settings], np.float32)
            for name in names
        },
    )


class GroupData(NamedTuple):
    """The silos of one group; features are prepared for the model inside the program."""

    train: Any  # SiloRecords [seeds, silos, ...]
    test: Any  # the same
    number: Any  # [seeds, silos]: the place in the federation, which a silo's keys come from
    noise: Any  # SiloNoise [silos, settings]


def group_data(
    job: Job,
    group: Group,
    federations: Sequence[Federation],
    settings: Sequence[Setting],
) -> GroupData:
    """The group's records of every seed, padded, and its noise in every setting."""
    members, shape = group
    plans = [settings[0].plans[number] for number in members]
    silos = [[federation.silos[number] for number in members] for federation in federations]

    def padded(part: str, rows: int) -> SiloRecords:
        def stack(field: str) -> np.ndarray:
            return np.stack(
                [
                    [pad_rows(getattr(getattr(silo, part), field), rows) for silo in row]
                    for row in silos
                ]
            )

        def of_each(value: Callable[[Any, SiloPlan], Any], dtype) -> np.ndarray:
            row = [value(*pair) for pair in zip(silos[0], plans, strict=True)]
            return np.tile(np.array(row, dtype), (len(federations), 1))

        return SiloRecords(
            features=stack("x"),
            y=stack("y"),
            records=of_each(lambda silo, plan: len(getattr(silo, part)), np.int32),
            batch=of_each(lambda silo, plan: plan.batch, np.int32),
            steps=of_each(lambda silo, plan: plan.steps, np.int32),
            threshold=of_each(lambda _, plan: threshold_of(plan.batch / plan.records), np.uint32),
        )

    return GroupData(
        train=padded("train", shape.rows),
        test=padded("test", max(len(silo.test) for silo in silos[0])),
        number=np.tile(members, (len(federations), 1)),
        noise=silo_noise(job.clip, [[s.plans[number] for s in settings] for number in members]),
    )


def silo_noise(clip: float, plans: Sequence[Sequence[SiloPlan]]) -> SiloNoise:
    """Clip and noise of [silos][settings] plans; a run without privacy is not clipped."""
    clips = [[clip if plan.private else np.inf for plan in row] for row in plans]
    scales = [
        [clip * plan.noise_multiplier if plan.private else 0.0 for plan in row] for row in plans
    ]
    return SiloNoise(np.array(clips, np.float32), np.array(scales, np.float32))


def pad_rows(array: np.ndarray, rows: int) -> np.ndarray:
    """Zeros below, up to `rows` rows."""
    padded = np.zeros((rows, *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    return padded
