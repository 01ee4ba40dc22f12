"""Scaling of features and targets: by training statistics, or by bounds that were declared.

The first tells something about the records that no epsilon covers; the second tells nothing,
because the bounds were fixed before anyone looked.
"""

import numpy as np

STANDARDISED = (
    "Each silo's numeric features are standardised with the mean and the standard deviation of its "
    "own training records; epsilon does not cover these statistics."
)


def standardisation(train: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column; the deviation of a constant column is set to 1.

    A constant column is found by comparing its values, since rounding in the mean can leave it a
    deviation just above zero, and dividing by that would blow up the test records.
    """
    constant = train.min(axis=0) == train.max(axis=0)
    mean = np.where(constant, train[0], train.mean(axis=0))
    deviation = train.std(axis=0)
    return mean, np.where(constant | (deviation == 0), 1.0, deviation)


def standardise(x: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Columns less their mean, over their standard deviation."""
    return (x - mean) / deviation


def bounds_to_unit(x: np.ndarray, low: np.ndarray | float, high: np.ndarray | float) -> np.ndarray:
    """Values clipped into [low, high] and scaled to [0, 1]."""
    return (np.clip(x, low, high) - low) / (np.asarray(high) - low)


def bounds_to_symmetric(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Values clipped into [low, high] and scaled to [-1, 1]."""
    return 2 * bounds_to_unit(x, low, high) - 1
