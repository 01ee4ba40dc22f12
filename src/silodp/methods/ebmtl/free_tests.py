"""Does the loss fall in this direction? Asked of updates that were released anyway.

A silo's update is a step down its own loss plus noise of known variance v, and that noise has
nothing to do with anything worked out before. So the inner product of the update with a direction
is an unbiased estimate of how fast the loss falls along it, with a known error: |direction|^2 v.
Summed over silos and in units of that error it is a number z; a knob of a method can be moved by
tanh(z), at no privacy cost.
"""

from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Layers(NamedTuple):
    """Where each array of a model begins and ends, among all of its parameters."""

    ends: tuple[int, ...]

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Where each layer begins and ends."""
        return list(pairwise((0, *self.ends)))

    @property
    def sizes(self) -> Float[Array, " layers"]:
        """The share of each layer in all parameters."""
        return jnp.array([(end - start) / self.ends[-1] for start, end in self.bounds])

    def widened(self, values: Float[Array, "n layers"]) -> Float[Array, "n params"]:
        """Numbers for each layer as numbers for each parameter."""
        parts = [
            jnp.broadcast_to(values[:, [number]], (len(values), end - start))
            for number, (start, end) in enumerate(self.bounds)
        ]
        return jnp.concatenate(parts, axis=1)


def score(rise: Float[Array, "*any"], variance: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """z: a sum of inner products in units of its own error (eq. 17).

    It is 0 where nothing is noisy, and where either is too large a number to say anything.
    """
    known = (variance > 0) & jnp.isfinite(variance) & jnp.isfinite(rise)
    return jnp.where(known, rise / jnp.sqrt(jnp.where(known, variance, 1.0)), 0.0)


def score_of(
    updates: Float[Array, "silos params"],
    direction: Float[Array, "silos params"],
    g: Float[Array, " silos"],
    v: Float[Array, " silos"],
) -> Float[Array, ""]:
    """z of going further in one direction (eq. 17)."""
    rises = jnp.sum(updates * direction, axis=1)
    return score(rises @ g, jnp.sum(direction**2, axis=1) @ (g**2 * v))


def products(
    updates: Float[Array, "silos params"],
    estimates: Float[Array, "n silos params"],
    g: Float[Array, " silos"],
    v: Float[Array, " silos"],
    layers: Layers,
) -> tuple[Float[Array, "n layers"], Float[Array, "n n layers"]]:
    """Inner products of updates with estimates, and of estimates with each other, by noise.

    The second gives the variance of any difference of the first.
    """
    weighted = jnp.concatenate([(g[:, None] * updates)[None], (g**2 * v)[:, None] * estimates])
    # One product of matrices for each layer: sums written out would each be compiled.
    sums = [
        jnp.einsum("mkd,nkd->mn", estimates[:, :, start:end], weighted[:, :, start:end])
        for start, end in layers.bounds
    ]
    both = jnp.stack(sums, axis=-1)
    return both[:, 0], both[:, 1:]


def scores(
    rises: Float[Array, "n layers"],
    errors: Float[Array, "n n layers"],
    shares: Float[Array, "n layers"],
) -> Float[Array, "n layers+1"]:
    """z of putting more weight on each estimate than its share: by layer, last pooled (eq. 17).

    Args:
      rises: the rise of each estimate.
      errors: the covariance of each pair of them.
      shares: the share of each estimate in what was used.
    """
    rise = rises - jnp.sum(shares * rises, axis=0)
    # The square of the way from what was used to each estimate, a sum of products of both.
    own = jnp.sum(jnp.eye(len(errors))[:, :, None] * errors, axis=1)
    crossed = jnp.sum(shares * errors, axis=1)
    variance = jnp.maximum(own - 2.0 * crossed + jnp.sum(shares * crossed, axis=0), 0.0)
    return score(_with_sum(rise), _with_sum(variance))


def _with_sum(values: Float[Array, "n layers"]) -> Float[Array, "n layers+1"]:
    """Adds the sum over layers as a last column."""
    return jnp.concatenate([values, jnp.sum(values, axis=1, keepdims=True)], axis=1)
