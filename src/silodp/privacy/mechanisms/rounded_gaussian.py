"""Whole numbers with exactly the probabilities of a rounded Gaussian.

    P(n) = P(n - 1/2 <= Z < n + 1/2),    Z ~ N(0, deviation^2)

By inversion: a uniform number U in (0, 1/2) is drawn bit by bit, and a sign. With Q the upper tail
of the standard normal distribution, |n| is the whole number k with

    Q((k + 1/2) / deviation) <= U < Q((k - 1/2) / deviation)

The first 63 bits of U give all that is needed nearly always: deviation * Q^-1(U), in double
precision, is then so far from the middle between two whole numbers that neither its error nor the
bits not yet drawn can move it across. Where it is nearer than `_MARGIN`, or far out in a tail
(where 63 bits are few), further bits are drawn and the comparison is made with as many digits as it
takes. So there is no error to bound or to pay for: given random bits, the distribution is the one
above.

The margin. Up to _FAR = 5 deviations, the bits not yet drawn move U by less than 2^-64, so its
quantile by less than 2^-64 / phi(5) < 2^-44. The computed quantile is off by less than 2^-46:
`scipy.special.ndtri` (Cephes) has a relative error of a few 2^-53, which is 5 * 2^-50 with much to
spare (a test holds it against 50 digits), and U itself is rounded by a part in 2^-53, which moves
the quantile by less than 2^-51. Together less than 2^-43.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import mpmath
import numpy as np
from jaxtyping import Bool, Float, Int64, UInt64
from scipy.special import ndtri

_FAR = 5.0
_MARGIN = 2.0**-43
# Draws at a time: what fits a processor's cache.
_BLOCK = 1 << 15

# The place of a draw, and a number: so many further random bytes for that draw.
MoreBytes = Callable[[int, int], bytes]


def rounded_gaussian(
    words: UInt64[np.ndarray, " n"],
    deviation: Float[np.ndarray, " n"] | float,
    more_bytes: MoreBytes,
) -> Int64[np.ndarray, " n"]:
    """One draw for each word.

    Args:
      words: random.
      deviation: of the Gaussian before rounding, one for all or one for each draw; at most 2^32.
        Of 0 there is no noise.
      more_bytes: where further bits come from, for the few draws that need them.
    """
    deviations = np.broadcast_to(np.asarray(deviation, np.float64), words.shape)
    drawn = np.empty(len(words), np.int64)
    unsure: list[np.ndarray] = []
    for start in range(0, len(words), _BLOCK):
        part = slice(start, start + _BLOCK)
        sizes, doubtful = _by_double_precision(words[part], deviations[part])
        drawn[part] = sizes
        unsure.append(start + np.flatnonzero(doubtful))
    for place in np.concatenate(unsure) if unsure else ():
        drawn[place] = _by_many_digits(
            int(words[place]) >> 1,
            float(deviations[place]),
            int(drawn[place]),
            partial(more_bytes, int(place)),
        )
    return np.where(words & np.uint64(1), drawn, -drawn)


def _by_double_precision(
    words: UInt64[np.ndarray, " n"], deviation: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """The sizes, and which of them may be wrong."""
    uniform = (words >> np.uint64(1)).astype(np.float64)
    uniform += 0.5
    uniform *= 2.0**-64
    quantile = -ndtri(uniform)
    scaled = quantile * deviation
    size = np.rint(scaled)
    to_the_middle = 0.5 - np.abs(scaled - size)
    # Without noise there is nothing to be unsure of.
    far = (quantile > _FAR) & (deviation > 0)
    return size, (to_the_middle <= _MARGIN * deviation) | far


def _by_many_digits(
    bits: int, deviation: float, guess: int, more_bytes: Callable[[int], bytes]
) -> int:
    """The size whose cell holds U, of which 63 bits are given; `guess` is near it."""
    count = 64  # U = bits / 2^count: the first of them is 0, since U is below 1/2
    while True:
        bits, count = (bits << 64) | int.from_bytes(more_bytes(8), "little"), count + 64
        with mpmath.workprec(count + 64):
            low, high = mpmath.ldexp(bits, -count), mpmath.ldexp(bits + 1, -count)
            size = _cell(low, deviation, guess)
            # What the bits to come could make of it: mostly nothing.
            if size == _cell(high, deviation, size):
                return size


def _cell(uniform: Any, deviation: float, guess: int) -> int:
    """The whole number k >= 0 with Q((k + 1/2) / deviation) <= U < Q((k - 1/2) / deviation)."""

    def tail_beyond(size: int) -> Any:
        return mpmath.erfc((size + mpmath.mpf("0.5")) / (deviation * mpmath.sqrt(2))) / 2

    size = max(guess, 0)
    while uniform < tail_beyond(size):
        size += 1
    while size > 0 and uniform >= tail_beyond(size - 1):
        size -= 1
    return size
