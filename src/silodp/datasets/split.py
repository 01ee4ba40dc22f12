"""Train/test splits: by chance, by subject, by group, or by time.

Those by chance equal scikit-learn's, so that the paper's splits can be drawn again: the authors
call `sklearn.model_selection.train_test_split(..., random_state=seed)`. Only its rule is needed
here, not the library.
"""

import math

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from silodp.errors import SilodpError
from silodp.federation import Records

MAX_SEED = 2**32 - 1
# How far the share of test records may be from what was asked for, where a split goes by time.
MOST_OFF = 0.25
GROUP_SEED = 0


def authors_seed(seed: int) -> int:
    """Of the authors' split number `seed`: their scripts start at 100, in steps of 1000.

    Far beyond the numbers that they used, it starts over, as no larger seed can be taken.
    """
    return (100 + 1000 * seed) % (MAX_SEED + 1)


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


def check_density(density: float) -> None:
    """Refuses a share of training records that would leave none, or make up some."""
    if isinstance(density, bool) or not isinstance(density, int | float) or not 0 < density <= 1:
        raise SilodpError(
            f"density is {density!r}, which does not lie above 0 and up to 1: give the share of "
            "training records to use, such as 0.5."
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


def thin(records: Records, density: float, seed: int) -> Records:
    """A random part of the records (of the subjects, where they are known), rounded down.

    The paper thins training records before any statistics are taken of them.
    """
    check_density(density)
    if density == 1:
        return records
    kept = np.random.default_rng([seed, 1]).permutation(records.units)
    kept = kept[: int(density * records.units)]
    if records.subject is None:
        return records.take(kept)
    return records.take(np.flatnonzero(np.isin(records.subject, kept)))


def thin_silo(name: str, train: Records, density: float | None, seed: int) -> Records:
    """The silo's training records, thinned where it is asked for; some must be left."""
    if density is None:
        return train
    thinned = thin(train, density, seed)
    if not len(thinned):
        unit = "record" if train.subject is None else "subject"
        raise SilodpError(
            f"Silo {name!r} has {train.units} {unit}s for training, of which density {density:g} "
            "leaves none: give a higher density."
        )
    return thinned


def time_split(time: np.ndarray, test_fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training and of the test records, every one of these later than all of those.

    The latest `ceil(test_fraction * n)` are for testing. Records of equal time stay together: where
    the cut would part them, it moves to the nearest change of time (to the earlier of two). If all
    are of one time, none is for testing. No seed has a part in it.
    """
    check_test_fraction(test_fraction)
    in_order = np.sort(time)
    changes = np.flatnonzero(in_order[1:] != in_order[:-1]) + 1
    if not len(changes):
        return np.arange(len(time)), np.arange(0)
    cut = len(time) - math.ceil(test_fraction * len(time))
    first_tested = in_order[changes[np.argmin(np.abs(changes - cut))]]
    return np.flatnonzero(time < first_tested), np.flatnonzero(time >= first_tested)


def kept_together(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The number of each record's group if what is alike in either numbering shares a group."""
    edges = (np.ones(len(one)), (one, len(one) + other))  # a record ties its two numbers together
    graph = coo_array(edges, shape=(2 * len(one), 2 * len(one)))
    return np.unique(connected_components(graph, directed=False)[1][one], return_inverse=True)[1]


def split_records(
    records: Records,
    test_fraction: float,
    seed: int,
    *,
    time: np.ndarray | None = None,
    group: np.ndarray | None = None,
) -> tuple[Records, Records]:
    """The training and the test records: split by subject where subjects are known.

    A part may come out empty, as with `train_test_split`.

    Args:
      records: of one silo.
      test_fraction: share of the records (subjects, groups) to keep for testing.
      seed: of the draw.
      time: of each record; the latest are then for testing. A subject may be on both sides: what it
        has for training is protected as one all the same.
      group: the number of each record's group, from 0; groups, and subjects, then stay whole. The
        groups are drawn from a seed of their own, the same for all, because groups differ in size
        and runs of several seeds need as many training records in each.
    """
    if time is not None:
        train, test = time_split(time, test_fraction)
    elif group is not None:
        train, test = subject_split(_whole_groups(records, group), test_fraction, GROUP_SEED)
    elif records.subject is not None:
        train, test = subject_split(records.subject, test_fraction, seed)
    else:
        train, test = train_test_split(len(records), test_fraction, seed)
    return records.take(train), records.take(test)


def split_silo(
    name: str,
    records: Records,
    test_fraction: float,
    seed: int,
    density: float | None = None,
    *,
    time: np.ndarray | None = None,
    group: np.ndarray | None = None,
    may_be_empty: bool = False,
) -> tuple[Records, Records]:
    """The training records, thinned to `density`, and the test records.

    `time` and `group` are as in `split_records`. Neither part may be empty, unless `may_be_empty`:
    where a refusal would tell how many records there are.
    """
    train, test = split_records(records, test_fraction, seed, time=time, group=group)
    if may_be_empty:
        return train, test
    if not len(train) or not len(test):
        count, unit = _what_is_split(records, time, group)
        raise SilodpError(
            f"Silo {name!r} has {count} {unit}{'s' * (count != 1)}, too few for training and "
            f"testing at test_fraction {test_fraction:g}: leave the silo out, give it {unit}s, or "
            "change test_fraction."
        )
    share = len(test) / len(records)
    if time is not None and abs(share - test_fraction) > MOST_OFF:
        raise SilodpError(
            f"Silo {name!r}: {len(test)} of its {len(records)} records would be for testing at "
            f"test_fraction {test_fraction:g}, since many are of one time: give finer times, or "
            f"test_fraction {share:.2g}."
        )
    return thin_silo(name, train, density, seed), test


def _whole_groups(records: Records, group: np.ndarray) -> np.ndarray:
    return group if records.subject is None else kept_together(records.subject, group)


def _what_is_split(
    records: Records, time: np.ndarray | None, group: np.ndarray | None
) -> tuple[int, str]:
    """How many there are of what a split goes by, and what they are called."""
    if time is not None:
        return len(np.unique(time)), "different time"
    if group is not None:
        return len(np.unique(_whole_groups(records, group))), "separate group"
    return records.units, "record" if records.subject is None else "subject"
