"""The accountant of privacy loss distributions: each step's loss on a grid, convolved.

Every step is replaced by a pair of distributions that dominates it: at no epsilon do outcomes for
neighbours diverge more than the pair does. Such pairs compose, also adaptively (Zhu et al. 2022).

Poisson samples under replace-one: given the other records of the sample, neighbours' outcomes are
(1-q) N(0) + q N(g) and (1-q) N(0) + q N(h), with |g|, |h| <= 1 in units of the clip. The pair with
g = 1 and h = -1 dominates. For epsilon >= 0 the divergence is q E(1 - Y)+ over N(g), where Y is a
sum of two likelihood ratios, each log-normal and fixed by how far 0 and h lie from g: at most 1 and
2. (1 - Y)+ is convex; in convex order a log-normal ratio grows with its distance, and a sum is
largest where its terms rise together, which is where 0 and h lie in one direction from g. Swapping
the two sides gives epsilon < 0.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from dp_accounting import NeighboringRelation, get_epsilon_gaussian
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import (
    PrivacyLossDistribution,
    from_gaussian_mechanism,
)
from scipy.stats import binom

from silodp.config.choices import Relation
from silodp.privacy.accounting.parts import choices_of
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
    merge_unsampled,
    relative_noise,
    spread_of,
    total_spread,
)
from silodp.privacy.accounting.tuned_pld import Profile, best_of, envelope, shift_of

# The grid of privacy losses: its step as a share of one step's spread, and its most points.
_GRID_STEP = 0.03
_GRID_POINTS = 2**18

# Beyond it dp_accounting takes seconds before it convolves anything.
_MOST_STEPS = 10**6

_ROUNDING = 2.0**-52

# The largest loss of tuned steps. The exponentials of twice as much are still floats.
_MOST_REACH = 300.0

# Epsilons below it are charged as this, so that their squares do not vanish.
_LEAST_EPSILON = 1e-100

_NEIGHBOURS = {
    "add-remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace-one": NeighboringRelation.REPLACE_ONE,
}


def supports(step: Step, relation: Relation) -> bool:
    """Whether a dominating pair of such a step is known; it is for either relation or for none."""
    match step:
        case ConcentratedSteps():
            return False
        case TunedSteps():
            return step.shape < math.inf and all(supports(s, relation) for s in step.steps)
        case EitherSteps():
            return all(supports(s, relation) for part in step.parts for s in part)
    return True


def computable(steps: Sequence[Step], relation: Relation) -> bool:
    """Whether the losses of all steps, and of those inside them, can be laid out on a grid."""
    return all(
        is_computable(step, relation) and all(computable(part, relation) for part in _inside(step))
        for step in merge_unsampled(steps)
    )


def resolves(steps: Sequence[Step], delta: float, relation: Relation) -> bool:
    """Whether `delta` stands clear of the rounding of so many steps, and losses have a grid."""
    few = _most_count(steps) <= _MOST_STEPS
    return few and computable(steps, relation) and delta >= 4 * _floor(merge_unsampled(steps))


def epsilon(steps: Sequence[Step], delta: float, relation: Relation) -> float:
    """The epsilon at which the composed pair diverges by `delta`, and so an upper bound."""
    return max(_epsilon(choice, delta, relation) for choice in choices_of(steps))


def _epsilon(steps: Sequence[Step], delta: float, relation: Relation) -> float:
    """Of one choice."""
    merged = merge_unsampled(steps)
    left = delta - _lost(merged)
    if not merged:
        return 0.0
    if len(merged) == 1 and isinstance(merged[0], Steps) and merged[0].sampling == 1:
        return get_epsilon_gaussian(relative_noise(merged[0], relation), left)
    try:
        return max(pair.get_epsilon_for_delta(left) for pair in _pairs(merged, relation))
    except OverflowError:
        return math.inf


def deltas(steps: Sequence[Step], epsilons: np.ndarray, relation: Relation) -> np.ndarray:
    """By how much the composed pair diverges at each epsilon: the other way round, and as safe."""
    try:
        profile, _ = _profile(steps, relation)
    except OverflowError:
        return np.ones(len(epsilons))
    return np.minimum(profile(epsilons), 1.0)


def _profile(steps: Sequence[Step], relation: Relation) -> tuple[Profile, float]:
    """By how much the steps diverge at most, and the loss beyond which that is but rounding."""
    choices = [merge_unsampled(choice) for choice in choices_of(steps)]
    lost = max(_lost(choice) for choice in choices)
    pairs = [pair for choice in choices if choice for pair in _pairs(choice, relation)]
    curves = [_curve(pmf) for pair in pairs for pmf in {pair._pmf_remove, pair._pmf_add}]
    floor = max(_floor(choice) for choice in choices)
    reach = max((pair.get_epsilon_for_delta(floor) for pair in pairs), default=0.0)

    def profile(x: np.ndarray) -> np.ndarray:
        nothing = -np.expm1(np.minimum(x, 0.0))
        return np.max([nothing, *(curve(x) for curve in curves)], axis=0) + lost

    return profile, reach


def _curve(pmf: pld_pmf.PLDPmf) -> Profile:
    """What the distribution's `get_delta_for_epsilon` gives, for many x at once."""
    dense = pmf.to_dense_pmf()
    losses = (np.arange(dense.size) + dense._lower_loss) * dense._discretization
    # Exponents are capped where floats end, which takes less off, and so is safe.
    neighbours = dense._probs * np.exp(-np.maximum(losses, -700))
    above, neighbours_above = (
        np.append(np.cumsum(probs[::-1])[::-1], 0.0) for probs in (dense._probs, neighbours)
    )

    def curve(x: np.ndarray) -> np.ndarray:
        first = np.searchsorted(losses, x, side="right")
        taken_off = np.exp(np.minimum(x, 700)) * neighbours_above[first]
        return dense._infinity_mass + above[first] - taken_off

    return curve


