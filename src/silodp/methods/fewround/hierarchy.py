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
# Variances that have their chances, from where the logarithm is so much below the likeliest's; and
# how closely that is looked for.
_POINTS, _FAR, _HALVINGS = 16, 8.0, 12
_SUREST = 0.1  # part of an eigenvalue that is counted at least


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
      expected_spread: the spread that is expected, where the likeliest may be 0 by chance.
      uncertainty: `covariance`, had all spreads and variances their chances, not the likeliest.
    """

    mean: Vector
    covariance: Square
    spread: Float[np.ndarray, ""] | float
    residual: Float[np.ndarray, ""] | float
    expected_spread: Float[np.ndarray, ""] | float
    uncertainty: Square


class Unknown(NamedTuple):
    """What is not known of second moments.

    Attributes:
      values: variances of what the eigenvalues are off by what all silos have in common.
      blurs: covariances of what cross moments are off by them, of each silo by itself.
      common: likewise by what all silos have in common, for each record.
      counts: records.
    """

    values: Vectors
    blurs: Float[np.ndarray, "silos size size"]
    common: Square
    counts: Float[np.ndarray, " silos"]


def models_of(silos: Sums, prior: Prior) -> Vectors:
    """What is expected of each silo's model."""
    gain, _, _ = _in_axes(silos, float(prior.spread), float(prior.residual))
    return prior.mean + _from_axes(silos.axes, gain * _deviations(silos, prior.mean))


def covariance_of(silo: Sums, prior: Prior, blur: Square | float = 0.0) -> Square:
    """The expected square of what the model of a silo is off: the first of these.

    Its model follows from the likeliest spread; here all that may be counts by its chances.

    Args:
      silo: its sums.
      prior: what silos have in common.
      blur: covariance of what its cross moments are off besides, as its second moments are.
    """
    gain, _, _ = (part[0] for part in _in_axes(silo, float(prior.spread), float(prior.residual)))
    axes, s = silo.axes[0], silo.values[0]
    moves = (axes * gain) @ axes.T  # what a deviation of cross moments moves
    follows = (axes * (1.0 - gain * s)) @ axes.T  # as the silo follows the mean
    own = float(prior.expected_spread) * np.eye(len(s)) + prior.uncertainty
    error = (axes * (float(prior.residual) * s + silo.noise[0])) @ axes.T + blur
    return follows @ own @ follows.T + moves @ error @ moves.T


def estimate(silos: Sums, residual: float, constant: float, usual: float) -> Prior:
    """The mean and the spread from all silos, of which `residual` is left unexplained.

    The last weight is the constant's, of variance `constant` beforehand. The others are 0
    beforehand, but for a variance that is likeliest in the light of the mean and its error: where
    noise hides all, a constant is left.
    `usual` is about how large variances of weights are where nothing is known of them.
    """
    spread = _usual_spread(silos, residual)
    mean, covariance = _by_least_squares(silos, spread, residual)
    for _ in range(CONSTANTS.spread_steps if len(silos.values) > 1 else 0):
        before, spread = spread, _likeliest_spread(silos, mean, covariance, residual, usual)
        mean, covariance = _by_least_squares(silos, spread, residual)
        if abs(spread - before) <= CONSTANTS.close * spread:
            break
    mean, covariance = _shrunk(mean, covariance, constant, usual)
    spread = np.array(spread)
    return Prior(mean, covariance, spread, np.array(residual), spread, covariance)


def with_uncertainty(
    silos: Sums, prior: Prior, constant: float, usual: float, unknown: Unknown
) -> Prior:
    """The prior with what its estimates are off, had all spreads and variances their chances.

    Second moments that are not known well say less of the spread, and blur the mean. Arguments as
    for `estimate`.
    """
    spread, residual = float(prior.spread), float(prior.residual)
    mean, covariance = _by_least_squares(silos, spread, residual)
    if len(silos.values) > 1:
        squares, errors = _squares(silos, mean, covariance, residual)
        # They may all be smaller: then the same deviations are of models that differ more.
        sure = np.maximum(silos.values - np.sqrt(unknown.values), _SUREST * silos.values)
        spreads, chances = chances_of_variance(squares, errors, sure, usual=usual)
        spread = float(spreads @ chances)
    mean, covariance = _by_least_squares(silos, spread, residual)
    _, _, weight = _in_axes(silos, spread, residual)
    # What cross moments of a silo move the mean by.
    moves = covariance @ ((silos.axes * weight[:, None, :]) @ silos.axes.transpose(0, 2, 1))
    covariance = covariance + (moves @ unknown.blurs @ moves.transpose(0, 2, 1)).sum(axis=0)
    of_all = (unknown.counts[:, None, None] * moves).sum(axis=0)
    covariance = covariance + of_all @ unknown.common @ of_all.T
    uncertainty = _uncertainty(mean, covariance, prior.mean, constant, usual)
    return prior._replace(expected_spread=np.array(spread), uncertainty=uncertainty)


