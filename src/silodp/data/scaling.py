"""Scaling of features and targets: by training statistics, or by bounds that were declared.

The first reveals something of the records that no epsilon covers; the second reveals nothing,
because the bounds were fixed before anyone looked.
"""

import numpy as np

from silodp.base.errors import SilodpError

# What the pixels 0 and 255 of an image stand for, by the name of the preprocessing: public bounds.
PIXEL_RANGES: dict[str, tuple[float, float]] = {"paper": (0.0, 1.0), "bounds": (-1.0, 1.0)}
# Squares of larger ones, in the statistics and norms below, could be beyond all numbers.
LARGEST = 1e12

STANDARDISED = (
    "Each silo's numeric features are standardised with the mean and the standard deviation of its "
    "own training records; epsilon does not cover these statistics."
)


def check_features(where: str, x: np.ndarray) -> None:
    """Refuses features that cannot be scaled; `where` names the file, the silo and the field."""
    # The negated form, so that NaN is refused as well.
    if not (np.abs(x) <= LARGEST).all():
        raise SilodpError(
            f"{where} holds NaN, infinite values or values beyond {LARGEST:g}: mend the file."
        )


def standardisation(train: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column; the deviation of a constant column is set to 1.

    Of no record, 0 and 1, with which nothing changes.

    A constant column is found by comparing its values, since rounding in the mean can leave it a
    deviation just above zero, and dividing by that would blow up the test records.
    """
    if not len(train):
        return np.zeros(train.shape[1:]), np.ones(train.shape[1:])
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


def records_to_unit_norm(x: np.ndarray) -> np.ndarray:
    """Each record [d] of `x` [n, d] over its own Euclidean norm; a record of zeros stays so.

    A record becomes what it becomes whatever the others are, so this reveals nothing about them.
    """
    # By the largest feature first, or the squares of tiny ones would vanish.
    largest = np.abs(x).max(axis=1, keepdims=True)
    x = x / np.where(largest == 0, 1.0, largest)
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(norm == 0, 1.0, norm)
