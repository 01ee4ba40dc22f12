"""Noisy statistics of a silo, each at a price: moments of features or labels, means of the values
that are there, and means of scores.

All are Gaussian mechanisms on bounded sums, worked out once on the host. Noise multipliers are in
units of what one record can add to the sum. What each record adds is cut off to whole grains before
it is summed, and the noise is a whole number of grains: see `lattice`, whose proof is that of these
sums too.
"""

import math

import numpy as np
from dp_accounting import dp_event
from jaxtyping import Bool, Float, Num, Shaped

from silodp.privacy.mechanisms.randomness import HostRandom

# A feature whose noisy variance is below this is taken to have this much: noise may make it 0.
_LEAST_VARIANCE = 1e-2
# What a record can add has so many grains; fewer where noise would have more than 2^40.
_GRAINS = 2.0**24
_MOST_NOISE = 2.0**40
# What double precision may add to the norm of what a record adds, as a share of it.
_SLACK = 2.0**-30


def gaussian_event(noise_multiplier: float, times: int) -> dp_event.DpEvent:
    """What so many releases with this noise cost."""
    return dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(noise_multiplier), times)


def noisy_moments(
    x: Num[np.ndarray, " records *features"],
    bound: float,
    count: int,
    noise_multiplier: float,
    random: HostRandom,
    subject: Shaped[np.ndarray, " records"] | None = None,
) -> tuple[Float[np.ndarray, "*features"], Float[np.ndarray, "*features"]]:
    """Mean and standard deviation of each feature, from a noisy sum of features and their squares.

    Args:
      x: the training features; values beyond the bound are clipped to it.
      bound: public, on the absolute value of each feature.
      count: what sums are divided by: the number of records (or subjects) as far as it is public.
      noise_multiplier: 0 for no privacy.
      random: where noise comes from.
      subject: whom each record is about: their records then count as one, by their mean.
    """
    flat = x.reshape(len(x), math.prod(x.shape[1:])).astype(np.float64)  # also of no record
    flat = np.clip(flat / bound, -1.0, 1.0)
    # Squares less one half lie within 1/2: what a record can add has norm sqrt(d + d/4) at most.
    added = np.concatenate([flat, flat**2 - 0.5], axis=1)
    if subject is not None:
        added = _by_subject(added, subject)
    sensitivity = math.sqrt(1.25 * flat.shape[1])
    total = _noisy_sum(added, sensitivity, noise_multiplier, random) / count
    mean, square = total[: flat.shape[1]], total[flat.shape[1] :] + 0.5
    mean = np.clip(mean, -1.0, 1.0)
    variance = np.clip(square - mean**2, _LEAST_VARIANCE, 1.0)
    shape = x.shape[1:]
    return (bound * mean).reshape(shape), (bound * np.sqrt(variance)).reshape(shape)


def noisy_present_means(
    x: Num[np.ndarray, "records features"],
    absent: Bool[np.ndarray, "records features"],
    bound: float,
    noise_multiplier: float,
    random: HostRandom,
    subject: Shaped[np.ndarray, " records"] | None = None,
) -> Float[np.ndarray, " features"]:
    """Mean of the values of each feature that are there, from one noisy sum of values and counts.

    How many are there is as secret as they are. So a record adds, for each of the d features, its
    value over the bound and a 1; or two zeros, if the value is missing.

    Sensitivity. With the value within [-1, 1] and the 1, a feature adds a vector of norm sqrt(2) at
    most, and d features sqrt(2 d): that is the most by which one record more or less moves the sum.
    One in the place of another moves it by sqrt(4 d) at most (each feature by 2 where both have a
    value, by sqrt(2) where one has), which is less than twice sqrt(2 d), for which replacing is
    charged. A subject adds the mean of what its records would, which is no longer. What is released
    is this sum with noise of `noise_multiplier` times sqrt(2 d), a Gaussian mechanism; all below
    it, and what missing values are filled with, follows from what was released.

    Counts that are within their own noise say nothing: the sum is divided by at least twice the
    noise's deviation, so that means then go to 0, the middle.

    Args:
      x: the training features; values beyond the bound are clipped to it.
      absent: where a value is missing; what `x` holds there has no part in it.
      bound: public, on the absolute value of each feature.
      noise_multiplier: 0 for no privacy.
      random: where noise comes from.
      subject: whom each record is about.

    Returns:
      means [features] within the bound.
    """
    present = ~absent
    values = np.where(present, np.clip(x.astype(np.float64) / bound, -1.0, 1.0), 0.0)
    added = np.concatenate([values, present.astype(np.float64)], axis=1)
    if subject is not None:
        added = _by_subject(added, subject)
    features = x.shape[1]
    sensitivity = math.sqrt(2 * features)
    total = _noisy_sum(added, sensitivity, noise_multiplier, random)
    least = 2 * noise_multiplier * sensitivity if noise_multiplier else 1.0
    return bound * np.clip(total[:features] / np.maximum(total[features:], least), -1.0, 1.0)


# What a vector within the unit ball and its squared norm less one half, side by side, may have.
LABEL_SENSITIVITY = math.sqrt(1.25)


