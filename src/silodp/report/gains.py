"""Who gained, and by how much: one method beside another on the same silos and seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from silodp.result import Result

CLEARLY = 2.0  # standard errors
_LEAST_SEEDS = 3  # for a standard error that means anything


@dataclass(frozen=True)
class Gain:
    """Of one method over another.

    Attributes:
      mean: of errors, the part that is gone; of accuracies, what was added. Above 0 is better.
      error: its standard error over seeds; NaN with fewer than three.
    """

    mean: float
    error: float

    @property
    def clear(self) -> bool:
        """Whether chance is an unlikely reason."""
        return abs(self.mean) > CLEARLY * self.error  # never so if the error is not known


def gain(own: Sequence[float], other: Sequence[float], metric: str) -> Gain:
    """Seed by seed: both were trained and tested on the same records."""
    own_values, others = np.array(own, float), np.array(other, float)
    better = others - own_values if metric == "mse" else own_values - others
    scale = float(others.mean()) if metric == "mse" else 1.0
    if not scale > 0:  # the other has no error at all
        scale = 1.0
    mean = float(better.mean()) / scale
    if len(better) < _LEAST_SEEDS:
        return Gain(mean, math.nan)
    return Gain(mean, float(better.std(ddof=1)) / math.sqrt(len(better)) / scale)


def gains_by_silo(own: Result, other: Result) -> list[Gain]:
    """In the order of the silos."""
    return [
        gain(mine["per_seed"], theirs["per_seed"], own.metric)
        for mine, theirs in zip(own.per_silo, other.per_silo, strict=True)
    ]


def overall(own: Result, other: Result) -> Gain:
    """Over all silos, weighted by their test records."""
    return gain(own.test["per_seed"], other.test["per_seed"], own.metric)
