"""Root mean squared error: the squared error in the target's own unit."""

from typing import Any

from silodp.data.tasks import Task
from silodp.models.metrics.metric import Error, namespace, total


class RootMeanSquaredError(Error):
    """The root of a silo's mean squared error; over silos, the mean of their roots."""

    name = "rmse"
    tasks = ("regression",)
    words = "root mean squared error"
    short = "RMSE"
    meaning = "Root mean squared error of the scaled target"
    power_of_unit = 1

    def value(self, task: Task, outputs: Any, y: Any, weight: Any) -> Any:
        """NaN of no record."""
        mean = total(weight, (outputs - y) ** 2) / weight.sum(axis=-1)
        return namespace(outputs).sqrt(mean)


METRIC = RootMeanSquaredError()
