"""Second moments of features, from noisy sums: of all silos together, and of each by itself.

What is released of silo k is S_k = n_k H_k + noise. The pooled H is the mean of all by precision.
That of a silo is shrunk towards it, entry by entry, as far as silos differ by no more than noise.
(H in place of H_k would ruin everything where a column is constant within a silo.)
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from silodp.methods.fewround.constants import CONSTANTS

Matrix = Float[np.ndarray, "size size"]
Matrices = Float[np.ndarray, "silos size size"]


class PooledGram(NamedTuple):
    """Second moments over all silos.

    Attributes:
      mean: per record; positive definite, no eigenvalue below what noise may make.
      between: variance between silos of each entry, beyond what noise gives.
      error: variance of the error of each entry of the mean.
    """

    mean: Matrix
    between: Matrix
    error: Matrix


def pooled_gram(
    grams: Matrices,
    noise: Float[np.ndarray, " silos"],
    counts: Float[np.ndarray, " silos"],
    floor: float = CONSTANTS.gram_floor,
) -> PooledGram:
    """The pooled second moments.

    Args:
      grams: noisy sums of x x' of each silo.
      noise: deviations of their noise on the diagonal.
      counts: records of each silo, as far as they are public.
      floor: eigenvalues are at least so many times what noise alone gives.
    """
    means = grams / counts[:, None, None]
    variance = entry_variance(noise / counts, grams.shape[-1])
    between = np.zeros(grams.shape[1:])

    def by_precision() -> tuple[Matrices, Matrix, Matrix]:
        precision = 1.0 / np.maximum(variance + between, CONSTANTS.smallest)
        total = precision.sum(axis=0)
        return precision, total, (precision * means).sum(axis=0) / total

    precision, total, mean = by_precision()
    for _ in range(CONSTANTS.gram_steps if len(grams) > 1 else 0):
        # By precision: silos with much noise say little of how much others differ.
        squares = (precision**2).sum(axis=0)
        excess = (((means - mean) ** 2 - variance) * precision**2).sum(axis=0)
        beyond = excess > CONSTANTS.errors_beyond_noise * np.sqrt(2 * squares)
        between = np.where(beyond, excess / squares, 0.0)
        precision, total, mean = by_precision()
    least = floor * np.sqrt(len(mean) / np.diag(total).mean()) if noise.any() else 0.0
    floor_of_all = max(float(least), CONSTANTS.smallest)
    values, axes = np.linalg.eigh(mean)
    # Of an axis below the floor nothing is known but that it is: anything from 0 to there.
    lifted = np.where(values < floor_of_all, floor_of_all**2 / 3, 0.0)
    error = 1.0 / total + (axes**2 * lifted) @ axes.T**2
    return PooledGram((axes * np.maximum(values, floor_of_all)) @ axes.T, between, error)


def gram_of_silo(
    gram: Matrix, noise: float, count: float, pooled: PooledGram
) -> tuple[Float[np.ndarray, " size"], Matrix]:
    """Eigenvalues and axes of a silo's sum of x x', by its own noisy sum and the pooled one."""
    share, _ = _own_share(noise, count, pooled)
    values, axes = np.linalg.eigh(pooled.mean + share * (gram / count - pooled.mean))
    return count * np.maximum(values, 0.0), axes


def gram_error(noise: float, count: float, pooled: PooledGram) -> tuple[Matrix, Matrix]:
    """Variances of what the entries of `gram_of_silo` are off, a record.

    Those of its own, and those that it has in common with others. So many records differ from all
    by chance, even where noise hides whether silos do: by as much as products of Gaussian features
    vary. (The last entry of a vector is a constant.)
    """
    mean = pooled.mean
    share, variance = _own_share(noise, count, pooled)
    middle = mean[:, -1] / np.sqrt(mean[-1, -1])
    scatter = np.outer(np.diag(mean), np.diag(mean)) + mean**2 - 2 * np.outer(middle, middle) ** 2
    between = np.maximum(pooled.between, np.maximum(scatter, 0.0) / count)
    rest = (1.0 - share) ** 2
    return rest * between + share**2 * variance, rest * pooled.error


def _own_share(noise: float, count: float, pooled: PooledGram) -> tuple[Matrix, Matrix]:
    """How far a silo's own entries count, and the variances of their noise."""
    variance = entry_variance(np.array([noise / count]), len(pooled.mean))[0]
    share = pooled.between / np.maximum(pooled.between + variance, CONSTANTS.smallest)
    return (np.ones_like(share) if noise == 0 else share), variance


def entry_variance(noise: Float[np.ndarray, " silos"], size: int) -> Matrices:
    """Variances of the noise on each entry: half as much beside the diagonal."""
    shape = np.where(np.eye(size, dtype=bool), 1.0, 0.5)
    return noise[:, None, None] ** 2 * shape
