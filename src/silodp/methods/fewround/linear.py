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
    gram_of_silo,
    pooled_gram,
)
from silodp.methods.fewround.hierarchy import Prior, Sums, covariance_of, estimate, models_of
from silodp.models.unit_vectors import UnitVectors
from silodp.privacy.mechanisms.message_queries import MessageQueries

Vector = Float[np.ndarray, " size"]
Square = Float[np.ndarray, "size size"]
# Eigenvalues and axes of second moments.
Axes = tuple[Vector, Square]

# Of residuals like those of a Gaussian, the share that is not cut off: what the gradient of the
# cut-off residuals is too small by.
_KEPT = float(erf(CONSTANTS.clip / math.sqrt(2)))

# No share of a class is taken to be nearer to 0 or 1.
_ONE_SIDED = 0.998


class Released(NamedTuple):
    """All that one silo has released.

    Attributes:
      vectors: how its records became vectors, which is public.
      records: how many there are, as far as that is public.
      gram: noisy sum of x x'.
      cross: noisy sum of x y.
      labels: noisy sum of y^2.
      noise: deviations of the noise of these three.
      later: cross moments from each gradient since [messages, size].
      later_noise: deviations of the noise of these [messages].
    """

    vectors: UnitVectors
    records: float
    gram: Square
    cross: Vector
    labels: float
    noise: Float[np.ndarray, "3"]
    later: Float[np.ndarray, "messages size"]
    later_noise: Float[np.ndarray, " messages"]


class Shared(NamedTuple):
    """What the server sends: all that a silo needs to work out its own model.

    Attributes:
      round: number of the round that it is for.
      gram: pooled second moments.
      prior: what silos have in common.
      scale: what residuals are cut off at.
    """

    round: int
    gram: PooledGram
    prior: Prior
    scale: float


def nothing_shared(size: int) -> Shared:
    """Before the first message."""
    zeros = np.zeros((size, size))
    return Shared(0, PooledGram(zeros, zeros), Prior(np.zeros(size), zeros, 0.0, 1.0), 1.0)


def first_server(shape: tuple[int, ...]) -> "Server":
    """The server before the first message, for parameters of that shape."""
    return Server([], [], nothing_shared(shape[0]))


class FirstMessage(NamedTuple):
    """The moments, with what is public of the records."""

    vectors: UnitVectors
    records: float
    gram: Square
    cross: Vector
    labels: float
    noise: Float[np.ndarray, "3"]


class LaterMessage(NamedTuple):
    """A gradient, in units of the scale of residuals; the model that it is at; and its noise."""

    gradient: Vector
    at: Vector
    noise: float


def answer(
    own: Released | None, shared: Shared, queries: MessageQueries
) -> tuple[Released, FirstMessage | LaterMessage]:
    """A silo's message of the round, and all that it has released by then."""
    if own is None:
        moments = queries.moments(CONSTANTS.parts)
        count = float(queries.public_count)
        sums = (moments.gram, moments.cross[:, 0], float(moments.labels[0]), moments.noise)
        first = FirstMessage(queries.vectors, count, *sums)
        return _begun(first), first
    gram = _gram(own, shared.gram)
    model = models_of(sums_of([own], [gram], shared), shared.prior)[0]
    gradient, noise = queries.gradient(model[:, None], shared.scale)
    message = LaterMessage(gradient[:, 0], model, noise)
    return _with(own, gram, message, shared), message


def _begun(first: FirstMessage) -> Released:
    none = np.zeros((0, len(first.cross)))
    return Released(*first, later=none, later_noise=np.zeros(0))


def _with(own: Released, gram: Axes, message: LaterMessage, shared: Shared) -> Released:
    """What was released, with one message more."""
    scale, (values, axes) = shared.scale / _KEPT, gram
    cross = scale * message.gradient + axes @ (values * (axes.T @ message.at))
    return own._replace(
        later=np.concatenate([own.later, cross[None]]),
        later_noise=np.append(own.later_noise, scale * message.noise),
    )


def _gram(own: Released, pooled: PooledGram) -> Axes:
    return gram_of_silo(own.gram, float(own.noise[0]), own.records, pooled)


def sums_of(silos: Sequence[Released], grams: Sequence[Axes], shared: Shared) -> Sums:
    """What all messages of these silos say together, as `hierarchy` takes it."""
    crosses, noises = [], []
    mean = shared.prior.mean
    for own in silos:
        # What is not known of a silo's second moments blurs what its cross moments say, but
        # little of what a gradient says, which is taken near the model.
        variance = entry_variance(own.noise[:1] / own.records, len(mean))[0]
        between = shared.gram.between
        unknown = between * variance / np.maximum(between + variance, CONSTANTS.smallest)
        blur = own.records**2 * float((unknown @ mean**2).mean())
        variances = np.array([own.noise[1] ** 2 + blur, *own.later_noise**2])
        precisions = 1.0 / np.maximum(variances, CONSTANTS.smallest)
        said = np.concatenate([own.cross[None], own.later])
        crosses.append(precisions @ said / precisions.sum())
        noises.append(1.0 / precisions.sum())
    values, axes = (np.stack(part) for part in zip(*grams, strict=True))
    return Sums(values, axes, np.array(crosses), np.array(noises))


def _sums_of_one(own: Released, shared: Shared) -> Sums:
    return sums_of([own], [_gram(own, shared.gram)], shared)


def own_model(own: Released, shared: Shared) -> Vector:
    """The model that a silo uses."""
    return models_of(_sums_of_one(own, shared), shared.prior)[0]


def own_covariance(own: Released, shared: Shared) -> Square:
    """How uncertain that model is."""
    return covariance_of(_sums_of_one(own, shared), shared.prior)


