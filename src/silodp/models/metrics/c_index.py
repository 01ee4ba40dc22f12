"""Harrell's C-index: how often the subject at higher risk has its event first."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from silodp.data.tasks import Task
from silodp.models.metrics.metric import Metric


class CIndex(Metric):
    """The share of pairs in which the one at higher risk came first; equal risks count half.

    A pair counts if it is known who came first: the earlier time is that of an event (of two equal
    times, exactly one is). No mean over records: each is in many pairs.
    """

    name = "c_index"
    tasks = ("hazard",)
    better = "higher"
    noun = "C-index"
    words = "Harrell's C-index"
    short = "C-index"
    meaning = "Harrell's C-index"
    needs = "two test records of which it is known whose event came first"
    limits = (0.0, 1.0)
    gained = "C-index gained"

    def value(self, task: Task, outputs: Array, y: Array, present: Array) -> Array:
        """NaN where no pair counts."""
        # The cumulative hazard up to the last cut point.
        risk = jax.nn.softplus(outputs).sum(-1)
        time, event = y[:, 2], y[:, 3] > 0

        def of_one(own: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
            own_risk, own_time, own_event, there = own
            later = (time > own_time) | ((time == own_time) & ~event)
            counts = there & own_event & present & later
            right = jnp.where(own_risk > risk, 1.0, jnp.where(own_risk == risk, 0.5, 0.0))
            return jnp.sum(jnp.where(counts, right, 0.0)), jnp.sum(counts.astype(jnp.float32))

        # Record by record: all pairs at once would not fit memory.
        right, pairs = jax.lax.map(of_one, (risk, time, event, present))
        bad = jnp.isnan(jnp.where(present, risk, 0.0)).any()  # a model that diverged
        return jnp.where((pairs.sum() > 0) & ~bad, right.sum() / pairs.sum(), jnp.nan)

    def has_value(self, y: np.ndarray) -> bool:
        """Whether an event is known to come before another record's time."""
        if not len(y) or not (y[:, 3] > 0).any():
            return False
        first = y[y[:, 3] > 0, 2].min()
        return bool(((y[:, 2] > first) | ((y[:, 2] == first) & (y[:, 3] == 0))).any())


METRIC = CIndex()
