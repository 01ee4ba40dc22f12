"""One number to predict (regression; of two classes, -1 or +1), by least squares.

Message 1: every silo's moments. The server pools the second moments; those of a silo are shrunk
towards them (`grams`). Messages 2, 3...: the gradient at the silo's own model of the moment, from
which follow its cross moments once more, with less noise, because residuals are smaller than
labels. Of two classes the last gradient is that of log-odds (`odds`). After each message the
models are estimated anew from all that was released (`hierarchy`).
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
    gram_of_silo,
    pooled_gram,
)
from silodp.methods.fewround.hierarchy import Prior, Sums, covariance_of, estimate, models_of
from silodp.methods.fewround.odds import Odds, as_cross, calibrated, log_odds, no_odds, odds_of
from silodp.methods.fewround.released import (
    Message,
    Released,
    Scalar,
    Square,
    Weights,
    each_of,
    with_gradient,
    with_odds_gradient,
)
from silodp.privacy.mechanisms.message_queries import MessageQueries
from silodp.privacy.mechanisms.moments import Shares

Vector = Float[np.ndarray, " size"]
# Eigenvalues and axes of second moments.
Axes = tuple[Vector, Square]

# Of residuals like those of a Gaussian, the share that is not cut off: what the gradient of the
# cut-off residuals is too small by.
_KEPT = float(erf(CONSTANTS.clip / math.sqrt(2)))


class Shared(NamedTuple):
    """What the server sends: all that a silo needs to work out its own model.

    Attributes:
      round: number of the round that it is for.
      gram: pooled second moments.
      prior: what silos have in common.
      scale: what residuals are cut off at.
      odds: of two classes, how models become log-odds.
    """

    round: Scalar
    gram: PooledGram
    prior: Prior
    scale: Scalar
    odds: Odds


def nothing_shared(size: int, outputs: int) -> Shared:
    """Before the first message."""
    zeros, vector, one = np.zeros((size, size)), np.zeros(size), np.ones(())
    prior = Prior(vector, zeros, np.zeros(()), one)
    return Shared(np.zeros(()), PooledGram(zeros, zeros), prior, one, no_odds())


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
    mean = shared.prior.mean
    for own, (own_values, own_axes) in zip(silos, grams, strict=True):
        # What is not known of a silo's second moments blurs what its cross moments say, but
        # little of what a gradient says, which is taken near the model.
        variance = entry_variance(own.noise[:1] / own.records, len(mean))[0]
        between = shared.gram.between
        unknown = between * variance / np.maximum(between + variance, CONSTANTS.smallest)
        blur = float(own.records) ** 2 * float((unknown @ mean**2).mean())
        first = 1.0 / max(own.noise[1] ** 2 + blur, CONSTANTS.smallest)
        precisions = np.append(own.precisions * _KEPT**2, first)
        own_gram = (own_axes * own_values) @ own_axes.T
        later = own.gradients[:, :, 0] / _KEPT + own.at[:, :, 0] @ own_gram
        if shared.odds.curvature > 0 and own.precisions[-1] > 0:
            later[-1], variance = as_cross(own, own_gram, shared.odds)
            precisions[-2] = 1.0 / max(variance, CONSTANTS.smallest)
        said = np.concatenate([later, _cross(own)[None]])
        crosses.append(precisions @ said / precisions.sum())
        noises.append(1.0 / precisions.sum())
    values, axes = (np.stack(part) for part in zip(*grams, strict=True))
    return Sums(values, axes, np.array(crosses), np.array(noises))


def _cross(own: Released) -> Vector:
    """A silo's cross moments; of two classes, the constant's with the sum of labels."""
    cross = own.cross[:, 0]
    if not own.two_classes or own.noise[1] == 0:
        return cross
    precisions = np.array([own.noise[1], own.noise[2] / own.length]) ** -2.0
    said = np.array([cross[-1], own.labels[0] / own.length])
    return np.append(cross[:-1], precisions @ said / precisions.sum())


def _sums_of_one(own: Released, shared: Shared) -> Sums:
    return sums_of([own], [_gram(own, shared.gram)], shared)


def own_covariance(own: Released, shared: Shared) -> Square:
    """How uncertain a silo's model is."""
    if own.records == 0:
        return shared.prior.covariance + shared.prior.spread * np.eye(len(shared.prior.mean))
    return covariance_of(_sums_of_one(own, shared), shared.prior)


