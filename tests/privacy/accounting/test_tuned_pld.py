"""What the best of several trials costs by its privacy loss distribution."""

import itertools
import math

import numpy as np
import pytest
from charges import epsilons_of
from dp_accounting.dp_event import (
    ComposedDpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
    TruncatedSubsampledGaussianDpEvent,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from silodp.config.choices import Accountant, Relation
from silodp.privacy.accounting import parts, pld
from silodp.privacy.accounting.accountant import contenders, deltas_of, epsilon_of, steps_of
from silodp.privacy.accounting.events import BoundedRangeDpEvent, EitherDpEvent
from silodp.privacy.accounting.tuned_pld import best_of, envelope, shift_of
from silodp.privacy.calibration import CalibrationRequest, calibrate_many
from silodp.privacy.trials import Trials

SHAPES = [-0.5, 0.0, 0.5, 1.0, 2.0, 5.0]
few = settings(max_examples=6, deadline=None)


def sampled(rate, noise, count=1):
    return SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), count)


def school(noise, mean=10, shape=0.0):
    return RepeatAndSelectDpEvent(sampled(32 / 88, noise, 400), mean, shape)


def cost(event, delta=1e-4, accountant: Accountant = "pld", relation: Relation = "add-remove"):
    return epsilon_of(event, delta, accountant, relation)


def weights(trials, below):
    """The generating function's derivative: how much likelier the best is there than a trial."""
    gamma, eta = trials.gamma, trials.shape
    return trials.mean * gamma ** (eta + 1) * (1 - (1 - gamma) * below) ** (-eta - 1)


# Attacks


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("noise", [0.8, 3.0])
@pytest.mark.parametrize("highest", [True, False])
def test_the_best_of_trials_keeps_its_promise(shape, noise, highest):
    """The score is the release itself, or its opposite."""
    trials = Trials(6, shape)
    event = RepeatAndSelectDpEvent(GaussianDpEvent(noise), 6, shape)
    y = np.linspace(-12 * noise, 1 + 12 * noise, 100_001)
    step = y[1] - y[0]
    beaten = norm.cdf if highest else norm.sf
    first, second = (
        norm.pdf(y, at, noise) * weights(trials, beaten(y, at, noise)) * step for at in (1, 0)
    )
    assert first.sum() == pytest.approx(1, abs=1e-4)
    x = np.linspace(-6, 9, 31)
    claimed = deltas_of(event, x)
    for p, q in ((first, second), (second, first)):
        seen = np.array([np.maximum(p - math.exp(at) * q, 0).sum() for at in x])
        assert np.all(seen <= claimed + 1e-9)
        for delta in (1e-2, 1e-4, 1e-7):
            assert np.maximum(p - math.exp(cost(event, delta)) * q, 0).sum() <= delta
    # One trial's price would be a lie: the attack sees more than that.
    single = math.exp(cost(GaussianDpEvent(noise)))
    pairs = ((first, second), (second, first))
    assert max(np.maximum(p - single * q, 0).sum() for p, q in pairs) > 1e-4


def divergence(p, q, x):
    """At each x: the hockey-stick divergence of two discrete distributions."""
    return np.maximum(p - np.exp(x)[:, None] * q, 0).sum(axis=1)


def exact_best(trials, chances):
    """The distribution of the best of the trials, outcomes rising in rank, each to its last digits.

    Differences of the generating function, from the top down so that rare outcomes are not lost.
    """
    t, eta = trials.log_halting, trials.shape
    if t == 0:
        return chances
    above = np.append(np.cumsum(chances[:0:-1])[::-1], 0.0)
    halts = -math.expm1(-t)
    least = trials.gamma + halts * above
    logs = np.log1p(halts * chances / least)
    if abs(eta) < 1e-100:  # products with it vanish
        return logs / t
    return least**-eta * -np.expm1(-eta * logs) / math.expm1(eta * t)


def test_the_generating_function_is_that_of_the_trials():
    for shape in SHAPES:
        trials, chances = Trials(4, shape), np.array([0.5, 0.2, 0.3])
        number = trials.probabilities(4000)[:, None]
        below = np.array([0, 0.5, 0.7, 1]) ** np.arange(4001)[:, None]
        plain = np.diff((number * below).sum(axis=0))
        assert exact_best(trials, chances) == pytest.approx(plain, abs=1e-9)


