"""Checks of what is released: each a number that was measured, and how likely it is by chance.

A p-value is the chance that a run which does what is planned looks at least so strange. A check
that looks at many places (coordinates, pairs of rounds) takes the strangest, times how many there
are. `judged` then shares the chance of a false alarm between all checks (C. Bonferroni, 1936):
whatever depends on what, an honest run fails any of them with a chance of at most FALSE_ALARM.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special, stats

FALSE_ALARM = 1e-3
"""The chance that any of the checks of an honest run fails."""


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
      name: what is checked.
      kind: what it looks at: "noise", "batches", "clip", "selections", "claim" or "low bits".
      measured: what was seen, where it is strangest.
      expected: what a run that does what is planned would show.
      p_value: how likely that is for such a run.
      passed: whether it is likely enough.
    """

    name: str
    measured: str
    expected: str
    p_value: float
    passed: bool = True
    kind: str = ""


def judged(checks: Sequence[Check]) -> tuple[Check, ...]:
    """The checks with their verdicts."""
    limit = FALSE_ALARM / max(1, len(checks))
    # What is not a number is nothing that an honest run gives.
    return tuple(replace(check, passed=bool(check.p_value >= limit)) for check in checks)


def exactly(name: str, holds: bool, measured: str, expected: str) -> Check:
    """A check of what cannot be otherwise by chance."""
    return Check(name, measured, expected, 1.0 if holds else 0.0)


def strangest(p_values: np.ndarray) -> tuple[int, float]:
    """The place of the least p-value, and the chance that any of so many is as small."""
    flat = np.nan_to_num(np.asarray(p_values, float).ravel(), nan=0.0)
    place = int(np.argmin(flat))
    return place, float(min(1.0, flat[place] * len(flat)))


# A kurtosis as low as that of a fair coin is taken for this much.
_LEAST_EXCESS = -1.9


def of_variance(
    squares: np.ndarray | float, count: np.ndarray | float, excess: float = 0.0, more: float = 1.0
) -> np.ndarray:
    """Two-sided p-values of sums of squares of `count` standardised numbers.

    Args:
      squares: the sums; about `count`, if all is as planned.
      count: number of terms of each.
      excess: kurtosis of one number beyond a normal one's.
      more: the variance may be up to this.
    """
    # A sum of squares of what is nearly normal is nearly a chi-square one: with normal numbers
    # exactly, otherwise with as many degrees of freedom as give its variance.
    # (A fair coin's squares do not vary at all: there a little is allowed for all the same.)
    shrunk = 2.0 / (2.0 + np.maximum(excess, _LEAST_EXCESS))
    low = special.chdtr(count * shrunk, squares * shrunk)
    high = special.chdtrc(count * shrunk, squares * shrunk / more)
    return np.minimum(1.0, 2 * np.minimum(low, high))


def of_count(hits: np.ndarray | int, trials: np.ndarray | int, rate: float) -> np.ndarray:
    """Two-sided p-values of how often something of that rate happened."""
    below = stats.binom.cdf(hits, trials, rate)
    above = stats.binom.sf(np.asarray(hits) - 1, trials, rate)
    return np.minimum(1.0, 2 * np.minimum(below, above))


def of_correlation(correlation: np.ndarray, count: float) -> np.ndarray:
    """Two-sided p-values of the correlation of `count` pairs of independent numbers."""
    r = np.clip(np.asarray(correlation, float), -1.0, 1.0)
    with np.errstate(divide="ignore"):
        t = r * np.sqrt((count - 2) / (1 - r**2))
    return 2 * special.stdtr(count - 2, -np.abs(t))


def correlations(rows: np.ndarray) -> np.ndarray:
    """Correlations of any two rows [n, numbers], about 0: the upper triangle, as a list."""
    length = np.sqrt(np.sum(rows**2, axis=1))
    unit = rows / np.where(length > 0, length, 1.0)[:, None]
    return (unit @ unit.T)[np.triu_indices(len(rows), 1)]


def pair(number: int, rows: int) -> tuple[int, int]:
    """Which two rows the entry of that number in `correlations` is about."""
    first, second = np.triu_indices(rows, 1)
    return int(first[number]), int(second[number])
