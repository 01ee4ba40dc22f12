"""Noisy sums on a lattice, against attacks on the low bits of floating-point noise.

Real Gaussian noise hides a sum. Floating-point noise does not quite: which numbers `sum + noise`
can come out as depends on the sum's low bits, and that may tell one sum from another for certain
(I. Mironov, On significance of the least significant bits for differential privacy, 2012).

So the sum and the noise are each rounded to multiples of a grain, a power of two so coarse that
both and their total are exact in single precision. For a sum s on the lattice, s + round(z) equals
round(s + z): the release is a rounding of the true Gaussian mechanism, and every lattice point can
come from either of two neighbours. What is left is that rounding moves the sum: by at most half a
grain in each coordinate, and its own summation error by as much again (tests measure it). Both are
paid for with a little more noise (`widening`).
"""

import math

import jax.numpy as jnp
from jax import Array

# Bits of a sum on the lattice: one fewer than single precision holds exactly.
_BITS = 23
# Standard deviations that noise may reach, and that a batch may exceed its expected size by.
_REACH = 10.0


def grain_of(clip: float, noise_multiplier: float, batch: float) -> float:
    """The spacing of the lattice: the least power of two with which everything stays exact.

    `batch` is the largest number of records that may be expected in a step.
    """
    drawn = batch + _REACH * math.sqrt(batch)
    largest = clip * (drawn + _REACH * noise_multiplier)
    return 2.0 ** math.ceil(math.log2(largest) - _BITS)


def widening(clip: float, grain: float, parameters: int) -> float:
    """What the noise is multiplied by, since rounding adds to how much one record can move a sum.

    Two neighbours' sums differ by at most `clip`; each is then moved by at most a grain in each
    coordinate: half for its rounding to the lattice, half for the error of summing.
    """
    return 1.0 + 2.0 * grain * math.sqrt(parameters) / clip


def on_lattice(values: Array, grain: Array) -> Array:
    """Values rounded to multiples of the grain; as they are where it is 0."""
    spacing = jnp.where(grain > 0, grain, 1.0)
    return jnp.where(grain > 0, jnp.round(values / spacing) * spacing, values)
