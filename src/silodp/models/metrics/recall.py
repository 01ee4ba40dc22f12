"""Recall: of the records that are the second class ("yes"), the share that the model finds."""

import math
from typing import Any

import numpy as np

from silodp.data.tasks import Task
from silodp.models.metrics.metric import ShareMetric, namespace, total


class Recall(ShareMetric):
    """The share of positives that are found, at even odds unless costs set another threshold."""

    name = "recall"
    tasks = ("binary",)
    noun = short = "recall"
    words = "recall, the share of the second class that is found"
    meaning = "Share of the records of the second class that the model finds,"
    needs = "a test record of the second class"
    shows_skill = False  # whoever always says yes finds all
    of_decisions = True
    gained = "points of recall gained"

    def value(self, task: Task, outputs: Any, y: Any, weight: Any) -> Any:
        """NaN where no record is positive."""
        xp = namespace(outputs)
        positive = weight * (y > 0)
        found, of = total(positive, task.is_second(outputs) * 1.0), positive.sum(axis=-1)
        return xp.where(of > 0, found / xp.where(of > 0, of, 1), math.nan)

    def has_value(self, y: np.ndarray) -> bool:
        """Whether a record is positive."""
        return bool((y > 0).any())

    def counted(self, task: Task, outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The positives."""
        return y > 0


METRIC = Recall()
