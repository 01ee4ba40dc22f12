"""Records are a sample: what another sample of them would have made of a silo's updates.

Batches are drawn anew in every step, so updates vary from round to round by more than their noise:
by so much as a batch is smaller than all records, and as gradients vary. It is a regression through
0: what is beyond the noise, on what a variance of 1 would add. Rounds and silos in which little is
seen of it count little.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from silodp.methods.ebmtl.constants import CONSTANTS
from silodp.methods.ebmtl.shapes import Received, Sampling


def first_sampling(silos: int, parameters: int) -> Sampling:
    """Before any round: nothing is known."""
    return Sampling(jnp.zeros((silos, parameters)), jnp.zeros(2))


def observed(before: Sampling, got: Received, t: Int[Array, ""]) -> Sampling:
    """What is known of the gradients' variance after round t (eq. 8)."""
    # Before the first round there is none to compare it with.
    of_round = jnp.where(t > 0, moments_of_round(got, before.last_updates), 0.0)
    # No gradient is longer than the clip.
    most = jnp.max(jnp.where(got.discloses_noise, got.passes.clip, 0.0)) ** 2
    xy, xx = CONSTANTS.grad_var_memory * before.grad_var_moments + of_round
    last_updates = jnp.where(got.took_part[:, None], got.U, before.last_updates)
    return Sampling(last_updates, jnp.stack([jnp.clip(xy, 0.0, most * xx), xx]))


def moments_of_round(
    got: Received, last_updates: Float[Array, "silos params"]
) -> Float[Array, "2"]:
    """What a round adds to the two sums, (sum xy, sum xx) over silos (eq. 8)."""
    noisy = got.v > 0
    safe = jnp.where(noisy, got.v, 1.0)
    moved = jnp.sum((got.U - last_updates) ** 2, axis=1) / 2.0
    # Where there is next to no noise the numbers would be too large, and a few digits do.
    x = jnp.minimum(jnp.where(noisy, got.passes.batches, 0.0) / safe, CONSTANTS.most_expected)
    y = jnp.minimum(moved / safe, CONSTANTS.most_excess) - got.U.shape[1]
    return jnp.stack([y, x]) @ x


def grad_variance(sampling: Sampling) -> Float[Array, ""]:
    """s2, the variance of records' gradients, over all entries together (eq. 8)."""
    xy, xx = sampling.grad_var_moments
    return jnp.where(xx > 0, xy / jnp.where(xx > 0, xx, 1.0), 0.0)


def sampling_drift(got: Received, sampling: Sampling, counted: bool) -> Float[Array, " silos"]:
    """How far another sample of records would have led a silo in this round (eq. 9).

    Args:
      got: what the round brought.
      sampling: what is known after it.
      counted: whether any account is taken of records' being a sample.
    """
    if not counted:
        return jnp.zeros_like(got.v)
    sampling_std = jnp.where(got.took_part & got.discloses_noise, got.passes.sampling, 0.0)
    # Where every step takes all records, nothing can be seen of how they vary.
    unobservable = CONSTANTS.unobservable_share * got.passes.clip**2
    s2 = jnp.where(got.passes.batches > 0, grad_variance(sampling), unobservable)
    return sampling_std * jnp.sqrt(s2)
