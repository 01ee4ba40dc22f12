"""R²: the part of the targets' variance that a model explains, in each silo by itself."""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array

from silodp.data.tasks import Task
from silodp.models.metrics.metric import Metric


class RSquared(Metric):
    """1 less the squared error over the variance of a silo's test targets.

    No mean over records: each of them moves the variance that all are measured by. Where targets do
    not vary it has no value, and a constant that is not their mean is below 0.
    """

    name = "r2"
    tasks = ("regression",)
    better = "higher"
    noun = short = "R²"
    words = "R², the part of the variance that is explained"
    meaning = "R², the part of the target's variance that the model explains,"
    needs = "two test records with different targets"
    limits = (-math.inf, 1.0)
    gained = "R² gained"

    def value(self, task: Task, outputs: Array, y: Array, present: Array) -> Array:
        """NaN where the labels that are there do not differ."""
        mean = jnp.sum(jnp.where(present, y, 0)) / jnp.sum(present)
        errors = jnp.sum(jnp.where(present, (outputs - y) ** 2, 0))
        varied = jnp.sum(jnp.where(present, (y - mean) ** 2, 0))
        # The mean is rounded: equal labels may seem to vary about it.
        lowest = jnp.min(jnp.where(present, y, jnp.inf), initial=jnp.inf)
        highest = jnp.max(jnp.where(present, y, -jnp.inf), initial=-jnp.inf)
        return jnp.where(highest > lowest, 1 - errors / varied, jnp.nan)

    def has_value(self, y: np.ndarray) -> bool:
        """Whether labels differ."""
        return len(y) > 0 and bool(y.max() > y.min())


METRIC = RSquared()
