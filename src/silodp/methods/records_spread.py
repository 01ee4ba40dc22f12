"""How much records' gradients vary, seen in how a silo's updates vary beyond their known noise.

Batches are drawn anew in every step, so updates vary from round to round by more than their noise:
by so much as a batch is smaller than all records, and gradients vary. It is a regression through 0:
what is beyond the noise, on what a variance of 1 would add. Rounds and silos in which little is
seen of it count little.
"""

import jax.numpy as jnp
from jax import Array

from silodp.privacy.mechanisms.queries import PassNoise

# What earlier rounds count, a round later.
MEMORY = 0.97


def seen_this_round(
    moved: Array, parameters: int, noise: Array, told: Array, sent: PassNoise
) -> Array:
    """What a round adds to the two sums of the regression [2].

    Args:
      moved: half the squared distance between each silo's update and the one before [silos].
      parameters: how many entries an update has.
      noise: the variance of each entry of a silo's update [silos].
      told: whether a silo says how noisy it is [silos].
      sent: what silos say about their passes.
    """
    noisy = told & (noise > 0)
    safe = jnp.where(noisy, noise, 1.0)
    # Where there is next to no noise the numbers would be too large, and a few digits do.
    expected = jnp.minimum(jnp.where(noisy, sent.batches, 0.0) / safe, 1e6)
    excess = jnp.minimum(moved / safe, 1e12) - parameters
    return jnp.stack([jnp.sum(expected * excess), jnp.sum(expected**2)])


def records_so_far(sums: Array, fresh: Array, told: Array, sent: PassNoise) -> Array:
    """The two sums after a round."""
    # No gradient is longer than the clip.
    most = jnp.max(jnp.where(told, sent.clip, 0.0)) ** 2
    sums = MEMORY * sums + fresh
    return sums.at[0].set(jnp.clip(sums[0], 0.0, most * sums[1]))


def spread_of_records(sums: Array) -> Array:
    """The variance of records' gradients, over all entries together."""
    return jnp.where(sums[1] > 0, sums[0] / jnp.where(sums[1] > 0, sums[1], 1.0), 0.0)
