"""Does the loss fall in this direction? Asked of updates that were released anyway.

A silo's update is a step down its own loss plus noise of known variance v, and that noise has
nothing to do with anything worked out before. So the inner product of the update with a direction
is an unbiased estimate of how fast the loss falls along it, with a known error: |direction|^2 v.
Summed over silos and in units of that error it is a number z; a knob of a method can be moved by
tanh(z), at no privacy cost.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array


class Layers(NamedTuple):
    """Where each array of a model begins and ends, among all of its parameters."""

    ends: tuple[int, ...]

    def sums(self, rows: Array) -> Array:
        """The sum of each layer of [parameters]."""
        starts = (0, *self.ends[:-1])
        parts = [jnp.sum(rows[a:b]) for a, b in zip(starts, self.ends, strict=True)]
        return jnp.stack(parts)

    def widened(self, values: Array) -> Array:
        """A number a layer as one a parameter."""
        sizes = [b - a for a, b in zip((0, *self.ends[:-1]), self.ends, strict=True)]
        return jnp.concatenate([jnp.full(n, value) for n, value in zip(sizes, values, strict=True)])


def score(rise: Array, variance: Array) -> Array:
    """z: a sum of inner products in units of its own error.

    It is 0 where nothing is noisy, and where either is too large a number to say anything.
    """
    known = (variance > 0) & jnp.isfinite(variance) & jnp.isfinite(rise)
    return jnp.where(known, rise / jnp.sqrt(jnp.where(known, variance, 1.0)), 0.0)


def products(
    updates: Array, estimates: Sequence[Array], weights: Array, variances: Array, layers: Layers
) -> tuple[Array, Array]:
    """Of updates with estimates [estimates, layers], and of estimates with each other, by noise.

    The second, [estimates, estimates, layers], gives the variance of any difference of the first.
    """
    weighted = weights[:, None] * updates
    rises = jnp.stack([layers.sums(jnp.sum(weighted * one, axis=0)) for one in estimates])
    noise = (weights**2 * variances)[:, None]
    count = len(estimates)
    upper = {
        (i, j): layers.sums(jnp.sum(noise * estimates[i] * estimates[j], axis=0))
        for i in range(count)
        for j in range(i, count)
    }
    errors = jnp.stack(
        [jnp.stack([upper[min(i, j), max(i, j)] for j in range(count)]) for i in range(count)]
    )
    return rises, errors


def scores(rises: Array, errors: Array, shares: Array) -> tuple[Array, Array]:
    """z of putting more weight on each estimate than its share: [estimates, layers], and pooled.

    Args:
      rises: [estimates, layers].
      errors: [estimates, estimates, layers].
      shares: of each estimate in what was used [estimates, layers].
    """
    rise = rises - jnp.sum(shares * rises, axis=0)
    away = jnp.eye(len(rises))[:, :, None] - shares[None]  # from what was used to each estimate
    variance = jnp.maximum(jnp.einsum("iml,mnl,inl->il", away, errors, away), 0.0)
    pooled = score(jnp.sum(rise, axis=1), jnp.sum(variance, axis=1))
    return score(rise, variance), pooled
