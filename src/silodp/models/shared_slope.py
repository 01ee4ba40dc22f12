"""Linear models with several outputs, one slope for each feature, and an intercept for each output.

    outputs = x @ w + a        parameters are one array: w [features], then a [outputs]

With r = d loss / d outputs, a record's gradient is (sum(r) x, r): a row as long as the parameters.
Sums are as in `gradients` and, for releases, as in `whole_sums`, whose proof is about rows that are
formed and clipped one by one, whatever they were formed of; here by `steady` operations alone.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from silodp.models.gradients import ClippedSum, clip_factor, weighted_sum
from silodp.models.steady import apart, steady_dot, steady_sum
from silodp.models.whole_sums import Residual, WholeSum, sum_of_rows, tidy_residual


def shared_outputs(params: Array, x: Array) -> Array:
    """Outputs [n, outputs] of features [n, features]."""
    features = x.shape[-1]
    return (x @ params[:features])[:, None] + params[features:]


def shared_clipped_sum(loss: Callable[[Array, Array], Array]) -> ClippedSum:
    """The sum of clipped gradients; none is formed, unless there is an offset."""

    def clipped_sum(params, features, y, mask, clip, offset=None):
        x = features["x"]
        residual = _residual(loss, params, x, y)
        along = residual.sum(axis=1)
        norm = jnp.hypot(features["norm"] * along, jnp.linalg.norm(residual, axis=1))
        scale = (mask * clip_factor(norm, clip))[:, None]
        # where and not only times: what is left out may be anything, even NaN.
        columns = jnp.where(scale > 0, scale * residual, 0.0)
        total = jnp.concatenate([x.T @ columns.sum(axis=1), columns.sum(axis=0)])
        if offset is None:
            return total
        # A pull of zero must change nothing.
        return jnp.where(jnp.any(offset != 0), pulled_sum(x, residual, mask, clip, offset), total)

    def pulled_sum(x, residual, mask, clip, offset):
        rows = jnp.concatenate([x * residual.sum(axis=1)[:, None], residual], axis=1) + offset
        return weighted_sum(mask * clip_factor(jnp.linalg.norm(rows, axis=1), clip), rows)

    return clipped_sum


def shared_block_clipped_sum(loss: Callable[[Array, Array], Array]) -> ClippedSum:
    """`shared_clipped_sum` where a block of records counts as one: x is [blocks, m, features].

    See `gradients.linear_block_clipped_sum`.
    """

    def clipped_sum(params, features, y, mask, clip, offset=None):
        x, weight = features["records"]["x"], features["weight"]
        labels = y.reshape(-1, *y.shape[2:])
        residual = _residual(loss, params, x.reshape(-1, x.shape[-1]), labels)
        columns = residual.reshape(*weight.shape, -1)
        columns = jnp.where(weight[..., None] > 0, weight[..., None] * columns, 0.0)
        slopes = jnp.einsum("bmd,bm->bd", x, columns.sum(axis=2))
        rows = jnp.concatenate([slopes, columns.sum(axis=1)], axis=1)
        if offset is not None:
            rows = rows + offset
        return weighted_sum(mask * clip_factor(jnp.linalg.norm(rows, axis=1), clip), rows)

    return clipped_sum


def shared_whole_sum(residual_of: Residual) -> WholeSum:
    """The same sum in whole grains."""

    def whole_sum(params, features, y, mask, clip, grain, offset=None):
        x = features["x"]
        residual = _steady_residual(residual_of, params, x, y)
        rows = jnp.concatenate([apart(x * steady_sum(residual, 1)[:, None]), residual], axis=1)
        if offset is not None:
            rows = rows + apart(offset)
        return sum_of_rows(rows, mask, clip, grain)

    return whole_sum


def shared_block_whole_sum(residual_of: Residual) -> WholeSum:
    """The sum over blocks in whole grains; see `whole_sums.linear_block_whole_sum`."""

    def whole_sum(params, features, y, mask, clip, grain, offset=None):
        x, weight = features["records"]["x"], features["weight"]
        labels = y.reshape(-1, *y.shape[2:])
        residual = _steady_residual(residual_of, params, x.reshape(-1, x.shape[-1]), labels)
        columns = residual.reshape(*weight.shape, -1)
        share = weight[..., None]
        columns = jnp.where(share > 0, apart(share * columns), 0.0)
        slopes = steady_sum(apart(x * steady_sum(columns, 2)[..., None]), 1)
        rows = jnp.concatenate([slopes, steady_sum(columns, 1)], axis=1)
        if offset is not None:
            rows = rows + apart(offset)
        return sum_of_rows(rows, mask, clip, grain)

    return whole_sum


def _residual(loss: Callable[[Array, Array], Array], params: Array, x: Array, y: Array) -> Array:
    return jax.grad(lambda out: loss(out, y).sum())(shared_outputs(params, x))


def _steady_residual(residual_of: Residual, params: Array, x: Array, y: Array) -> Array:
    features = x.shape[-1]
    outputs = steady_dot(x, params[:features], 1)[:, None] + params[features:]
    return tidy_residual(residual_of, outputs, y)
