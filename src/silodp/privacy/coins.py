"""Poisson sampling for releases: a coin for each record in each step, exact to 2^-64.

A record is drawn where a random word of 64 bits is below rate * 2^64, rounded down: independently
of all others, with the rate that is charged for or less (by less than 2^-64). Most coins are
decided by the first byte of their word; the other seven are drawn only where it is equal to that of
the threshold, which is once in 256 times.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from silodp.privacy.keystream import Keystream


def threshold_of(batch: int, records: int) -> np.uint64:
    """Words below this are drawn: the largest whole number up to rate * 2^64, for rates below 1."""
    return np.uint64(math.floor(Fraction(batch, records) * 2**64))


def coins(
    thresholds: Sequence[np.ndarray], first: Sequence[Keystream], refined: Sequence[Keystream]
) -> list[np.ndarray]:
    """Which records are drawn, in each of several runs: bool [n] of each.

    Args:
      thresholds: of each run, uint64 [n] of its coins.
      first: where first bytes come from, of each run.
      refined: where the other bytes come from.
    """
    ends = np.cumsum([len(own) for own in thresholds])
    joined = np.concatenate(thresholds)
    byte = np.concatenate(
        [stream.bytes_of(len(own)) for stream, own in zip(first, thresholds, strict=True)]
    )
    top = (joined >> np.uint64(56)).astype(np.uint8)
    drawn = byte < top
    (undecided,) = np.nonzero(byte == top)
    counts = np.diff(np.searchsorted(undecided, ends), prepend=0)
    words = [stream.words(int(count)) for stream, count in zip(refined, counts, strict=True)]
    rest = np.concatenate(words) >> np.uint64(8)
    drawn[undecided] = rest < (joined[undecided] & np.uint64(2**56 - 1))
    return np.split(drawn, ends[:-1])


def packed(drawn: np.ndarray, slots: int) -> np.ndarray:
    """The drawn records of each step in the first slots, -1 in the others: [steps, slots].

    Args:
      drawn: whether each record is, [steps, records].
      slots: more than this many do not fit, and are left out: `sampling.slots_for` pays for it.
    """
    step, record = np.nonzero(drawn)
    counts = np.bincount(step, minlength=len(drawn))
    slot = np.arange(len(step)) - np.repeat(np.cumsum(counts) - counts, counts)
    fits = slot < slots
    rows = np.full((len(drawn), slots), -1, np.int32)
    rows[step[fits], slot[fits]] = record[fits]
    return rows


def shuffled(held: int, records: int, batch: int, epochs: int, words: Keystream) -> np.ndarray:
    """Batches cut from a random permutation for each epoch: records by number, [steps, batch].

    What the authors of the paper do, for comparison; no accountant here covers it. There are as
    many batches as `records`, which is public, has room for; where fewer are held, the last are
    short.
    """
    a_pass = records // batch
    rows = np.full((epochs, a_pass * batch), -1, np.int32)
    for epoch in rows:
        order = np.argsort(words.words(held), kind="stable")[: a_pass * batch]
        epoch[: len(order)] = order
    return rows.reshape(epochs * a_pass, batch)
