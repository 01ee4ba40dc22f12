"""One number to predict (regression; of two classes, -1 or +1), by least squares.

Message 1: every silo's moments. The server pools the second moments; those of a silo are shrunk
towards them (`grams`). Messages 2, 3...: the gradient at the silo's own model of the moment, from
which follow its cross moments once more, with less noise, because residuals are smaller than
labels. After each message the models are estimated anew from all that was released (`hierarchy`).
A silo works out its own model from its own messages and the broadcast, as the server does for all.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import erf

from silodp.methods.fewround.constants import CONSTANTS
from silodp.methods.fewround.grams import (
    PooledGram,
    entry_variance,
    gram_error,
    gram_of_silo,
    pooled_gram,
)
from silodp.methods.fewround.hierarchy import (
    Prior,
    Sums,
    Unknown,
    covariance_of,
    estimate,
    models_of,
    with_uncertainty,
)
from silodp.methods.fewround.released import Released, Scalar, Square, Weights, each_of
from silodp.privacy.mechanisms.message_queries import MessageQueries
from silodp.privacy.mechanisms.moments import Shares

Vector = Float[np.ndarray, " size"]
# Eigenvalues and axes of second moments.
Axes = tuple[Vector, Square]

# Of residuals like those of a Gaussian, the share that is not cut off: what the gradient of the
# cut-off residuals is too small by.
_KEPT = float(erf(CONSTANTS.clip / math.sqrt(2)))
# By how much more of their variance models vary by chance, since the rest is cut off.
_CUT_OFF = CONSTANTS.clip**2 * (1.0 - _KEPT) + _KEPT
_CUT_OFF -= CONSTANTS.clip * math.sqrt(2 / math.pi) * math.exp(-(CONSTANTS.clip**2) / 2)
_MORE_SCATTER = _CUT_OFF / _KEPT**2 - 1.0

# Times that covariances and what they blur are worked out in turn.
_BLURS = 2

# No share of a class is taken to be nearer to 0 or 1.
_ONE_SIDED = 0.998


class Shared(NamedTuple):
    """What the server sends: all that a silo needs to work out its own model.

    Attributes:
      round: number of the round that it is for.
      gram: pooled second moments.
      prior: what silos have in common.
      scale: what residuals are cut off at.
    """

    round: Scalar
    gram: PooledGram
    prior: Prior
    scale: Scalar


def nothing_shared(size: int, outputs: int) -> Shared:
    """Before the first message."""
    zeros, vector, one = np.zeros((size, size)), np.zeros(size), np.ones(())
    prior = Prior(vector, zeros, np.zeros(()), one, np.zeros(()), zeros)
    return Shared(np.zeros(()), PooledGram(zeros, zeros, zeros), prior, one)


def parts(own: Released, queries: MessageQueries) -> Shares:
    """How a silo divides its first message."""
    return CONSTANTS.parts


def model_of(own: Released, shared: Shared) -> Weights:
    """The model that a silo has of the mean label."""
    if own.records == 0:  # it was not there for the first message
        return shared.prior.mean[:, None]
    return models_of(_sums_of_one(own, shared), shared.prior)[0][:, None]


def _gram(own: Released, pooled: PooledGram) -> Axes:
    return gram_of_silo(own.gram, float(own.noise[0]), float(own.records), pooled)


def sums_of(silos: Sequence[Released], grams: Sequence[Axes], shared: Shared) -> Sums:
    """What all messages of these silos say together, as `hierarchy` takes it."""
    crosses, noises = [], []
    for own, (own_values, own_axes) in zip(silos, grams, strict=True):
        precisions = np.append(own.precisions * _KEPT**2, _first_precision(own, shared))
        own_gram = (own_axes * own_values) @ own_axes.T
        later = own.gradients[:, :, 0] / _KEPT + own.at[:, :, 0] @ own_gram
        said = np.concatenate([later, own.cross[:, 0][None]])
        crosses.append(precisions @ said / precisions.sum())
        noises.append(1.0 / precisions.sum())
    values, axes = (np.stack(part) for part in zip(*grams, strict=True))
    return Sums(values, axes, np.array(crosses), np.array(noises))


def _first_precision(own: Released, shared: Shared) -> float:
    """What the cross moments of a silo's first message count.

    What is not known of its second moments blurs what they say, but little of what a gradient says,
    which is taken near the model.
    """
    mean, between = shared.prior.mean, shared.gram.between
    variance = entry_variance(own.noise[:1] / own.records, len(mean))[0]
    unknown = between * variance / np.maximum(between + variance, CONSTANTS.smallest)
    blur = float(own.records) ** 2 * float((unknown @ mean**2).mean())
    return 1.0 / max(float(own.noise[1] ** 2) + blur, CONSTANTS.smallest)


def _sums_of_one(own: Released, shared: Shared) -> Sums:
    return sums_of([own], [_gram(own, shared.gram)], shared)


def own_covariance(own: Released, shared: Shared) -> Square:
    """How uncertain a silo's model is: the expected square of what its weights are off."""
    prior = shared.prior
    if own.records == 0:
        return prior.uncertainty + float(prior.expected_spread) * np.eye(len(prior.mean))
    sums = _sums_of_one(own, shared)
    gap, variances = _gap(own, sums, shared), gram_error(*_noise_and_count(own), shared.gram)
    unknown = float(own.records) ** 2 * (variances[0] + variances[1])
    later = 1.0 - _first_precision(own, shared) * float(sums.noise[0])
    scatter = (sums.axes[0] * sums.values[0]) @ sums.axes[0].T
    scatter *= _MORE_SCATTER * later * float(prior.residual)
    covariance = covariance_of(sums, prior)
    for _ in range(_BLURS):
        blur = _blur(unknown, np.outer(gap, gap) + covariance)
        covariance = covariance_of(sums, prior, blur + scatter)
    return covariance