def bound_of(profile, trials, x, reach=12.0):
    shift = shift_of(profile, trials.mean, trials.shape, reach)
    return envelope(x, best_of(profile, trials.mean, shift)(x))


def mechanisms(seed, count):
    """Pairs of random distributions on a few outcomes, some close, some with a tell-tale one."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        size = rng.integers(3, 7)
        first = rng.dirichlet(np.full(size, rng.choice([0.3, 1, 5])))
        if rng.random() < 0.5:
            second = first * np.exp(rng.uniform(0.05, 2) * rng.uniform(-1, 1, size))
        else:
            second = rng.dirichlet(np.ones(size))
        first, second = first + 1e-9, second / second.sum() + 1e-9
        yield first / first.sum(), second / second.sum()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    mean=st.floats(1, 12),
    shape=st.one_of(st.sampled_from([0.0, 1.0]), st.floats(-0.5, 5)),
)
def test_no_discrete_mechanism_diverges_more(seed, mean, shape):
    trials, x = Trials(mean, shape), np.linspace(-8, 8, 81)
    for p, q in mechanisms(seed, 10):

        def profile(at, p=p, q=q):
            return np.maximum(divergence(p, q, at), divergence(q, p, at))

        bound = bound_of(profile, trials, x)
        a, b = exact_best(trials, p), exact_best(trials, q)
        for first, second in ((a, b), (b, a)):
            assert np.all(divergence(first, second, x) <= bound + 1e-13 * (1 + np.exp(x)))


@pytest.mark.parametrize(("shape", "above"), [(0.0, 0.85), (1.0, 0.85), (4.0, 0.5)])
def test_some_mechanism_comes_near_the_bound(shape, above):
    """A rare worst outcome, likelier on the neighbour: the best shows it, and the shift is spent.

    Trials' own loss is large downwards too, on an outcome that is ranked highest.
    """
    trials, nearest = Trials(10, shape), 0.0
    for top, likelier, loss in itertools.product([1e-4, 1e-3], [0.01, 0.03, 0.1], [0.1, 0.3, 1.0]):
        # Ranked: the rest, then what is likelier under q (which lowers q'), then the release.
        p = np.array([1 - top * math.exp(loss) - likelier, likelier, top * math.exp(loss)])
        q = np.array([1 - top - likelier * math.exp(loss), likelier * math.exp(loss), top])
        x = np.linspace(-3, 3, 121)

        def profile(at, p=p, q=q):
            return np.maximum(divergence(p, q, at), divergence(q, p, at))

        bound = bound_of(profile, trials, x)
        seen = divergence(exact_best(trials, p), exact_best(trials, q), x)
        there = seen > 1e-9
        nearest = max(nearest, float(np.max(seen[there] / bound[there])))
    assert nearest > above


# Limits, and how it moves


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("shape", [-0.5, 0.0, 3.0])
def test_one_trial_costs_what_it_costs(shape, relation):
    for base in (sampled(0.2, 3.0, 100), GaussianDpEvent(0.5), BoundedRangeDpEvent(0.7)):
        plain = cost(base, relation=relation)
        best = cost(RepeatAndSelectDpEvent(base, 1, shape), relation=relation)
        assert plain * (1 - 1e-9) <= best <= plain * 1.01


def test_less_noise_than_by_renyi_divergence():
    for epsilon, shape, by_rdp, by_pld in [
        (6, 0.0, 7.770, 6.388), (6, 1.0, 9.202, 6.820), (1, 0.0, 43.05, 32.29),
    ]:  # fmt: skip
        request = CalibrationRequest(lambda z, s=shape: school(z, shape=s), epsilon, 1e-3)
        (best,) = calibrate_many([request], cache=False)
        assert best.accountant == "pld"
        assert best.noise_multiplier == pytest.approx(by_pld, rel=2e-3)
        assert cost(school(by_rdp, shape=shape), 1e-3, "rdp") == pytest.approx(epsilon, rel=2e-3)
        assert best.noise_multiplier < 0.92 * by_rdp


def test_both_accountants_are_asked_and_the_better_counts():
    assert contenders(school(5.0)) == ("pld", "rdp")
    assert contenders(EitherDpEvent([GaussianDpEvent(1.0)])) == ("pld", "rdp")
    assert contenders(school(5.0, shape=math.inf)) == ("rdp",)
    for event, delta in [(school(7.0), 1e-3), (school(40.0, 500, 4.0), 1e-9)]:
        charged = epsilons_of(event, delta)
        assert epsilon_of(event, delta) == min(cost for cost in charged.values() if cost)


@few
@given(
    mean=st.floats(1, 50),
    shape=st.floats(-0.5, 4),
    noise=st.floats(1, 10),
    delta=st.sampled_from([1e-7, 1e-3]),
)
def test_cost_moves_with_every_parameter(mean, shape, noise, delta):
    def at(mean=mean, shape=shape, noise=noise, delta=delta, relation: Relation = "add-remove"):
        event = RepeatAndSelectDpEvent(sampled(0.2, noise, 50), mean, shape)
        return cost(ComposedDpEvent([event, GaussianDpEvent(5.0)]), delta, relation=relation)

    middle, slack = at(), 1.001
    assert at(mean=mean * 1.2) * slack >= middle
    assert at(shape=shape + 0.2) * slack >= middle
    assert at(noise=noise * 1.1) <= middle * slack
    assert at(delta=delta * 2) <= middle
    assert at(relation="replace-one") * slack >= middle


# Composition


@pytest.mark.parametrize("shape", [0.0, 2.0])
def test_beside_other_steps(shape):
    best, others = school(10.0, shape=shape), sampled(32 / 88, 12.0, 400)
    both = cost(ComposedDpEvent([best, others]), 2e-4)
    assert max(cost(best, 2e-4), cost(others, 2e-4)) < both < cost(best) + cost(others)
    twice = cost(SelfComposedDpEvent(best, 2), 2e-4)
    assert cost(best, 2e-4) < twice < 2 * cost(best)
    assert cost(ComposedDpEvent([best, best]), 2e-4) == twice
    # The coarser grid of the best within the fine one of the others costs next to nothing.
    light = cost(ComposedDpEvent([best, sampled(32 / 88, 1e4, 400)]), 1e-4)
    assert light == pytest.approx(cost(best), rel=2e-3)


def test_two_attacked_at_once():
    """Two bests of three trials each, whose exact joint density is known."""
    trials, x = Trials(3, 1.0), np.linspace(-5, 6, 1201)
    step = x[1] - x[0]
    p, q = (norm.pdf(x, at) * weights(trials, norm.cdf(x, at)) * step for at in (1, 0))
    event = SelfComposedDpEvent(RepeatAndSelectDpEvent(GaussianDpEvent(1.0), 3, 1.0), 2)
    for delta in (1e-2, 1e-4):
        alpha = math.exp(cost(event, delta))
        for a, b in ((p, q), (q, p)):
            assert np.maximum(np.outer(a, a) - alpha * np.outer(b, b), 0).sum() <= delta


def test_tuning_within_tuning_and_of_cut_samples():
    cut = TruncatedSubsampledGaussianDpEvent(88, 32 / 88, 60, 10.0)
    tuned_cut = cost(RepeatAndSelectDpEvent(SelfComposedDpEvent(cut, 400), 10, 0.0))
    assert tuned_cut == pytest.approx(cost(school(10.0)), rel=1e-3)
    within = RepeatAndSelectDpEvent(school(30.0, 3), 3, 0.0)
    assert cost(school(30.0, 3)) < cost(within) < math.inf


def test_where_nothing_can_be_resolved_no_number_is_made_up():
    for base in (GaussianDpEvent(1e-3), sampled(0.5, 0.01, 10), NonPrivateDpEvent()):
        event = RepeatAndSelectDpEvent(base, 5, 1.0)
        assert cost(event) >= cost(base)
        assert cost(event, relation="replace-one") >= cost(base, relation="replace-one")
        assert deltas_of(event, np.array([1.0, 50.0])).tolist() == [1, 1]
    loud = RepeatAndSelectDpEvent(SelfComposedDpEvent(GaussianDpEvent(0.06), 9), 5, 1.0)
    assert cost(loud) == math.inf
    assert cost(loud, accountant="best") == cost(loud, accountant="rdp") < math.inf
    tiny = epsilon_of(school(10.0), 1e-14, "pld")
    assert tiny == epsilon_of(school(10.0), 1e-14, "rdp") < math.inf
    assert cost(RepeatAndSelectDpEvent(NoOpDpEvent(), 5, 1.0)) == 0


def test_what_lies_beyond_the_grid_is_charged_and_does_not_matter():
    rounding = pld._lost(steps_of(sampled(32 / 88, 10.0, 400)))
    (beyond,) = deltas_of(school(10.0), np.array([600.0]))
    assert 10 * rounding < beyond < 30 * rounding < 1e-10


# Parts of the records


STRONG = SelfComposedDpEvent(BoundedRangeDpEvent(0.4), 12)
WEAK = ComposedDpEvent([GaussianDpEvent(2.5), BoundedRangeDpEvent(0.2)])


def test_the_dearest_part_counts():
    for events in ([STRONG, WEAK], [WEAK, STRONG], [WEAK, NoOpDpEvent(), STRONG]):
        event = EitherDpEvent(events)
        for delta in (1e-2, 1e-6):
            assert cost(event, delta) == max(cost(STRONG, delta), cost(WEAK, delta))
        x = np.linspace(-1, 4, 11)
        most = np.maximum(deltas_of(STRONG, x), deltas_of(WEAK, x))
        assert deltas_of(event, x) == pytest.approx(most, abs=1e-12)
    assert cost(EitherDpEvent([NoOpDpEvent()])) == 0


@pytest.mark.parametrize("times", [2, 3])
def test_every_time_the_record_may_be_in_another_part(times):
    nested = EitherDpEvent([EitherDpEvent([WEAK, NoOpDpEvent()]), STRONG])
    ways = itertools.product([STRONG, WEAK], repeat=times)
    dearest = max(cost(ComposedDpEvent([*way, GaussianDpEvent(9.0)])) for way in ways)
    for event in (EitherDpEvent([STRONG, WEAK]), nested):
        whole = ComposedDpEvent([SelfComposedDpEvent(event, times), GaussianDpEvent(9.0)])
        assert cost(whole) == pytest.approx(dearest, rel=1e-9)


def test_too_many_ways_are_bounded_together(monkeypatch):
    event = ComposedDpEvent([EitherDpEvent([STRONG, WEAK]), school(30.0)])
    single, several = cost(event), cost(SelfComposedDpEvent(EitherDpEvent([STRONG, WEAK]), 70))
    assert cost(SelfComposedDpEvent(STRONG, 70)) < several * 1.0001
    assert several < 1.3 * cost(SelfComposedDpEvent(STRONG, 70))
    monkeypatch.setattr(parts, "_MOST_CHOICES", 1)
    assert single * (1 - 1e-4) <= cost(event) <= 1.03 * single


def test_tuning_on_parts():
    best = RepeatAndSelectDpEvent(EitherDpEvent([STRONG, WEAK]), 4, 0.5)
    dearest = max(cost(RepeatAndSelectDpEvent(part, 4, 0.5)) for part in (STRONG, WEAK))
    assert dearest * (1 - 1e-9) <= cost(best) <= dearest * 1.05


# Curves


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_the_profile_is_that_of_dp_accounting(relation):
    for event in (sampled(0.3, 2.0, 20), BoundedRangeDpEvent(0.5), GaussianDpEvent(0.3)):
        steps, x = steps_of(event), np.linspace(-9, 20, 200)
        (pair,) = pld._pairs(steps, relation)
        theirs = pair.get_delta_for_epsilon(x.tolist())
        assert pld.deltas(steps, x, relation) == pytest.approx(theirs, abs=2e-13)
    assert pld.deltas(steps, np.array([800.0, math.inf]), relation).max() < 1e-12


@few
@given(st.integers(0, 2**32), st.floats(1, 40))
def test_the_envelope_is_convex_and_only_ever_lowers_bounds(seed, reach):
    x = np.linspace(-reach, reach, 101)
    bounds = np.sort(np.random.default_rng(seed).uniform(0, 3, 101))[::-1]
    found = envelope(x, bounds)
    assert np.all(found <= np.minimum(bounds, 1) + np.maximum(-np.expm1(x), 0) + 1e-15)
    assert np.all(found >= -np.expm1(x) - 1e-15)
    alphas = np.concatenate([[0.0], np.exp(x)])
    slopes = np.diff(np.concatenate([[1.0], found])) / np.diff(alphas)
    assert np.all(np.diff(slopes) >= -1e-9 * np.abs(slopes[1:]) - 1e-12 / np.diff(alphas)[1:])
    # Swapping the neighbours changes nothing.
    assert found == pytest.approx(-np.expm1(x) + np.exp(x) * found[::-1], abs=1e-15 * alphas[-1])