def personal(own: Released, shared: Shared) -> Float[np.ndarray, "size 1"]:
    """Weights of the model that a silo uses; of two classes, those of the log-odds."""
    weights = own_model(own, shared)
    if own.vectors.two_classes:
        weights = as_log_odds(weights, own, shared)
    return weights[:, None]


def learned(server: "Server") -> dict[str, np.ndarray]:
    """How far silos' models differ, what they leave unexplained, and how sure they are."""
    prior = server.shared.prior
    deviations = [
        np.sqrt(np.diag(covariance).clip(min=0.0))
        for covariance in (own_covariance(own, server.shared) for own in server.silos)
    ]
    return {
        "mean_model": prior.mean,
        "spread": np.sqrt(prior.spread),
        "residual": np.sqrt(prior.residual),
        "standard_errors": np.array(deviations),
    }


class Server(NamedTuple):
    """What the server holds: all that silos have released, and what it makes of it.

    Attributes:
      silos: what each has released.
      grams: eigenvalues and axes of each one's second moments.
      shared: what is sent.
    """

    silos: list[Released]
    grams: list[Axes]
    shared: Shared


def merged(server: Server, messages: Sequence[FirstMessage | LaterMessage]) -> Server:
    """The server after a round."""
    shared, grams = server.shared, server.grams
    first = [one for one in messages if isinstance(one, FirstMessage)]
    later = [one for one in messages if isinstance(one, LaterMessage)]
    if first:
        silos = [_begun(one) for one in first]
        noise = np.array([one.noise[0] for one in silos])
        counts = np.array([one.records for one in silos])
        gram = pooled_gram(np.stack([one.gram for one in silos]), noise, counts)
        shared = shared._replace(gram=gram)
        grams = [_gram(own, gram) for own in silos]
    else:
        both = zip(server.silos, grams, later, strict=True)
        silos = [_with(own, gram, one, shared) for own, gram, one in both]
    squares, error = _mean_square(silos)
    # The constant's entry of a vector is 1 / length: its weight is the mean label times that.
    constant = CONSTANTS.usual_square * silos[0].vectors.length ** 2
    # Variances with which models would explain labels.
    usual = squares / float(np.trace(shared.gram.mean))
    residual = squares if shared.round == 0 else shared.prior.residual
    for _ in range(2):  # the second with residuals, and blur, of the first's model
        sums = sums_of(silos, grams, shared)
        shared = shared._replace(prior=estimate(sums, residual, constant, usual))
        residual = _residual(silos, sums, shared, squares, error)
    scale = CONSTANTS.clip * math.sqrt(residual + error)
    return Server(silos, grams, Shared(shared.round + 1, shared.gram, shared.prior, scale))


def _mean_square(silos: list[Released]) -> tuple[float, float]:
    """Mean of y^2 over all records, and its standard error by noise.

    Where noise hides it, it is what it usually is; of two classes it is 1.
    """
    if silos[0].vectors.two_classes:
        return 1.0, 0.0
    weights, total = _weights(silos, 2)
    variance = float(weights**2 @ np.array([one.noise[2] ** 2 for one in silos])) / total**2
    mean = float(weights @ np.array([one.labels for one in silos])) / total
    usual, spread = CONSTANTS.usual_square, CONSTANTS.square_spread**2
    share = spread / (spread + variance)
    mean = usual + share * (mean - usual)
    return max(mean, CONSTANTS.least_residual**2), math.sqrt(share * variance)


def _residual(
    silos: list[Released], sums: Sums, shared: Shared, squares: float, error: float
) -> float:
    """Variance of what models leave unexplained, of all records together.

    What the mean model explains counts as far as it is more than noise may make it.
    """
    prior, gram, vectors = shared.prior, shared.gram.mean, silos[0].vectors
    # The first messages' cross moments: those of later ones rest on shrunk second moments.
    weights, total = _weights(silos, 1)
    noises = np.array([one.noise[1] ** 2 for one in silos])
    cross, noise = weights @ np.stack([one.cross for one in silos]) / total, weights**2 @ noises
    noise = float(noise) / total**2
    # About the mean label, whose square would hide a small share that is explained.
    middle = max(0.0, float((vectors.length * cross[-1]) ** 2 - vectors.length**2 * noise))
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
    differing = min(prior.spread * float(np.trace(gram)), 0.5 * variance)
    most = CONSTANTS.most_explained[vectors.two_classes] * variance
    return max(variance - min(share * explained + differing, most), CONSTANTS.least_residual**2)


def _weights(silos: list[Released], part: int) -> tuple[Float[np.ndarray, " silos"], float]:
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
    prior, length = shared.prior, own.vectors.length
    # The constant's entry of a vector is 1 / length, so its second moments say the mean label.
    mean = float(np.clip(shared.gram.mean[-1] @ prior.mean * length, -_ONE_SIDED, _ONE_SIDED))
    second = (1.0 + mean) / 2.0
    residual = min(prior.residual, 4.0 * second * (1.0 - second))
    explained = 4.0 * second * (1.0 - second) - residual
    distance = explained / (residual * second * (1.0 - second))
    # Where the model is unsure, so are its log-odds: they are drawn to the share of all.
    unsure = float((own_covariance(own, shared) * shared.gram.mean).sum()) * (2.0 / residual) ** 2
    drawn = 1.0 / math.sqrt(1.0 + math.pi / 8.0 * unsure)
    odds = drawn * 2.0 * weights / residual
    constant = drawn * (mean * distance / 2.0 - 2.0 * mean / residual)
    odds[-1] += length * (constant + math.log(second / (1.0 - second)))
    return odds
