"""Privacy loss distributions of one step, as several kinds of steps have them."""

import math
from collections.abc import Callable

import numpy as np
from dp_accounting import NeighboringRelation
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import (
    PrivacyLossDistribution,
    from_gaussian_mechanism,
)

from silodp.config.choices import Relation
from silodp.privacy.accounting.steps import Step, total_spread
from silodp.privacy.accounting.tuned_pld import Profile, envelope

# The grid of privacy losses: its step as a share of one step's spread.
GRID_STEP = 0.03

# The largest loss of tuned steps. The exponentials of twice as much are still floats.
MOST_REACH = 300.0

# Epsilons below it are charged as this, so that their squares do not vanish.
LEAST_EPSILON = 1e-100

_NEIGHBOURS = {
    "add-remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace-one": NeighboringRelation.REPLACE_ONE,
}

BoundedProfile = Callable[[np.ndarray, float], np.ndarray]


def gaussian(
    noise: float, sampling: float, grid: float, relation: Relation
) -> PrivacyLossDistribution:
    """The privacy loss of a Gaussian mechanism on a Poisson sample.

    Under replace-one: given the other records of the sample, neighbours' outcomes are
    (1-q) N(0) + q N(g) and (1-q) N(0) + q N(h), with |g|, |h| <= 1 in units of the clip. The pair
    with g = 1 and h = -1 dominates. For epsilon >= 0 the divergence is q E(1 - Y)+ over N(g), where
    Y is a sum of two likelihood ratios, each log-normal and fixed by how far 0 and h lie from g: at
    most 1 and 2. (1 - Y)+ is convex; in convex order a log-normal ratio grows with its distance,
    and a sum is largest where its terms rise together, which is where 0 and h lie in one direction
    from g. Swapping the two sides gives epsilon < 0.
    """
    return from_gaussian_mechanism(
        noise,
        sampling_prob=sampling,
        value_discretization_interval=grid,
        neighboring_relation=_NEIGHBOURS[relation],
    )


def bounded(epsilon: float, profile: BoundedProfile, grid: float) -> PrivacyLossDistribution:
    """The losses of a mechanism that diverges as `profile` says, and whose losses are bounded.

    The profile is the same in both directions. Connect-the-dots keeps the mean of the loss, which
    rounding up to the grid (dp_accounting's `from_privacy_parameters`) does not: over many small
    steps that adds up.
    """
    epsilon = max(epsilon, LEAST_EPSILON)
    reach = max(math.ceil(epsilon / grid), 1)
    x = np.arange(-reach, reach + 1) * grid
    deltas = profile(np.clip(x, -epsilon, epsilon), epsilon)
    deltas = np.where(x >= epsilon, 0.0, np.where(x <= -epsilon, -np.expm1(x), deltas))
    return PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, -reach, reach, deltas)
    )


def symmetric(
    profile: Profile, reach: float, spread: float, grid: float
) -> PrivacyLossDistribution:
    """The losses of a mechanism that diverges, in either direction, at most as the profile says.

    They are laid out as coarsely as this mechanism alone bears. Beyond the reach they are infinite.
    """
    stride = max(math.floor(GRID_STEP * spread / grid), 1)
    if max(reach, stride * grid) > MOST_REACH:
        raise OverflowError(f"losses reach to {reach}")
    ends = max(math.ceil(reach / (stride * grid)), 1)
    places = np.arange(-ends, ends + 1) * stride
    x = places * grid
    return PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots(grid, places, envelope(x, profile(x)))
    )


def gaussian_reach(noise: float) -> float:
    """The largest loss of a Gaussian mechanism of this relative noise, ten deviations out."""
    return 10 / noise + 0.5 / noise**2


def inner_reach(step: Step, relation: Relation) -> float:
    """The largest loss of what the step is made of."""
    return max(
        10 * total_spread(part, relation) + max((s.reach(relation) for s in part), default=0.0)
        for part in step.inside
    )
