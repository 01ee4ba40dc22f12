"""From how often an attack succeeds to a lower bound on epsilon that holds with confidence.

Under (epsilon, delta)-DP, whatever an adversary decides by, with neighbours D and D':

    P(says "D" | D) <= e^epsilon P(says "D" | D') + delta

and the same with the parts exchanged. Rates that are measured in trials thus bound epsilon from
below. Statistic and threshold are chosen on some of the trials and judged on the others, so that
however many were tried, the confidence holds.

A plan claims more than one epsilon at one delta: a delta at every epsilon. Rates that break any of
them break the claim. `noise_bound` says with how much of its noise the plan would just allow what
was measured: it sees far smaller faults than one point of the curve does.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from scipy import special

# The part of the trials that chooses.
_CHOOSES = 1 / 3
# Among many attacks the luckiest looks best: whoever chooses asks for so many times less error.
_CAUTION = 50.0
# Thresholds that are tried for one statistic; more gain nothing.
_THRESHOLDS = 400
# Logarithms of the multiples of noise that are searched, and how closely.
_RANGE = 4.0
_CLOSE = 0.01


def rate_limits(hits, trials: int, error: float) -> tuple[np.ndarray, np.ndarray]:
    """Below and above the true rate, each failing with a chance of at most `error`.

    C. Clopper, E. Pearson, The use of confidence or fiducial limits, 1934: exact for any rate.
    """
    hits = np.asarray(hits, float)
    # The beta distribution has no shape of 0: at the ends the limits are known.
    low = special.betaincinv(np.maximum(hits, 1.0), trials - hits + 1.0, error)
    high = special.betaincinv(hits + 1.0, np.maximum(trials - hits, 1.0), 1.0 - error)
    return np.where(hits > 0, low, 0.0), np.where(hits < trials, high, 1.0)


def epsilon_bound(hits, false_alarms, trials: int, delta: float, confidence: float) -> np.ndarray:
    """Epsilon is at least this, with that confidence; 0 where the attack proves nothing.

    Args:
      hits: trials with the canary in which the attack says that it is there.
      false_alarms: trials without it in which the attack says so too.
      trials: in each of the two worlds.
      delta: delta of the claim.
      confidence: the confidence that the bound holds.
    """
    error = (1.0 - confidence) / 2  # one half for each of the two rates
    hit_rate, _ = rate_limits(hits, trials, error)
    _, alarm_rate = rate_limits(false_alarms, trials, error)
    there = np.maximum(hit_rate - delta, 0.0) / alarm_rate
    not_there = np.maximum(1.0 - alarm_rate - delta, 0.0) / (1.0 - hit_rate)
    return np.log(np.maximum(np.maximum(there, not_there), 1.0))


def separation(hits, false_alarms, trials: int, confidence: float) -> np.ndarray:
    """How far two bell curves would lie apart that the attack told apart as well, at least."""
    error = (1.0 - confidence) / 2
    hit_rate, _ = rate_limits(hits, trials, error)
    _, alarm_rate = rate_limits(false_alarms, trials, error)
    return np.maximum(special.ndtri(hit_rate) - special.ndtri(alarm_rate), 0.0)


def noise_bound(
    hits: int,
    false_alarms: int,
    trials: int,
    confidence: float,
    deltas_with: Callable[[float], tuple[np.ndarray, np.ndarray]],
) -> float:
    """The plan's noise is at most so many times what it says, with that confidence.

    Args:
      hits: as for `epsilon_bound`.
      false_alarms: likewise.
      trials: likewise.
      confidence: likewise.
      deltas_with: from a multiple of the plan's noise to the curve that it claims: epsilons, and
        the delta at each.
    """
    error = (1.0 - confidence) / 2
    hit_rate = float(rate_limits(hits, trials, error)[0])
    alarm_rate = float(rate_limits(false_alarms, trials, error)[1])

    def breaks(multiple: float) -> bool:
        epsilons, deltas = deltas_with(multiple)
        factor = np.exp(epsilons)
        there = hit_rate - factor * alarm_rate - deltas
        not_there = (1.0 - alarm_rate) - factor * (1.0 - hit_rate) - deltas
        return bool(max(there.max(), not_there.max()) > 0)

    # The more noise, the less is allowed.
    allowed, broken = -_RANGE, _RANGE
    while broken - allowed > _CLOSE:
        middle = (allowed + broken) / 2
        if breaks(math.exp(middle)):
            broken = middle
        else:
            allowed = middle
    return math.exp(broken)


def choosing(trials: int) -> int:
    """How many of the trials choose the attack; the others judge it."""
    return int(_CHOOSES * trials)


def largest_bound(trials: int, delta: float, confidence: float) -> float:
    """What an attack that is never wrong would prove with so many trials in each world."""
    judged = trials - choosing(trials)
    return float(epsilon_bound(judged, 0, judged, delta, confidence))


def trials_for(epsilon: float, delta: float, confidence: float) -> int:
    """The least power of two of trials with which an epsilon above this one can be proven."""
    trials = 2
    while largest_bound(trials, delta, confidence) <= epsilon and trials < 2**40:
        trials *= 2
    return trials


class Attack(NamedTuple):
    """Says that the canary is there where sign * statistic is at least the threshold."""

    statistic: str
    sign: int
    threshold: float

    def alarms(self, scores: np.ndarray) -> int:
        """The number of trials in which it says so."""
        return int(np.sum(self.sign * scores >= self.threshold))


def choose_attack(
    present: Mapping[str, np.ndarray],
    absent: Mapping[str, np.ndarray],
    worth: Callable[..., np.ndarray],
    confidence: float,
) -> Attack:
    """The statistic, sign and threshold that are worth most on these trials.

    Args:
      present: by name, each statistic in the trials with the canary.
      absent: the same without it.
      worth: hits, false alarms, trials, confidence -> what such an attack proves.
      confidence: the confidence with which it is to be judged.
    """
    cautious = 1.0 - (1.0 - confidence) / _CAUTION
    best, chosen = -1.0, Attack(next(iter(present)), 1, 0.0)
    for name in present:
        for sign in (1, -1):
            ins, outs = np.sort(sign * present[name]), np.sort(sign * absent[name])
            both = np.unique(np.concatenate([ins, outs]))
            places = np.unique(np.linspace(0, len(both) - 1, _THRESHOLDS).astype(int))
            # The tails are where a small epsilon shows: there, every value is tried.
            edge = np.arange(min(len(both), _THRESHOLDS // 4))
            thresholds = both[np.unique(np.concatenate([places, edge, len(both) - 1 - edge]))]
            hits = len(ins) - np.searchsorted(ins, thresholds)
            alarms = len(outs) - np.searchsorted(outs, thresholds)
            bounds = worth(hits, alarms, len(ins), confidence=cautious)
            place = int(np.argmax(bounds))
            if bounds[place] > best:
                best, chosen = bounds[place], Attack(name, sign, float(thresholds[place]))
    return chosen
