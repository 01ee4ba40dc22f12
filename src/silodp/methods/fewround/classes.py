"""One of several classes to predict: linear discriminants, and Newton steps of softmax regression.

Message 1: every silo's second moments, sums of features by class, and counts. The server makes one
linear discriminant model of all (`discriminants`); a silo adds the logarithms of its own class
frequencies (`frequencies`), which differ most between silos.

Messages 2, 3...: the gradient of the softmax loss at the silo's own model. Along the model itself
it is the derivative of the loss by the model's scale, which is chosen anew (`discriminants`). The
curvature of that loss is taken to be the same for all but for a factor,

    curvature_k = n_k a_k  S (x) C,    S the pooled second moments, C the mean covariance of a
                                       record's class

which is more than there is, as far as features tell classes apart: steps are short. In the axes of
S and C each number of the common model is corrected by itself, by as much as the likeliest variance
of numbers like it says. There is no correction of a silo's own: single features are less like
Gaussians than sums of them, so that curvature is known too badly, and silos lost more by it than
they gained.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from silodp.methods.fewround.constants import CONSTANTS
from silodp.methods.fewround.discriminants import Discriminants, discriminants_of
from silodp.methods.fewround.frequencies import (
    PLACES,
    Mixtures,
    frequencies_of,
    frequency_error_of,
)
from silodp.methods.fewround.hierarchy import likeliest_variance
from silodp.methods.fewround.released import (
    Message,
    Released,
    Scalar,
    Square,
    Weights,
    each_of,
    with_gradient,
)
from silodp.methods.fewround.spectra import groups_of
from silodp.privacy.mechanisms.message_queries import MessageQueries
from silodp.privacy.mechanisms.moments import Shares

MODEL = "softmax"


class Shared(NamedTuple):
    """What the server sends: all that a silo needs to work out its own model.

    Attributes:
      round: number of the round that it is for.
      weights: of the common model, before class frequencies.
      frequencies: of the classes, of all records.
      mixtures: how silos' frequencies are distributed.
      scale: what residuals are cut off at.
    """

    round: Scalar
    weights: Weights
    frequencies: Float[np.ndarray, " classes"]
    mixtures: Mixtures
    scale: Scalar


def nothing_shared(size: int, outputs: int) -> Shared:
    """Before the first message."""
    return Shared(
        *(np.zeros(()), np.zeros((size, outputs)), np.zeros(outputs)),
        *(np.zeros((outputs, len(PLACES))), np.array(CONSTANTS.class_scale)),
    )


def parts(own: Released, queries: MessageQueries) -> Shares:
    """How a silo divides its first message: less for second moments that noise would hide.

    These have size^2 numbers. Where their noise is so much larger than what they are that even the
    mean over silos does not show them, the budget is better spent on sums by class.
    """
    noise = queries.noise_multiplier * len(own.gram) ** 1.5 / max(queries.public_count, 1)
    gram = max(0.1, 0.4 / (1.0 + (noise / CONSTANTS.gram_noise) ** 2))
    return Shares(gram, 0.85 - gram, 0.15)


def own_frequencies(own: Released, shared: Shared) -> Float[np.ndarray, " classes"]:
    """The silo's class frequencies, as far as its noisy counts say."""
    if own.records == 0:  # it was not there for the first message
        return shared.frequencies
    return frequencies_of(own, shared.mixtures)


def model_of(own: Released, shared: Shared) -> Weights:
    """Weights of the model that a silo uses."""
    model = shared.weights.copy()
    model[-1] += np.log(own_frequencies(own, shared)) * float(own.length)
    return model


personal = model_of


def message(own: Released, shared: Shared, queries: MessageQueries) -> tuple[Released, Message]:
    """A silo's later message: the gradient at its own model."""
    model = model_of(own, shared)
    return with_gradient(own, int(shared.round), model, float(shared.scale), queries)


