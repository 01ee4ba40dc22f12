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
from silodp.methods.fewround.findings import findings, nothing_found
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
from silodp.methods.fewround.odds import (
    Odds,
    as_cross,
    calibrated,
    log_odds,
    mean_model,
    no_odds,
    odds_of,
)
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
# By how much more of their variance models vary by chance, since the rest is cut off.
_CUT_OFF = CONSTANTS.clip**2 * (1.0 - _KEPT) + _KEPT
_CUT_OFF -= CONSTANTS.clip * math.sqrt(2 / math.pi) * math.exp(-(CONSTANTS.clip**2) / 2)
_MORE_SCATTER = _CUT_OFF / _KEPT**2 - 1.0

# Times that covariances and what they blur are worked out in turn.
_BLURS = 2


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
    prior = Prior(vector, zeros, np.zeros(()), one, np.zeros(()), zeros)
    return Shared(np.zeros(()), PooledGram(zeros, zeros, zeros), prior, one, no_odds())


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
        said = _said(own, (own_axes * own_values) @ own_axes.T, shared)
        crosses.append(said.precisions @ said.cross / said.precisions.sum())
        noises.append(1.0 / said.precisions.sum())
    values, axes = (np.stack(part) for part in zip(*grams, strict=True))
    return Sums(values, axes, np.array(crosses), np.array(noises))


class _Said(NamedTuple):
    """What a silo's messages say of its cross moments, the first one's last.

    Attributes:
      precisions: of each.
      at: the model that each was asked at; of the first, 0.
      cross: by each.
    """

    precisions: Float[np.ndarray, " messages"]
    at: Float[np.ndarray, "messages size"]
    cross: Float[np.ndarray, "messages size"]


def _said(own: Released, own_gram: Square, shared: Shared) -> _Said:
    precisions = np.append(own.precisions * _KEPT**2, _first_precision(own, shared))
    at = np.concatenate([own.at[:, :, 0], np.zeros((1, len(own_gram)))])
    later = own.gradients[:, :, 0] / _KEPT + own.at[:, :, 0] @ own_gram
    if shared.odds.curvature > 0 and own.precisions[-1] > 0:
        at[-2] = mean_model(own, shared.odds)
        later[-1], variance = as_cross(own, own_gram, shared.odds)
        precisions[-2] = 1.0 / max(variance, CONSTANTS.smallest)
    return _Said(precisions, at, np.concatenate([later, _cross(own)[None]]))


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
    said = _said(own, np.zeros_like(shared.gram.mean), shared)
    at = said.precisions @ said.at / said.precisions.sum()
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
    if not own.two_classes:
        return weights
    drawn = _drawn(float((own_covariance(own, shared) * shared.gram.mean).sum()), shared.odds)
    return log_odds(weights[:, 0], shared.odds, float(own.length), drawn)[:, None]


def _drawn(variance: float, odds: Odds) -> float:
    """What part of log-odds is kept where predictions of the mean label have that variance.

    Where the model is unsure, so are its log-odds: they are drawn to the share of all (D. MacKay.
    The evidence framework applied to classification networks. Neural Computation, 1992).
    """
    unsure = float(odds.factor * odds.kept) ** 2 * variance
    return 1.0 / math.sqrt(1.0 + math.pi / 8.0 * unsure)


def message(own: Released, shared: Shared, queries: MessageQueries) -> tuple[Released, Message]:
    """A silo's later message, the gradient at its own model. Of two classes the last is of odds."""
    number = int(shared.round)
    model = model_of(own, shared)
    if own.two_classes and number == len(own.precisions):
        at = log_odds(model[:, 0], shared.odds, float(own.length))
        return with_odds_gradient(own, number, at[:, None], queries)
    return with_gradient(own, number, model, float(shared.scale), queries)


def learned(released: Released, shared: Shared) -> dict[str, np.ndarray]:
    """How far silos' models differ, what they leave unexplained, and how sure they are.

    For all of it see `findings`, and `results.few_messages` for what it is called there. Of two
    classes, models and their errors are of the mean label; `slopes` make log-odds of them.
    """
    prior, gram = shared.prior, shared.gram
    silos, here = [Released(*one) for one in zip(*released, strict=True)], released.records > 0
    models = np.tile(prior.mean, (len(silos), 1))
    found = {"values": np.linalg.eigvalsh(gram.mean), "public_counts": released.records}
    if here.any():
        present = each_of(released)
        sums = sums_of(present, [_gram(own, gram) for own in present], shared)
        models[here] = models_of(sums, prior)
        found |= findings(here, models, sums, prior, gram.mean)
    else:
        found |= nothing_found(len(silos), models.shape[1])
    covariances = (own_covariance(own, shared) for own in silos)
    deviations, predictions = zip(
        *((np.diag(one), float((one * gram.mean).sum())) for one in covariances), strict=True
    )
    slopes = np.ones(len(silos))
    if released.two_classes.any():
        kept = float(shared.odds.factor * shared.odds.kept)
        slopes = np.array([kept * _drawn(variance, shared.odds) for variance in predictions])
    return found | {
        "mean_model": prior.mean,
        "mean_errors": np.sqrt(np.diag(prior.uncertainty).clip(min=0.0)),
        "spread": np.sqrt(prior.spread),
        "expected_spread": np.sqrt(prior.expected_spread),
        "residual": np.sqrt(prior.residual),
        "models": models,
        "standard_errors": np.sqrt(np.array(deviations).clip(min=0.0)),
        "prediction_errors": np.sqrt(np.array(predictions).clip(min=0.0)),
        "slopes": slopes,
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
    sums = sums_of(silos, grams, shared)
    for again in (False, True):  # the second with residuals, and blur, of the first's model
        sums = sums_of(silos, grams, shared) if again else sums
        shared = shared._replace(prior=estimate(sums, residual, constant, usual))
        residual = _residual(silos, sums, shared, squares, error)
    if shared.round == len(silos[0].gradients):  # the last, of which intervals are shown
        shared = _with_uncertainty(silos, grams, shared, squares + error)
    scale = CONSTANTS.clip * math.sqrt(residual + error)
    if silos[0].two_classes and not last:
        shared = shared._replace(odds=odds_of(_mean_label(silos), float(shared.prior.residual)))
    return shared._replace(round=shared.round + 1, scale=np.array(scale))


def _with_uncertainty(
    silos: Sequence[Released], grams: Sequence[Axes], shared: Shared, squares: float
) -> Shared:
    """What is shared, with what the prior's estimates are off, if labels are so large."""
    sums, length = sums_of(silos, grams, shared), float(silos[0].length)
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
