"""What (epsilon, delta) means: how well anybody can guess, at best, from all that was released.

The attacker knows everything but one thing: whether one record (or person) took part, or, where
neighbours differ by an exchange, which of two it was. Every test with false alarms at a rate a
then has hits at a rate b with

    b <= e^epsilon a + delta   and   1 - a <= e^epsilon (1 - b) + delta,

and some mechanism reaches every pair that this allows. P. Kairouz, S. Oh, P. Viswanath. The
composition theorem for differential privacy. ICML 2015 (theorem 2.1).
"""

import math

from silodp.base.errors import SilodpError


def hit_rate(epsilon: float, delta: float, false_alarms: float) -> float:
    """The most who took part that an attacker can name, who names so many others wrongly."""
    _check(epsilon, delta)
    if not 0 <= false_alarms <= 1:
        raise SilodpError(f"The rate of false alarms is {false_alarms}: give one from 0 to 1.")
    # exp(-epsilon) is 0 for no privacy at all, as is right; exp(epsilon) would be too large.
    with_few = 1.0 if epsilon > 700 else math.exp(epsilon) * false_alarms + delta
    with_many = 1 - math.exp(-epsilon) * (1 - delta - false_alarms)
    return min(1.0, with_few, with_many)


def guessed_right(epsilon: float, delta: float, prior: float = 0.5) -> float:
    """How often the best guess is right, if it is true with probability `prior` beforehand.

    Without any release, that is max(prior, 1 - prior). With one, the best test is at a corner of
    what is allowed: no false alarms, all hits, or as many misses as false alarms.
    """
    _check(epsilon, delta)
    if not 0 <= prior <= 1:
        raise SilodpError(f"The prior is {prior}: give a probability, from 0 to 1.")
    balanced = 1 - (1 - delta) * math.exp(-epsilon) / (1 + math.exp(-epsilon))
    no_false_alarm = prior * delta + (1 - prior)
    every_hit = prior + (1 - prior) * delta
    return max(balanced, no_false_alarm, every_hit)


def _check(epsilon: float, delta: float) -> None:
    if not epsilon >= 0 or not 0 <= delta <= 1:
        raise SilodpError(
            f"epsilon {epsilon} with delta {delta} is no privacy statement: epsilon must be at "
            "least 0, and delta from 0 to 1."
        )
