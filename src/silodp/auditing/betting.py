"""Many canaries in each of many runs: lower bounds by betting against the claim.

In each of R runs, m canaries are in or out by fair coins, and each is flagged or not by what was
released. If the mechanism is (epsilon, delta)-DP, then for each canary, whatever the others' coins,

    P(flagged | in) <= e^epsilon P(flagged | out) + delta,

so that W = 2/m (flagged ones that are in - e^epsilon flagged ones that are out) has a mean of at
most delta. Nothing is known of how canaries of one run depend on each other, but runs are
independent. Whoever starts with 1 and before each run bets a part b < 1 / (2 e^epsilon + delta)
on W exceeding delta, has on average no more than 1 after all of them, and 1/a or more with a chance
of at most a (J. Ville, 1939; I. Waudby-Smith, A. Ramdas, Estimating means of bounded random
variables by betting, 2024). Several bets side by side are one bet. An epsilon against which so much
was won is refuted with confidence 1 - a.

Flags are high scores, or low ones with the parts of in and out exchanged; which, and how high, is
chosen on other runs.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Bets, as parts of the largest that is allowed.
_BETS = (0.95, 0.6, 0.3, 0.15, 0.07, 0.03)
_CLOSE = 0.02
_LARGEST = 20.0
_QUANTILES = np.concatenate([[0.001, 0.002, 0.005], np.arange(0.01, 0.5, 0.02)])


class Flags(NamedTuple):
    """The part of each run's canaries that is flagged and in, and flagged and out."""

    within: np.ndarray
    outside: np.ndarray


class Rule(NamedTuple):
    """Flags canaries whose score, times the sign, is at least the threshold.

    With the sign -1 what is flagged is that they are out.
    """

    sign: int
    threshold: float

    def flags(self, scores: np.ndarray, inside: np.ndarray) -> Flags:
        """Flags from scores [runs, canaries] and which of the canaries are in."""
        flagged = self.sign * scores >= self.threshold
        mine = inside if self.sign > 0 else ~inside
        return Flags(np.mean(flagged & mine, axis=1), np.mean(flagged & ~mine, axis=1))


def won(flags: Flags, epsilon: float, delta: float) -> float:
    """The logarithm of what betting against that claim has made of 1."""
    factor = math.exp(epsilon)
    gains = 2 * (flags.within - factor * flags.outside) - delta
    bets = np.array(_BETS)[:, None] / (2 * factor + delta)
    # All that is bet on may be lost, and then some of what is kept.
    each = np.sum(np.log1p(bets * gains), axis=1)
    return float(np.logaddexp.reduce(each) - math.log(len(_BETS)))


def epsilon_bound(flags: Flags, delta: float, confidence: float) -> float:
    """Epsilon is at least this, with that confidence: every smaller one of a grid is refuted."""
    least_gain, bound = -math.log(1 - confidence), 0.0
    while bound < _LARGEST and won(flags, bound, delta) >= least_gain:
        bound += _CLOSE
    return max(0.0, bound - _CLOSE)


def noise_bound(
    flags: Flags,
    epsilon: float,
    confidence: float,
    delta_with: Callable[[float], float],
) -> float:
    """The plan's noise is at most so many times what it says, with that confidence.

    Args:
      flags: flags of the runs that judge.
      epsilon: the point of the plan's curve that is bet against.
      confidence: the confidence that the bound holds.
      delta_with: from a multiple of the plan's noise to its delta at that epsilon.
    """
    least_gain = -math.log(1 - confidence)
    allowed, broken = -4.0, 4.0
    while broken - allowed > _CLOSE / 2:
        middle = (allowed + broken) / 2
        if won(flags, epsilon, delta_with(math.exp(middle))) >= least_gain:
            broken = middle
        else:
            allowed = middle
    return math.exp(broken)


def choose_rule(
    scores: np.ndarray, inside: np.ndarray, worth: Callable[[Flags], float]
) -> tuple[Rule, float]:
    """The rule that is worth most on these runs [runs, canaries], and what it is worth."""
    best, chosen = -math.inf, Rule(1, math.inf)
    for sign in (1, -1):
        for threshold in np.quantile(sign * scores, 1 - _QUANTILES):
            rule = Rule(sign, float(threshold))
            value = worth(rule.flags(scores, inside))
            if value > best:
                best, chosen = value, rule
    return chosen, best