def noisy_label_moments(
    labels: Num[np.ndarray, "records outputs"],
    count: int,
    noise_multiplier: float,
    random: HostRandom,
    subject: Shaped[np.ndarray, " records"] | None = None,
) -> tuple[Float[np.ndarray, " outputs"], float]:
    """Mean of labels and of their squared norms, from one noisy sum.

    Labels beyond the unit ball are brought back to it. What is released is not clipped, so that it
    is right on average. Other arguments as for `noisy_moments`; each released number has noise of
    standard deviation noise_multiplier * LABEL_SENSITIVITY / count.
    """
    labels = labels.astype(np.float64)
    labels = labels / np.maximum(1.0, np.linalg.norm(labels, axis=1, keepdims=True))
    added = np.concatenate([labels, (labels**2).sum(axis=1, keepdims=True) - 0.5], axis=1)
    if subject is not None:
        added = _by_subject(added, subject)
    total = _noisy_sum(added, LABEL_SENSITIVITY, noise_multiplier, random) / count
    # The halves that were taken off are as many as there are records.
    return total[:-1], float(total[-1]) + 0.5


def noisy_metric(
    totals: Float[np.ndarray, "*scores"],
    largest: float,
    public_count: int,
    max_count: int,
    noise_multiplier: float,
    random: HostRandom,
) -> Float[np.ndarray, "*scores"]:
    """Means of a score over test records, from its totals, each with noise.

    The totals are those of `models.model.metric_value`, exact but for three roundings to single
    precision (of the total, times `largest`, over the records). On two neighbours these are up to
    6 * 2^-24 of `max_count` records' scores, and cutting off to a grain moves by up to 2 * 2^-24 of
    one: 2^-21 of `max_count` records' scores pays for both.

    Args:
      totals: totals of the scores, each from 0 to `largest`.
      largest: score of a record.
      public_count: test records as far as it is public: to divide by how many there really are
        would tell it.
      max_count: test records that there may be, which is public.
      noise_multiplier: 0 for no privacy.
      random: where noise comes from.
    """
    if noise_multiplier == 0:
        return totals / public_count
    grain, deviation = _lattice(largest * (1 + max_count * 2.0**-21), noise_multiplier)
    whole = np.trunc(totals / grain) + random.rounded_gaussian(deviation, totals.shape)
    return whole * grain / public_count


def noisy_mean_of_scores(
    scores: Float[np.ndarray, " records"],
    low: float,
    high: float,
    count: int,
    noise_multiplier: float,
    random: HostRandom,
    subject: Shaped[np.ndarray, " records"] | None = None,
    centre: float | None = None,
) -> float:
    """The mean of scores from `low` to `high`, each from its own record alone, with noise.

    Scores are taken from `centre`: from the middle, a record adds half of what lies between the
    ends, and no more. The noise has standard deviation `noise_of_mean`. What is released is not
    clipped.

    Args:
      scores: of each record.
      low: the smallest score.
      high: the largest score.
      count: what sums are divided by: the number of records (or subjects) as far as it is public.
      noise_multiplier: 0 for no privacy.
      random: where noise comes from.
      subject: whom each record is about: their records then count as one, by their mean.
      centre: what stands for a record that is not there; by default the middle. What is released is
        above it just where the mean is, but for noise, whatever the true number of records.
    """
    middle = (low + high) / 2 if centre is None else centre
    added = (np.clip(scores, low, high) - middle)[:, None]
    if subject is not None:
        added = _by_subject(added, subject)
    most = largest_from(low, high, centre)
    return middle + float(_noisy_sum(added, most, noise_multiplier, random)[0]) / count


def largest_from(low: float, high: float, centre: float | None = None) -> float:
    """The most that a score lies from the centre, by default from the middle."""
    return (high - low) / 2 if centre is None else max(high - centre, centre - low)


def _by_subject(
    added: Float[np.ndarray, "records numbers"], subject: Shaped[np.ndarray, " records"]
) -> Float[np.ndarray, "subjects numbers"]:
    """What each subject adds: the mean of what its records would."""
    means = [added[subject == one].mean(axis=0) for one in np.unique(subject)]
    return np.reshape(means, (-1, added.shape[1]))


def _noisy_sum(
    added: Float[np.ndarray, "rows numbers"],
    sensitivity: float,
    noise_multiplier: float,
    random: HostRandom,
) -> Float[np.ndarray, " numbers"]:
    """The sum over rows, each of a norm of at most `sensitivity`, with noise."""
    if noise_multiplier == 0:
        return added.sum(axis=0)
    grain, deviation = _lattice(sensitivity, noise_multiplier)
    # Towards 0: no row gets longer. Whole numbers below 2^53: sums of them are exact.
    whole = np.trunc(added / grain).astype(np.int64).sum(axis=0)
    return (whole + random.rounded_gaussian(deviation, whole.shape)) * grain


def _lattice(sensitivity: float, noise_multiplier: float) -> tuple[float, float]:
    """The grain, a power of two, and the deviation of the noise in grains."""
    largest = sensitivity * max(1 / _GRAINS, noise_multiplier / _MOST_NOISE)
    grain = 2.0 ** math.ceil(math.log2(largest))
    return grain, noise_multiplier * sensitivity * (1 + _SLACK) / grain