def personal(own: Released, shared: Shared) -> Weights:
    """Weights of the model that a silo uses; of two classes, those of the log-odds."""
    weights = model_of(own, shared)
    if not own.two_classes:
        return weights
    # Where the model is unsure, so are its log-odds: they are drawn to the share of all (D. MacKay.
    # The evidence framework applied to classification networks. Neural Computation, 1992).
    kept = float(shared.odds.factor * shared.odds.kept)
    unsure = kept**2 * float((own_covariance(own, shared) * shared.gram.mean).sum())
    drawn = 1.0 / math.sqrt(1.0 + math.pi / 8.0 * unsure)
    return log_odds(weights[:, 0], shared.odds, float(own.length), drawn)[:, None]


def message(own: Released, shared: Shared, queries: MessageQueries) -> tuple[Released, Message]:
    """A silo's later message, the gradient at its own model. Of two classes the last is of odds."""
    number = int(shared.round)
    model = model_of(own, shared)
    if own.two_classes and number == len(own.precisions):
        at = log_odds(model[:, 0], shared.odds, float(own.length))
        return with_odds_gradient(own, number, at[:, None], queries)
    return with_gradient(own, number, model, float(shared.scale), queries)


def learned(released: Released, shared: Shared) -> dict[str, np.ndarray]:
    """How far silos' models differ, what they leave unexplained, and how sure they are."""
    prior = shared.prior
    deviations = [
        np.sqrt(np.diag(own_covariance(Released(*one), shared)).clip(min=0.0))
        for one in zip(*released, strict=True)
    ]
    return {
        "mean_model": prior.mean,
        "spread": np.sqrt(prior.spread),
        "residual": np.sqrt(prior.residual),
        "standard_errors": np.array(deviations),
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
    last = bool(silos[0].two_classes) and shared.round == len(silos[0].precisions) > 0
    if last:
        weights, matrices = (
            _weights(silos, 1)[0],
            [(axes * values) @ axes.T for values, axes in grams],
        )
        shared = shared._replace(odds=calibrated(silos, matrices, weights, shared.odds))
    # The constant's entry of a vector is 1 / length: its weight is the mean label times that.
    constant = CONSTANTS.usual_square * float(silos[0].length) ** 2
    # Variances with which models would explain labels.
    usual = squares / float(np.trace(shared.gram.mean))
    residual = squares if shared.round == 0 else float(shared.prior.residual)
    for _ in range(2):  # the second with residuals, and blur, of the first's model
        sums = sums_of(silos, grams, shared)
        shared = shared._replace(prior=estimate(sums, residual, constant, usual))
        residual = _residual(silos, sums, shared, squares, error)
    scale = CONSTANTS.clip * math.sqrt(residual + error)
    if silos[0].two_classes and not last:
        shared = shared._replace(odds=odds_of(_mean_label(silos), float(shared.prior.residual)))
    return shared._replace(round=shared.round + 1, scale=np.array(scale))


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


def _mean_label(silos: Sequence[Released]) -> float:
    """Of two classes, the mean label of all records; where noise hides it, 0."""
    weights, total = _weights(silos, 2)
    # The constant's entry of a vector is 1 / length.
    variance = float(weights**2 @ np.array([one.noise[2] ** 2 for one in silos])) / total**2
    means = np.array([one.length * _cross(one)[-1] for one in silos])
    usual = CONSTANTS.usual_mean**2
    return usual / (usual + variance) * float(weights @ means) / total


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
        weights @ np.stack([_cross(one) for one in silos]) / total,
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