def _by_least_squares(silos: Sums, spread: float, residual: float) -> tuple[Vector, Square]:
    """The mean, and the covariance of its error."""
    size = silos.values.shape[1]
    _, _, weight = _in_axes(silos, spread, residual)
    together = np.moveaxis(silos.axes, 1, 0)  # [size, silos, axes]
    weighted = (together * np.sqrt(weight * silos.values)).reshape(size, -1)
    covariance = np.linalg.inv(CONSTANTS.ridge * np.eye(size) + weighted @ weighted.T)
    cross = _to_axes(silos.axes, silos.cross)
    return covariance @ _from_axes(silos.axes, weight * cross).sum(axis=0), covariance


def _likeliest_spread(
    silos: Sums, mean: Vector, covariance: Square, residual: float, usual: float
) -> float:
    """The spread of the largest restricted likelihood, for this mean and its error."""
    squares, errors = _squares(silos, mean, covariance, residual)
    return likeliest_variance(squares, errors, silos.values, usual=usual)


def _squares(
    silos: Sums, mean: Vector, covariance: Square, residual: float
) -> tuple[Vectors, Vectors]:
    """In the silos' axes, squares of deviations from the mean, and variances without a spread."""
    s = silos.values
    # Deviations from a mean that was fitted to them are too small by what it took of them.
    taken = s**2 * np.einsum("kij,il,klj->kj", silos.axes, covariance, silos.axes, optimize=True)
    return _deviations(silos, mean) ** 2 + taken, residual * s + silos.noise[:, None]


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


def chances_of_variance(
    squares: Float[np.ndarray, "*n"],
    errors: Float[np.ndarray, "*n"],
    factors: Float[np.ndarray, "*n"] | float = 1.0,
    least: float = 0.0,
    usual: float = math.inf,
) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    """Some variances, and their chances; arguments as for `likeliest_variance`."""
    errors = np.maximum(errors, CONSTANTS.smallest**2)
    own = np.broadcast_to(factors, squares.shape) ** 2

    def log_chance(variance: float) -> float:
        total = variance * own + errors
        return -0.5 * float((np.log(total) + squares / total).sum()) - variance / usual

    likeliest = likeliest_variance(squares, errors, factors, least, usual)
    highest = log_chance(likeliest)

    def end(towards: float) -> float:
        """Where chances have become small, on the way from the likeliest."""
        near, far = likeliest, towards
        for _ in range(_HALVINGS):
            middle = (near + far) / 2
            near, far = (near, middle) if log_chance(middle) < highest - _FAR else (middle, far)
        return far

    high = max(2 * likeliest, float(errors.sum() / max(own.sum(), CONSTANTS.smallest)))
    for _ in range(_DOUBLINGS):
        if log_chance(high) < highest - _FAR:
            break
        high *= 2.0
    low = end(least) if log_chance(least) < highest - _FAR else least
    # Closer to each other where they are small.
    first, last = np.sqrt([low, end(high)])
    deviations = first + (last - first) * (np.arange(_POINTS) + 0.5) / _POINTS
    points = deviations**2
    chances = deviations * np.exp(np.array([log_chance(float(p)) for p in points]) - highest)
    return points, chances / chances.sum()


def _uncertainty(
    mean: Vector, covariance: Square, found: Vector, constant: float, usual: float
) -> Square:
    """The expected square of what `found` is off, as a mean, if least squares give this one.

    As `_shrunk`, had all variances that weights may have beforehand their chances.
    """
    errors, axes = np.linalg.eigh(covariance[:-1, :-1])
    errors = np.maximum(errors, CONSTANTS.smallest)
    least = CONSTANTS.least_variance * float(errors.mean())
    variances, chances = chances_of_variance(
        (axes.T @ mean[:-1]) ** 2, errors, least=least, usual=usual
    )
    precision = np.linalg.inv(covariance)
    total = np.zeros_like(covariance)
    for variance, chance in zip(variances, chances, strict=True):
        beforehand = np.append(np.full(len(errors), 1.0 / variance), 1.0 / constant)
        after = np.linalg.inv(precision + np.diag(beforehand))
        off = after @ (precision @ mean) - found
        total += chance * (after + np.outer(off, off))
    return total


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
