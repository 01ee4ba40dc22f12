"""Many canaries at once: lower bounds from how many of them are guessed right.

Each canary is in or out by a fair coin of its own, and the adversary guesses some of the coins from
what was released. Canaries of several runs count as those of one: every run has canaries of its
own, and so the runs together are a mechanism with the privacy of a single one.

`guess_chance` bounds what an (epsilon, delta)-DP mechanism allows, whatever the guesses depend on:
T. Steinke, M. Nasr, M. Jagielski, Privacy auditing with one (1) training run, 2023, theorem 5.2.
With m canaries, r guesses, and W a binomial number of r tries at e^epsilon / (1 + e^epsilon),

    P(at least v are right) <= P(W >= v) + 2 m delta max over i = 1..m of P(v - i <= W < v) / i.

`curve_allows` does the same for a whole curve of epsilon and delta, and loses far less:
S. Mahloujifar, L. Melis, K. Chaudhuri, Auditing f-differential privacy in one run, 2024,
algorithm 3. Its recursion goes down from the claim "v or more right has a chance of tau", and shows
that all chances together would then exceed 1.
"""

import math
from bisect import bisect_right
from collections.abc import Callable

import numpy as np
from scipy import special, stats

# How many guesses are tried, as parts of all canaries.
_PARTS = (0.004, 0.008, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5)
_CLOSE = 0.01
_LARGEST = 50.0


def guess_chance(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """An (epsilon, delta)-DP mechanism lets so many guesses be right with at most this chance."""
    rate = float(special.expit(epsilon))
    at_least = float(stats.binom.sf(right - 1, guesses, rate))
    just_below = np.cumsum(stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, rate))
    steepest = np.max(just_below / np.arange(1, right + 1), initial=0.0)
    return float(min(1.0, at_least + 2 * canaries * delta * steepest))


def epsilon_bound(
    canaries: int, guesses: int, right: int, delta: float, confidence: float
) -> float:
    """Epsilon is at least this, with that confidence; 0 where the guesses prove nothing."""
    refuted, allowed = 0.0, _LARGEST
    if guess_chance(canaries, guesses, right, 0.0, delta) >= 1 - confidence:
        return 0.0
    while allowed - refuted > _CLOSE / 2:
        middle = (refuted + allowed) / 2
        if guess_chance(canaries, guesses, right, middle, delta) < 1 - confidence:
            refuted = middle
        else:
            allowed = middle
    return refuted


def curve_allows(
    canaries: int,
    guesses: int,
    right: int,
    chance: float,
    epsilons: np.ndarray,
    deltas: np.ndarray,
) -> bool:
    """Whether a mechanism of that curve may let so many guesses be right with this chance.

    Args:
      canaries: number of canaries of all runs.
      guesses: number of guesses that were made.
      right: number of guesses that were right.
      chance: a probability too small to believe in.
      epsilons: epsilons of the curve.
      deltas: at each of them.
    """
    least = _inverse(epsilons, deltas)
    correct = chance * right / canaries
    wrong = chance * (guesses - right) / canaries
    for number in range(right - 1, -1, -1):
        below = least(correct)
        if below > wrong:
            # `number` right and the others wrong, in what is left between two thresholds.
            correct += number / (guesses - number) * (below - wrong)
            wrong = below
        if correct + wrong >= guesses / canaries:
            return False
    return True


def _inverse(epsilons: np.ndarray, deltas: np.ndarray) -> Callable[[float], float]:
    """The least chance in one world of what has a chance of y in the other."""
    # On a grid, rounded down: then nothing is refuted that the curve itself allows.
    grid = np.concatenate([np.geomspace(1e-9, 0.5, 2000), 1 - np.geomspace(0.5, 1e-9, 2000)])
    values = np.zeros(len(grid))
    for factor, delta in zip(np.exp(epsilons), deltas, strict=True):
        there, not_there = (grid - delta) / factor, 1 - delta - factor * (1 - grid)
        values = np.maximum(values, np.maximum(there, not_there))
    points, least = grid.tolist(), values.tolist()

    def rounded(y: float) -> float:
        place = bisect_right(points, y) - 1
        return least[place] if place >= 0 else 0.0

    return rounded


def noise_bound(
    canaries: int,
    guesses: int,
    right: int,
    confidence: float,
    deltas_with: Callable[[float], tuple[np.ndarray, np.ndarray]],
) -> float:
    """The plan's noise is at most so many times what it says; as `bounds.noise_bound`."""
    allowed, broken = -4.0, 4.0
    while broken - allowed > _CLOSE:
        middle = (allowed + broken) / 2
        curve = deltas_with(math.exp(middle))
        if curve_allows(canaries, guesses, right, 1 - confidence, *curve):
            allowed = middle
        else:
            broken = middle
    return math.exp(broken)


def right_guesses(scores: np.ndarray, inside: np.ndarray, part: float) -> tuple[int, int]:
    """Guesses and right ones, if so many canaries of highest and of lowest score are guessed.

    Args:
      scores: scores of the canaries; high where one seems to be in.
      inside: whether each is.
      part: the part of the canaries that is guessed, half of it at either end.
    """
    half = max(1, int(part * len(scores) / 2))
    order = np.argsort(scores)
    return 2 * half, int(np.sum(~inside[order[:half]]) + np.sum(inside[order[-half:]]))


def best_part(
    scores: np.ndarray, inside: np.ndarray, worth: Callable[[int, int, int], float]
) -> float:
    """The part of the canaries to guess that is worth most on these: canaries, guesses, right."""
    return max(_PARTS, key=lambda part: worth(len(scores), *right_guesses(scores, inside, part)))
