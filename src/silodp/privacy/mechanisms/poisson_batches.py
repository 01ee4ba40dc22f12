"""Poisson batches for releases: in each step each record by itself, with the rate that is priced.

For silos of few batches a coin for each record (`coins`): it is drawn where a random word of 64
bits is below rate * 2^64, rounded down, so with the rate that is charged for or less (by less than
2^-64). Most coins are decided by the first byte of their word; the other seven are drawn only where
it is equal to that of the threshold, which is once in 256 times.

For silos of many batches at the cost of the batch (`DrawnCounts`, `subsets`): how many are drawn is
binomial, and given that, every set of so many records is as likely as any other. That is the same
distribution, whatever the number of records is. The binomial's chances are off by less than 2^-120
each, over a thousand rounds of a thousand steps less than 2^-90 in all, where delta is never below
2^-60: it is part of what `sampling.OVERFLOW_SHARE` of delta pays for.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import mpmath
import numpy as np
from jaxtyping import Bool, Int, Int32, Int64, UInt64

from silodp.privacy.mechanisms.keystream import Keystream


def threshold_of(expected_batch: int, public_count: int) -> np.uint64:
    """Words below this are drawn: the largest whole number up to rate * 2^64, for rates below 1."""
    return np.uint64(math.floor(Fraction(expected_batch, public_count) * 2**64))


def coins(
    thresholds: Sequence[UInt64[np.ndarray, " _"]],
    first: Sequence[Keystream],
    refined: Sequence[Keystream],
) -> list[Bool[np.ndarray, " _"]]:
    """Which records are drawn, in each of several runs.

    Args:
      thresholds: for each run, the thresholds of its coins.
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


class DrawnCounts:
    """How many of a silo's records are drawn in a step: binomial, to within 2^-120."""

    def __init__(
        self, true_count: int, expected_batch: int, public_count: int, batch_capacity: int
    ):
        """The table of a silo: a step that draws more than `batch_capacity` counts as that many."""
        with mpmath.workprec(256):
            rate = mpmath.mpf(expected_batch) / public_count
            chance, below, ends = (1 - rate) ** true_count, mpmath.mpf(0), []
            for count in range(min(batch_capacity, true_count)):
                below += chance
                ends.append(min(int(mpmath.floor(below * 2**128)), 2**128 - 1))
                chance *= mpmath.mpf(true_count - count) / (count + 1) * rate / (1 - rate)
        # Of a uniform number of 128 bits, as many of these as it reaches are the count.
        self._high = np.array([end >> 64 for end in ends], np.uint64)
        self._low = np.array([end & (2**64 - 1) for end in ends], np.uint64)

    def draw(
        self, words: UInt64[np.ndarray, " steps"], refined: Keystream
    ) -> Int[np.ndarray, " steps"]:
        """One count for each word; a second one decides where the first cannot."""
        counts = np.searchsorted(self._high, words, side="left")
        ties = np.searchsorted(self._high, words, side="right")
        for place in np.flatnonzero(counts != ties):
            low_halves = self._low[counts[place] : ties[place]]
            counts[place] += np.searchsorted(low_halves, refined.words(1)[0], side="right")
        return counts


def subsets(
    counts: Int[np.ndarray, " steps"], true_count: int, batch_capacity: int, words: Keystream
) -> Int32[np.ndarray, "steps {batch_capacity}"]:
    """For each step a set of so many of the records, any as likely as any other.

    Numbers of records, -1 in slots that are left over. Records are drawn one by one, those that
    were drawn before passed over.
    """
    rows = np.full((len(counts), batch_capacity), -1, np.int32)
    if not true_count or not counts.any():
        return rows
    wide = int(counts.max()) + 8
    drawn = _below(true_count, words.words(len(counts) * wide)).reshape(-1, wide)
    # The first time that a record comes up in its step.
    order = np.argsort(drawn, axis=1, kind="stable")
    in_order = np.take_along_axis(drawn, order, axis=1)
    again = np.zeros(drawn.shape, bool)
    repeated = (in_order[:, 1:] == in_order[:, :-1]) | (in_order[:, 1:] < 0)
    np.put_along_axis(again, order[:, 1:], repeated, axis=1)
    is_new = ~again & (drawn >= 0)
    place = np.cumsum(is_new, axis=1) - 1
    step, column = np.nonzero(is_new & (place < counts[:, None]))
    rows[step, place[step, column]] = drawn[step, column]
    for step in np.flatnonzero(is_new.sum(axis=1) < counts):  # so many came up again
        rows[step] = _one_by_one(rows[step], int(counts[step]), true_count, words)
    return rows


def _below(limit: int, words: UInt64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """Whole numbers below the limit, each as likely as the others; -1 for words that are of no use.

    D. Lemire, Fast random integer generation in an interval, 2019: the upper half of the product,
    where the lower is not among the few that would make some numbers likelier.
    """
    limit64, half = np.uint64(limit), np.uint64(32)
    low = (words & np.uint64(2**32 - 1)) * limit64
    upper = ((words >> half) * limit64 + (low >> half)) >> half
    return np.where(words * limit64 < np.uint64(2**64 % limit), -1, upper.astype(np.int64))


def _one_by_one(
    row: Int32[np.ndarray, " slots"], count: int, true_count: int, words: Keystream
) -> Int32[np.ndarray, " slots"]:
    """The row filled up to so many records."""
    records = [int(record) for record in row if record >= 0]
    known = set(records)
    while len(records) < count:
        record = int(_below(true_count, words.words(1))[0])
        if record >= 0 and record not in known:
            known.add(record)
            records.append(record)
    filled = np.full_like(row, -1)
    filled[: len(records)] = records
    return filled


def shuffled(
    true_count: int, public_count: int, expected_batch: int, epochs: int, words: Keystream
) -> Int32[np.ndarray, "steps {expected_batch}"]:
    """Batches cut from a random permutation for each epoch: records by number.

    What the authors of the paper do, for comparison; no accountant here covers it. There are as
    many batches as `public_count` has room for; where fewer records are there, the last are short.
    """
    a_pass = public_count // expected_batch
    rows = np.full((epochs, a_pass * expected_batch), -1, np.int32)
    for epoch in rows:
        order = np.argsort(words.words(true_count), kind="stable")[: a_pass * expected_batch]
        epoch[: len(order)] = order
    return rows.reshape(epochs * a_pass, expected_batch)
