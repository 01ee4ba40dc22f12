"""What an event costs: epsilon at a given delta, for neighbours that differ by one record.

dp_accounting's events are the language: they say what was asked, not of which model or by which
method. Only what is listed in `steps_of` is understood; anything else is refused, never guessed.
"""

import math
import operator
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from absl import logging
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NeighboringRelation,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
    get_epsilon_gaussian,
)
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import rdp_privacy_accountant

from silodp.errors import SilodpError

# dp_accounting warns of each Rényi order that it leaves out; leaving one out only raises epsilon.
logging.set_verbosity(logging.ERROR)

Accountant = Literal["pld", "rdp"]
"""How an event is charged: by its privacy loss distribution (tighter), or by Rényi divergence."""

# With less noise one step's loss nears the largest exponent of a float, and no bound is computed.
# Nobody sets such a budget. Steps on every record go further, because they have a closed form.
LEAST_NOISE = 0.05
_LEAST_MERGED = 1e-3

# The grid of privacy losses: its step as a share of one step's spread, and its most points.
_GRID_STEP = 0.03
_GRID_POINTS = 2**18

_ROUNDING = 2.0**-52


class Steps(NamedTuple):
    """Gaussian mechanisms, each on a Poisson sample (on every record if `sampling` is 1)."""

    sampling: float
    noise: float
    repeats: int


def epsilon_of(event: DpEvent, delta: float, accountant: Accountant) -> float:
    """An upper bound on what `event` costs at `delta`, when one record is added or removed.

    Returns `math.inf` where the event is not private, or where no finite bound can be computed.
    """
    if accountant not in get_args(Accountant):
        known = ", ".join(get_args(Accountant))
        raise SilodpError(f"Accountant {accountant!r} is unknown: choose one of {known}.")
    if not 0 < delta < 1:
        raise SilodpError(f"delta is {delta}, but must lie between 0 and 1: give one such as 1e-5.")
    steps = _merge_unsampled(steps_of(event))
    if not steps:
        return 0.0
    if any(step.noise < (LEAST_NOISE if step.sampling < 1 else _LEAST_MERGED) for step in steps):
        return math.inf
    # Ratios that overflow and logarithms of 0 give infinities, which err on the safe side.
    with np.errstate(over="ignore", divide="ignore"):
        epsilon = (_pld_epsilon if accountant == "pld" else _rdp_epsilon)(steps, delta)
    return math.inf if math.isnan(epsilon) else float(epsilon)


def steps_of(event: DpEvent) -> tuple[Steps, ...]:
    """The event as a sorted list of steps: equal for events that ask the same in another order.

    Steps that cost nothing are left out; an event without privacy is a step without noise.
    """
    counts: Counter[tuple[float, float]] = Counter()

    def walk(part: DpEvent, times: int) -> None:
        # Exact types: what a subclass means is not known here.
        if type(part) is NoOpDpEvent or times == 0:
            return
        if type(part) is NonPrivateDpEvent:
            counts[1.0, 0.0] += times
        elif type(part) is GaussianDpEvent:
            counts[1.0, _noise(part)] += times
        elif type(part) is PoissonSampledDpEvent and type(part.event) is GaussianDpEvent:
            counts[_probability(part), _noise(part.event)] += times
        elif type(part) is SelfComposedDpEvent:
            walk(part.event, times * _count(part))
        elif type(part) is ComposedDpEvent:
            for inner in part.events:
                walk(inner, times)
        else:
            raise SilodpError(
                f"The event {part} has no price here: ask only Gaussian mechanisms, with or "
                "without Poisson sampling, and compositions of them."
            )

    walk(event, 1)
    return tuple(
        Steps(sampling, noise, count)
        for (sampling, noise), count in sorted(counts.items())
        if sampling > 0 and noise < math.inf
    )


def spread_of(step: Steps) -> float:
    """About the standard deviation of one step's privacy loss: rises as the noise falls.

    By the central limit theorem many such steps resemble one Gaussian mechanism of noise 1/spread
    (Bu et al. 2020, "Deep learning with Gaussian differential privacy"). A guide for grids and
    first guesses, not a bound.
    """
    if step.noise == 0:
        return math.inf
    if step.sampling == 1:
        return 1 / step.noise
    # The formula explodes below noise 1/2, where the loss itself only grows like 1/noise.
    tempered = max(step.noise, 0.5)
    return step.sampling * math.sqrt(math.expm1(tempered**-2)) * tempered / step.noise


def _noise(event: GaussianDpEvent) -> float:
    noise = float(event.noise_multiplier)
    if not noise >= 0:
        raise SilodpError(f"The event {event} has noise {noise}: noise must be 0 or more.")
    return noise


