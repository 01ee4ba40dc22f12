"""One of several classes to predict: linear discriminants, and Newton steps of softmax regression.

Message 1: every silo's second moments, sums of features by class, and counts. The server makes one
linear discriminant model of all (classes are Gaussian with one covariance); a silo adds the
logarithms of its own class frequencies, which differ most between silos.

Messages 2, 3...: the gradient of the softmax loss at the silo's own model. The curvature of that
loss is taken to be the same for all but for a factor,

    curvature_k = n_k a_k  S (x) C,    S the pooled second moments, C the mean covariance of a
                                       record's predicted class

which draws from the discriminant model give. In the axes of S and C each number of the common model
is corrected by itself, by as much as its likeliest variance says. There is no correction of a
silo's own: single features are less like Gaussians than sums of them, so that curvature is known
too badly, and silos lost more by it than they gained.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from silodp.methods.fewround.constants import CONSTANTS
from silodp.methods.fewround.grams import pooled_gram
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
from silodp.privacy.mechanisms.message_queries import MessageQueries
from silodp.privacy.mechanisms.moments import Shares

Vector = Float[np.ndarray, " size"]

# Draws of a record's scores in each class, by which curvature is averaged.
_DRAWS = 64


class Shared(NamedTuple):
    """What the server sends: all that a silo needs to work out its own model.

    Attributes:
      round: number of the round that it is for.
      discriminants: weights of the common model, before class frequencies.
      frequencies: mean frequencies of the classes, and
      differing: their variance between silos, the mean over classes.
      values: eigenvalues of the pooled second moments, and
      axes: their axes.
      curvature: eigenvalues of the mean covariance of a predicted class, and
      rotation: its axes.
      correction: of the common model, in these axes.
      scale: what residuals are cut off at.
    """

    round: Scalar
    discriminants: Weights
    frequencies: Float[np.ndarray, " classes"]
    differing: Scalar
    values: Vector
    axes: Square
    curvature: Float[np.ndarray, " classes"]
    rotation: Float[np.ndarray, "classes classes"]
    correction: Weights
    scale: Scalar


def nothing_shared(size: int, outputs: int) -> Shared:
    """Before the first message."""
    zeros, none, zero = np.zeros((size, outputs)), np.zeros(outputs), np.zeros(())
    return Shared(
        *(zero, zeros, none, zero, np.zeros(size), np.zeros((size, size)), none),
        *(np.eye(outputs), zeros, np.array(CONSTANTS.class_scale)),
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
    """The silo's class frequencies: its noisy ones, shrunk to those of all."""
    if own.records == 0:  # it was not there for the first message
        return shared.frequencies
    noise = float(own.noise[2] / own.records)
    differing = float(shared.differing)
    share = differing / max(differing + noise**2, CONSTANTS.smallest)
    found = shared.frequencies + share * (own.labels / own.records - shared.frequencies)
    # A class that seems not to be there may be, as far as noise can hide it.
    hidden = 0.5 / own.records + 0.5 * share**0.5 * noise
    found = np.maximum(found, hidden)
    return found / found.sum()


def _start(own: Released, shared: Shared) -> Weights:
    """The discriminant model with the silo's own class frequencies."""
    start = shared.discriminants.copy()
    start[-1] += np.log(own_frequencies(own, shared)) * float(own.length)
    return start


def _activity(own: Released, shared: Shared) -> float:
    """How much of the mean curvature a silo's classes have: of one class alone, nothing."""
    frequencies = own_frequencies(own, shared)
    mixed = 1.0 - float((shared.frequencies**2).sum())
    return (1.0 - float((frequencies**2).sum())) / max(mixed, CONSTANTS.smallest)


class _InAxes(NamedTuple):
    """What messages say of a silo's deviation from its start, in the common axes."""

    curvature: Weights
    cross: Weights
    noise: float


def _in_axes(own: Released, shared: Shared) -> _InAxes:
    activity = float(own.records) * _activity(own, shared)
    curvature = activity * np.outer(shared.values, shared.curvature)
    start, total, cross = _start(own, shared), 0.0, np.zeros_like(curvature)
    for gradient, at, precision in zip(own.gradients, own.at, own.precisions, strict=True):
        turned = shared.axes.T @ gradient @ shared.rotation
        moved = shared.axes.T @ (at - start) @ shared.rotation
        cross += precision * (turned + curvature * moved)
        total += float(precision)
    if total == 0:
        return _InAxes(curvature, cross, np.inf)
    return _InAxes(curvature, cross / total, 1.0 / total)


def model_of(own: Released, shared: Shared) -> Weights:
    """Weights of the model that a silo uses."""
    return _start(own, shared) + shared.axes @ shared.correction @ shared.rotation.T


personal = model_of


def message(own: Released, shared: Shared, queries: MessageQueries) -> tuple[Released, Message]:
    """A silo's later message: the gradient at its own model."""
    model = model_of(own, shared)
    return with_gradient(own, int(shared.round), model, float(shared.scale), queries)


def estimated(released: Released, shared: Shared) -> Shared:
    """What is shared after a round, from all that silos have released."""
    silos = each_of(released)
    shared = _discriminants(silos, shared) if shared.round == 0 else _corrected(silos, shared)
    return shared._replace(round=shared.round + 1)