def estimated(released: Released, shared: Shared) -> Shared:
    """What is shared after a round, from all that silos have released."""
    silos = each_of(released)
    found = discriminants_of(silos)
    shared = shared._replace(
        round=shared.round + 1,
        weights=found.scale * found.weights,
        frequencies=found.frequencies,
        mixtures=found.mixtures,
    )
    if shared.round == 1:
        return shared
    return shared._replace(weights=shared.weights + _correction(silos, found, shared))


def _correction(silos: Sequence[Released], found: Discriminants, shared: Shared) -> Weights:
    """What the gradients of all silos say that the common model lacks, other than scale."""
    curvature, rotation = np.linalg.eigh(_most_covariance(silos, shared))
    curvature, gram = np.maximum(curvature, 0.0), found.gram
    # What noise hides may be wide: curvature that is too small would make steps too long.
    floor = CONSTANTS.within_floor * gram.edge
    of_record = np.outer(np.maximum(gram.values, floor), curvature)
    right, precision = np.zeros_like(shared.weights), np.zeros_like(shared.weights)
    for own in silos:
        total = float(own.precisions.sum())
        if total == 0:
            continue
        own_curvature = _activity(own, shared) * of_record
        start = model_of(own, shared)
        cross = np.zeros_like(right)
        for gradient, at, weight in zip(own.gradients, own.at, own.precisions, strict=True):
            moved = gram.axes.T @ (at - start) @ rotation
            turned = gram.axes.T @ gradient @ rotation
            cross += weight / total * (turned + own_curvature * moved)
        # A record's own sampling error has the variance of its curvature.
        error = np.maximum(own_curvature + 1.0 / total, CONSTANTS.smallest)
        right += own_curvature * cross / error
        precision += own_curvature**2 / error
    precision = np.maximum(precision, CONSTANTS.smallest)
    # The scale is known better than by this curvature.
    weights = gram.axes.T @ shared.weights @ rotation
    square = float((weights**2 * precision).sum())
    if square > 0:
        right = right - precision * weights * float((weights * right).sum()) / square
    step = right / precision
    correction = np.zeros_like(step)
    groups = groups_of(gram, max(2, round(CONSTANTS.alike / len(curvature))))
    for group in groups:
        # The first axis of curvature, that of all classes alike, has none.
        squares, errors = step[group, 1:] ** 2, 1.0 / precision[group, 1:]
        usual = float((weights[group] ** 2).mean())
        variance = likeliest_variance(squares, errors, usual=max(usual, CONSTANTS.smallest))
        correction[group, 1:] = variance / (variance + errors) * step[group, 1:]
    return gram.axes @ correction @ rotation.T


def _most_covariance(silos: Sequence[Released], shared: Shared) -> Square:
    """The mean covariance of a record's predicted class, if features said nothing.

    It is no larger if they say something: diag(p) - p p' is concave in p.
    """
    total = np.zeros((len(shared.frequencies),) * 2)
    for own in silos:
        frequencies = own_frequencies(own, shared)
        total += float(own.records) * (np.diag(frequencies) - np.outer(frequencies, frequencies))
    return total / sum(float(own.records) for own in silos)


def _activity(own: Released, shared: Shared) -> float:
    """Records of a silo times how much of the mean curvature its classes have: of one, none."""
    frequencies = own_frequencies(own, shared)
    mixed = 1.0 - float((shared.frequencies**2).sum())
    alone = 1.0 - float((frequencies**2).sum())
    return float(own.records) * alone / max(mixed, CONSTANTS.smallest)


def learned(released: Released, shared: Shared) -> dict[str, np.ndarray]:
    """Each silo's class frequencies with their errors, and the common model before them."""
    silos = [Released(*one) for one in zip(*released, strict=True)]
    return {
        "frequencies": np.array([own_frequencies(own, shared) for own in silos]),
        "frequency_errors": np.array([frequency_error_of(own, shared.mixtures) for own in silos]),
        "mean_frequencies": shared.frequencies,
        "mean_model": shared.weights,
    }
