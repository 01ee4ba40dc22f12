"""Class frequencies of silos, from noisy counts: most silos lack some classes altogether.

Over silos the frequency of a class has some distribution, which is a mixture of narrow bells at
given places (0 is one of them). Its weights are the likeliest in the light of all silos' noisy
counts, by expectation and maximisation; first of all classes together, from which each class's own
departs as far as its counts say. The frequency of a silo is what is then expected of it: a count
that noise could have made is 0, in a federation where silos lack classes, and not half of nothing.
"""

import math

import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from silodp.methods.fewround.constants import CONSTANTS
from silodp.methods.fewround.released import Released

Frequencies = Float[np.ndarray, "*silos classes"]
# Of each class, the weights of the bells.
Mixtures = Float[np.ndarray, "classes places"]

PLACES = np.append(0.0, np.geomspace(0.003, 1.0, 24))
_WIDTHS = np.append(0.001, 0.15 * PLACES[1:])
_STEPS = 25  # more would make of the distribution a few points, surer than the counts are
# Silos that the distribution of all classes together counts for, beside those of one class.
_OF_ALL = 5.0


def mixtures_of(silos: list[Released]) -> Mixtures:
    """The likeliest distribution of each class's frequency over silos."""
    chances = np.stack([_by_place(own)[0] for own in silos])
    together = np.full(len(PLACES), 1.0 / len(PLACES))
    for _ in range(_STEPS):
        together = softmax(chances + np.log(together), axis=-1).mean(axis=(0, 1))
        together = (together + CONSTANTS.smallest) / (together + CONSTANTS.smallest).sum()
    each = np.tile(together, (chances.shape[1], 1))
    for _ in range(_STEPS):
        sums = softmax(chances + np.log(each), axis=-1).sum(axis=0)
        each = (sums + _OF_ALL * together) / (len(silos) + _OF_ALL)
    return each


def frequencies_of(own: Released, mixtures: Mixtures) -> Frequencies:
    """The class frequencies that are expected of a silo; none is 0."""
    chances, means, _ = _by_place(own)
    weights = softmax(chances + np.log(np.maximum(mixtures, CONSTANTS.smallest)), axis=-1)
    found = np.maximum((weights * means).sum(axis=-1), CONSTANTS.least_count / own.records)
    return found / found.sum()


def frequency_error_of(own: Released, mixtures: Mixtures) -> float:
    """How uncertain the class frequencies of a silo are: a standard deviation, of a class's mean.

    A silo of which nothing is known differs from all by what silos differ by.
    """
    weights, means, variances = np.maximum(mixtures, CONSTANTS.smallest), PLACES, _WIDTHS**2
    if own.records > 0:
        chances, means, variances = _by_place(own)
        weights = softmax(chances + np.log(weights), axis=-1)
    mean = (weights * means).sum(axis=-1, keepdims=True)
    return math.sqrt(float((weights * ((means - mean) ** 2 + variances)).sum(axis=-1).mean()))


def _by_place(own: Released) -> tuple[Mixtures, Mixtures, Mixtures]:
    """Logarithms of how likely a silo's counts are at each place.

    And the frequencies that are expected there, with their variances.
    """
    count = float(own.records)
    found = own.labels / count
    inside = np.clip(found, 0.0, 1.0)
    # Beside the noise, that of who happens to be in the silo.
    variance = (float(own.noise[2]) / count) ** 2 + inside * (1 - inside) / count + 0.25 / count**2
    found, variance = found[:, None], variance[:, None]
    total = _WIDTHS**2 + variance
    chances = -0.5 * ((found - PLACES) ** 2 / total + np.log(2 * math.pi * total))
    means = (found * _WIDTHS**2 + PLACES * variance) / total
    return chances, means, _WIDTHS**2 * variance / total
