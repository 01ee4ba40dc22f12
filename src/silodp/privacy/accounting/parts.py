"""Steps on parts of the records: the ways in which a record may take part in them."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence

from silodp.privacy.accounting.steps import Step

# More ways are not gone through one by one.
_MOST_CHOICES = 64


def choices_of(steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    """The ways in which a record may take part, each as a list of steps; the dearest counts.

    Where there are too many, steps on parts of the records are left as they are.
    """
    found: list[tuple[Step, ...]] = [()]
    for step in steps:
        ways = _ways(step)
        if len(ways) * len(found) > _MOST_CHOICES:
            ways = [(step,)]
        found = [(*choice, *way) for choice in found for way in ways]
    return [_gathered(choice) for choice in found]


def _ways(step: Step) -> list[tuple[Step, ...]]:
    """The choices of one step: each time it is repeated, the record may be in another part."""
    if not step.alternatives:
        return [(step,)]
    parts = [choice for part in step.alternatives for choice in choices_of(part)]
    others = len(parts) - 1
    if max(step.repeats, math.comb(step.repeats + others, others)) > _MOST_CHOICES:
        return [(step,)]
    chosen = itertools.combinations_with_replacement(parts, step.repeats)
    return [tuple(itertools.chain.from_iterable(some)) for some in chosen]


def _gathered(steps: Sequence[Step]) -> tuple[Step, ...]:
    """These steps, with like ones counted together."""
    counts: Counter[Step] = Counter()
    for step in steps:
        counts[step.repeated(1)] += step.repeats
    return tuple(step.repeated(times) for step, times in counts.items())
