"""Harrell's C-index: how often the subject at higher risk has its event first."""

import math
from typing import Any

import jax
import numpy as np

from silodp.data.tasks import Task
from silodp.models.metrics.metric import Metric, namespace

_ROWS = 256  # of pairs with all others, at a time


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

    def value(self, task: Task, outputs: Any, y: Any, weight: Any) -> Any:
        """NaN where no pair counts."""
        xp, weight = namespace(outputs), weight * 1.0
        # The cumulative hazard up to the last cut point.
        risk = xp.logaddexp(0.0, outputs).sum(-1)
        time, event = y[:, 2], y[:, 3] > 0

        def of_rows(own: Any) -> tuple[Any, Any]:
            """[...] each, over pairs with a row: the weight of those that are right, and of all."""
            own_risk, own_time, own_event, own_weight = own
            later = time > own_time[:, None]
            later |= (time == own_time[:, None]) & ~event
            counts = (own_event[:, None] & later) * 1.0
            ties = 0.5 * (own_risk[:, None] == risk)
            right = counts * xp.where(own_risk[:, None] > risk, 1.0, ties)
            pairs = [(own_weight * (weight @ which.T)).sum(-1) for which in (right, counts)]
            return pairs[0], pairs[1]

        # A few records at a time: all pairs at once would not fit memory.
        columns = (risk, time, event, xp.moveaxis(weight, -1, 0))
        if xp is np:
            blocks = [
                of_rows((*(a[at : at + _ROWS] for a in columns[:3]), weight[..., at : at + _ROWS]))
                for at in range(0, len(time), _ROWS)
            ]
            right, pairs = np.sum(blocks, axis=0)
        else:

            def of_one(own: Any) -> tuple[Any, Any]:
                *of_record, own_weight = own
                return of_rows((*(one[None] for one in of_record), own_weight[..., None]))

            right, pairs = (of.sum(axis=0) for of in jax.lax.map(of_one, columns))
        bad = xp.isnan(xp.where(weight > 0, risk, 0.0)).any(-1)  # a model that diverged
        known = (pairs > 0) & ~bad
        return xp.where(known, right / xp.where(pairs > 0, pairs, 1), math.nan)

    def has_value(self, y: np.ndarray) -> bool:
        """Whether an event is known to come before another record's time."""
        if not len(y) or not (y[:, 3] > 0).any():
            return False
        first = y[y[:, 3] > 0, 2].min()
        return bool(((y[:, 2] > first) | ((y[:, 2] == first) & (y[:, 3] == 0))).any())


METRIC = CIndex()
