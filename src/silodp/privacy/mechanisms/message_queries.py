"""What a method of few messages may ask of one silo in one round, and no more than is paid for."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from silodp.base.errors import SilodpError
from silodp.models.unit_vectors import UnitVectors
from silodp.privacy.mechanisms.moments import (
    Moments,
    Shares,
    Weights,
    WholeRecords,
    noisy_gradient_of,
    noisy_moments_of,
    odds_residuals,
    softmax_residuals,
    squared_residuals,
    whole_outputs,
)
from silodp.privacy.mechanisms.queries import Schedule
from silodp.privacy.mechanisms.randomness import HostRandom


@dataclass(frozen=True)
class MessageSchedule(Schedule):
    """A schedule of messages in place of training: in each round one, of moments or a gradient.

    Attributes:
      shares: what each message takes of the budget (of 1/z^2, which add up); they sum to 1.
    """

    shares: tuple[float, ...] = ()

    def __post_init__(self):
        super().__post_init__()
        if len(self.shares) != self.rounds or not all(share > 0 for share in self.shares):
            raise SilodpError(f"{self} is no schedule: each message takes a share above 0.")
        if abs(sum(self.shares) - 1.0) > 1e-9:
            raise SilodpError(f"{self} is no schedule: the shares of its messages sum to 1.")

    def noise_of(self, number: int, noise_multiplier: float) -> float:
        """Noise multiplier of message `number`, if that of all together is `noise_multiplier`."""
        return noise_multiplier / math.sqrt(self.shares[number])


class MessageQueries(NamedTuple):
    """What a method of few messages may ask of one silo in one round: one of three questions.

    Attributes:
      vectors: how records become vectors.
      public_count: records (or subjects), as far as it is public.
      noise_multiplier: noise of the message as a whole; 0 without privacy.
      moments: shares of its parts -> second moments, cross moments and label moments, with noise
        (see `moments`).
      gradient: model [size, outputs], scale -> the noisy gradient in units of the scale, at which
        residuals are cut off, and the deviation of its noise in these units.
      odds_gradient: of two classes, a model of log-odds -> the noisy gradient of their loss (see
        `odds_residuals`), and the deviation of its noise.
    """

    vectors: UnitVectors
    public_count: int
    noise_multiplier: float
    moments: Callable[[Shares], Moments]
    gradient: Callable[[Weights, float], tuple[Weights, float]]
    odds_gradient: Callable[[Weights], tuple[Weights, float]]


def message_queries(
    records: WholeRecords,
    vectors: UnitVectors,
    noise_multiplier: float,
    public_count: int,
    random: Callable[[bytes], HostRandom],
) -> MessageQueries:
    """The questions of one round, of which one is answered.

    Args:
      records: the silo's records.
      vectors: how they became vectors.
      noise_multiplier: of the message.
      public_count: see above.
      random: what was asked -> where noise comes from: another question gets other noise.
    """
    asked: list[str] = []
    classes = vectors.classes > 0

    def once(what: str) -> None:
        asked.append(what)
        if len(asked) > 1:
            raise SilodpError(
                f"The method asks for {' and '.join(asked)} in one round, but its schedule pays "
                "for one message: ask in the next round."
            )

    def moments(shares: Shares) -> Moments:
        once("moments")
        if not all(share > 0 for share in shares) or math.fsum(shares) > 1:
            raise SilodpError(f"{shares} are no shares of a message: they sum to 1 at most.")
        own = random(b"moments" + np.array(shares, np.float64).tobytes())
        of_classes = classes or vectors.two_classes
        return noisy_moments_of(records, of_classes, noise_multiplier, shares, own)

    def gradient(model: Weights, scale: float) -> tuple[Weights, float]:
        once("a gradient")
        model = np.asarray(model, np.float64)
        residuals_of = softmax_residuals if classes else squared_residuals
        residuals = residuals_of(records, whole_outputs(records, model), float(scale))
        own = random(b"gradient" + model.tobytes() + np.float64(scale).tobytes())
        return noisy_gradient_of(records, residuals, noise_multiplier, own), noise_multiplier

    def odds_gradient(model: Weights) -> tuple[Weights, float]:
        if not vectors.two_classes:
            raise SilodpError(
                "A method asks for log-odds of two classes, but there are not two classes."
            )
        once("a gradient of log-odds")
        model = np.asarray(model, np.float64)
        residuals = odds_residuals(records, whole_outputs(records, model))
        own = random(b"odds gradient" + model.tobytes())
        return noisy_gradient_of(records, residuals, noise_multiplier, own), noise_multiplier

    return MessageQueries(vectors, public_count, noise_multiplier, moments, gradient, odds_gradient)
