"""Mean squared error."""

from jax import Array

from silodp.data.tasks import Task
from silodp.models.metrics.metric import ErrorMetric


class MeanSquaredError(ErrorMetric):
    """The mean squared error of the target as it was scaled."""

    name = "mse"
    tasks = ("regression",)
    words = "mean squared error"
    short = "MSE"
    meaning = "Mean squared error of the scaled target"

    def share(self, task: Task, outputs: Array, y: Array) -> Array:
        """Each record's squared error."""
        return (outputs - y) ** 2


METRIC = MeanSquaredError()
