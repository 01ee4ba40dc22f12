"""Models of silos that are alike, from noisy sums: an empirical Bayes estimate in closed form.

Silo k has S_k (second moments) and b_k (cross moments, from all its messages together) with

    w_k = mean + N(0, spread I)
    b_k = S_k w_k + N(0, residual S_k + noise_k I)

In the axes of S_k, with eigenvalue s, an entry of b_k says of w_k + N(0, v), v = (residual s +
noise) / s^2. What is unknown is the mean (by generalised least squares) and the spread (by
restricted likelihood); the model of a silo is what is then expected of w_k.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import root_scalar

from silodp.methods.fewround.constants import CONSTANTS

Vector = Float[np.ndarray, " size"]
Square = Float[np.ndarray, "size size"]
Vectors = Float[np.ndarray, "silos size"]

_DOUBLINGS = 40  # of the range in which the spread is looked for


class Sums(NamedTuple):
    """What is known of some silos, for one output.

    Attributes:
      values: eigenvalues of their second moments (sums over records).
      axes: their axes, as columns.
      cross: their cross moments, in the space of features.
      noise: variance of the noise on each entry of these.
    """

    values: Vectors
    axes: Float[np.ndarray, "silos size size"]
    cross: Vectors
    noise: Float[np.ndarray, " silos"]


class Prior(NamedTuple):
    """What silos have in common.

    Attributes:
      mean: of their models.
      covariance: of the error of the mean.
      spread: variance of each weight between silos.
      residual: variance of what models leave unexplained of a record.
    """

    mean: Vector
    covariance: Square
    spread: Float[np.ndarray, ""] | float
    residual: Float[np.ndarray, ""] | float


def models_of(silos: Sums, prior: Prior) -> Vectors:
    """What is expected of each silo's model."""
    gain, _, _ = _in_axes(silos, float(prior.spread), float(prior.residual))
    return prior.mean + _from_axes(silos.axes, gain * _deviations(silos, prior.mean))


def covariance_of(silo: Sums, prior: Prior) -> Square:
    """How uncertain the model of a silo is: the first of these."""
    gain, variance, _ = (
        part[0] for part in _in_axes(silo, float(prior.spread), float(prior.residual))
    )
    axes = silo.axes[0]
    # The mean is uncertain too, as far as the silo follows it.
    follows = (axes * (1.0 - gain * silo.values[0])) @ axes.T
    return (axes * variance) @ axes.T + follows @ prior.covariance @ follows.T


def estimate(silos: Sums, residual: float, constant: float, usual: float) -> Prior:
    """The mean and the spread from all silos, of which `residual` is left unexplained.

    The last weight is the constant's, of variance `constant` beforehand. The others are 0
    beforehand, but for a variance that is likeliest in the light of the mean and its error: where
    noise hides all, a constant is left.
    `usual` is about how large variances of weights are where nothing is known of them.
    """
    count, size = silos.values.shape
    cross = _to_axes(silos.axes, silos.cross)
    spread = _usual_spread(silos, residual)
    together = np.moveaxis(silos.axes, 1, 0)  # [size, silos, axes]

    def by_least_squares() -> tuple[Vector, Square]:
        _, _, weight = _in_axes(silos, spread, residual)
        weighted = (together * np.sqrt(weight * silos.values)).reshape(size, -1)
        covariance = np.linalg.inv(CONSTANTS.ridge * np.eye(size) + weighted @ weighted.T)
        return covariance @ _from_axes(silos.axes, weight * cross).sum(axis=0), covariance

    mean, covariance = by_least_squares()
    for _ in range(CONSTANTS.spread_steps if count > 1 else 0):
        before, spread = spread, _likeliest_spread(silos, mean, covariance, residual, usual)
        mean, covariance = by_least_squares()
        if abs(spread - before) <= CONSTANTS.close * spread:
            break
    mean, covariance = _shrunk(mean, covariance, constant, usual)
    return Prior(mean, covariance, np.array(spread), np.array(residual))


