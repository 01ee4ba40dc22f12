"""Eigenvectors of a symmetric matrix that changes little from round to round.

Products of matrices and rotations alone: LAPACK's routines can wait for each other for ever when
several devices of one processor call them at once. One sweep of Jacobi's rotations a round is
enough, because it goes on from the eigenvectors of the round before.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from silodp.methods.ebmtl.constants import CONSTANTS


def first_basis(size: int) -> Float[Array, "size directions"]:
    """Where following the eigenvectors of a [size, size] matrix begins.

    There is an even number of columns: an odd one out is paired with one of zeros.
    """
    return jnp.eye(size, min(size + size % 2, CONSTANTS.most_followed))


def follow(
    matrix: Float[Array, "n n"], basis: Float[Array, "n directions"], turns: int
) -> tuple[Float[Array, "n directions"], Float[Array, " directions"]]:
    """Orthonormal columns nearer to eigenvectors than the given ones, and their eigenvalues.

    If there are fewer columns than rows, they turn towards the largest eigenvalues. Columns change
    places, so that the next call goes on with pairs that this one did not come to.

    Args:
      matrix: symmetric.
      basis: the columns of the call before, or the first.
      turns: how often all columns are rotated in pairs; `full_sweep` of them are one sweep.
    """
    if basis.shape[1] < basis.shape[0]:
        mean = jnp.trace(matrix) / len(matrix)
        basis = _orthonormal(
            matrix @ basis + jnp.where(mean > 0, CONSTANTS.lift * mean, 1.0) * basis
        )
    # What rounding has taken in the rounds before: a step of Newton's towards orthonormal columns.
    basis = 1.5 * basis - 0.5 * basis @ (basis.T @ basis)
    turned, rotation = _turned(basis.T @ matrix @ basis, turns)
    return basis @ rotation, jnp.diag(turned)


def full_sweep(basis: Float[Array, "n directions"]) -> int:
    """How many turns it takes until every pair of columns was rotated once."""
    return max(basis.shape[1] - 1, 1)


def _turned(
    matrix: Float[Array, "n n"], turns: int
) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
    """Rows and columns rotated in pairs: nearer to diagonal, and the rotation."""
    half = len(matrix) // 2

    def turn(
        rows: Float[Array, "n columns"],
        cosine: Float[Array, " pairs"],
        sine: Float[Array, " pairs"],
    ) -> Float[Array, "n columns"]:
        first, second = rows[:half], rows[half:]
        c, s = cosine[:, None], sine[:, None]
        return _next_places(c * first - s * second, s * first + c * second)

    def step(
        _, state: tuple[Float[Array, "n n"], Float[Array, "n n"]]
    ) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
        rows, rotation = state  # the rotation is kept transposed: its rows turn as the matrix's do
        own = jnp.diag(rows)
        cosine, sine = _angle(own[:half], own[half:], jnp.diag(rows[:half, half:]))
        turned = turn(turn(rows, cosine, sine).T, cosine, sine)
        return turned, turn(rotation, cosine, sine)

    matrix, rotation = jax.lax.fori_loop(0, turns, step, (matrix, jnp.eye(len(matrix))))
    return matrix, rotation.T


def _next_places(
    above: Float[Array, "pairs columns"], below: Float[Array, "pairs columns"]
) -> Float[Array, "2*pairs columns"]:
    """Who stands where next: as in a tournament, the first stays and the others move on.

    Those at the same place above and below are a pair. After a full sweep all have met, and all
    stand where they began.
    """
    if len(above) == 1:
        return jnp.concatenate([above, below])
    return jnp.concatenate([above[:1], below[:1], above[1:-1], below[1:], above[-1:]])


def _angle(
    first: Float[Array, " pairs"], second: Float[Array, " pairs"], between: Float[Array, " pairs"]
) -> tuple[Float[Array, " pairs"], Float[Array, " pairs"]]:
    """Cosine and sine of the smaller rotation that makes `between` zero."""
    flat = between == 0
    ratio = (second - first) / jnp.where(flat, 1.0, 2.0 * between)
    sign = jnp.where(ratio >= 0, 1.0, -1.0)
    tangent = jnp.where(flat, 0.0, sign / (jnp.abs(ratio) + jnp.sqrt(1.0 + ratio**2)))
    cosine = 1.0 / jnp.sqrt(1.0 + tangent**2)
    return cosine, tangent * cosine


def _orthonormal(columns: Float[Array, "n directions"]) -> Float[Array, "n directions"]:
    """The columns made orthonormal from left to right (Gram and Schmidt)."""
    count = columns.shape[1]

    def step(
        number: Int[Array, ""], columns: Float[Array, "n directions"]
    ) -> Float[Array, "n directions"]:
        one = columns[:, number]
        one = one / jnp.maximum(jnp.linalg.norm(one), 1e-30)
        after = (jnp.arange(count) > number)[None, :]
        columns = columns - jnp.where(after, one[:, None] * (one @ columns), 0.0)
        return columns.at[:, number].set(one)

    return jax.lax.fori_loop(0, count, step, columns)
