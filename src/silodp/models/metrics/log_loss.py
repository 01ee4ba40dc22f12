"""Log loss: minus the logarithm of the probability that the right class was given."""

from typing import Any

from silodp.data.tasks import Task
from silodp.models.metrics.metric import ErrorMetric, namespace


class LogLoss(ErrorMetric):
    """The cross-entropy of labels, in nats: what logistic and softmax regression make small."""

    name = "log_loss"
    tasks = ("binary", "multiclass")
    noun = words = short = "log loss"
    meaning = "Log loss (minus the logarithm of the right class's probability)"
    of_probabilities = True
    gained = "reduction of log loss"

    def share(self, task: Task, outputs: Any, y: Any) -> Any:
        """Each record's."""
        logs = task.log_chances(outputs)
        return -namespace(outputs).where(task.one_hot(y, logs.shape[-1]), logs, 0.0).sum(axis=-1)


METRIC = LogLoss()
