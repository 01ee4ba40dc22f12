"""Arithmetic whose result for a record depends on that record and the model alone.

The proof of a release compares the sums of two neighbours, record by record: it needs that the
gradient of each record that both have comes out the same in both, to the last bit. Compiled code
does not promise that. A matrix product adds in an order that depends on the place of a row and on
how many there are; and a product followed by a sum may or may not be fused into one operation that
rounds once, in a vector's body and not in its remainder.

Here every operation is one of IEEE 754's (sum, product, quotient, square root, comparison,
rounding, conversion), which is rounded correctly and so the same wherever it is done; sums are
taken in an order that is written out; and no product is the direct operand of a sum: between them
stands `apart`, an operation on bits that no compiler can fuse away. Functions that are none of IEEE
754's (the exponential) are read from tables that are worked out beforehand.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

# Numbers nearer to 0 count as 0 and larger ones as this: then no square underflows or overflows.
SMALLEST, LARGEST = 2.0**-60, 2.0**60
# Table steps between two whole numbers: interpolation is then off by less than 1e-5.
_PER_UNIT = 128
# Beyond this the exponential of a negative number, and the logistic function, are at their ends.
_REACH = 32


def tidy(values: Array) -> Array:
    """Values within what can be squared, what is not a number as 0."""
    bounded = jnp.clip(values, -LARGEST, LARGEST)
    return jnp.where(jnp.abs(values) >= SMALLEST, bounded, 0.0)


def apart(products: Array) -> Array:
    """Products, rounded once more (to 22 bits), so that they are not fused with a sum."""
    return lax.reduce_precision(products, exponent_bits=8, mantissa_bits=22)


def steady_sum(values: Array, axis: int) -> Array:
    """The sum along an axis, as a tree of pairs of neighbours: zeros at the end change nothing.

    Its relative error is below the tree's height times 2^-24, of values of one sign.
    """
    values = jnp.moveaxis(values, axis, 0)
    while len(values) > 1:
        if len(values) % 2:
            values = jnp.concatenate([values, jnp.zeros_like(values[:1])])
        values = values[0::2] + values[1::2]
    return values[0]


def steady_dot(a: Array, b: Array, axis: int) -> Array:
    """The sum of products along an axis."""
    return steady_sum(apart(a * b), axis)


def steady_norm(values: Array, axis: int) -> Array:
    """The Euclidean norm along an axis, of values that are `tidy`."""
    return jnp.sqrt(steady_dot(values, values, axis))


def logistic(values: Array) -> Array:
    """1 / (1 + e^-value)."""
    return _from_table(values, -_REACH, _REACH, lambda v: 1.0 / (1.0 + np.exp(-v)))


def exp_of_negative(values: Array) -> Array:
    """e^value of values up to 0; below -32 it is that of -32."""
    return _from_table(values, -_REACH, 0, np.exp)


def _from_table(
    values: Array, low: int, high: int, function: Callable[[np.ndarray], np.ndarray]
) -> Array:
    """The function, linear between table entries."""
    ends = np.arange((high - low) * _PER_UNIT + 1)
    table = jnp.asarray(function(low + ends / _PER_UNIT), jnp.float32)
    # What is not a number becomes the low end: a record may hold anything.
    inside = jnp.where(values >= low, jnp.minimum(values, high), low)
    place = (inside - low) * _PER_UNIT
    first = jnp.minimum(jnp.floor(place), len(ends) - 2)
    here = table[first.astype(jnp.int32)]
    there = table[first.astype(jnp.int32) + 1]
    return here + apart((place - first) * (there - here))
