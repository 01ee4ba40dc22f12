"""Sums of clipped per-record gradients: the only thing that DP-SGD takes from the records.

Each record's gradient g_i (plus `offset`, the regulariser's gradient when it is to be inside the
clip) is scaled to a norm of at most `clip`, then summed over the records that `mask` picks:

    sum_i mask_i * min(1, clip / |g_i + offset|) * (g_i + offset)

A sum and not a mean: what it is divided by is a public constant, chosen elsewhere.
"""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import optax
from jax import Array

Params = Any
Features = Any

MICROBATCH = 32


class ClippedSum(Protocol):
    """The sum of clipped gradients of the records that the mask [n] picks."""

    def __call__(
        self,
        params: Params,
        features: Features,
        y: Array,
        mask: Array,
        clip: Array | float,
        offset: Params | None = None,
    ) -> Params:
        """Parameters-shaped sum; `clip` may be infinite."""
        ...


def clip_factor(norm: Array, clip: Array | float) -> Array:
    """min(1, clip / norm), 1 at a norm of zero, and 1 everywhere when the clip is infinite.

    A gradient whose norm is not a number is left out, unless the clip is infinite: else one record
    of extreme values would decide by itself whether a sum is a number.
    """
    # norm > clip keeps 0/0 and inf/inf out: neither branch then yields NaN.
    factor = jnp.where(norm > clip, clip / jnp.where(norm > clip, norm, 1.0), 1.0)
    return jnp.where(jnp.isnan(norm) & jnp.isfinite(clip), 0.0, factor)


def linear_clipped_sum(loss: Callable[[Array, Array], Array]) -> ClippedSum:
    """For outputs = x @ params: no per-record gradient is ever formed.

    The gradient of record i is the outer product of x_i and r_i = d loss_i / d outputs_i, so its
    norm is |x_i| |r_i|: clipping is a scaling of rows and the sum one matrix product.
    """

    def clipped_sum(params, features, y, mask, clip, offset=None):
        x, x_norm = features["x"], features["norm"]
        outputs = x @ params
        residual = jax.grad(lambda out: loss(out, y).sum())(outputs)
        columns = residual if residual.ndim == 2 else residual[:, None]
        scale = mask * clip_factor(x_norm * _row_norm(columns), clip)
        column = scale.reshape(scale.shape + (1,) * (residual.ndim - 1))
        # where and not only times: what is left out may be anything, even NaN.
        total = x.T @ jnp.where(column > 0, column * residual, 0.0)
        if offset is None:
            return total
        # A pull of zero must change nothing.
        return jnp.where(jnp.any(offset != 0), pulled_sum(x, residual, mask, clip, offset), total)

    def pulled_sum(x, residual, mask, clip, offset):
        # Formed record by record: worked out from inner products, the norm of a gradient that
        # nearly cancels the pull comes out too small, and more than the clip gets through.
        rows = x if residual.ndim == 1 else x[:, :, None]
        sums = rows * residual[:, None] + offset
        norm = jnp.sqrt(jnp.sum(sums**2, axis=tuple(range(1, sums.ndim))))
        return weighted_sum(mask * clip_factor(norm, clip), sums)

    return clipped_sum


def linear_block_clipped_sum(loss: Callable[[Array, Array], Array]) -> ClippedSum:
    """For outputs = x @ params, where a block of records [m] counts as one: x is [blocks, m, d].

    The loss of a block is the sum over its records of `weight` [blocks, m] times theirs; where the
    weight is 0 there is no record. The gradient of a block is the sum of the outer products of x_i
    and weight_i * r_i, one product for each block and none for each record.
    """

    def clipped_sum(params, features, y, mask, clip, offset=None):
        x, weight = features["records"]["x"], features["weight"]
        blocks, size, width = x.shape
        outputs = x.reshape(-1, width) @ params
        residual = jax.grad(lambda out: loss(out, y.reshape(-1, *y.shape[2:])).sum())(outputs)
        columns = residual.reshape(blocks, size, -1)
        columns = jnp.where(weight[..., None] > 0, weight[..., None] * columns, 0.0)
        gradients = jnp.einsum("bmd,bmc->bdc", x, columns)
        if offset is not None:
            gradients = gradients + offset.reshape(width, -1)
        norm = jnp.sqrt(jnp.sum(gradients**2, axis=(1, 2)))
        scale = mask * clip_factor(norm, clip)
        return weighted_sum(scale, gradients).reshape(params.shape)

    return clipped_sum


def _row_norm(columns: Array) -> Array:
    if columns.shape[1] == 1:
        return jnp.abs(columns[:, 0])
    return jnp.linalg.norm(columns, axis=1)


def generic_clipped_sum(
    apply: Callable[[Params, Features], Array],
    loss: Callable[[Array, Array], Array],
    microbatch: int = MICROBATCH,
) -> ClippedSum:
    """Clips any model's per-record gradients, by `vmap(grad)`, a microbatch in memory at a time."""

    def gradient_of_one(params, features, y, clip, offset):
        def loss_of_one(p):
            alone = jax.tree.map(lambda a: a[None], features)
            return loss(apply(p, alone), y[None])[0]

        gradient = jax.grad(loss_of_one)(params)
        if offset is not None:
            gradient = jax.tree.map(jnp.add, gradient, offset)
        factor = clip_factor(optax.tree.norm(gradient), clip)
        return jax.tree.map(lambda g: jnp.where(factor > 0, factor * g, 0.0), gradient)

    def clipped_sum(params, features, y, mask, clip, offset=None):
        size = min(microbatch, len(y))
        padding = -len(y) % size

        def in_microbatches(a: Array) -> Array:
            padded = jnp.pad(a, [(0, padding)] + [(0, 0)] * (a.ndim - 1), mode="edge")
            return padded.reshape(-1, size, *a.shape[1:])

        def add(total, chunk):
            chunk_features, chunk_y, weight = chunk
            gradients = jax.vmap(gradient_of_one, (None, 0, 0, None, None))(
                params, chunk_features, chunk_y, clip, offset
            )
            return jax.tree.map(lambda t, g: t + weighted_sum(weight, g), total, gradients), None

        zero = jax.tree.map(jnp.zeros_like, params)
        weights = jnp.pad(mask, (0, padding)).reshape(-1, size)
        chunks = (jax.tree.map(in_microbatches, features), in_microbatches(y), weights)
        total, _ = jax.lax.scan(add, zero, chunks)
        return total

    return clipped_sum


def weighted_sum(weight: Array, gradients: Array) -> Array:
    """The sum of gradients, one a row, times their weights; what has none may be anything."""
    column = weight.reshape((-1,) + (1,) * (gradients.ndim - 1))
    # where and not only times: the gradient in an empty slot may be anything, even NaN.
    return jnp.sum(jnp.where(column > 0, column * gradients, 0.0), axis=0)
