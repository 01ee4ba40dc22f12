"""Average precision: the area under the curve of precision over recall, as steps."""

import math
from typing import Any

import numpy as np

from silodp.data.tasks import Task
from silodp.models.metrics.auc import places, summed
from silodp.models.metrics.metric import Metric, namespace


class AveragePrecision(Metric):
    """The mean, over positives, of the precision at a threshold that just includes each of them.

    A constant has the share of positives. Unlike AUC it says how well few positives among many
    records are found.
    """

    name = "average_precision"
    tasks = ("binary",)
    better = "higher"
    noun = words = short = "average precision"
    meaning = "Average precision of finding the second class"
    needs = "a test record of the second class"
    limits = (0.0, 1.0)
    gained = "average precision gained"

    def value(self, task: Task, outputs: Any, y: Any, weight: Any) -> Any:
        """NaN where no record is positive."""
        xp = namespace(outputs)
        order, below, _ = places(outputs)
        weight, y = (weight * 1.0)[..., order], y[order]
        positive = xp.where(y > 0, weight, 0.0)
        found, called = summed(positive), summed(weight)
        found, called = found[..., -1:] - found[..., below], called[..., -1:] - called[..., below]
        precision = xp.where(called > 0, found / xp.where(called > 0, called, 1), 0.0)
        yes = positive.sum(axis=-1)
        sums = (positive * precision).sum(axis=-1)
        return xp.where(yes > 0, sums / xp.where(yes > 0, yes, 1), math.nan)

    def has_value(self, y: np.ndarray) -> bool:
        """Whether a record is positive."""
        return bool((y > 0).any())


METRIC = AveragePrecision()
