"""Cohen's kappa with quadratic weights, of ordered classes, in each silo by itself."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from silodp.data.tasks import Task
from silodp.models.metrics.metric import Metric


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

    def value(self, task: Task, outputs: Array, y: Array, present: Array) -> Array:
        """NaN where labels and predictions are all of one class."""
        there = present.astype(jnp.float32)
        records = there.sum()
        ranks, labels = (a.astype(jnp.float32) for a in (task.ranks(outputs), y))
        seen = jnp.sum(there * (ranks - labels) ** 2) / records
        # The mean over all pairs of a prediction and a label, by moments.
        means = [jnp.sum(there * a) / records for a in (ranks, labels)]
        spreads = [
            jnp.sum(there * (a - mean) ** 2) / records
            for a, mean in zip((ranks, labels), means, strict=True)
        ]
        chance = spreads[0] + spreads[1] + (means[0] - means[1]) ** 2
        return jnp.where(chance > 0, 1 - seen / chance, jnp.nan)

    def has_value(self, y: np.ndarray) -> bool:
        """Whether labels differ."""
        return len(y) > 0 and bool(y.max() > y.min())


METRIC = QuadraticKappa()
