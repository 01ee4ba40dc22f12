"""The Rényi accountant: divergences at many orders add up, and become epsilon at the end."""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from absl import logging
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant, compute_epsilon
from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

from silodp.config.choices import Relation
from silodp.privacy.accounting.steps import (
    ConcentratedSteps,
    EitherSteps,
    PureSteps,
    Selections,
    Step,
    Steps,
    TruncatedSteps,
    TunedSteps,
    is_computable,
    relative_noise,
)
from silodp.privacy.trials import Trials

# dp_accounting warns of each Rényi order that it leaves out; leaving one out only raises epsilon.
logging.set_verbosity(logging.ERROR)

ORDERS: tuple[float, ...] = tuple(DEFAULT_RDP_ORDERS)

# An allowance for rounding: dp_accounting takes a divergence rounded below 0 as free.
_ALLOWANCE = 50 * 2.0**-52

_ROUNDING = 2.0**-52

# The trapezoid rule: its error is at most e^-40 of the integral, a thousandth of one rounding. The
# grid reaches ten deviations beyond what matters, and has at most so many points.
_LOG_ERROR = 42.0
_REACH = 10.0
_MOST_POINTS = 2**16


def supports(step: Step, relation: Relation) -> bool:
    """Whether the divergence of such a step is known, under either relation.

    For cut samples nobody has computed it.
    """
    match step:
        case TruncatedSteps():
            return False
        case TunedSteps():
            return all(supports(inner, relation) for inner in step.steps)
        case EitherSteps():
            return all(supports(inner, relation) for part in step.parts for inner in part)
        case _:
            return True


def epsilon(steps: Sequence[Step], delta: float, relation: Relation) -> float:
    """The least bound over all orders."""
    return least_epsilon(lambda orders: curve(steps, orders, relation), delta)


def least_epsilon(curve_at: Callable[[Sequence[float]], np.ndarray], delta: float) -> float:
    """The least bound over dp_accounting's orders, found by a coarse pass and a fine one around it.

    Each order alone gives a bound, so an order that is not tried can only leave it looser. Whole
    orders come first: they are quick to compute, and never fail to converge.
    """
    coarse = [
        i for i, order in enumerate(ORDERS) if order == int(order) and (order < 11 or i % 4 == 0)
    ]
    bound, best = _bound(curve_at, delta, [ORDERS[i] for i in coarse])
    below = coarse[best - 1] if best > 0 else 0
    above = coarse[best + 1] if best + 1 < len(coarse) else len(ORDERS)
    return min(bound, _bound(curve_at, delta, ORDERS[below:above])[0])


def _bound(
    curve_at: Callable[[Sequence[float]], np.ndarray], delta: float, orders: Sequence[float]
) -> tuple[float, int]:
    """The least bound over `orders`, and the place of the order that gives it."""
    bound, order = compute_epsilon(orders, curve_at(orders).tolist(), delta)
    return float(bound), list(orders).index(order)


def curve(
    steps: Sequence[Step], orders: Sequence[float], relation: Relation, *, exact: bool = False
) -> np.ndarray:
    """The Rényi divergence of all steps together, at each order; infinite where none is known.

    Poisson samples under add-remove are priced by dp_accounting, as in the paper and in whatever
    was calibrated with it. At orders that are not whole its series is slow and a little too dear
    (0.4 % of epsilon on School), and does not always converge; `exact` integrates instead.
    """
    total = np.zeros(len(orders))
    for step in steps:
        total += step.repeats * _divergences(step, orders, relation, exact)
    return np.where(np.isnan(total), math.inf, total)


def _divergences(
    step: Step, orders: Sequence[float], relation: Relation, exact: bool
) -> np.ndarray:
    """Of one such step."""
    alphas = np.asarray(orders, dtype=float)
    match step:
        case Steps() if is_computable(step, relation):
            if step.sampling == 1:
                return alphas / (2 * relative_noise(step, relation) ** 2)
            replaced = relation == "replace-one"
            if exact or replaced:
                return np.array([_sampled(a, step.sampling, step.noise, replaced) for a in orders])
            return np.array([_by_series(a, step.sampling, step.noise) for a in orders])
        case Selections():
            return np.array([_bounded_range(order, step.epsilon) for order in orders])
        case PureSteps():
            # Bun and Steinke 2016: each order may take the better of the two, whatever the count.
            return np.minimum(alphas * step.epsilon * step.epsilon / 2, step.epsilon)
        case ConcentratedSteps():
            return step.xi + step.rho * alphas
        case TunedSteps():
            return _tuned(step, orders, relation, exact)
        case EitherSteps():
            parts = [curve(part, orders, relation, exact=exact) for part in step.parts]
            return np.max(parts, axis=0)
    return np.full(len(orders), math.inf)


