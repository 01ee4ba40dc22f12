"""Sums of clipped gradients in whole grains: exact, and the same in whatever order.

What a silo releases is such a sum plus whole-number noise (see `privacy.lattice`). Each record's
gradient is scaled to a norm of at most `clip`, divided by the grain, and cut off towards 0 to whole
numbers, which are then summed:

    sum_i mask_i * trunc(min(1, clip / |g_i + offset|) * (g_i + offset) / grain)

Two things make its sensitivity provable, where that of a sum in single precision is not:

1. What a record adds is a function of the record and the model alone. For linear models that is so
   because all arithmetic is `steady` (the offset, a product that the compiler may fuse with the sum
   or not, is held `apart`); for any other model because records go one at a time through one
   compiled loop body, whatever stands before or behind them. So neighbours' sums differ by what
   the one record adds: sums of whole numbers (modulo 2^32) have no error and no order.
2. What a record adds has a norm of at most clip * (1 + CLIP_SLACK) / grain. Cutting off towards 0
   lengthens nothing. In single precision (u = 2^-24) a computed norm is below the true one by a
   factor of at most 1 - (2 + h)u, where the tree of its sum has height h <= 24 (squares are rounded
   twice, to 22 bits; the root halves the error of the sum), and the product of two such norms, the
   quotient and the two products that follow add less than 8u: in all less than 64u = CLIP_SLACK.
   Entries are `tidy`, so that no square is lost below the least number: what is nearer to 0 than
   2^-60 is taken as 0 in the gradient as well. A gradient that is not finite adds nothing.
"""

import math
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax

from silodp.models.gradients import Features, Params, clip_factor
from silodp.models.steady import (
    apart,
    exp_of_negative,
    logistic,
    steady_dot,
    steady_norm,
    steady_sum,
    tidy,
)

# What single precision may add to the norm of a clipped gradient, as a share of the clip.
CLIP_SLACK = 2.0**-18

# Expected counts grow no faster than in proportion beyond this logarithm of the rate, in units of
# the largest exposure: so that no residual is beyond single precision.
LARGEST_LOG_RATE = 20.0
# Boundaries of ordered classes that are closer, or in the wrong order, are pushed apart as at this
# distance: a middle class has 0.4 % of the records at least.
LEAST_GAP = 1 / 64

# Outputs [n] or [n, classes] and labels [n] -> the gradient of each record's loss, like outputs.
Residual = Callable[[Array, Array], Array]


class WholeSum(Protocol):
    """The sum of clipped gradients in whole grains, of the records that the mask [n] picks."""

    def __call__(
        self,
        params: Params,
        features: Features,
        y: Array,
        mask: Array,
        clip: Array | float,
        grain: Array | float,
        offset: Params | None = None,
    ) -> Params:
        """Whole numbers (int32) in the shape of the parameters; clip and grain are finite."""
        ...


def squared_residual(outputs: Array, y: Array) -> Array:
    """The residual of half the squared error."""
    return outputs - y


def hinge_residual(outputs: Array, y: Array) -> Array:
    """The residual of the hinge loss; labels are -1 and +1."""
    return jnp.where(y * outputs < 1.0, -y, 0.0)


def logistic_residual(outputs: Array, y: Array) -> Array:
    """The residual of the binary cross-entropy; labels are -1 and +1."""
    return -y * logistic(-y * outputs)


def softmax_residual(outputs: Array, y: Array) -> Array:
    """The residual of the cross-entropy over classes: the prediction, less 1 at the label."""
    weights = exp_of_negative(outputs - jnp.max(outputs, axis=1, keepdims=True))
    probabilities = weights / steady_sum(weights, 1)[:, None]
    return probabilities - jax.nn.one_hot(y, outputs.shape[1])