def _noise_and_count(own: Released) -> tuple[float, float]:
    return float(own.noise[0]), float(own.records)


def _gap(own: Released, sums: Sums, shared: Shared) -> Vector:
    """What the model of a silo is off from where its messages were asked: cross moments are at 0.

    What its second moments are off, times this, is what its cross moments are off.
    """
    precisions = np.append(own.precisions * _KEPT**2, _first_precision(own, shared))
    at = precisions[:-1] @ own.at[:, :, 0] / precisions.sum()
    return models_of(sums, shared.prior)[0] - at


def _blur(unknown: Square, squares: Square) -> Square:
    """The covariance of E v, for a symmetric E with entries of these variances and E[v v']."""
    blur = unknown * squares
    np.fill_diagonal(blur, unknown @ np.diag(squares))
    return blur


def _unknown(silos: Sequence[Released], sums: Sums, shared: Shared) -> Unknown:
    """What is not known of second moments, as `hierarchy` takes it."""
    values, blurs, gaps, counts = [], [], [], np.array([float(own.records) for own in silos])
    common = np.zeros_like(shared.gram.mean)
    for place, own in enumerate(silos):
        one = Sums(*(part[place : place + 1] for part in sums))
        own_part, common = gram_error(*_noise_and_count(own), shared.gram)
        gap, squared_axes = _gap(own, one, shared), one.axes[0] ** 2
        # Of a' E a, for an axis a: entries beside the diagonal count twice.
        twice = 2 * np.einsum("ia,ij,ja->a", squared_axes, common, squared_axes, optimize=True)
        values.append(counts[place] ** 2 * (twice - np.diag(common) @ squared_axes**2))
        squares = np.outer(gap, gap) + covariance_of(one, shared.prior)
        blurs.append(_blur(counts[place] ** 2 * own_part, squares))
        gaps.append(gap)
    gap = np.mean(gaps, axis=0)
    of_all = _blur(common, np.outer(gap, gap) + shared.prior.uncertainty)
    return Unknown(np.array(values), np.array(blurs), of_all, counts)


