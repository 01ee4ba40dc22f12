"""Mean deviance: twice the loss of the task's usual model."""

from functools import cache
from typing import Any

import jax
import numpy as np

from silodp.config.choices import TaskName
from silodp.data.tasks import Task
from silodp.models.losses import usual_loss
from silodp.models.metrics.metric import ErrorMetric, namespace


class Deviance(ErrorMetric):
    """Twice how much less likely labels are to a model than to one that knows them.

    Of counts it is the mean Poisson deviance, 2 (y log(y / m) - y + m) where m are expected; of
    classes and times -2 log of the probability of what was seen.
    """

    name = "deviance"
    tasks = ("count", "ordinal", "hazard")
    noun = "deviance"
    words = "mean deviance"
    short = "deviance"
    meaning = "Mean deviance"

    def share(self, task: Task, outputs: Any, y: Any) -> Any:
        """Each record's unit deviance."""
        if namespace(outputs) is not np:
            return 2.0 * usual_loss(task.name)(outputs, y)
        # Losses are JAX's: compiled once for records up to a power of two.
        rows = 1 << max(0, len(y) - 1).bit_length()
        padded = [np.resize(a, (rows, *a.shape[1:])) for a in (outputs, y)]
        return 2.0 * np.asarray(_compiled(task.name)(*padded), np.float64)[: len(y)]


@cache
def _compiled(task: TaskName) -> Any:
    return jax.jit(usual_loss(task))


METRIC = Deviance()
