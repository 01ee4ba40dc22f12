"""The lattice on which sums are released: whole grains plus whole-number noise.

Real Gaussian noise hides a sum. Floating-point noise does not quite: which numbers `sum + noise`
can come out as, and how often, depends on the sum's low bits (I. Mironov, On significance of the
least significant bits for differential privacy, 2012). Rounding such noise to a grid does not mend
it: a cell of the grid holds a whole number of floats, 13 or 14 and never 13.4, and which of them it
is is a pattern that one record shifts. So nothing here is a float until it has been released.

What is released is, in each coordinate,

    grain * ((s + n) modulo 2^32),    s the sum in whole grains (see `whole_sums`),
                                      n = round(Z), Z ~ N(0, deviation^2)

with n drawn exactly (see `rounded_gaussian`): not to within some error, but with the probability
that a real Gaussian gives to the cell of each whole number.

Proof. s is a vector of whole numbers, so s + round(Z) = round(s + Z). The release is thus a
function (rounding, then the remainder modulo 2^32, then a multiplication) of s + Z, which is the
Gaussian mechanism on s: it has the privacy of that mechanism, whatever is done with it. Neighbours'
sums differ by what one record adds, whose norm is at most clip * (1 + CLIP_SLACK) / grain
(`whole_sums`), or by twice that where a record is replaced. The deviation is noise_multiplier times
that norm: the mechanism is the one that the accountant charges for, and CLIP_SLACK is all that it
costs.

What passes 2^31 starts over at -2^31. That loses nothing of the privacy (it is a function of what
is released), and the grain is so coarse that it hardly ever happens: a sum of the most records that
can be drawn, and noise of 12 deviations, stay within.
"""

import math
from typing import NamedTuple

from silodp.base.errors import SilodpError
from silodp.models.whole_sums import CLIP_SLACK

# Bits that a sum and its noise have together; one less than there are, besides the sign.
_BITS = 30
# Deviations that noise may reach (beyond: once in 10^32 draws), and a batch its expected size.
_REACH = 12.0
# The proof of `whole_sums` needs that what is lost below 2^-60 is below a grain.
_SMALLEST_CLIP = 2.0**-30


class Lattice(NamedTuple):
    """Where one silo's sums are released in a run.

    Attributes:
      grain: the spacing, a power of two.
      deviation: standard deviation of the noise before it is rounded, in grains.
    """

    grain: float
    deviation: float

    @property
    def scale(self) -> float:
        """The standard deviation of the noise, in units of the gradient."""
        return self.grain * self.deviation


def lattice_of(clip: float, noise_multiplier: float, batch: float) -> Lattice:
    """The finest lattice on which sums do not pass 2^31.

    Args:
      clip: largest norm of a record's gradient.
      noise_multiplier: noise in units of the clip, as the accountant charges for it.
      batch: the largest number of records that may be expected in a step.
    """
    if clip < _SMALLEST_CLIP:
        raise SilodpError(
            f"clip is {clip:g}: give at least {_SMALLEST_CLIP:.1g}, below which gradients are lost."
        )
    sensitivity = clip * (1.0 + CLIP_SLACK)
    drawn = batch + _REACH * math.sqrt(batch)
    largest = sensitivity * (drawn + _REACH * noise_multiplier)
    grain = 2.0 ** math.ceil(math.log2(largest) - _BITS)
    # Rounded up: a deviation a little larger than charged for, never a smaller one.
    deviation = math.nextafter(sensitivity * noise_multiplier / grain * (1 + 2.0**-50), math.inf)
    return Lattice(grain, deviation)
