"""Mean squared error."""

from typing import Any

from silodp.data.tasks import Task
from silodp.models.metrics.metric import ErrorMetric


class MeanSquaredError(ErrorMetric):
    """The mean squared error of the target as it was scaled."""

    name = "mse"
    tasks = ("regression",)
    words = "mean squared error"
    short = "MSE"
    meaning = "Mean squared error of the scaled target"
    power_of_unit = 2

    def share(self, task: Task, outputs: Any, y: Any) -> Any:
        """Each record's squared error."""
        return (outputs - y) ** 2


METRIC = MeanSquaredError()
