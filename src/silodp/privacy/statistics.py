"""Noisy statistics of a silo, each at a price: moments of features or labels, and a test metric.

All are Gaussian mechanisms on bounded sums, worked out once on the host in double precision. Noise
multipliers are in units of what one record can add to the sum.
"""

import math

import numpy as np
from dp_accounting import dp_event

# A feature whose noisy variance is below this is taken to have this much: noise may make it 0.
_LEAST_VARIANCE = 1e-2
# Released numbers are multiples of this share of the noise, which hides the low bits.
_GRAIN = 2.0**-20


def gaussian_event(noise_multiplier: float, times: int) -> dp_event.DpEvent:
    """What so many releases with this noise cost."""
    return dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(noise_multiplier), times)


def noisy_moments(
    x: np.ndarray,
    bound: float,
    count: int,
    noise_multiplier: float,
    random: np.random.Generator,
    subject: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each feature, from a noisy sum of features and their squares.

    Args:
      x: [records, ...], the training features; values beyond the bound are clipped to it.
      bound: public, on the absolute value of each feature.
      count: what sums are divided by: the number of records (or subjects) as far as it is public.
      noise_multiplier: 0 for no privacy.
      random: where noise comes from.
      subject: whom each record is about: their records then count as one, by their mean.
    """
    flat = np.clip(x.reshape(len(x), -1).astype(np.float64) / bound, -1.0, 1.0)
    # Squares less one half lie within 1/2: what a record can add has norm sqrt(d + d/4) at most.
    added = np.concatenate([flat, flat**2 - 0.5], axis=1)
    if subject is not None:
        added = _by_subject(added, subject)
    sensitivity = math.sqrt(1.25 * flat.shape[1])
    total = _noisy(added.sum(axis=0), noise_multiplier * sensitivity, random) / count
    mean, square = total[: flat.shape[1]], total[flat.shape[1] :] + 0.5
    mean = np.clip(mean, -1.0, 1.0)
    variance = np.clip(square - mean**2, _LEAST_VARIANCE, 1.0)
    shape = x.shape[1:]
    return (bound * mean).reshape(shape), (bound * np.sqrt(variance)).reshape(shape)


# What a vector within the unit ball and its squared norm less one half, side by side, may have.
LABEL_SENSITIVITY = math.sqrt(1.25)


def noisy_label_moments(
    labels: np.ndarray,
    count: int,
    noise_multiplier: float,
    random: np.random.Generator,
    subject: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """Mean of labels [records, outputs] and of their squared norms, from one noisy sum.

    Labels beyond the unit ball are brought back to it. What is released is not clipped, so that it
    is right on average. Other arguments as for `noisy_moments`; each released number has noise of
    standard deviation noise_multiplier * LABEL_SENSITIVITY / count.
    """
    labels = labels.astype(np.float64)
    labels = labels / np.maximum(1.0, np.linalg.norm(labels, axis=1, keepdims=True))
    added = np.concatenate([labels, (labels**2).sum(axis=1, keepdims=True) - 0.5], axis=1)
    if subject is not None:
        added = _by_subject(added, subject)
    total = _noisy(added.sum(axis=0), noise_multiplier * LABEL_SENSITIVITY, random) / count
    # The halves that were taken off are as many as there are records.
    return total[:-1], float(total[-1]) + 0.5


def noisy_metric(
    totals: np.ndarray,
    largest: float,
    count: int,
    noise_multiplier: float,
    random: np.random.Generator,
) -> np.ndarray:
    """Means of a score over test records, from its totals, each with noise.

    Scores are 0 to `largest`. `count` is the number of test records as far as it is public: to
    divide by how many there really are would tell it.
    """
    return _noisy(totals, noise_multiplier * largest, random) / count


def _by_subject(added: np.ndarray, subject: np.ndarray) -> np.ndarray:
    """What each subject adds: the mean of what its records would."""
    return np.stack([added[subject == one].mean(axis=0) for one in np.unique(subject)])


def _noisy(values: np.ndarray, deviation: float, random: np.random.Generator) -> np.ndarray:
    if deviation == 0:
        return values
    grain = deviation * _GRAIN
    # Each rounded before they meet: see `lattice`. The half grain that this moves a value by is a
    # millionth of the noise.
    noise = deviation * (1 + 4 * _GRAIN * math.sqrt(values.size)) * random.normal(size=values.shape)
    return (np.round(values / grain) + np.round(noise / grain)) * grain
