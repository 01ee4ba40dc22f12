"""Mean deviance: twice the loss of the task's usual model."""

from jax import Array

from silodp.data.tasks import Task
from silodp.models.losses import usual_loss
from silodp.models.metrics.metric import ErrorMetric


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

    def share(self, task: Task, outputs: Array, y: Array) -> Array:
        """Each record's unit deviance."""
        return 2.0 * usual_loss(task.name)(outputs, y)


METRIC = Deviance()