@functools.lru_cache(maxsize=2**16)
def _by_series(order: float, rate: float, noise: float) -> float:
    event = PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
    return float(RdpAccountant([order]).compose(event).rdp[0]) + _ALLOWANCE


@functools.lru_cache(maxsize=2**16)
def _sampled(order: float, rate: float, noise: float, replaced: bool) -> float:
    """The Rényi divergence of a Gaussian mechanism on a Poisson sample, and no less.

    With a(z) = 1 - q + q e^(tz - t^2/2) and t = 1/noise, outcomes of neighbours have the densities
    phi(z) a(z) and phi(z) b(z). Under add-remove b is 1, and this direction is the larger one
    (Mironov, Talwar and Zhang 2019, theorem 5). Under replace-one b(z) = a(-z): that pair dominates
    (see `pld`), a Rényi divergence is a mean of hockey-stick divergences, and both directions are
    equal by reflection. So what is sought is the logarithm of

        M = integral of f,    f = phi a^order b^(1-order),

    divided by order - 1. The trapezoid rule gives it from above:

    - Step. In the strip |Im z| <= w with tw < pi/2 both a and b have positive real parts, so f is
      analytic. There |a(x+iw)| <= a(x), |b(x+iw)| >= cos(tw) b(x), |phi(x+iw)| = e^(w^2/2) phi(x),
      and hence |f(x+iw)| <= C f(x) with C = e^(w^2/2) cos(tw)^(1-order). The sum over the whole
      line with step h is then off by at most 2 C M / (e^(2 pi w/h) - 1) (Trefethen and Weideman
      2014, theorem 5.1). Where b is 1, the cosine is not needed, and tw < pi is enough.
    - Tails. The slope of log f is -z plus a number between 0 and c = (2 order - 1) t (where b is 1:
      order t). So below 0, and beyond c, f falls like a Gaussian: beyond either end of
      [-10, c + 10] the sum leaves out less than the value of f at that end, which is added.
    - Rounding. Exponents are sums of terms of at most order (|log q| + c t + 10 t + t^2) and
      (c + 10)^2 / 2; sixteen roundings of their total, and of 1, are added in the end. This is also
      why nothing that has a price is rounded to 0.

    Whatever the sample, no more is lost than on every record (quasi-convexity); and because b is at
    least 1 - q, replace-one loses at most -log(1 - q) more than add-remove. Where the grid would be
    too long that is charged, and it is nearly true there.
    """
    t, above_one = 1 / noise, order - 1
    top = (2 * order - 1 if replaced else order) * t
    most = order * t * t / 2
    if replaced:
        most = min(4 * most, most - math.log1p(-rate))
        width = min(math.sqrt(2 * _LOG_ERROR / (1 + above_one * t * t)), 1.25 / t)
        log_c = width * width / 2 - above_one * math.log(math.cos(t * width))
    else:
        width = min(math.sqrt(2 * _LOG_ERROR), 3 / t)
        log_c = width * width / 2
    h = 2 * math.pi * width / (_LOG_ERROR + log_c)
    points = (top + 2 * _REACH) / h + 2
    if points > _MOST_POINTS:
        return most
    z = h * np.arange(math.ceil(points)) - _REACH
    rest, drawn = math.log1p(-rate), math.log(rate) - t * t / 2
    exponents = order * np.logaddexp(rest, drawn + t * z) - z * z / 2
    if replaced:
        exponents -= above_one * np.logaddexp(rest, drawn - t * z)
    highest = exponents.max()
    f = np.exp(exponents - highest)
    moment = (h * f.sum() + f[0] + f[-1]) / math.sqrt(2 * math.pi)
    size = 1 + order * (t * (top + _REACH) - drawn) + (top + _REACH) ** 2 / 2
    divergence = (highest + math.log(moment) + 16 * _ROUNDING * size) / above_one
    return float(min(divergence, most))


