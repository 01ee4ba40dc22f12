"""Eigenvalues of a symmetric matrix that is seen through noise."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Vector = Float[np.ndarray, " size"]
Square = Float[np.ndarray, "size size"]


class Spectrum(NamedTuple):
    """A noisy symmetric matrix in its own axes.

    Attributes:
      noisy: its eigenvalues, ascending.
      axes: its axes, as columns.
      values: how large the matrix without noise is along these axes.
      distinct: how many axes, the last ones, noise alone would not make.
      noise: deviation of the noise beside the diagonal.
    """

    noisy: Vector
    axes: Square
    values: Vector
    distinct: int
    noise: float

    @property
    def edge(self) -> float:
        """Half of the largest eigenvalue that noise alone gives."""
        return self.noise * math.sqrt(len(self.noisy))


def spectrum_of(matrix: Square, noise: float, floor: float) -> Spectrum:
    """The axes of a matrix, and how large it is along them without its noise.

    Noise is independent N(0, noise^2) beside the diagonal and N(0, 2 noise^2) on it. It turns axes
    by chance and gives them eigenvalues within twice the edge, sqrt(size) noise, of their mean. An
    eigenvalue beyond, l + edge^2 / l above the mean, has axes along which the matrix itself is
    l - edge^2 / l above it. The others are drawn to their mean as much as their variance is
    noise's. (J. Bun et al. Rotational invariant estimator for general noisy matrices. IEEE
    Transactions on Information Theory, 2016.)

    Args:
      matrix: symmetric, with noise.
      noise: see above; 0 for none.
      floor: values are no smaller.
    """
    noisy, axes = np.linalg.eigh(matrix)
    size = len(noisy)
    if noise == 0:
        return Spectrum(noisy, axes, np.maximum(noisy, floor), size, noise)
    above = noisy[::-1]
    distinct = 0
    while distinct < size - 1:
        rest = above[distinct:]
        # The largest eigenvalue of noise varies by its size^(-2/3).
        far = 2 * noise * math.sqrt(len(rest)) * (1 + 2 * len(rest) ** (-2 / 3))
        if above[distinct] <= rest.mean() + far:
            break
        distinct += 1
    rest = above[distinct:]
    variance = noise**2 * len(rest)
    gap = above[:distinct] - rest.mean()
    true_gap = (gap + np.sqrt(np.maximum(gap**2 - 4 * variance, 0.0))) / 2
    top = rest.mean() + true_gap - variance / true_gap
    own = max(0.0, float(rest.var()) - variance * (1 + 4 / len(rest)))
    share = own / (own + variance)
    middle = (above.sum() - top.sum()) / len(rest)  # the trace hardly has noise
    values = np.concatenate([top, middle + share * (rest - rest.mean())])[::-1]
    return Spectrum(noisy, axes, np.maximum(values, floor), distinct, noise)


def groups_of(spectrum: Spectrum, size: int) -> list[np.ndarray]:
    """Axes that are alike: those of noise, and the others by eigenvalue, so many each."""
    count = len(spectrum.noisy)
    alike = np.arange(count - spectrum.distinct)
    others = np.arange(count - spectrum.distinct, count)
    found = [alike] if len(alike) else []
    if len(others):
        found += np.array_split(others, max(1, len(others) // size))
    return found