def _inside(step: Step) -> tuple[tuple[Step, ...], ...]:
    """The lists of steps that a step is made of."""
    match step:
        case TunedSteps():
            return (step.steps,)
        case EitherSteps():
            return step.parts
    return ()


def _most_count(steps: Sequence[Step]) -> int:
    """The most steps that are composed anywhere."""
    inside = [_most_count(part) for step in steps for part in _inside(step)]
    return max(_count(steps), *inside, 0)


def _count(steps: Sequence[Step]) -> int:
    return sum(step.repeats for step in steps)


def _lost(steps: Sequence[Step]) -> float:
    """What rounding in the Fourier transforms leaves or takes of the tails.

    Measured, at most a third of this. dp_accounting ignores it, and so undercharges by 2 % at
    delta 1e-12 over 1e5 steps.
    """
    return 2 * _ROUNDING * (_count(steps) + 100)


def _floor(steps: Sequence[Step]) -> float:
    """No divergence is told apart from rounding below this, which tuning multiplies."""
    inside = (
        step.repeats
        * (3 * step.mean if isinstance(step, TunedSteps) else 3)
        * max(_floor(merge_unsampled(part)) for part in _inside(step))
        for step in steps
        if _inside(step)
    )
    return _lost(steps) + math.fsum(inside)


def _pairs(steps: Sequence[Step], relation: Relation) -> list[PrivacyLossDistribution]:
    """The composed pairs, the worst of which counts."""
    grid = _grid_step(steps, relation)
    # How often samples are cut depends on the larger of the two neighbours, which is this silo's
    # data, or its data with one record more.
    cut = relation == "add-remove" and any(isinstance(step, TruncatedSteps) for step in steps)
    return [_compose(steps, grid, relation, more) for more in ((0, 1) if cut else (0,))]


def _compose(
    steps: Sequence[Step], grid: float, relation: Relation, more: int
) -> PrivacyLossDistribution:
    total = None
    for step in steps:
        one = _distribution(step, grid, relation, more)
        some = one.self_compose(step.repeats) if step.repeats > 1 else one
        total = some if total is None else total.compose(some)
    assert total is not None, "nothing to compose"
    return total


def _distribution(
    step: Step, grid: float, relation: Relation, more: int
) -> PrivacyLossDistribution:
    """The losses of one such step, on data with `more` records than the step says."""
    match step:
        case Steps():
            return _gaussian(step.noise, step.sampling, grid, relation)
        case TruncatedSteps():
            return _truncated(step, grid, relation, more)
        case Selections():
            return _pure(step.epsilon, _bounded_range, grid)
        case PureSteps():
            return _pure(step.epsilon, _randomised_response, grid)
        case TunedSteps():
            return _tuned(step, grid, relation)
        case EitherSteps():
            return _either(step, grid, relation)
    raise TypeError(f"no privacy loss distribution of {step}")


def _gaussian(
    noise: float, sampling: float, grid: float, relation: Relation
) -> PrivacyLossDistribution:
    return from_gaussian_mechanism(
        noise,
        sampling_prob=sampling,
        value_discretization_interval=grid,
        neighboring_relation=_NEIGHBOURS[relation],
    )


def _truncated(
    step: TruncatedSteps, grid: float, relation: Relation, more: int
) -> PrivacyLossDistribution:
    """Chua et al. 2025 (arXiv 2508.15089), on data of which the record in question is one.

    Whether the other records fill the sample does not depend on that record. Where they do not,
    nothing is cut. Where they do, the record takes part by taking another one's place, which moves
    the sum by up to twice the clip. Which others are there is independent of whether it does.
    """
    records = step.records + more
    whole = _gaussian(step.noise, step.sampling, grid, relation)
    full = float(binom.sf(step.most - 1, records - 1, step.sampling))
    # What is rarer than this drowns in the allowance for rounding.
    if full < 1e-100:
        return whole
    fuller = float(binom.sf(step.most, records, step.sampling))
    takes_part = fuller * step.most / (records * full)
    cut = _gaussian(step.noise / 2, min(takes_part, 1.0), grid, relation)
    return cut.compute_mixture(whole, full)


