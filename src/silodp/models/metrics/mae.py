"""Mean absolute error."""

from typing import Any

import numpy as np

from silodp.data.tasks import Task
from silodp.models.metrics.metric import ErrorMetric


class MeanAbsoluteError(ErrorMetric):
    """The mean absolute error of the target as it was scaled."""

    name = "mae"
    tasks = ("regression",)
    words = "mean absolute error"
    short = "MAE"
    meaning = "Mean absolute error of the scaled target"
    power_of_unit = 1

    def share(self, task: Task, outputs: Any, y: Any) -> Any:
        """Each record's absolute error."""
        return abs(outputs - y)

    def no_skill(self, task: Task, y: np.ndarray, num_classes: int) -> np.ndarray | None:
        """The median: no constant has a smaller absolute error."""
        return np.array(np.median(y) if len(y) else 0.0)


METRIC = MeanAbsoluteError()
