"""Mean absolute error of ranks, of ordered classes."""

from typing import Any

from silodp.data.tasks import Task
from silodp.models.metrics.metric import ErrorMetric


class RankError(ErrorMetric):
    """By how many classes a prediction is off, on average."""

    name = "rank_error"
    tasks = ("ordinal",)
    noun = "error of ranks"
    words = "mean absolute error of ranks"
    short = "MAE of ranks"
    of_decisions = True
    meaning = "Mean number of classes by which a prediction is off"

    def share(self, task: Task, outputs: Any, y: Any) -> Any:
        """Each record's distance."""
        return abs(task.ranks(outputs) * 1.0 - y)

    def most(self, num_classes: int) -> float:
        """From the lowest to the highest."""
        return num_classes - 1.0


METRIC = RankError()
