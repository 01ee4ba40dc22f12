"""Who gained, and by how much: one method beside another on the same silos and seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student_t

from silodp.models.metrics import get_metric
from silodp.results.result import Result

CHANCE = 0.05  # chance of calling a gain clear where there is none
_LEAST_SEEDS = 3  # for a standard error that means anything


@dataclass(frozen=True)
class Gain:
    """The gain of one method over another.

    Attributes:
      mean: for errors, the part that is gone; for other metrics, what was added. Above 0 is better;
        NaN where there is nothing to compare.
      error: its standard error over seeds; NaN with fewer than three.
      seeds: number of seeds compared.
    """

    mean: float
    error: float
    seeds: int

    @property
    def clear(self) -> bool:
        """Whether the gain is unlikely to be chance, by Student's t over seeds."""
        if math.isnan(self.error):
            return False
        quantile = float(student_t.ppf(1 - CHANCE / 2, self.seeds - 1))
        return abs(self.mean) > quantile * self.error


def gain(own: Sequence[float | None], other: Sequence[float | None], metric: str) -> Gain:
    """Compares two methods seed by seed: both were trained and tested on the same records.

    None stands for a seed in which a silo has no such metric.
    """
    own_values, others = np.array(own, float), np.array(other, float)
    both = ~np.isnan(own_values) & ~np.isnan(others)
    if not both.any():
        return Gain(math.nan, math.nan, 0)
    gained = get_metric(metric).gains(own_values[both], others[both])
    mean = float(gained.mean())
    if len(gained) < _LEAST_SEEDS:
        return Gain(mean, math.nan, len(gained))
    error = float(gained.std(ddof=1)) / math.sqrt(len(gained))
    return Gain(mean, error, len(gained))


def known_gains(gains: Sequence[Gain]) -> list[Gain]:
    """Gains of the silos that can be compared."""
    return [one for one in gains if not math.isnan(one.mean)]


def gains_by_silo(own: Result, other: Result) -> list[Gain]:
    """Gain of each silo, in the order of the silos."""
    return [
        gain(mine["per_seed"], theirs["per_seed"], own.metric)
        for mine, theirs in zip(own.per_silo, other.per_silo, strict=True)
    ]


def overall(own: Result, other: Result) -> Gain:
    """Gain over all silos, weighted by their test records."""
    return gain(own.test["per_seed"], other.test["per_seed"], own.metric)