def _likeliest_spread(
    silos: Sums, mean: Vector, covariance: Square, residual: float, usual: float
) -> float:
    """The spread of the largest restricted likelihood, for this mean and its error."""
    s = silos.values
    # Deviations from a mean that was fitted to them are too small by what it took of them.
    taken = s**2 * np.einsum("kij,il,klj->kj", silos.axes, covariance, silos.axes, optimize=True)
    squares = _deviations(silos, mean) ** 2 + taken
    return likeliest_variance(squares, residual * s + silos.noise[:, None], s, usual=usual)


def likeliest_variance(
    squares: Float[np.ndarray, "*n"],
    errors: Float[np.ndarray, "*n"],
    factors: Float[np.ndarray, "*n"] | float = 1.0,
    least: float = 0.0,
    usual: float = math.inf,
) -> float:
    """The likeliest variance v of numbers of which `factors` times are seen, with errors.

    Args:
      squares: of what is seen: N(0, v factors^2 + errors).
      errors: variances.
      factors: see above.
      least: what v is at least.
      usual: what v is about, before anything is seen; where noise hides all, that is little, so
        that v is 0 then, and not what chance makes likeliest.
    """
    errors = np.maximum(errors, CONSTANTS.smallest**2)
    own = np.broadcast_to(factors, squares.shape) ** 2

    def slope(variance: float) -> float:
        total = variance * own + errors
        return float((own * (squares - total) / total**2).sum()) - 2.0 / usual

    if slope(least) <= 0:
        return least
    low, high = least, max(2 * least, float(errors.sum() / max(own.sum(), CONSTANTS.smallest)))
    for _ in range(_DOUBLINGS):
        if slope(high) <= 0:
            return float(root_scalar(slope, bracket=(low, high), rtol=1e-4).root)
        low, high = high, 4.0 * high
    return high


def _shrunk(
    mean: Vector, covariance: Square, constant: float, usual: float
) -> tuple[Vector, Square]:
    """The mean, shrunk to a constant as far as its error says, and its error then."""
    errors, axes = np.linalg.eigh(covariance[:-1, :-1])
    errors = np.maximum(errors, CONSTANTS.smallest)
    least = CONSTANTS.least_variance * float(errors.mean())
    variance = likeliest_variance((axes.T @ mean[:-1]) ** 2, errors, least=least, usual=usual)
    precision = np.linalg.inv(covariance)
    beforehand = np.append(np.full(len(errors), 1.0 / variance), 1.0 / constant)
    after = np.linalg.inv(precision + np.diag(beforehand))
    return after @ (precision @ mean), after


def _in_axes(silos: Sums, spread: float, residual: float) -> tuple[Vectors, Vectors, Vectors]:
    """In the silos' axes: what a deviation of b moves, variance that is left, and weight of b."""
    s = silos.values
    error = residual * s + silos.noise[:, None]
    total = np.maximum(spread * s * s + error, CONSTANTS.smallest**2)
    return spread * s / total, spread * error / total, s / total


def _deviations(silos: Sums, mean: Vector) -> Vectors:
    """In the silos' axes, cross moments less what the mean explains."""
    return _to_axes(silos.axes, silos.cross) - silos.values * (mean @ silos.axes)


def _to_axes(axes: Float[np.ndarray, "silos size size"], vectors: Vectors) -> Vectors:
    return (vectors[:, None, :] @ axes)[:, 0]


def _from_axes(axes: Float[np.ndarray, "silos size size"], vectors: Vectors) -> Vectors:
    return (axes @ vectors[:, :, None])[:, :, 0]


def _usual_spread(silos: Sums, residual: float) -> float:
    """Where the search for the spread starts: as large as the error of a silo's own model."""
    s = silos.values
    errors = (residual * s.sum(1) + silos.noise * s.shape[1]) / np.maximum(
        (s**2).sum(1), CONSTANTS.smallest
    )
    return float(np.median(errors))