def prediction_errors(
    covariance: Square, vectors: Float[np.ndarray, "records size"]
) -> Float[np.ndarray, " records"]:
    """Standard errors of predictions (of the mean label, in half ranges) for these vectors.

    Args:
      covariance: of a silo's weights (see `own_covariance`).
      vectors: records as `UnitVectors.vectors` gives them.
    """
    return np.sqrt(np.einsum("ri,ij,rj->r", vectors, covariance, vectors).clip(min=0.0))


def personal(own: Released, shared: Shared) -> Weights:
    """Weights of the model that a silo uses; of two classes, those of the log-odds."""
    weights = model_of(own, shared)
    if own.two_classes:
        return as_log_odds(weights[:, 0], own, shared)[:, None]
    return weights


def learned(released: Released, shared: Shared) -> dict[str, np.ndarray]:
    """How far silos' models differ, what they leave unexplained, and how sure they are."""
    prior = shared.prior
    silos = [Released(*one) for one in zip(*released, strict=True)]
    covariances = [own_covariance(own, shared) for own in silos]
    # Of a record as they are in all silos together.
    squares = [float((one * shared.gram.mean).sum()) for one in covariances]
    return {
        "mean_model": prior.mean,
        "spread": np.sqrt(prior.spread),
        "residual": np.sqrt(prior.residual),
        "standard_errors": np.sqrt([np.diag(one).clip(min=0.0) for one in covariances]),
        "prediction_errors": np.sqrt(np.maximum(squares, 0.0)),
    }


def estimated(released: Released, shared: Shared) -> Shared:
    """What is shared after a round, from all that silos have released."""
    silos, gram = each_of(released), shared.gram
    if shared.round == 0:
        noise = np.array([one.noise[0] for one in silos])
        counts = np.array([one.records for one in silos])
        gram = pooled_gram(np.stack([one.gram for one in silos]), noise, counts)
        shared = shared._replace(gram=gram)
    grams = [_gram(own, gram) for own in silos]
    squares, error = _mean_square(silos)
    # The constant's entry of a vector is 1 / length: its weight is the mean label times that.
    constant = CONSTANTS.usual_square * float(silos[0].length) ** 2
    # Variances with which models would explain labels.
    usual = squares / float(np.trace(shared.gram.mean))
    residual = squares if shared.round == 0 else float(shared.prior.residual)
    for _ in range(2):  # the second with residuals, and blur, of the first's model
        sums = sums_of(silos, grams, shared)
        shared = shared._replace(prior=estimate(sums, residual, constant, usual))
        residual = _residual(silos, sums, shared, squares, error)
    if shared.round == len(silos[0].gradients):  # the last, of which intervals are shown
        shared = _with_uncertainty(silos, sums, shared, squares + error)
    scale = CONSTANTS.clip * math.sqrt(residual + error)
    return shared._replace(round=shared.round + 1, scale=np.array(scale))


def _with_uncertainty(
    silos: Sequence[Released], sums: Sums, shared: Shared, squares: float
) -> Shared:
    """What is shared, with what the prior's estimates are off, if labels are so large."""
    length = float(silos[0].length)
    # Weights may be larger where vectors are shorter than noise lets them seem; none is shorter
    # than its constant.
    shortest = float(np.diag(shared.gram.mean - np.sqrt(shared.gram.error)).sum())
    widest = squares / max(shortest, 1.0 / length**2)
    for _ in range(_BLURS):
        unknown = _unknown(silos, sums, shared)
        constant = CONSTANTS.usual_square * length**2
        prior = with_uncertainty(sums, shared.prior, constant, widest, unknown)
        shared = shared._replace(prior=prior)
    return shared


def _mean_square(silos: Sequence[Released]) -> tuple[float, float]:
    """Mean of y^2 over all records, and its standard error by noise.

    Where noise hides it, it is what it usually is; of two classes it is 1.
    """
    if silos[0].two_classes:
        return 1.0, 0.0
    weights, total = _weights(silos, 2)
    variance = float(weights**2 @ np.array([one.noise[2] ** 2 for one in silos])) / total**2
    mean = float(weights @ np.array([one.labels[0] for one in silos])) / total
    usual, spread = CONSTANTS.usual_square, CONSTANTS.square_spread**2
    share = spread / (spread + variance)
    mean = usual + share * (mean - usual)
    return max(mean, CONSTANTS.least_residual**2), math.sqrt(share * variance)