def poisson_residual(outputs: Array, y: Array) -> Array:
    """The residual of the Poisson loss: what is expected, less the count."""
    relative = exp_of_negative(jnp.minimum(outputs, LARGEST_LOG_RATE) - LARGEST_LOG_RATE)
    return apart(relative * (y[..., 1] * math.exp(LARGEST_LOG_RATE))) - y[..., 0]


def ordinal_residual(outputs: Array, y: Array) -> Array:
    """The residual of the proportional odds loss, at the one or two boundaries of the class."""
    below, above, gap = class_boundaries(outputs, y)
    ratio = exp_of_negative(-jnp.maximum(gap, LEAST_GAP))
    inner = below.any(-1) & above.any(-1)
    apart_from = jnp.where(inner, ratio / (1.0 - ratio), 0.0)[..., None]
    return jnp.where(above, logistic(outputs) + apart_from, 0.0) - jnp.where(
        below, logistic(-outputs) + apart_from, 0.0
    )


def hazard_residual(outputs: Array, y: Array) -> Array:
    """The residual of the discrete-time hazard loss: 0 in intervals that were not lived through."""
    lived, died = intervals(outputs, y)
    return jnp.where(lived, logistic(outputs), 0.0) - jnp.where(died, logistic(-outputs), 0.0)


def class_boundaries(outputs: Array, y: Array) -> tuple[Array, Array, Array]:
    """The boundaries below and above each record's class, [n, classes - 1], and their distance [n].

    Of the first class there is none below, of the last none above. Outputs are the log-odds of a
    class above each boundary.
    """
    place = jnp.arange(outputs.shape[-1])
    below, above = place == y[..., None] - 1, place == y[..., None]
    one, other = (jnp.sum(jnp.where(which, outputs, 0.0), axis=-1) for which in (below, above))
    return below, above, one - other


def intervals(outputs: Array, y: Array) -> tuple[Array, Array]:
    """[n, intervals]: which intervals each record lived through, and in which it had the event."""
    place, lived = jnp.arange(outputs.shape[-1]), y[..., 0:1]
    return place < lived, (place == lived) & (y[..., 1:2] > 0)


def linear_whole_sum(residual_of: Residual) -> WholeSum:
    """For outputs = x @ params: a record's gradient is the outer product of x and its residual.

    Features are as `models` prepares them: tidy, and with a steady norm.
    """

    def whole_sum(params, features, y, mask, clip, grain, offset=None):
        x = features["x"]
        residual = _residual(residual_of, x, params, y)
        if offset is not None:
            return sum_of_rows(_outer(x, residual) + apart(offset), mask, clip, grain)
        row_norm = jnp.abs(residual) if residual.ndim == 1 else steady_norm(residual, 1)
        factor = _picked(clip_factor(features["norm"] * row_norm, clip), mask)
        # A grain is a power of two: dividing by it is exact.
        column = factor.reshape(factor.shape + (1,) * (residual.ndim - 1)) * residual / grain
        entries = x * column[:, None] if residual.ndim == 1 else x[:, :, None] * column[:, None]
        return _whole(jnp.where(_like(factor, entries) > 0, entries, 0.0))

    return whole_sum


def linear_block_whole_sum(residual_of: Residual) -> WholeSum:
    """`linear_whole_sum` where a block of records [m] counts as one: x is [blocks, m, d].

    See `gradients.linear_block_clipped_sum`. How many records the largest block has is a secret of
    the records, and only adds zeros at the end of a sum.
    """

    def whole_sum(params, features, y, mask, clip, grain, offset=None):
        x, weight = features["records"]["x"], features["weight"]
        blocks, size, width = x.shape
        labels = y.reshape(-1, *y.shape[2:])
        residual = _residual(residual_of, x.reshape(-1, width), params, labels)
        columns = residual.reshape(blocks, size, *residual.shape[1:])
        share = _like(weight, columns)
        columns = jnp.where(share > 0, share * columns, 0.0)
        rows = x if residual.ndim == 1 else x[..., None]
        gradients = steady_sum(apart(rows * columns[:, :, None]), 1)
        if offset is not None:
            gradients = gradients + apart(offset)
        return sum_of_rows(gradients, mask, clip, grain)

    return whole_sum


