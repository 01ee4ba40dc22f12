"""Train/test splits: by a coin for each record, which epsilon covers, or by all records at once.

By coins (`coin_split`): whether a record is for training follows from that record alone. Why
epsilon then holds for the silo's whole table, and not only for the training records that a split
gave:

Call two tables neighbours if the one has a record more (add-remove), or if they differ in one
record (replace-one); by subject: a subject with all its records, in place of a record.

1. Add-remove. Each record is on the side that the coin of its identity says, and a coin is a fixed
   function of identity, silo name, seed and purpose (`coins.toss`), whatever else is in the table.

   - If the identity is a name (a record's number, a subject, a group) or the record's own time:
     what comes to the table comes to the training records or not, and no other record moves.
   - If it is what the record holds: of n records that are alike, those with numbers 0 to n-1 are in
     the table, and as many are for training as coins of these numbers say. One more of them adds
     the coin of number n alone. (Which of the records that are alike is meant makes no difference:
     they are alike. Two records have one identity only if they are one and the same record to a
     model: see `coins.of_rows`.) Records that are not alike have other identities, but for a
     collision of a hash of 256 bits, which nobody knows how to find.

   So the training records of neighbours are equal or neighbours themselves. Thinning (`density`) is
   a second coin of the same identity, and what is left of neighbours is again equal or neighbours.
   With subjects, all this is said of the records of one subject, which are those that differ.

2. Replace-one is to take a record away and to put another in its place. By 1, the training records
   then differ by one taken away at most, and one added at most. Either of the two may be for
   testing: then one is only taken away, or only added. That is covered as well. No number that is
   used depends on how many training records there are (`ExpectedCounts`), so a record that is not
   there is to every query what a record is whose share in the sum is 0 each time it is drawn: its
   clipped gradient, its score, what it adds to a statistic. Such a record is among those that
   replace-one accounting allows for: it takes each share to be anything within a bound, and 0 is.

So what is (epsilon, delta)-private for neighbouring training records is that for neighbouring
tables. How many are for training is a secret that no query is about; what is public is how many
records the table has (where the policy says so), and what is expected of them.

No silo is refused because its coins left it none to train on, or none to test with: a refusal would
tell how they fell.

By all records at once: drawn from a permutation, as scikit-learn does, so that the paper's splits
can be drawn again (the authors call `sklearn.model_selection.train_test_split(...,
random_state=seed)`; only its rule is needed here); or cut at a time that the records give. One
record more moves others from side to side: no epsilon covers that, and `Federation.uncovered` says
so.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from silodp.base.errors import SilodpError
from silodp.config.data_options import DataOptions
from silodp.data import coins
from silodp.data.federation import ExpectedCounts, Records
from silodp.data.problems import Fault

MAX_SEED = 2**32 - 1
# How far the share of test records may be from the test fraction, where a split goes by time.
MOST_OFF = 0.25
FEWEST_OFF = 20  # of fewer records, shares are coarse

PAPER_SPLIT = (
    "Training and test records were parted by a draw over all records of a silo, as in the paper, "
    "so that one record more moves others; epsilon does not cover this: give --split coin."
)
PAPER_DEAL = (
    "Images were dealt to silos by a draw over all of them, as in the paper, so that one image "
    "more moves others; epsilon does not cover this: give --split coin."
)
TIME_SPLIT = (
    "Training and test records were parted at a time that the records themselves give; epsilon "
    "does not cover this: give --test-from with a date (or number) of your own."
)


def authors_seed(seed: int) -> int:
    """The seed of the authors' split number `seed`: their scripts start at 100, in steps of 1000.

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
    """The silo's training records, thinned where a density is given; some must be left."""
    if density is None:
        return train
    thinned = thin(train, density, seed)
    if not len(thinned):
        raise _nothing_left(name, train, density)
    return thinned


def _nothing_left(name: str, train: Records, density: float) -> Fault:
    unit = "record" if train.subject is None else "subject"
    return Fault(
        f"Silo {name!r}",
        f"has {train.units} {unit}s for training, of which density {density:g} leaves none",
        "give a higher density",
        silo=name,
        rows=len(train),
    )


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


class Parts(NamedTuple):
    """A silo's training and test records, and what is public of their numbers."""

    train: Records
    test: Records
    expected: ExpectedCounts | None = None


