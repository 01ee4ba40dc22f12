"""R²: the part of the targets' variance that a model explains, in each silo by itself."""

import math
from typing import Any

import numpy as np

from silodp.data.tasks import Task
from silodp.models.metrics.metric import Metric, namespace, total


class RSquared(Metric):
    """1 less the squared error over the variance of a silo's test targets.

    No mean over records: each of them moves the variance that all are measured by. Where targets do
    not vary it has no value, and a constant that is not their mean is below 0.
    """

    name = "r2"
    tasks = ("regression",)
    better = "higher"
    noun = short = "R²"
    words = "R², the part of the variance that is explained"
    meaning = "R², the part of the target's variance that the model explains,"
    needs = "two test records with different targets"
    limits = (-math.inf, 1.0)
    gained = "R² gained"

    def value(self, task: Task, outputs: Any, y: Any, weight: Any) -> Any:
        """NaN where the labels that are there do not differ."""
        xp = namespace(outputs)
        mean = total(weight, y) / weight.sum(axis=-1)
        errors = total(weight, (outputs - y) ** 2)
        varied = total(weight, (y - mean[..., None]) ** 2)
        # The mean is rounded: equal labels may seem to vary about it.
        lowest = xp.where(weight > 0, y, math.inf).min(axis=-1, initial=math.inf)
        highest = xp.where(weight > 0, y, -math.inf).max(axis=-1, initial=-math.inf)
        vary = highest > lowest
        return xp.where(vary, 1 - errors / xp.where(vary, varied, 1), math.nan)

    def has_value(self, y: np.ndarray) -> bool:
        """Whether labels differ."""
        return len(y) > 0 and bool(y.max() > y.min())


METRIC = RSquared()
