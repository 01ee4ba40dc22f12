"""How far silos' models are expected to be from the best ones, in closed form.

If all silos have the same second moments H, all decouples in the axes of H: along an axis of
eigenvalue h, what silo k says of its weight has the error

    v_k = residual / (n_k h) + noise_k / (n_k h)^2

beside weights that differ between silos by `spread` and have a mean of variance `usual`
beforehand. The mean is then known up to e = 1 / (1 / usual + sum 1 / (spread + v_k)), and a silo's
weight up to spread v_k / (spread + v_k) + (v_k / (spread + v_k))^2 e.

Before a run it needs nothing but public numbers and assumptions (`after_messages`); after a run,
what the messages have said (`expected_errors`). It leaves out what it costs to find out `spread`
and `residual` themselves, and that silos' second moments differ.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import erf

from silodp.methods.fewround.constants import CONSTANTS
from silodp.privacy.mechanisms.moments import Shares

Vector = Float[np.ndarray, " size"]
OfSilos = Float[np.ndarray, " silos"]


class Truth(NamedTuple):
    """What models are assumed to be like, for vectors of length 1 and labels from -1 to 1.

    Attributes:
      values: eigenvalues of the second moments of vectors, which all silos share.
      usual: variance of the mean weight along each axis, beforehand.
      spread: variance of weights between silos.
      residual: variance of labels that the best models leave unexplained.
    """

    values: Vector
    usual: Vector | float
    spread: float
    residual: float


class Errors(NamedTuple):
    """Expected squared errors of predictions above those of the best model of a silo.

    Attributes:
      own: of each silo's own model.
      pooled: of the mean model, in each silo.
      kept: what part of what is its own a silo's model keeps; 0 is the mean model.
    """

    own: OfSilos
    pooled: OfSilos
    kept: OfSilos


def expected_errors(truth: Truth, counts: OfSilos, noise: OfSilos) -> Errors:
    """The errors, where cross moments of silos have noise of these variances.

    Args:
      truth: see `Truth`.
      counts: records of each silo, as far as they are public.
      noise: variances.
    """
    own_sums = np.maximum(counts[:, None] * truth.values, CONSTANTS.smallest)
    variance = truth.residual / own_sums + noise[:, None] / own_sums**2
    total = truth.spread + variance
    mean = 1.0 / (1.0 / truth.usual + (1.0 / np.maximum(total, CONSTANTS.smallest)).sum(axis=0))
    shrunk = variance / np.maximum(total, CONSTANTS.smallest)
    own = (truth.spread * shrunk + shrunk**2 * mean) @ truth.values
    pooled = np.full(len(counts), float((truth.spread + mean) @ truth.values))
    kept = (1.0 - shrunk) @ truth.values / float(truth.values.sum())
    return Errors(own, pooled, kept if truth.spread > 0 else np.zeros(len(counts)))


def gradient_noise(noise_multiplier: OfSilos, residual: float) -> OfSilos:
    """Variances of the noise that a message of a gradient leaves on cross moments.

    Residuals are cut off at so many of their deviations, and what is left of the gradient is made
    as long as it would have been.
    """
    scale = CONSTANTS.clip * math.sqrt(residual) / float(erf(CONSTANTS.clip / math.sqrt(2)))
    return (scale * noise_multiplier) ** 2


def after_messages(
    truth: Truth, counts: OfSilos, noise_multiplier: OfSilos, shares: Sequence[float], parts: Shares
) -> Errors:
    """The errors after a run of messages, before anything is known of the records.

    Args:
      truth: what is assumed.
      counts: records of each silo, as far as they are public.
      noise_multiplier: of all messages of a silo together.
      shares: what each message takes of the budget.
      parts: how the first one is divided.
    """
    first = noise_multiplier / math.sqrt(shares[0])
    gram, cross = (first / math.sqrt(part) for part in (parts.gram, parts.cross))
    # Directions in which features vary less than the noise on pooled second moments are hidden by
    # it: weights there come out too small. Each gradient finds a part of what is missing.
    quiet = counts**2 / np.maximum(gram**2, CONSTANTS.smallest)
    floor = math.sqrt(len(truth.values) / float(quiet.sum()))
    hidden = np.maximum(0.0, 1.0 - truth.values / floor)
    noise = cross**2
    errors = expected_errors(truth, counts, noise)
    usual = np.broadcast_to(truth.usual, truth.values.shape)
    missed = float((hidden**2 * usual) @ truth.values)
    for number, share in enumerate(shares[1:], start=2):
        unexplained = truth.residual + float(errors.own.mean()) + missed
        later = gradient_noise(noise_multiplier / math.sqrt(share), unexplained)
        noise = 1.0 / (1.0 / np.maximum(noise, CONSTANTS.smallest) + 1.0 / later)
        errors = expected_errors(truth, counts, noise)
        missed = float((hidden ** (2 * number) * usual) @ truth.values)
    return errors._replace(own=errors.own + missed, pooled=errors.pooled + missed)