def coin_split(
    name: str,
    records: Records,
    identities: Sequence[bytes],
    test_fraction: float,
    seed: int,
    density: float | None = None,
    *,
    groups: Sequence[bytes] | None = None,
    late: np.ndarray | None = None,
    counted: int | None = None,
) -> Parts:
    """The training records, thinned to `density`, and the test records, each by its own coin.

    Either may be empty: a refusal would tell how coins fell.

    Args:
      name: name of the silo.
      records: records of the silo.
      identities: one for each record (or its subject, where these are known); see `coins`.
      test_fraction: share of the records (subjects, groups) that is expected to be for testing.
      seed: seed of the coins.
      density: share of the training records (subjects) that is expected to be used.
      groups: what is tossed for instead of records; a subject may then be on both sides. What it
        has for training is protected as one all the same.
      late: which records are for testing because of their own time; no coin then.
      counted: units that the silo has, if some of them are not among `records`.
    """
    check_test_fraction(test_fraction)
    check_seed(seed)
    if late is None:
        tosses = identities if groups is None else groups
        tested = coins.toss(tosses, test_fraction, "test", name, seed)
    else:
        tested = late
    used = ~tested
    if density is not None:
        check_density(density)
        used &= coins.toss(identities, density, "density", name, seed)
    units = records.units if counted is None else counted
    all_records = units if records.subject is None else len(records)
    expected = expected_counts(units, all_records, test_fraction, density)
    return Parts(records.take(np.flatnonzero(used)), records.take(np.flatnonzero(tested)), expected)


def coin_thin(
    name: str, train: Records, test: Records, identities: Sequence[bytes], density: float, seed: int
) -> Parts:
    """`coin_split` where training and test records are given: thins the training records."""
    check_density(density)
    used = coins.toss(identities, density, "density", name, seed)
    if not used.any():
        raise _nothing_left(name, train, density)
    count = max(1, round(density * train.units))
    expected = ExpectedCounts(count, len(test), train.units)
    return Parts(train.take(np.flatnonzero(used)), test, expected)


def expected_counts(
    units: int, records: int, test_fraction: float, density: float | None = None
) -> ExpectedCounts:
    """The public counts of a split by coins; without subjects units are records."""
    return ExpectedCounts(
        train=max(1, round((1 - test_fraction) * (density or 1.0) * units)),
        test=max(1, records - round((1 - test_fraction) * records)),
        max_count=units,
    )


def split_silo(
    name: str,
    records: Records,
    test_fraction: float,
    seed: int,
    density: float | None = None,
    *,
    time: np.ndarray | None = None,
) -> Parts:
    """Splits by a draw over all records (subjects, where they are known), as in the paper.

    With `time`, of each record, the latest are for testing instead. A subject may then be on both
    sides: what it has for training is protected as one all the same.
    """
    if time is not None:
        train, test = time_split(time, test_fraction)
    elif records.subject is not None:
        train, test = subject_split(records.subject, test_fraction, seed)
    else:
        train, test = train_test_split(len(records), test_fraction, seed)
    if not len(train):
        count, unit = records.units, "record" if records.subject is None else "subject"
        raise Fault(
            f"Silo {name!r}",
            f"has {count} {unit}{'s' * (count != 1)}, too few for training and testing at "
            f"test_fraction {test_fraction:g}",
            "leave the silo out (--exclude-silos), or change test_fraction",
            silo=name,
            rows=len(records),
        )
    share = len(test) / len(records)
    many = len(test) and len(records) >= FEWEST_OFF
    if time is not None and many and abs(share - test_fraction) > MOST_OFF:
        raise Fault(
            f"Silo {name!r}:",
            f"{len(test)} of its {len(records)} records would be for testing at test_fraction "
            f"{test_fraction:g}, since many are of one time",
            f"give finer times, or test_fraction {share:.2g}",
            silo=name,
            rows=len(test),
        )
    return Parts(thin_silo(name, records.take(train), density, seed), records.take(test))


def paper_split(
    name: str,
    records: Records,
    test_fraction: float,
    seed: int,
    paper_seed: int,
    options: DataOptions,
    subjects: Sequence[str] | None = None,
) -> Parts:
    """A silo of the paper's data: split as in the paper, or by coins if options say so.

    Args:
      name: name of the silo.
      records: records of the silo.
      test_fraction: share for testing.
      seed: seed of coins.
      paper_seed: seed of the paper's draw.
      options: the data options; split and density matter here.
      subjects: whom each record is about, where that is protected.
    """
    if options.split != "coin":
        return split_silo(name, records, test_fraction, paper_seed, options.density)
    if subjects is None:
        identities = coins.of_arrays(records.x, records.y)
    else:
        identities = coins.of_texts(subjects)
    return coin_split(name, records, identities, test_fraction, seed, options.density)


def uncovered_by(options: DataOptions, how: str = PAPER_SPLIT) -> tuple[str, ...]:
    """What epsilon does not cover of how the paper's data are parted."""
    return () if options.split == "coin" else (how,)
