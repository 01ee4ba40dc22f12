"""Cohen's kappa with quadratic weights, of ordered classes, in each silo by itself."""

import math
from typing import Any

import numpy as np

from silodp.data.tasks import Task
from silodp.models.metrics.metric import Metric, namespace, total


class QuadraticKappa(Metric):
    """1 less the squared error of ranks over that of predictions dealt out at random.

    No mean over records: chance agreement is that of a silo's own predictions and labels.
    """

    name = "kappa"
    tasks = ("ordinal",)
    better = "higher"
    noun = "kappa"
    words = "quadratic weighted kappa"
    short = "kappa"
    meaning = "Quadratic weighted kappa"
    needs = "two test records of different classes"
    limits = (-1.0, 1.0)
    gained = "kappa gained"

    def value(self, task: Task, outputs: Any, y: Any, weight: Any) -> Any:
        """NaN where labels and predictions are all of one class."""
        xp = namespace(outputs)
        ranks, labels, records = task.ranks(outputs) * 1.0, y * 1.0, weight.sum(axis=-1)
        records = xp.where(records > 0, records, 1)
        seen = total(weight, (ranks - labels) ** 2) / records
        # The mean over all pairs of a prediction and a label, by moments.
        rank, label = (total(weight, a) / records for a in (ranks, labels))
        chance = (rank - label) ** 2
        for a, mean in ((ranks, rank), (labels, label)):
            chance = chance + total(weight, (a - mean[..., None]) ** 2) / records
        return xp.where(chance > 0, 1 - seen / xp.where(chance > 0, chance, 1), math.nan)

    def has_value(self, y: np.ndarray) -> bool:
        """Whether labels differ."""
        return len(y) > 0 and bool(y.max() > y.min())


METRIC = QuadraticKappa()
