"""Mean absolute error."""

import jax.numpy as jnp
from jax import Array

from silodp.data.tasks import Task
from silodp.models.metrics.metric import ErrorMetric


class MeanAbsoluteError(ErrorMetric):
    """The mean absolute error of the target as it was scaled."""

    name = "mae"
    tasks = ("regression",)
    words = "mean absolute error"
    short = "MAE"
    meaning = "Mean absolute error of the scaled target"

    def share(self, task: Task, outputs: Array, y: Array) -> Array:
        """Each record's absolute error."""
        return jnp.abs(outputs - y)


METRIC = MeanAbsoluteError()