def one_by_one_whole_sum(
    gradient_of_one: Callable[[Params, Features, Array], Params],
) -> WholeSum:
    """For any model: `gradient_of_one` takes the parameters, and features and label of one record.

    One record at a time, so that none can change how another's gradient is rounded.
    """

    def whole_sum(params, features, y, mask, clip, grain, offset=None):
        def added(total, record):
            gradient = gradient_of_one(params, *record)
            if offset is not None:
                gradient = jax.tree.map(jnp.add, gradient, offset)
            # Worked out once: else its norm could be that of a gradient that was rounded otherwise.
            gradient = lax.optimization_barrier(gradient)
            leaves = [leaf.reshape(-1) for leaf in jax.tree.leaves(gradient)]
            norm = steady_norm(jnp.concatenate(leaves), 0)
            factor = clip_factor(norm, clip)

            def add(t: Array, g: Array) -> Array:
                return t + jnp.where(factor > 0, factor * g / grain, 0.0).astype(jnp.int32)

            return jax.tree.map(add, total, gradient)

        def step(total, row):
            record, picked = row
            return lax.cond(picked > 0, added, lambda t, _: t, total, record), None

        zero = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.int32), params)
        return lax.scan(step, zero, in_a_loop(((features, y), mask)))[0]

    return whole_sum


def in_a_loop(rows: Any) -> Any:
    """Arrays [n, ...] that a loop goes over, with a row of zeros behind where there is only one.

    A loop of one turn is compiled as no loop at all, and its body is then rounded in other ways.
    """

    def at_least_two(a: Array) -> Array:
        return jnp.concatenate([a, jnp.zeros_like(a)]) if len(a) == 1 else a

    return jax.tree.map(at_least_two, rows)


def _residual(residual_of: Residual, x: Array, params: Array, y: Array) -> Array:
    """The residual of each record [n] or [n, classes], tidy; NaN where an output is."""
    rows = x if params.ndim == 1 else x[:, :, None]
    return tidy_residual(residual_of, steady_dot(rows, params, 1), y)


def tidy_residual(residual_of: Residual, outputs: Array, y: Array) -> Array:
    """The residual of outputs [n] or [n, classes], tidy; NaN where one of them is."""
    residual = residual_of(outputs, y)
    bad = jnp.isnan(outputs) if outputs.ndim == 1 else jnp.isnan(outputs).any(1, keepdims=True)
    return jnp.where(bad, jnp.nan, tidy(residual))


def _outer(x: Array, residual: Array) -> Array:
    """Each record's gradient, ready to be added to."""
    return apart(x * residual[:, None] if residual.ndim == 1 else x[:, :, None] * residual[:, None])


def sum_of_rows(gradients: Array, mask: Array, clip: Any, grain: Any) -> Array:
    """The sum over gradients that are formed, one a row."""
    flat = gradients.reshape(len(gradients), -1)
    tidied = jnp.where(jnp.isnan(flat), jnp.nan, tidy(flat))
    factor = _picked(clip_factor(steady_norm(tidied, 1), clip), mask)
    entries = factor[:, None] * tidied / grain
    whole = _whole(jnp.where(factor[:, None] > 0, entries, 0.0))
    return whole.reshape(gradients.shape[1:])


def _picked(factor: Array, mask: Array) -> Array:
    return jnp.where(mask > 0, factor, 0.0)


def _like(column: Array, rows: Array) -> Array:
    """A column [n, ...] with axes of size 1, so that it goes with rows [n, ..., more]."""
    return column.reshape(column.shape + (1,) * (rows.ndim - column.ndim))


def _whole(entries: Array) -> Array:
    """Rows cut off to whole numbers and summed; what passes 2^31 starts over (see `lattice`)."""
    return jnp.sum(entries.astype(jnp.int32), axis=0)
