"""What is told of a run: how much each silo kept of its own, and how silos relate."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from silodp.methods.ebmtl.constants import CONSTANTS
from silodp.methods.ebmtl.mixture import shares_of
from silodp.methods.ebmtl.shapes import Server


def first_kept(rounds: int, silos: int) -> Float[Array, "parts silos"]:
    """Before any round: for how many parts of all rounds it is noted what silos kept."""
    return jnp.zeros((min(rounds, CONSTANTS.most_parts), silos))


def kept_so_far(
    kept: Float[Array, "parts silos"],
    begins: Float[Array, "silos params"],
    trained: Float[Array, "silos params"],
    t: Int[Array, ""],
    rounds: int,
) -> Float[Array, "parts silos"]:
    """The sums after round t.

    Args:
      kept: sums over the rounds of each part, so far.
      begins: how far from the mean each silo begins the next round.
      trained: how far from it the silo was after its training pass.
      t: the round.
      rounds: number of rounds of the run.
    """
    part = jnp.arange(len(kept)) == jax.lax.div(t * len(kept), rounds)
    return kept + jnp.where(part[:, None], _kept(begins, trained), 0.0)


def _kept(
    begins: Float[Array, "silos params"], trained: Float[Array, "silos params"]
) -> Float[Array, " silos"]:
    """How much of its own each silo keeps: 0 as in FedAvg, 1 as in local training (eq. 23).

    That is, of how far from the mean it was after its training pass, how much it begins the next
    round with: 1 / (1 + lambda) of `meanpull`.
    """
    size = jnp.sum(trained**2, axis=1)
    return jnp.where(size > 0, jnp.sum(begins * trained, axis=1) / jnp.where(size > 0, size, 1), 0)


def learned(server: Server, rounds: int) -> dict[str, Any]:
    """What the server found out; `differs` as a row of parameters."""
    relations, sizes, differs = _compared(server.averaging.average)
    return {
        "kept": server.kept / _rounds_of_parts(rounds, len(server.kept))[:, None],
        "relations": relations,
        "sizes": sizes,
        "differs": differs,
        "shares": shares_of(server.log_shares),
    }


@jax.jit
def _compared(
    models: Float[Array, "silos params"],
) -> tuple[Float[Array, "silos silos"], Float[Array, " silos"], Float[Array, " params"]]:
    """Cosines between silos, how far from their mean each is, how much each parameter differs."""
    apart = models - jnp.mean(models, axis=0)
    norms = jnp.maximum(jnp.linalg.norm(apart, axis=1), 1e-30)
    directions = apart / norms[:, None]
    return directions @ directions.T, norms, jnp.sqrt(jnp.mean(apart**2, axis=0))


def _rounds_of_parts(rounds: int, parts: int) -> np.ndarray:
    """How many rounds each part of them has."""
    return np.bincount(np.arange(rounds) * parts // rounds, minlength=parts)
