"""Train/test splits equal to scikit-learn's, so that the paper's splits can be drawn again.

The authors call `sklearn.model_selection.train_test_split(..., random_state=seed)`. Only its rule
is needed here, not the library.
"""

import math

import numpy as np

from silodp.errors import SilodpError
from silodp.federation import Records

MAX_SEED = 2**32 - 1


def check_seed(seed: int) -> None:
    """Refuses a seed that numpy's legacy generator cannot take."""
    if (
        isinstance(seed, bool)
        or not isinstance(seed, int | np.integer)
        or not 0 <= seed <= MAX_SEED
    ):
        raise SilodpError(
            f"Seed {seed!r} cannot be used: give a whole number from 0 to {MAX_SEED}."
        )


def check_test_fraction(test_fraction: float) -> None:
    """Refuses a fraction that would leave no training records or no test records."""
    if (
        isinstance(test_fraction, bool)
        or not isinstance(test_fraction, int | float)
        or not 0 < test_fraction < 1
    ):
        raise SilodpError(
            f"test_fraction is {test_fraction!r}, which does not lie between 0 and 1: give the "
            "share of records to keep for testing, such as 0.2."
        )


def train_test_split(n: int, test_fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training and of the test records among `n`, as scikit-learn draws them.

    The number of test records is `ceil(test_fraction * n)`. A part may come out empty when `n` is
    tiny: the caller, who knows the silo's name, says so.
    """
    check_test_fraction(test_fraction)
    check_seed(seed)
    num_test = math.ceil(test_fraction * n)
    # The legacy generator on purpose: it is what scikit-learn draws from for an integer seed.
    order = np.random.RandomState(seed).permutation(n)
    return order[num_test:], order[:num_test]


def subject_split(
    subject: np.ndarray, test_fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training and of the test records, all of a subject's on one side.

    The subjects, numbered from 0, are split as `train_test_split` splits records.
    """
    _, test_subjects = train_test_split(len(np.unique(subject)), test_fraction, seed)
    tested = np.isin(subject, test_subjects)
    return np.flatnonzero(~tested), np.flatnonzero(tested)


def split_records(records: Records, test_fraction: float, seed: int) -> tuple[Records, Records]:
    """The training and the test records: split by subject where subjects are known.

    A part may come out empty, as with `train_test_split`.
    """
    if records.subject is None:
        train, test = train_test_split(len(records), test_fraction, seed)
    else:
        train, test = subject_split(records.subject, test_fraction, seed)
    return records.take(train), records.take(test)