@functools.lru_cache(maxsize=2**16)
def _bounded_range(order: float, epsilon: float) -> float:
    """The largest Rényi divergence of a mechanism of bounded range.

    Its losses lie in [t - epsilon, t] for some t, and the mean of their exponentials is 1. The
    divergence is the mean of a convex function of the exponentials, so that it is largest if losses
    are at the two ends only: what is left is the largest over t. It is zCDP of epsilon^2/8 as well
    (Cesar and Rogers 2021), and pure.
    """
    known = min(order * epsilon * epsilon / 8, epsilon)
    if not 1e-4 < epsilon < 20 or order * epsilon > 500:
        return known  # the ends of floating point, where little is to be gained

    def divergence(t: np.ndarray) -> np.ndarray:
        # The chance, on the neighbour, of an outcome with loss t and not t - epsilon.
        chance = np.exp(-t) * np.expm1(t - epsilon) / math.expm1(-epsilon)
        both = np.logaddexp(order * t + np.log(chance), order * (t - epsilon) + np.log1p(-chance))
        return both / (order - 1)

    # A smooth hump: a coarse look finds its top, a fine one leaves out less than is then added.
    places = np.linspace(0, epsilon, 203)[1:-1]
    top = places[np.argmax(divergence(places))]
    width = epsilon / 202
    fine = np.linspace(max(top - width, 0.0), min(top + width, epsilon), 203)[1:-1]
    return min(known, float(divergence(fine).max()) * (1 + 1e-4))


def _tuned(
    step: TunedSteps, orders: Sequence[float], relation: Relation, exact: bool
) -> np.ndarray:
    """Papernot and Steinke 2021, "Hyperparameter tuning with Rényi differential privacy".

    The number of runs is Poisson if the shape is infinite, else truncated negative binomial. A
    second order (lambda-hat) may be any, and the best is looked for as in `least_epsilon`.
    """
    alphas = np.array(sorted({*orders, *(order for order in ORDERS if order == int(order))}))
    inner = curve(step.steps, alphas.tolist(), relation, exact=exact)
    bound = inner + math.log(step.mean) / (alphas - 1)

    def least(value_at: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """The least over second orders (the last axis) of a function of order and divergence."""
        coarse = value_at(alphas, inner)
        near = _around(alphas, np.unique(coarse.argmin(axis=-1)))
        if not near:
            return coarse.min(axis=-1)
        fine = value_at(np.array(near), curve(step.steps, near, relation, exact=exact))
        return np.minimum(coarse.min(axis=-1), fine.min(axis=-1))

    if step.shape == math.inf:  # theorem 6
        epsilons = np.log1p(1 / (alphas - 1))[:, None]
        log_deltas = least(lambda a, d: _log_deltas(a, d, epsilons))
        bound = bound + step.mean * np.exp(np.minimum(log_deltas, 0.0))
    else:  # theorem 2
        # Rounded up, and so to the safe side.
        halting = Trials(step.mean, step.shape).log_halting * (1 + 1e-9) + 1e-11
        bound = bound + (1 + step.shape) * least(lambda a, d: (1 - 1 / a) * d + halting / a)
    # Divergence rises with the order, so that any higher order bounds a lower one.
    bound = np.minimum.accumulate(bound[::-1])[::-1]
    return bound[np.searchsorted(alphas, orders)]


def _around(alphas: np.ndarray, places: np.ndarray) -> list[float]:
    """Of all orders, those between the neighbours of the given ones that are not given."""
    ends = np.concatenate([[1.0], alphas, [math.inf]])
    return [
        order
        for order in ORDERS
        if order not in alphas and np.any((ends[places] < order) & (order < ends[places + 2]))
    ]


def _log_deltas(alphas: np.ndarray, divergences: np.ndarray, epsilon: np.ndarray) -> np.ndarray:
    """Bounds on log delta at `epsilon`, by each order (Canonne et al. 2020, proposition 12)."""
    by_order = (alphas - 1) * (divergences - epsilon + np.log1p(-1 / alphas)) - np.log(alphas)
    by_variation = 0.5 * np.log(-np.expm1(-divergences))  # Bretagnolle and Huber
    return np.minimum(by_order, by_variation)
