"""Brier score: the squared error of probabilities."""

from typing import Any

from silodp.data.tasks import Task
from silodp.models.metrics.metric import ErrorMetric, namespace


class BrierScore(ErrorMetric):
    """The squared error of the probability of the second class; of more, summed over classes."""

    name = "brier"
    tasks = ("binary", "multiclass")
    noun = words = short = "Brier score"
    meaning = "Brier score (squared error of probabilities)"
    of_probabilities = True
    gained = "reduction of the Brier score"

    def share(self, task: Task, outputs: Any, y: Any) -> Any:
        """Each record's squared error: from 0 to 1 of two classes, to 2 of more."""
        chances = namespace(outputs).exp(task.log_chances(outputs))
        errors = (chances - task.one_hot(y, chances.shape[-1])) ** 2
        return errors.sum(axis=-1) / (2 if chances.shape[-1] == 2 else 1)

    def most(self, num_classes: int) -> float:
        """1 of two classes, 2 of more."""
        return 1.0 if num_classes <= 2 else 2.0


METRIC = BrierScore()