def _tuned(step: TunedSteps, grid: float, relation: Relation) -> PrivacyLossDistribution:
    """The best of the trials, by the profile of one of them: see `tuned_pld`."""
    profile, reach = _profile(step.steps, relation)
    shift = shift_of(profile, step.mean, step.shape, min(reach, _MOST_REACH))
    best = best_of(profile, step.mean, shift)
    return _symmetric(best, shift + reach, spread_of(step, relation), grid)


def _either(step: EitherSteps, grid: float, relation: Relation) -> PrivacyLossDistribution:
    """The record is in whichever part diverges most, at each epsilon anew."""
    profiles, reaches = zip(*(_profile(part, relation) for part in step.parts), strict=True)

    def most(x: np.ndarray) -> np.ndarray:
        return np.max([profile(x) for profile in profiles], axis=0)

    return _symmetric(most, max(reaches), spread_of(step, relation), grid)


def _symmetric(
    profile: Profile, reach: float, spread: float, grid: float
) -> PrivacyLossDistribution:
    """The losses of a mechanism that diverges, in either direction, at most as the profile says.

    They are laid out as coarsely as this mechanism alone bears. Beyond the reach they are infinite.
    """
    stride = max(math.floor(_GRID_STEP * spread / grid), 1)
    if max(reach, stride * grid) > _MOST_REACH:
        raise OverflowError(f"losses reach to {reach}")
    ends = max(math.ceil(reach / (stride * grid)), 1)
    places = np.arange(-ends, ends + 1) * stride
    x = places * grid
    return PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots(grid, places, envelope(x, profile(x)))
    )


BoundedProfile = Callable[[np.ndarray, float], np.ndarray]


def _bounded_range(x: np.ndarray, epsilon: float) -> np.ndarray:
    """The most by which a mechanism of bounded range diverges at x, for |x| <= epsilon.

    If log ratios lie in [t - epsilon, t], the worst has two outcomes, at the ends, and diverges by
    (1 - e^(t-epsilon)) (1 - e^(x-t)) / (1 - e^-epsilon). Of all t, (x + epsilon) / 2 is the worst.
    """
    return np.expm1((x - epsilon) / 2) ** 2 / -np.expm1(-epsilon)


def _randomised_response(x: np.ndarray, epsilon: float) -> np.ndarray:
    """The most by which an epsilon-DP mechanism diverges at x, for |x| <= epsilon."""
    return np.expm1(x - epsilon) / -(1 + np.exp(-epsilon))


def _pure(epsilon: float, profile: BoundedProfile, grid: float) -> PrivacyLossDistribution:
    """The losses of a mechanism that diverges as `profile` says, and whose losses are bounded.

    The profile is the same in both directions. Connect-the-dots keeps the mean of the loss, which
    rounding up to the grid (dp_accounting's `from_privacy_parameters`) does not: over many small
    steps that adds up.
    """
    epsilon = max(epsilon, _LEAST_EPSILON)
    reach = max(math.ceil(epsilon / grid), 1)
    x = np.arange(-reach, reach + 1) * grid
    deltas = profile(np.clip(x, -epsilon, epsilon), epsilon)
    deltas = np.where(x >= epsilon, 0.0, np.where(x <= -epsilon, -np.expm1(x), deltas))
    return PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, -reach, reach, deltas)
    )


def _grid_step(steps: Sequence[Step], relation: Relation) -> float:
    """The step of the grid on which privacy losses are laid out.

    Any step gives an upper bound, because connect-the-dots rounds each loss so that no divergence
    falls (Doroshenko et al. 2022). So a coarser grid is safe, and only costs tightness: it adds
    about grid^2 / 6 to the variance of each step, and never more than grid^2 / 4, also where the
    step's own losses are far below the grid (selections of tiny epsilon): 0.01 % of epsilon.
    """
    count = _count(steps)
    deviation = total_spread(steps, relation)
    spread = deviation / math.sqrt(count)
    # Probabilities are second differences of delta, so rounding adds mass as the grid gets finer.
    rounding = math.sqrt(1e3 * _ROUNDING * count * spread)
    # Keeps memory and time bounded where one step reaches far beyond the spread (small noise).
    reach = 20 * deviation + 4 * max(_reach(step, relation) for step in steps)
    return max(_GRID_STEP * spread, rounding, reach / _GRID_POINTS, _LEAST_EPSILON)


def _reach(step: Step, relation: Relation) -> float:
    """The largest loss of one step, ten deviations out."""
    match step:
        case Steps() | TruncatedSteps():
            noise = relative_noise(step, relation)
            return 10 / noise + 0.5 / noise**2
        case Selections() | PureSteps():
            return step.epsilon
        case TunedSteps():
            return (3 + step.shape) * _inner_reach(step, relation)
        case EitherSteps():
            return _inner_reach(step, relation)
    return spread_of(step, relation)


def _inner_reach(step: TunedSteps | EitherSteps, relation: Relation) -> float:
    return max(
        10 * total_spread(part, relation) + max((_reach(s, relation) for s in part), default=0.0)
        for part in _inside(step)
    )
