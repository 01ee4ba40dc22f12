"""What silos have released, in arrays of fixed shapes: they travel, and wait on disks."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from silodp.methods.fewround.constants import CONSTANTS
from silodp.privacy.mechanisms.message_queries import MessageQueries
from silodp.privacy.mechanisms.moments import Shares

Scalar = Float[np.ndarray, ""]
# With a leading axis of silos, where all of them are held together.
Square = Float[np.ndarray, "*silos size size"]
Weights = Float[np.ndarray, "*silos size outputs"]


class Message(NamedTuple):
    """A silo's message: moments in its first round, a gradient in each later one; else zeros.

    Attributes:
      length: what the silo's records were divided by (see `UnitVectors`).
      two_classes: 1 if labels are -1 and 1.
      records: how many there are, as far as that is public; 0 if these are no moments.
      gram: noisy sum of x x'.
      cross: noisy sum of x y'.
      labels: noisy sum of y^2; of two classes, of y; of several, their counts.
      noise: deviations of the noise of these three.
      gradient: noisy sum of x r', r the residuals in their own unit.
      at: the model that it was taken at.
      precision: one over the variance of its noise; 0 if it is none.
    """

    length: Scalar
    two_classes: Scalar
    records: Scalar
    gram: Square
    cross: Weights
    labels: Float[np.ndarray, "*silos labels"]
    noise: Float[np.ndarray, "*silos 3"]
    gradient: Weights
    at: Weights
    precision: Scalar


class Released(NamedTuple):
    """All that a silo has released, or all silos: the moments, and a place for each later message.

    Attributes are those of `Message`, with axes of later messages where there is one a round.
    """

    length: Scalar
    two_classes: Scalar
    records: Scalar
    gram: Square
    cross: Weights
    labels: Float[np.ndarray, "*silos labels"]
    noise: Float[np.ndarray, "*silos 3"]
    gradients: Float[np.ndarray, "*silos messages size outputs"]
    at: Float[np.ndarray, "*silos messages size outputs"]
    precisions: Float[np.ndarray, "*silos messages"]


# What a residual may be in its own unit, and noise in its deviations; and how many more records
# there may be than is public, by coins or where that is a stand-in: so many times, and so many.
_LONGEST_RESIDUAL, _MOST_DEVIATIONS = 3.0, 12.0
_TIMES_AS_MANY, _MORE = 4.0, 20.0
_MOMENTS = 7  # fields of both, which come with the first message


def nothing_released(size: int, outputs: int, messages: int) -> Released:
    """A silo before its first message, in a run of so many."""
    zero, weights = np.zeros(()), np.zeros((size, outputs))
    later = np.zeros((messages - 1, size, outputs))
    return Released(
        length=zero,
        two_classes=zero,
        records=zero,
        gram=np.zeros((size, size)),
        cross=weights,
        labels=np.zeros(outputs),
        noise=np.zeros(3),
        gradients=later,
        at=later,
        precisions=np.zeros(messages - 1),
    )


def no_message(own: Released) -> Message:
    """The message of a silo that has nothing to say."""
    zero, none = np.zeros(()), np.zeros_like(own.cross)
    return Message(
        length=own.length,
        two_classes=own.two_classes,
        records=zero,
        gram=np.zeros_like(own.gram),
        cross=none,
        labels=np.zeros_like(own.labels),
        noise=np.zeros(3),
        gradient=none,
        at=none,
        precision=zero,
    )


def with_moments(own: Released, parts: Shares, queries: MessageQueries) -> tuple[Released, Message]:
    """A silo's first message, and what it has released then."""
    moments, vectors = queries.moments(parts), queries.vectors
    said = {
        "length": np.array(float(vectors.length)),
        "two_classes": np.array(float(vectors.two_classes)),
        "records": np.array(float(queries.public_count)),
        **moments._asdict(),
    }
    return own._replace(**said), no_message(own)._replace(**said)


def with_gradient(
    own: Released, number: int, at: Weights, scale: float, queries: MessageQueries
) -> tuple[Released, Message]:
    """A silo's message of round `number`, the gradient at that model, and what it has released."""
    gradient, noise = queries.gradient(at, scale)
    return _with(own, number, at, scale * gradient, scale * noise)


def with_odds_gradient(
    own: Released, number: int, at: Weights, queries: MessageQueries
) -> tuple[Released, Message]:
    """Likewise of log-odds, at that model of them."""
    return _with(own, number, at, *queries.odds_gradient(at))


def _with(
    own: Released, number: int, at: Weights, gradient: Weights, noise: float
) -> tuple[Released, Message]:
    precision = np.array(1.0 / max(noise**2, CONSTANTS.smallest))
    message = no_message(own)._replace(gradient=gradient, at=at, precision=precision)
    return _kept(own, message, number), message


def _kept(own: Released, message: Message, number: int) -> Released:
    gradients, at, precisions = (part.copy() for part in (own.gradients, own.at, own.precisions))
    gradients[..., number - 1, :, :] = message.gradient
    at[..., number - 1, :, :] = message.at
    most = 1.0 / CONSTANTS.smallest
    precisions[..., number - 1] = np.clip(message.precision, 0.0, most)
    return own._replace(gradients=gradients, at=at, precisions=precisions)


def merged_into(
    released: Released, messages: Message, weights: Float[np.ndarray, " silos"], number: int
) -> Released:
    """What all silos have released, after the messages of round `number`.

    A silo of weight 0 has sent none; without its moments, no later one counts either.
    """
    here = (weights > 0) & _plausible(released, messages, number)
    if number == 0:
        moments = {name: getattr(messages, name) for name in Released._fields[:_MOMENTS]}
        moments["records"] = np.where(here, messages.records, 0.0)
        return released._replace(**moments)
    precision = np.where(here & (released.records > 0), messages.precision, 0.0)
    return _kept(released, messages._replace(precision=precision), number)


def _plausible(released: Released, messages: Message, number: int) -> Bool[np.ndarray, " silos"]:
    """Which messages are no longer than so many records and their noise make them.

    Where another machine has sent them, they may be anything.
    """
    size = messages.gram.shape[-1]
    records = released.records if number else messages.records
    most_records = _TIMES_AS_MANY * records + _MORE

    def length(part: np.ndarray) -> np.ndarray:
        return np.sqrt((part.reshape(len(part), -1) ** 2).sum(axis=1))

    if number > 0:
        deviation = 1.0 / np.sqrt(np.maximum(messages.precision, CONSTANTS.smallest))
        most = _LONGEST_RESIDUAL * most_records + _MOST_DEVIATIONS * size * deviation
        return (messages.precision >= 0) & (length(messages.gradient) <= most)
    parts = (messages.gram, messages.cross, messages.labels)
    fine = (messages.records > 0) & (messages.noise >= 0).all(axis=1) & (messages.length > 0)
    for part, noise in zip(parts, messages.noise.T, strict=True):
        fine &= length(part) <= most_records + _MOST_DEVIATIONS * size * noise
    return fine


def each_of(released: Released) -> Sequence[Released]:
    """Silo by silo, those that have released their moments."""
    return [
        Released(*(part[place] for part in released))
        for place in np.flatnonzero(released.records > 0)
    ]
