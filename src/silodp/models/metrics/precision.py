"""Precision: of the records of which the model says "yes", the share that are the second class."""

import math
from typing import Any

import numpy as np

from silodp.data.tasks import Task
from silodp.models.metrics.metric import ShareMetric, namespace, total


class Precision(ShareMetric):
    """The share of positives among those that are called so; 0 where nothing is called so."""

    name = "precision"
    tasks = ("binary",)
    noun = short = "precision"
    words = "precision, the share of the second class among what is called so"
    meaning = "Share of the second class among what the model calls so,"
    of_decisions = True
    gained = "points of precision gained"

    def value(self, task: Task, outputs: Any, y: Any, weight: Any) -> Any:
        """NaN of no record; 0 where the model never says yes, as in scikit-learn."""
        xp = namespace(outputs)
        called = weight * task.is_second(outputs)
        right, of = total(called, (y > 0) * 1.0), called.sum(axis=-1)
        share = xp.where(of > 0, right / xp.where(of > 0, of, 1), 0.0)
        return xp.where(weight.sum(axis=-1) > 0, share, math.nan)

    def counted(self, task: Task, outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
        """What is called positive."""
        return task.is_second(outputs)


METRIC = Precision()