def _discriminants(silos: Sequence[Released], shared: Shared) -> Shared:
    """The common model after the first messages."""
    counts = np.array([float(one.records) for one in silos])
    noise = np.array([one.noise for one in silos])
    length = float(silos[0].length)
    grams = np.stack([one.gram for one in silos])
    gram = pooled_gram(grams, noise[:, 0], counts, CONSTANTS.class_floor).mean
    # Silos whose noise is beyond what they could say count for less.
    weights = 1.0 / (1.0 + noise[:, 1] ** 2 / counts)
    sums = np.tensordot(weights, np.stack([one.cross for one in silos]), axes=1)
    class_counts = weights @ np.stack([one.labels for one in silos])
    blur = np.sqrt((weights**2 * noise[:, 2] ** 2).sum())
    class_counts = np.maximum(class_counts, max(blur, 1.0))
    frequencies = class_counts / class_counts.sum()
    means = sums[:-1] / class_counts
    within = gram[:-1, :-1] - (means * frequencies) @ means.T
    # Noise makes class means longer, and would make what is within classes too small.
    errors = (weights**2 * noise[:, 1] ** 2).sum() / class_counts**2
    within += np.eye(len(within)) * float(frequencies @ errors)
    values, axes = np.linalg.eigh(within)
    # What noise may give any direction; also of the class means, which were taken off.
    floor = max(np.linalg.eigvalsh(gram)[0], float(np.trace(gram) / counts.sum()))
    values = np.maximum(values, floor)
    slopes = (axes / values) @ axes.T @ means
    # Class means' noise makes scores of the own class too high, by this.
    too_high = errors * float((1.0 / values).sum())
    scores = means.T @ slopes
    kept = _kept(scores, too_high)
    constants = -0.5 * kept * (np.diag(scores) - too_high)
    slopes = kept * slopes
    own = np.stack([one.labels / one.records for one in silos])
    error = (noise[:, 2] / counts)[:, None]
    differing = max(0.0, float(((own - frequencies) ** 2 - error**2).mean()))
    shared = shared._replace(
        discriminants=np.concatenate([slopes, constants[None] * length]),
        frequencies=frequencies,
        differing=np.array(differing),
    )
    # With a higher floor: curvature that is too small would make steps too long.
    gram_values, gram_axes = np.linalg.eigh(pooled_gram(grams, noise[:, 0], counts).mean)
    curvature, rotation = np.linalg.eigh(_curvature(silos, shared, scores, too_high, kept))
    return shared._replace(
        values=gram_values,
        axes=gram_axes,
        curvature=np.maximum(curvature, 0.0),
        rotation=rotation,
    )


def _kept(
    scores: Float[np.ndarray, "classes classes"], too_high: Float[np.ndarray, " classes"]
) -> float:
    """What part of the discriminants to keep, so that probabilities are not too sure.

    Scores part the classes by as much as they say less what noise makes them say; they vary within
    classes by all of it.
    """
    said = float(np.diag(scores).mean() - scores.mean())
    true = said - float(too_high.mean()) * (1.0 - 1.0 / len(scores))
    return float(np.clip(true / max(said, CONSTANTS.smallest), CONSTANTS.least_kept, 1.0))


def _curvature(
    silos: Sequence[Released],
    shared: Shared,
    scores: Float[np.ndarray, "classes classes"],
    too_high: Float[np.ndarray, " classes"],
    kept: float,
) -> Float[np.ndarray, "classes classes"]:
    """Mean covariance of a record's predicted class, by draws from the discriminant model."""
    classes = len(shared.frequencies)
    # Scores of a record differ within its class by slopes' within slopes = means' slopes.
    values, axes = np.linalg.eigh((scores + scores.T) / 2)
    draws = np.random.default_rng(0).normal(size=(_DRAWS, classes))
    noise = kept * draws * np.sqrt(np.maximum(values, 0.0)) @ axes.T
    scores = kept * (scores - np.diag(too_high)) + shared.discriminants[-1] / float(silos[0].length)
    total = np.zeros((classes, classes))
    for own in silos:
        frequencies = own_frequencies(own, shared)
        chances = softmax(scores[:, None] + noise + np.log(frequencies), axis=-1)
        mean = np.einsum("c,cdk->k", frequencies, chances) / _DRAWS
        both = np.einsum("c,cdk,cdl->kl", frequencies, chances, chances) / _DRAWS
        total += float(own.records) * (np.diag(mean) - both)
    return total / sum(own.records for own in silos)


def _corrected(silos: Sequence[Released], shared: Shared) -> Shared:
    """The common correction, after a message of gradients."""
    said = [_in_axes(own, shared) for own in silos]
    curvature = np.stack([one.curvature for one in said])
    # A record's own sampling error has the variance of its curvature.
    error = curvature + np.array([one.noise for one in said])[:, None, None]
    error = np.maximum(error, CONSTANTS.smallest)
    precision = np.maximum((curvature**2 / error).sum(axis=0), CONSTANTS.smallest)
    found = (curvature * np.stack([one.cross for one in said]) / error).sum(axis=0) / precision
    # The correction is 0 beforehand, but for the likeliest variance.
    usual = likeliest_variance(found**2, 1.0 / precision)
    return shared._replace(correction=usual / (usual + 1.0 / precision) * found)


def learned(released: Released, shared: Shared) -> dict[str, np.ndarray]:
    """Each silo's class frequencies with their errors, and the common model before them."""
    silos = [Released(*one) for one in zip(*released, strict=True)]
    differing = float(shared.differing)
    errors = []
    for own in silos:
        noise = float(own.noise[2] / own.records) if own.records > 0 else math.inf
        # A silo of which nothing is known differs from all by what silos differ by.
        errors.append(math.sqrt(differing / (1.0 + differing / noise**2) if noise > 0 else 0.0))
    return {
        "frequencies": np.array([own_frequencies(own, shared) for own in silos]),
        "frequency_errors": np.array(errors),
        "mean_frequencies": shared.frequencies,
        "mean_model": shared.discriminants,
    }
