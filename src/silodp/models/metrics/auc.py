"""AUC: the area under the ROC curve, the chance to rank a positive above a negative."""

import math
from typing import Any

import numpy as np

from silodp.data.tasks import Task
from silodp.models.metrics.metric import Metric, namespace


class AreaUnderCurve(Metric):
    """The share of pairs of a positive and a negative in which the positive has the larger output.

    A draw counts one half: a constant has 0.5. By ranks, as Mann and Whitney's U.
    """

    name = "auc"
    tasks = ("binary",)
    better = "higher"
    noun = short = "AUC"
    words = "AUC, the chance to rank a record of the second class above one of the first"
    meaning = "AUC, the chance to rank a record of the second class above one of the first,"
    needs = "test records of both classes"
    limits = (0.0, 1.0)
    gained = "AUC gained"

    def value(self, task: Task, outputs: Any, y: Any, weight: Any) -> Any:
        """NaN where records are of one class."""
        xp = namespace(outputs)
        order, below, up_to = places(outputs)
        weight, y = (weight * 1.0)[..., order], y[order]
        positive = xp.where(y > 0, weight, 0.0)
        negatives = summed(xp.where(y > 0, 0.0, weight))
        yes, no = positive.sum(axis=-1), negatives[..., -1]
        # Of the negatives, half of those that are level.
        beaten = (negatives[..., below] + negatives[..., up_to]) / 2
        both = (yes > 0) & (no > 0)
        pairs = (positive * (beaten / xp.where(both, no, 1)[..., None])).sum(axis=-1)
        return xp.where(both, pairs / xp.where(both, yes, 1), math.nan)

    def has_value(self, y: np.ndarray) -> bool:
        """Whether there are both classes."""
        return bool((y > 0).any() and (y <= 0).any())


def places(outputs: Any) -> tuple[Any, Any, Any]:
    """The order of outputs; and in it, of each, how many are below, and how many at most equal."""
    xp = namespace(outputs)
    order = xp.argsort(outputs)
    if not len(outputs):
        return order, order, order
    ranked = outputs[order]
    below, up_to = (xp.searchsorted(ranked, ranked, side=side) for side in ("left", "right"))
    return order, below, up_to


def summed(weight: Any) -> Any:
    """Sums of the first 0, 1, 2... weights: [..., n + 1]."""
    xp = namespace(weight)
    sums = xp.cumsum(weight, axis=-1)
    return xp.concatenate([xp.zeros((*sums.shape[:-1], 1), sums.dtype), sums], axis=-1)


METRIC = AreaUnderCurve()