def _probability(event: PoissonSampledDpEvent) -> float:
    probability = float(event.sampling_probability)
    if not 0 <= probability <= 1:
        raise SilodpError(
            f"The event {event} samples with probability {probability}: it must be from 0 to 1."
        )
    return probability


def _count(event: SelfComposedDpEvent) -> int:
    try:
        count = operator.index(event.count)
    except TypeError:
        count = -1
    if count < 0:
        raise SilodpError(
            f"The event {event} is repeated {event.count} times: give a whole number, 0 or more."
        )
    return count


def _merge_unsampled(steps: Sequence[Steps]) -> tuple[Steps, ...]:
    """Gaussian mechanisms on every record are, exactly, one Gaussian mechanism of less noise."""
    sampled = tuple(step for step in steps if step.sampling < 1)
    precision = math.fsum(
        step.repeats * spread_of(step) * spread_of(step) for step in steps if step.sampling == 1
    )
    if precision == 0:
        return sampled
    return (*sampled, Steps(1.0, 1 / math.sqrt(precision), 1))


def _pld_epsilon(steps: Sequence[Steps], delta: float) -> float:
    # Rounding in the Fourier transforms leaves or takes tail mass: measured, at most a third of
    # this. dp_accounting ignores it, and so undercharges by 2 % at delta 1e-12 over 1e5 steps.
    lost = 2 * _ROUNDING * (sum(step.repeats for step in steps) + 100)
    if delta < 4 * lost:
        return _rdp_epsilon(steps, delta)
    if len(steps) == 1 and steps[0].sampling == 1:
        return get_epsilon_gaussian(steps[0].noise, delta - lost)
    if min(step.noise for step in steps) < LEAST_NOISE:
        return math.inf
    grid = _grid_step(steps)
    total = None
    for step in steps:
        one = privacy_loss_distribution.from_gaussian_mechanism(
            step.noise, sampling_prob=step.sampling, value_discretization_interval=grid
        )
        some = one.self_compose(step.repeats) if step.repeats > 1 else one
        total = some if total is None else total.compose(some)
    return total.get_epsilon_for_delta(delta - lost) if total is not None else 0.0


def _grid_step(steps: Sequence[Steps]) -> float:
    """The step of the grid on which privacy losses are laid out.

    Any step gives an upper bound, because connect-the-dots rounds each loss so that no divergence
    falls (Doroshenko et al. 2022). So a coarser grid is safe, and only costs tightness: it adds
    about grid^2 / 6 to the variance of each step, here 0.01 % of epsilon.
    """
    count = sum(step.repeats for step in steps)
    deviation = math.sqrt(sum(step.repeats * spread_of(step) ** 2 for step in steps))
    spread = deviation / math.sqrt(count)
    # Probabilities are second differences of delta, so rounding adds mass as the grid gets finer.
    rounding = math.sqrt(1e3 * _ROUNDING * count * spread)
    # Keeps memory and time bounded where one step reaches far beyond the spread (small noise).
    reach = 20 * deviation + 4 * max(10 / step.noise + 0.5 / step.noise**2 for step in steps)
    return max(_GRID_STEP * spread, rounding, reach / _GRID_POINTS)


def _rdp_epsilon(steps: Sequence[Steps], delta: float) -> float:
    """The least bound over dp_accounting's orders, found by a coarse pass and a fine one around it.

    Each order alone gives a bound, so an order that is not tried can only leave it looser. Whole
    orders come first: they are quick to compute, and never fail to converge.
    """
    orders = rdp_privacy_accountant.DEFAULT_RDP_ORDERS
    coarse = [
        i for i, order in enumerate(orders) if order == int(order) and (order < 11 or i % 4 == 0)
    ]
    epsilon, best = _rdp_bound(steps, delta, [orders[i] for i in coarse])
    below = coarse[best - 1] if best > 0 else 0
    above = coarse[best + 1] if best + 1 < len(coarse) else len(orders)
    return min(epsilon, _rdp_bound(steps, delta, orders[below:above])[0])


def _rdp_bound(steps: Sequence[Steps], delta: float, orders: Sequence[float]) -> tuple[float, int]:
    """The least bound over `orders`, and the place of the order that gives it."""
    accountant = rdp_privacy_accountant.RdpAccountant(orders, NeighboringRelation.ADD_OR_REMOVE_ONE)
    for step in steps:
        event = PoissonSampledDpEvent(step.sampling, GaussianDpEvent(step.noise))
        accountant.compose(event, step.repeats)
        # An allowance for rounding: dp_accounting takes a divergence rounded below 0 as free.
        accountant.compose(ZCDpEvent(rho=0.0, xi=50 * _ROUNDING), step.repeats)
    epsilon, order = accountant.get_epsilon_and_optimal_order(delta)
    return float(epsilon), list(orders).index(order)
