"""Ragged silos as a few rectangular groups.

Compiled programs want fixed shapes. Padding every silo to the largest would multiply the work, so
silos of like size share a group, and only within a group are they padded.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from silodp.privacy.plan import SiloPlan
from silodp.privacy.queries import PassShape

MOST_GROUPS = 8
# What a group costs by itself (compiling it, starting its operations), in padded rows of work.
GROUP_OVERHEAD = 500.0


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
    widest = np.array([max((p.slots for p in plans[a:b]), default=0) for a, b in _pairs(starts)])
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


def _pairs(starts: np.ndarray):
    return zip(starts[:-1], starts[1:], strict=True)


def pad_rows(array: np.ndarray, rows: int) -> np.ndarray:
    """Zeros below, up to `rows` rows."""
    padded = np.zeros((rows, *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    return padded
