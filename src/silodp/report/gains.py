"""Who gained, and by how much: one method beside another on the same silos and seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import t as student_t

from silodp.models.metrics import get_metric
from silodp.results.result import Result

CHANCE = 0.05  # chance of calling a gain clear where there is none
_LEAST_SEEDS = 3  # for a standard error that means anything
FEWEST_RECORDS = 30  # test records, of all silos together or of one: of fewer, nothing is clear
_ROUNDING = 1e-6  # differences below this are those of single precision


@dataclass(frozen=True)
class Gain:
    """The gain of one method over another.

    Attributes:
      mean: for errors, the part that is gone; for other metrics, what was added. Above 0 is better;
        NaN where there is nothing to compare.
      error: its standard error over seeds; NaN with fewer than three.
      seeds: number of seeds compared.
      few: whether test records are too few for any gain to be clear: seeds share them.
    """

    mean: float
    error: float
    seeds: int
    few: bool = False

    @property
    def clear(self) -> bool:
        """Whether the gain is unlikely to be chance, by Student's t over seeds."""
        if math.isnan(self.error) or self.few:
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
        replace(
            gain(mine["per_seed"], theirs["per_seed"], own.metric),
            few=few_records(own) or few_in_silo(mine),
        )
        for mine, theirs in zip(own.per_silo, other.per_silo, strict=True)
    ]


def overall(own: Result, other: Result) -> Gain:
    """Gain over all silos, weighted by their test records."""
    one = gain(own.test["per_seed"], other.test["per_seed"], own.metric)
    # What single precision rounds is no gain.
    mean = 0.0 if abs(one.mean) < _ROUNDING else one.mean
    return replace(one, mean=mean, few=few_records(own))


def test_records(result: Result) -> int | None:
    """Test records of all silos together; None where a silo's are secret."""
    counts = [silo["test_records"] for silo in result.per_silo]
    return None if None in counts else sum(counts)


def few_records(result: Result) -> bool:
    """Whether test records are too few for anything to be clear."""
    records = test_records(result)
    return records is not None and records < FEWEST_RECORDS


def few_in_silo(silo: Mapping[str, Any]) -> bool:
    """Whether a silo's test records are too few for anything about it alone to be clear."""
    records = silo["test_records"]
    return records is not None and records < FEWEST_RECORDS
