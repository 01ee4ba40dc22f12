"""Log-odds of two classes, from the models of the mean label -1..1 that least squares find.

As if features of both classes were Gaussian with one covariance (linear discriminants): least
squares then find the direction that parts them, and the log-odds are, of a share p of the second
class, m = 2 p - 1, and a mean square `residual` that is left,

    2 (prediction - m) / residual + m d / 2 + log(p / (1 - p)),
    d = (4 p (1 - p) - residual) / (residual p (1 - p)), the squared distance of the classes

Features with outliers make these too sure. So silos use log-odds of which a part is kept, and are
asked for the gradient of their loss at such a model, as their last message. What it is along the
models themselves, of all silos together, says which part is best.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from silodp.methods.fewround.constants import CONSTANTS
from silodp.methods.fewround.released import Released, Scalar, Square

Vector = Float[np.ndarray, " size"]

# No share of a class is taken to be nearer to 0 or 1.
_ONE_SIDED = 0.998


class Odds(NamedTuple):
    """How a model of the mean label becomes log-odds: base + kept (factor model + offset).

    Attributes:
      base: log-odds of the share of the second class.
      factor: see above.
      offset: of the constant.
      kept: part of what hangs on the features that is kept.
      curvature: of the loss between the asked model and the best, in units of second moments; 0 as
        long as nothing was asked.
    """

    base: Scalar
    factor: Scalar
    offset: Scalar
    kept: Scalar
    curvature: Scalar


def no_odds() -> Odds:
    """Where there are no two classes, or nothing is known."""
    return Odds(*([np.zeros(())] * 5))


def odds_of(mean: float, residual: float) -> Odds:
    """Those of linear discriminants, of which a safe part is kept.

    Args:
      mean: mean label.
      residual: mean square that models leave.
    """
    mean = float(np.clip(mean, -_ONE_SIDED, _ONE_SIDED))
    second = (1.0 + mean) / 2.0
    residual = min(residual, 4.0 * second * (1.0 - second))
    explained = 4.0 * second * (1.0 - second) - residual
    distance = explained / (residual * second * (1.0 - second))
    return Odds(
        np.array(math.log(second / (1.0 - second))),
        np.array(2.0 / residual),
        np.array(mean * distance / 2.0 - 2.0 * mean / residual),
        np.array(_safe_part(second)),
        np.zeros(()),
    )


def _safe_part(second: float) -> float:
    """What part of log-odds is kept before it is known: half way, in logarithms, to the least.

    The loss is nowhere more curved than where p = 1/2, by 1/2; at the constant model it is by
    min(p, 1 - p). Discriminants go as far as if it were this everywhere.
    """
    return math.sqrt(2.0 * min(second, 1.0 - second))


def log_odds(model: Vector, odds: Odds, length: float, drawn: float = 1.0) -> Vector:
    """The weights of the log-odds; `drawn` of what is kept, where the model is unsure."""
    weights = float(odds.factor) * model
    weights[-1] += length * float(odds.offset)
    weights *= float(odds.kept) * drawn
    weights[-1] += length * float(odds.base)
    return weights


def _deviation(own: Released, odds: Odds) -> Vector:
    """How far the asked model is from the share of all: kept (factor model + offset)."""
    at = own.at[-1, :, 0].copy()
    at[-1] -= float(own.length) * float(odds.base)
    return at


def calibrated(
    silos: Sequence[Released],
    grams: Sequence[Square],
    weights: Float[np.ndarray, " silos"],
    odds: Odds,
) -> Odds:
    """With the part that is best, by all silos' gradients at the asked models.

    Let D(t) be minus the slope of the loss along the models, where a part t is kept. Known are D(0)
    and its slope there, from second moments, and D at the part that was asked for, with noise. The
    best part is where (D(0) + a t) / (1 + b t), which passes through all three, is 0.
    """
    asked, factor = float(odds.kept), float(odds.factor)
    share = 1.0 / (1.0 + math.exp(-float(odds.base)))
    larger, smaller = max(share, 1.0 - share), min(share, 1.0 - share)
    length = float(silos[0].length)
    # What is released of the label, for deviations from the share of all: 2 p - 1 less the offset.
    shift = length * (float(odds.offset) + factor * (2.0 * share - 1.0))
    square = start = found = noise = 0.0
    for own, gram, weight in zip(silos, grams, weights, strict=True):
        if own.precisions[-1] <= 0:
            continue
        deviation = _deviation(own, odds) / asked
        of_label = deviation.copy()
        of_label[-1] -= shift
        square += weight * float(deviation @ gram @ deviation)
        start += weight * float(deviation @ gram @ of_label) / (factor * 2.0 * larger)
        found += weight * float(deviation @ own.gradients[-1, :, 0])
        noise += weight**2 * float(deviation @ deviation) / float(own.precisions[-1])
    if start <= 0 or square <= 0:
        return odds._replace(curvature=np.array(smaller))
    slope = -smaller * square
    # Beforehand, a part between the asked one and all of the discriminants is taken to be best.
    likely = math.sqrt(asked)
    bend = -slope / start * likely - 1.0
    bend /= likely
    expected = start * (1.0 - asked / likely) / (1.0 + max(bend, -0.9) * asked)
    usual = (CONSTANTS.usual_slope * start) ** 2
    found = expected + usual / (usual + noise) * (found - expected)
    found = min(found, 0.9 * start)
    bend = (found - start - slope * asked) / (asked * (start - found))
    fall = slope + start * bend
    best = -start / fall if fall < 0 else CONSTANTS.most_kept
    best = float(np.clip(best, CONSTANTS.least_kept, CONSTANTS.most_kept))
    middle = 1.0 + bend * (best + asked) / 2.0
    curvature = smaller / middle**2 if middle > 0 else 1.0
    curvature = float(np.clip(curvature, smaller / 4.0, 1.0))
    return odds._replace(kept=np.array(best), curvature=np.array(curvature))


def mean_model(own: Released, odds: Odds) -> Vector:
    """The model of the mean label whose log-odds the asked ones are."""
    model = _deviation(own, odds) / float(odds.kept)
    model[-1] -= float(own.length) * float(odds.offset)
    return model / float(odds.factor)


def as_cross(own: Released, gram: Square, odds: Odds) -> tuple[Vector, float]:
    """A silo's gradient as cross moments of the label, and the variance of their noise."""
    times = 1.0 / (float(odds.curvature) * float(odds.kept) * float(odds.factor))
    cross = gram @ mean_model(own, odds) + times * own.gradients[-1, :, 0]
    return cross, times**2 / float(own.precisions[-1])
