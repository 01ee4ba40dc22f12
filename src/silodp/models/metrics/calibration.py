"""Calibration error: how far probabilities lie from what then happens."""

from typing import Any

from silodp.data.tasks import Task
from silodp.models.metrics.metric import Error, namespace

BINS = 10


class CalibrationError(Error):
    """The expected calibration error: 10 bins of equal width, weighted by their records.

    In each bin, the difference between the mean probability of the second class and its share. Of
    few records it is above 0 even for true probabilities.
    """

    name = "calibration"
    tasks = ("binary",)
    noun = words = short = "calibration error"
    meaning = "Expected calibration error (10 bins)"
    limits = (0.0, 1.0)
    of_probabilities = True
    gained = "reduction of the calibration error"

    def value(self, task: Task, outputs: Any, y: Any, weight: Any) -> Any:
        """NaN of no record."""
        xp = namespace(outputs)
        chance = xp.exp(task.log_chances(outputs)[:, 1])
        bins = xp.clip(xp.floor(BINS * chance), 0, BINS - 1)
        within = (bins[:, None] == xp.arange(BINS)) * 1.0
        off = xp.where(weight > 0, weight * (chance - (y > 0)), 0.0) @ within
        return abs(off).sum(axis=-1) / weight.sum(axis=-1)


METRIC = CalibrationError()
