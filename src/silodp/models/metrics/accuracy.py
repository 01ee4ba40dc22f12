"""Accuracy: the share of records whose class is right."""

from typing import Any

import numpy as np

from silodp.data.tasks import Task
from silodp.models.metrics.metric import MeanMetric, ShareMetric, namespace


class Accuracy(ShareMetric, MeanMetric):
    """The share of records that are classified rightly, in percent; gains are in points."""

    name = "accuracy"
    tasks = ("binary", "multiclass", "ordinal")
    noun = words = short = "accuracy"
    meaning = "Share of right ones"
    of_decisions = True
    companions = ("recall",)
    gained = "points of accuracy gained"

    def share(self, task: Task, outputs: Any, y: Any) -> Any:
        """1 where the class is right."""
        return task.right(outputs, y).astype(namespace(outputs).float32)

    def counted(self, task: Task, outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
        """All records."""
        return np.ones(len(y), bool)

    def most(self, num_classes: int) -> float:
        """1."""
        return 1.0

    def largest(self, bound: float) -> float:
        """1, whatever the bound that was given."""
        return 1.0


METRIC = Accuracy()