def _residual(
    silos: Sequence[Released], sums: Sums, shared: Shared, squares: float, error: float
) -> float:
    """Variance of what models leave unexplained, of all records together.

    What the mean model explains counts as far as it is more than noise may make it.
    """
    prior, gram, length = shared.prior, shared.gram.mean, float(silos[0].length)
    # The first messages' cross moments: those of later ones rest on shrunk second moments.
    weights, total = _weights(silos, 1)
    noises = np.array([one.noise[1] ** 2 for one in silos])
    cross, noise = (
        weights @ np.stack([one.cross[:, 0] for one in silos]) / total,
        weights**2 @ noises,
    )
    noise = float(noise) / total**2
    # About the mean label, whose square would hide a small share that is explained.
    middle = max(0.0, (length * float(cross[-1])) ** 2 - length**2 * noise)
    variance = max(squares - middle, CONSTANTS.least_residual**2)
    mean = prior.mean
    explained = float(2 * mean @ cross - mean @ gram @ mean) - middle
    # The mean was fitted to their noise, as far as nothing better was known.
    known_later = np.minimum(sums.noise / np.maximum(noises, CONSTANTS.smallest), 1.0)
    explained -= 2 * float(np.mean(known_later)) * float((prior.covariance * gram).sum())
    unsure = error**2 + 4 * float(mean[:-1] @ mean[:-1]) * noise
    explained = max(0.0, explained)
    share = explained**2 / max(explained**2 + unsure, CONSTANTS.smallest)
    # Silos' own models explain what they differ by, too.
    differing = min(float(prior.spread) * float(np.trace(gram)), 0.5 * variance)
    most = CONSTANTS.most_explained[bool(silos[0].two_classes)] * variance
    return max(variance - min(share * explained + differing, most), CONSTANTS.least_residual**2)


def _weights(silos: Sequence[Released], part: int) -> tuple[Float[np.ndarray, " silos"], float]:
    """How much silos count in a mean over records, by the noise of that part; and all together."""
    noise = np.array([one.noise[part] ** 2 for one in silos])
    counts = np.array([one.records for one in silos])
    weights = 1.0 / (1.0 + noise / counts)
    return weights, float(weights @ counts)


def as_log_odds(weights: Vector, own: Released, shared: Shared) -> Vector:
    """The log-odds of the second of two classes, from the mean label -1..1 that weights predict.

    As if features of both classes were Gaussian with one covariance: least squares then finds the
    direction that parts them, and the log-odds are, of a share p of the second class,

        2 (prediction - (2 p - 1)) / residual + (2 p - 1) d / 2 + log(p / (1 - p)),
        d = (4 p (1 - p) - residual) / (residual p (1 - p)), the squared distance of the classes

    of which what hangs on the features is made smaller where the model is uncertain (D. MacKay. The
    evidence framework applied to classification networks. Neural Computation, 1992).
    """
    prior, length = shared.prior, float(own.length)
    # The constant's entry of a vector is 1 / length, so its second moments say the mean label.
    mean = float(np.clip(shared.gram.mean[-1] @ prior.mean * length, -_ONE_SIDED, _ONE_SIDED))
    second = (1.0 + mean) / 2.0
    residual = min(float(prior.residual), 4.0 * second * (1.0 - second))
    explained = 4.0 * second * (1.0 - second) - residual
    distance = explained / (residual * second * (1.0 - second))
    # Where the model is unsure, so are its log-odds: they are drawn to the share of all.
    unsure = float((own_covariance(own, shared) * shared.gram.mean).sum()) * (2.0 / residual) ** 2
    drawn = 1.0 / math.sqrt(1.0 + math.pi / 8.0 * unsure)
    odds = drawn * 2.0 * weights / residual
    constant = drawn * (mean * distance / 2.0 - 2.0 * mean / residual)
    odds[-1] += length * (constant + math.log(second / (1.0 - second)))
    return odds
