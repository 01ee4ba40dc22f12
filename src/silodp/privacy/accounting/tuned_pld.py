"""By how much the best of a random number of trials diverges, from how much one trial does.

A profile gives, at each real x, at least the hockey-stick divergence at e^x between what neighbours
release, in either direction.

One trial releases y with density Q(y) or, of a neighbour, Q'(y), and has the profile d. Trials are
in a total order (ties broken at random), q is the chance under Q of at most y, and q' that under
Q'. If the number of trials has the generating function f, the best of them has the density
Q(y) f'(q). For the truncated negative binomial distribution f'(q) is proportional to
(1 - (1 - gamma) q)^-(eta + 1), and at most f'(1), the mean. Let t >= 0 be such that
(1 - gamma) d(t) <= gamma (e^t - 1). That a trial comes out above y is an event like any other, of
chance 1 - q' <= e^t (1 - q) + d(t). Therefore

    1 - (1-gamma) q'  =  gamma + (1-gamma) (1-q')
                     <=  gamma + (1-gamma) d(t) + (1-gamma) e^t (1-q)
                     <=  e^t (gamma + (1-gamma) (1-q))  =  e^t (1 - (1-gamma) q),

so that f'(q') >= e^-c f'(q) with c = (eta + 1) t. What the divergence of the best sums up is

    (Q f'(q) - e^x Q' f'(q'))+  <=  f'(q) (Q - e^(x-c) Q')+  <=  mean (Q - e^(x-c) Q')+,

and so the best of the trials has the profile mean d(x - c).

The argument is that of A. Koskela, R. Redberg and Y.-X. Wang, Privacy profiles for private
selection, 2024. They take e^s + (1/gamma - 1) d(s), for any s >= 0, in place of e^t: the logarithm
of that is always such a t, because d falls, and often there is a smaller one.
"""

import math
from collections.abc import Callable

import numpy as np

from silodp.privacy.trials import Trials

Profile = Callable[[np.ndarray], np.ndarray]
"""The divergence at each x (rising), real and of either sign."""

# Far more than rounding takes of a divergence, as a share of it.
_ROUNDING = 1e-9


def shift_of(profile: Profile, mean: float, shape: float, reach: float) -> float:
    """c, looked for where the loss of one trial may be: from 0 to `reach`.

    Divergences fall as x rises. So where t is too small, log(1 + (1/gamma - 1) d(t)) is not.
    """
    # Rounded up, and so to the safe side.
    halting = Trials(mean, shape).log_halting * (1 + 1e-9) + 1e-11
    low, high, least = 0.0, reach, math.inf
    for _ in range(3):
        places = np.linspace(low, high, 65)
        enough = np.maximum(places, np.log1p(np.expm1(halting) * profile(places)))
        best = int(enough.argmin())
        low, high = places[max(best - 1, 0)], places[min(best + 1, 64)]
        least = min(least, float(enough[best]))
    return (shape + 1) * least * (1 + _ROUNDING)


def best_of(profile: Profile, mean: float, shift: float) -> Profile:
    """The profile of the best trial."""
    return lambda x: mean * (1 + _ROUNDING) * profile(x - shift)


def envelope(x: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The least that bounds on the divergence at x (rising, and symmetric about 0) imply there.

    Swapping the neighbours, the divergence at -x bounds that at x. In e^x it is convex, from 1 at
    e^x = 0, so that it lies below any line between two bounds. Where rounding makes or leaves out a
    corner, what is returned is still the value of a bound or of such a line.
    """
    alphas = np.exp(x)
    swapped = -np.expm1(x) + alphas * bounds[::-1]
    # No divergence is below that of a mechanism that depends on no record.
    least = -np.expm1(np.minimum(x, 0.0))
    bounds = np.maximum(np.minimum(np.minimum(bounds, swapped), 1.0), least)
    corners: list[tuple[float, float]] = [(0.0, 1.0)]
    for point in zip(alphas.tolist(), bounds.tolist(), strict=True):
        while len(corners) > 1 and _slope(corners[-2], corners[-1]) >= _slope(corners[-1], point):
            corners.pop()
        corners.append(point)
    return np.interp(alphas, *np.transpose(corners))


def _slope(left: tuple[float, float], right: tuple[float, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])
