"""Lifetimes under adaptive choice: filters, their prices, and the odometer, attacked.

An adversary is worked out exactly here, not simulated: a mechanism is its privacy losses on a grid
of outcomes and how likely each is, and at each stage the adversary takes whatever does most harm.
None of that shares code with what it attacks.
"""

import contextlib
import itertools
import json
import math
import re
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from dp_accounting.dp_event import (
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
    TruncatedSubsampledGaussianDpEvent,
    ZCDpEvent,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from silodp.base.errors import SilodpError
from silodp.privacy.accounting import rdp
from silodp.privacy.accounting.accountant import epsilon_of, steps_of
from silodp.privacy.accounting.events import BoundedRangeDpEvent, EitherDpEvent, PureDpEvent
from silodp.privacy.ledger.lifetime import (
    ASIDE,
    Lifetime,
    cost,
    epsilon_of_left,
    fits,
    from_json,
    noise_that_fits,
    odometer,
    open_lifetime,
    share,
    to_json,
    why_not,
)

RELATIONS = ("add-remove", "replace-one")
KINDS = ("renyi", "gaussian")
few = settings(max_examples=20, deadline=None)
lifetimes = st.tuples(
    st.floats(-3, 1.7).map(lambda x: 10**x), st.floats(-12, -2).map(lambda x: 10**x)
)


def sampled(rate, noise, count=1):
    return SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), count)


# Adversaries: privacy losses, and how likely each is on the data that are really there


def on_grid(rate, noise, other=0.0, swapped=False):
    """(1-q) N(0) + q N(1) against N(0), or against (1-q) N(0) + q N(other)."""
    t = 1 / noise
    y = np.linspace(-10 - t, 10 + t, 1201)

    def log_ratio(centre):
        drawn = math.log(rate) + centre * t * y - t * t / 2
        return drawn if rate == 1 else np.logaddexp(math.log1p(-rate), drawn)

    first = log_ratio(1)
    second = log_ratio(other) if other else np.zeros_like(y)
    if swapped:
        first, second = second, first
    return first - second, norm.pdf(y) * np.exp(first) * (y[1] - y[0])


def gaussian(noise):
    return on_grid(1.0, noise)


def coin(epsilon):
    """Randomised response: no epsilon-DP mechanism diverges more."""
    told = 1 / (1 + math.exp(-epsilon))
    return np.array([epsilon, -epsilon]), np.array([told, 1 - told])


def of_range(epsilon, at):
    """Two outcomes, whose odds are e^epsilon apart: the extreme mechanisms of bounded range."""
    log_odds = at * epsilon, (at - 1) * epsilon  # on the data that are there, and on the others
    there, other = (-np.logaddexp(0, [-odds, odds]) for odds in log_odds)
    return there - other, np.exp(there)


def hockey_stick(mechanism, x):
    """By how much the mechanism diverges at each epsilon x."""
    losses, likely = mechanism
    return -np.expm1(np.minimum(np.subtract.outer(x, losses), 0)) @ likely


def best_second(first, seconds, epsilon):
    """The true delta, if the second mechanism is whichever does most harm after the first."""
    losses, likely = first
    harm = [hockey_stick(second, epsilon - losses) for second in seconds]
    return float(likely @ np.max([*harm, -np.expm1(np.minimum(epsilon - losses, 0))], axis=0))


def dearest(event_of, left, lifetime, low, high):
    """The x between low, which fits, and high whose event is dearest and still fits."""
    assert cost(event_of(low), lifetime) <= left
    for _ in range(45):
        middle = math.sqrt(low * high)
        if cost(event_of(middle), lifetime) <= left:
            low = middle
        else:
            high = middle
    return low


def strongest(left, lifetime):
    """Mechanisms of several kinds, each of which would fill what is left; as losses."""
    moved = 1 if lifetime.relation == "add-remove" else 2
    yield gaussian(noise_that_fits(left, lifetime) / moved)
    yield coin(dearest(PureDpEvent, left, lifetime, 1e-9, 200))
    for at in (0.2, 0.5, 0.8):
        yield of_range(dearest(BoundedRangeDpEvent, left, lifetime, 1e-9, 200), at)
    if lifetime.kind == "gaussian":
        return
    for rate in (0.3, 1e-2, 1e-4):
        noise = dearest(lambda s, q=rate: sampled(q, s), left, lifetime, 1e9, 0.1)
        if lifetime.relation == "replace-one":
            yield on_grid(rate, noise, -1.0)
        else:
            yield on_grid(rate, noise)
            yield on_grid(rate, noise, swapped=True)


def test_admitting_what_composes_is_no_filter():
    # Each pair of runs costs at most (2, 1e-5) by composition, and so would be admitted; but which
    # one is second is chosen by how the first came out.
    epsilon, delta, first = 2.0, 1e-5, 2.6
    seconds = [(GaussianDpEvent(3.2), gaussian(3.2)), (PureDpEvent(0.53), coin(0.53))]
    seconds += [
        (sampled(rate, noise), on_grid(rate, noise))
        for rate, noise in [(0.1, 1.045), (0.01, 0.591), (1e-4, 0.2685)]
    ]
    for event, losses in seconds:
        pair = ComposedDpEvent([GaussianDpEvent(first), event])
        assert 1.9 < epsilon_of(pair, delta, "pld") <= epsilon
        assert best_second(gaussian(first), [losses], epsilon) <= delta
    truth = best_second(gaussian(first), [losses for _, losses in seconds], epsilon)
    assert truth > 2.4 * delta

    # The filter does not let them all pass; what it lets pass is harmless (see the next test).
    lifetime = open_lifetime(epsilon, delta, "add-remove")
    costs = [cost(event, lifetime) for event, _ in seconds]
    spent = cost(GaussianDpEvent(first), lifetime)
    assert not any(fits([spent, more], [], lifetime) for more in costs)


@few
@given(lifetimes, st.floats(0.03, 0.97), st.sampled_from(KINDS), st.sampled_from(RELATIONS))
def test_no_choice_of_a_second_run_exceeds_the_lifetime(promise, first, kind, relation):
    epsilon, delta = promise
    lifetime = open_lifetime(epsilon, delta, relation, kind)
    noise = noise_that_fits(first * lifetime.budget, lifetime)
    spent = cost(GaussianDpEvent(noise), lifetime)
    left = lifetime.budget - spent
    seconds = list(strongest(left, lifetime))
    truth = best_second(gaussian(noise / (1 + (relation == "replace-one"))), seconds, epsilon)
    assert truth <= delta * (1 - ASIDE) * (1 + 1e-3)  # of this grid
    if kind == "gaussian":  # nothing is lost
        assert truth >= delta * (1 - ASIDE) * (1 - 1e-3)


@pytest.mark.parametrize(
    ("kind", "relation", "epsilon", "delta"),
    [
        ("renyi", "add-remove", 2.0, 1e-5),
        ("renyi", "replace-one", 1.0, 1e-3),
        ("gaussian", "add-remove", 3.0, 1e-6),
    ],
)
def test_no_strategy_of_four_stages_exceeds_the_lifetime(kind, relation, epsilon, delta):
    """By dynamic programming: the most harm, from each loss so far and each budget left."""
    lifetime = open_lifetime(epsilon, delta, relation, kind)
    parts = 4
    x = np.linspace(-6 * epsilon, 6 * epsilon, 1501)
    menu = {
        units: list(strongest(units / parts * lifetime.budget * (1 - 1e-9), lifetime))
        for units in (1, 2, 4)
    }

    def most_harm():
        left = {0: -np.expm1(np.minimum(x, 0))}
        for total in range(1, parts + 1):
            options = [left[0]]
            for units in (u for u in menu if u <= total):
                # It falls steeply: what is interpolated is its logarithm.
                before = np.log(np.maximum(left[total - units], 1e-300))
                for losses, likely in menu[units]:
                    if total == units:
                        options.append(hockey_stick((losses, likely), x))
                        continue
                    every = 8 if len(losses) > 2 else 1  # enough for what is smooth
                    shifted = np.subtract.outer(x, losses[::every])
                    harm = np.exp(np.interp(shifted, x, before))
                    options.append(harm @ likely[::every] * every)
            left[total] = np.max(options, axis=0)
        return float(np.interp(epsilon, x, left[parts]))

    truth = most_harm()
    assert truth <= delta * (1 - ASIDE) * 1.002
    assert truth > 0.2 * delta  # the adversary is not a weak one
    single = max(hockey_stick(option, np.array([epsilon]))[0] for option in menu[4])
    assert truth >= single * (1 - 1e-3)


# Prices against integrals


def divergence(order, p, q, centres):
    """The Rényi divergence of two densities on the line, to many digits."""
    with mpmath.workdps(20):
        reach = 14
        ends = [min(centres) - reach, *sorted(centres), max(centres) + reach]
        places = sorted({mpmath.mpf(e) for e in ends} | {mpmath.mpf(0), mpmath.mpf(1)})
        integral = mpmath.quad(lambda z: p(z) ** order * q(z) ** (1 - order), places)
        return float(mpmath.log(integral) / (order - 1))


def sampled_divergences(order, rate, noise, relation):
    """Both directions of a sampled Gaussian mechanism, in units of the noise."""
    order, rate, t = mpmath.mpf(order), mpmath.mpf(rate), 1 / mpmath.mpf(noise)

    def mixture(centre):
        return lambda z: (1 - rate) * mpmath.npdf(z) + rate * mpmath.npdf(z, centre * t)

    p, q = mixture(1), mpmath.npdf if relation == "add-remove" else mixture(-1)
    top = float(2 * order * t)
    centres = np.linspace(-top, top, 9).tolist()
    return divergence(order, p, q, centres), divergence(order, q, p, centres)


@settings(max_examples=8, deadline=None)
@given(
    st.floats(1.02, 40),
    st.floats(-6, -0.01).map(lambda x: 10**x),
    st.floats(-0.7, 2).map(lambda x: 10**x),
    st.sampled_from(RELATIONS),
)
def test_a_sampled_step_costs_what_its_integral_says(order, rate, noise, relation):
    assume(order / noise < 40)
    lifetime = at_order(order, relation)
    charged = cost(sampled(rate, noise), lifetime)
    there, back = sampled_divergences(lifetime.order, rate, noise, relation)
    assert charged >= max(there, back)
    assert charged <= max(there, back) * (1 + 2e-12) + 1e-10
    assert charged == pytest.approx(cost(sampled(rate, noise, 700), lifetime) / 700, rel=1e-9)


def at_order(order, relation="add-remove", epsilon=1e4):
    return open_lifetime(epsilon, 1e-5, relation, order=order)


@few
@given(
    st.floats(1.05, 300),
    st.floats(-6, -0.01).map(lambda x: 10**x),
    st.floats(-0.9, 3).map(lambda x: 10**x),
    st.sampled_from(RELATIONS),
)
def test_less_noise_more_sampling_and_higher_orders_cost_more(order, rate, noise, relation):
    lifetime = at_order(order, relation)
    charged = cost(sampled(rate, noise), lifetime)
    slack = 1e-10 + charged * 1e-11
    assert charged <= cost(sampled(rate, noise / 1.01), lifetime) + slack
    assert charged <= cost(sampled(min(rate * 1.01, 1.0), noise), lifetime) + slack
    assert charged <= cost(sampled(rate, noise), at_order(order * 1.01, relation)) + slack
    assert charged <= cost(GaussianDpEvent(noise), lifetime) * (1 + 1e-11)
    if relation == "replace-one":
        assert charged >= cost(sampled(rate, noise), at_order(order)) - slack


@pytest.mark.parametrize(("relation", "moved"), [("add-remove", 1), ("replace-one", 2)])
def test_every_record_has_a_closed_form_which_nearly_sure_samples_approach(relation, moved):
    for order, noise in [(1.5, 0.8), (12.25, 3.0), (900.0, 70.0)]:
        lifetime = at_order(order, relation)
        truth = order * moved**2 / (2 * noise**2)
        for event in (GaussianDpEvent(noise), sampled(1.0, noise)):
            assert truth <= cost(event, lifetime) <= truth * (1 + 1e-11)
        nearly = cost(sampled(1 - 1e-13, noise), lifetime)
        assert nearly == pytest.approx(truth, rel=1e-8)


def test_whole_orders_of_add_remove_agree_with_the_binomial_sum():
    for order, rate, noise in [(2, 0.1, 1.0), (7, 0.01, 0.6), (64, 0.3, 9.0)]:
        with mpmath.workdps(40):
            q, s = mpmath.mpf(rate), mpmath.mpf(noise)
            terms = (
                mpmath.binomial(order, k)
                * (1 - q) ** (order - k)
                * q**k
                * mpmath.exp((k * k - k) / (2 * s * s))
                for k in range(order + 1)
            )
            truth = float(mpmath.log(mpmath.fsum(terms)) / (order - 1))
        assert truth <= cost(sampled(rate, noise), at_order(order)) <= truth * (1 + 1e-9)


def test_where_the_grid_would_be_too_long_no_sampling_is_charged():
    for relation in RELATIONS:
        high = at_order(1e6, relation)
        charged = cost(sampled(0.3, 0.5), high)
        assert charged < math.inf
        # No less than at an order where it can be worked out.
        assert charged >= cost(sampled(0.3, 0.5), at_order(400.0, relation))


def test_parts_of_the_records_cost_as_the_dearest():
    for kind in KINDS:
        lifetime = open_lifetime(3.0, 1e-5, "add-remove", kind)
        small, large = GaussianDpEvent(9.0), SelfComposedDpEvent(GaussianDpEvent(3.0), 2)
        either = SelfComposedDpEvent(EitherDpEvent([small, large]), 5)
        assert cost(either, lifetime) == pytest.approx(5 * cost(large, lifetime), rel=1e-11)


# What a budget promises


@few
@given(lifetimes)
def test_the_budget_at_its_order_implies_the_promise(promise):
    """By the least c for which (1 - e^(epsilon-l))+ <= c e^((a-1) l), at all losses l."""
    epsilon, delta = promise
    lifetime = open_lifetime(epsilon, delta, "add-remove")
    above = lifetime.order - 1
    beyond = np.geomspace(1e-4, 1e4, 200_001) / above  # l - epsilon
    log_c = np.max(np.log(-np.expm1(-beyond)) - above * (epsilon + beyond))
    log_delta = log_c + above * lifetime.budget
    assert log_delta <= math.log(delta * (1 - ASIDE)) + 1e-9
    assert log_delta >= math.log(delta * (1 - ASIDE)) - 1e-4  # and nothing is given away
    # No other order holds a Gaussian mechanism of clearly less noise.
    for other in (1 + above * 0.9, 1 + above * 1.1):
        budget = open_lifetime(epsilon, delta, "add-remove", order=other).budget
        assert budget / other <= lifetime.budget / lifetime.order * (1 + 1e-4)


def gaussian_delta(mu, epsilon):
    with mpmath.workdps(40):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        below = mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - below


@few
@given(lifetimes, st.integers(1, 40), st.sampled_from(RELATIONS))
def test_gaussian_releases_fill_a_gaussian_lifetime_to_the_brim(promise, runs, relation):
    epsilon, delta = promise
    lifetime = open_lifetime(epsilon, delta, relation, "gaussian")
    noise = noise_that_fits(lifetime.budget / runs * (1 - 1e-12), lifetime)
    costs = [cost(GaussianDpEvent(noise), lifetime)] * runs
    assert fits(costs, [], lifetime)
    assert not fits([*costs, costs[0] / 1e6], [], lifetime)
    mu = math.sqrt(runs) * (1 if relation == "add-remove" else 2) / noise
    assert gaussian_delta(mu, epsilon) <= delta * (1 - ASIDE)
    assert float(gaussian_delta(mu, epsilon)) == pytest.approx(delta * (1 - ASIDE), rel=1e-4)


@settings(max_examples=60, deadline=None)
@given(st.floats(-5, 2).map(lambda x: 10**x), st.floats(0, 1))
def test_a_gaussian_trade_off_is_below_that_of_pure_mechanisms_and_selections(epsilon, at):
    lifetime = open_lifetime(3.0, 1e-5, "add-remove", "gaussian")
    alarms = np.concatenate([np.geomspace(1e-300, 0.5, 2000), 1 - np.geomspace(1e-16, 0.5, 2000)])

    def missed(mu):
        return norm.cdf(norm.isf(alarms) - mu)

    mu = math.sqrt(cost(PureDpEvent(epsilon), lifetime))
    chords = np.maximum(1 - math.exp(epsilon) * alarms, math.exp(-epsilon) * (1 - alarms))
    assert np.all(missed(mu) <= chords * (1 + 1e-9) + 1e-15)
    kink = 1 / (1 + math.exp(epsilon))  # where false alarms and misses are as many
    assert norm.cdf(norm.isf(kink) - mu) == pytest.approx(kink, rel=1e-4)

    mu = math.sqrt(cost(BoundedRangeDpEvent(epsilon), lifetime))
    most = at * epsilon  # log ratios from most - epsilon to most
    chords = np.maximum(1 - math.exp(most) * alarms, math.exp(most - epsilon) * (1 - alarms))
    assert np.all(missed(mu) <= chords * (1 + 1e-9) + 1e-15)
    assert cost(BoundedRangeDpEvent(2 * epsilon), lifetime) == cost(PureDpEvent(epsilon), lifetime)


def test_probits_of_logits_flatten_away_from_0():
    """Van Zwet's order, on which the price of selections rests: h falls where Phi is above 1/2."""
    with mpmath.workdps(40):
        x = [mpmath.mpf(k) / 50 for k in range(1, 1000)]
        slopes = [mpmath.ncdf(a) * mpmath.ncdf(-a) / mpmath.npdf(a) for a in x]
    assert all(later < earlier for earlier, later in itertools.pairwise(slopes))


# What it costs to be adaptive


def test_the_price_of_a_filter():
    # 300 steps at rate 0.1 and noise 6.587: epsilon 1 at delta 1e-5.
    run = sampled(0.1, 6.587, 300)
    assert epsilon_of(run, 1e-5, "pld") == pytest.approx(1, abs=1e-3)
    assert epsilon_of(ComposedDpEvent([run] * 10), 1e-5, "pld") == pytest.approx(3.58, abs=0.01)

    def holds(epsilon, kind="renyi"):
        lifetime = open_lifetime(epsilon, 1e-5, "add-remove", kind)
        return math.floor(lifetime.budget / cost(run, lifetime))

    assert holds(3.87) == 9
    assert holds(3.90) == 10
    assert epsilon_of(ComposedDpEvent([run] * 17), 1e-5, "pld") < 5
    assert epsilon_of(ComposedDpEvent([run] * 18), 1e-5, "pld") > 5
    assert holds(5.0) == 15
    assert holds(5.0, "gaussian") == 0


# What is left


@few
@given(lifetimes, st.floats(1e-6, 1), st.sampled_from(KINDS), st.sampled_from(RELATIONS))
def test_one_more_release_fits_in_what_is_left_and_no_stronger_one(promise, part, kind, relation):
    lifetime = open_lifetime(*promise, relation, kind)
    left = part * lifetime.budget
    noise = noise_that_fits(left, lifetime)
    assert cost(GaussianDpEvent(noise), lifetime) <= left
    assert cost(GaussianDpEvent(noise * (1 - 1e-10)), lifetime) > left
    alone = epsilon_of_left(left, lifetime)
    mu = (1 if relation == "add-remove" else 2) / noise
    if alone > 0:
        assert float(gaussian_delta(mu, alone)) == pytest.approx(lifetime.delta, rel=1e-4)
    else:
        assert gaussian_delta(mu, 0) <= lifetime.delta
    assert alone <= lifetime.epsilon
    assert epsilon_of_left(left / 2, lifetime) <= epsilon_of_left(left, lifetime)


def test_nothing_is_left_for_any_release():
    lifetime = open_lifetime(2.0, 1e-5, "add-remove")
    for left in (0.0, -1.0, math.nan, 1e-30):
        assert noise_that_fits(left, lifetime) == math.inf
        assert epsilon_of_left(left, lifetime) == 0
    assert epsilon_of_left(1e9, lifetime) == lifetime.epsilon
    assert share(lifetime.budget / 4, lifetime) == pytest.approx(0.25)


def test_what_fits():
    lifetime = open_lifetime(2.0, 1e-5, "add-remove")
    whole, aside = lifetime.budget, lifetime.overflow_budget
    assert fits([], [], lifetime)
    assert fits([whole / 2, whole / 2], [aside / 2, aside / 2], lifetime)
    tenths = [whole / 10] * 10
    assert fits(iter(tenths), iter(()), lifetime) == (math.fsum(tenths) <= whole)
    for spent, overflow in [
        ([whole * (1 + 1e-9)], []),
        ([whole, 1e-9], []),
        ([whole * 2, -whole], []),  # nothing is given back
        ([math.nan], []),
        ([math.inf, -math.inf], []),
        ([1e308, 1e308], []),
        ([], [aside * 1.001]),
        ([], [-1.0, 1.0]),
        ([], [math.nan]),
    ]:
        assert not fits(spent, overflow, lifetime)


@few
@given(lifetimes)
def test_overflow_takes_no_more_than_was_set_aside(promise):
    epsilon, delta = promise
    aside = open_lifetime(epsilon, delta, "add-remove").overflow_budget
    assert (1 + math.exp(epsilon)) * aside <= ASIDE * delta
    assert (1 + math.exp(epsilon)) * aside == pytest.approx(ASIDE * delta, rel=1e-6)


# Prices at the ends


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("epsilon", "delta"), [(2.0, 1e-5), (50.0, 1e-12), (1e-3, 1e-12), (1000.0, 1e-5), (1.0, 0.5)]
)
def test_nothing_that_tells_is_free(epsilon, delta, kind, relation):
    lifetime = open_lifetime(epsilon, delta, relation, kind)
    for event in (NoOpDpEvent(), GaussianDpEvent(math.inf), sampled(0.0, 1.0), PureDpEvent(0.0)):
        assert cost(event, lifetime) == 0
    for event in (
        GaussianDpEvent(1e12),
        GaussianDpEvent(1e300),
        PureDpEvent(1e-200),
        BoundedRangeDpEvent(5e-324),
        EitherDpEvent([NoOpDpEvent(), PureDpEvent(1e-170)]),
    ):
        assert 0 < cost(event, lifetime) < 1e-10
    if kind == "renyi":
        for event in (sampled(5e-324, 1e12), sampled(1e-9, 30.0), ZCDpEvent(1e-250)):
            assert 0 < cost(event, lifetime) < 1e-10
    for event in (
        NonPrivateDpEvent(),
        GaussianDpEvent(0.0),
        GaussianDpEvent(1e-4),
        sampled(1e-9, 0.01),
        PureDpEvent(501.0) if kind == "gaussian" else NonPrivateDpEvent(),
        TruncatedSubsampledGaussianDpEvent(88, 0.3, 48, 5.0),
        SelfComposedDpEvent(GaussianDpEvent(1.0), 10**400),
        ComposedDpEvent([NoOpDpEvent(), NonPrivateDpEvent(), GaussianDpEvent(3.0)]),
    ):
        assert cost(event, lifetime) == math.inf
        assert not fits([cost(event, lifetime)], [], lifetime)
        assert why_not(event, lifetime)


def test_small_prices_are_no_less_than_they_should_be():
    """Where squares vanish and logarithms of 1 are taken."""
    gaussian_kind = open_lifetime(1.0, 1e-5, "add-remove", "gaussian")
    for epsilon in (1e-12, 1e-7, 4.9e-4, 5.1e-4, 1e-3, 0.1, 30.0):
        with mpmath.workdps(60):
            odds = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
            truth = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * odds) * 2
        charged = cost(PureDpEvent(epsilon), gaussian_kind)
        assert truth**2 <= charged <= truth**2 * (1 + 1e-6)
    for relation, moved in (("add-remove", 1), ("replace-one", 2)):
        # To the first order in q^2, at any order of divergence.
        lifetime, rate, noise = at_order(4.5, relation), 1e-5, 20.0
        first = 4.5 / 2 * (moved * rate) ** 2 * math.expm1(noise**-2)
        assert first * (1 - 1e-2) <= cost(sampled(rate, noise), lifetime) <= first * 1.01 + 1e-12


def test_reasons_name_the_step_and_a_remedy():
    renyi, gauss = (open_lifetime(2.0, 1e-5, "add-remove", kind) for kind in KINDS)
    cut = TruncatedSubsampledGaussianDpEvent(88, 0.3, 48, 5.0)
    school = sampled(0.3, 5.0, 400)
    tuned = RepeatAndSelectDpEvent(school, 5, 1)
    for event, lifetime, words in [
        (school, gauss, "on a Poisson sample.*filter 'gaussian'.*'renyi'"),
        (tuned, gauss, "repeat-and-select.*'renyi'"),
        (ZCDpEvent(0.1), gauss, "zCDP.*'renyi'"),
        (cut, renyi, "truncated Poisson sample.*no known Rényi divergence"),
        (RepeatAndSelectDpEvent(cut, 5, 1), renyi, "truncated Poisson sample"),
        (EitherDpEvent([GaussianDpEvent(2.0), cut]), renyi, "truncated Poisson sample"),
        (EitherDpEvent([GaussianDpEvent(2.0), school]), gauss, "on a Poisson sample"),
        (NonPrivateDpEvent(), renyi, "noise 0.*too little.*more noise"),
        (sampled(0.1, 0.01), renyi, "too little"),
        (PureDpEvent(600.0), gauss, "too little"),
    ]:
        said = why_not(ComposedDpEvent([GaussianDpEvent(1.0), event]), lifetime)
        assert said is not None
        assert re.search(words, said)
        assert cost(event, lifetime) == math.inf
    for event in (school, tuned, ZCDpEvent(0.1), PureDpEvent(0.1), NoOpDpEvent()):
        assert why_not(event, renyi) is None
        assert cost(event, renyi) < math.inf
    with pytest.raises(SilodpError, match="no price here"):
        cost(LaplaceDpEvent(1.0), renyi)
    with pytest.raises(SilodpError, match="no price here"):
        why_not(LaplaceDpEvent(1.0), renyi)


def test_other_mechanisms_cost_what_the_renyi_accountant_says():
    lifetime = open_lifetime(2.0, 1e-5, "add-remove")
    for event in (
        SelfComposedDpEvent(BoundedRangeDpEvent(0.1), 30),
        PureDpEvent(0.3),
        ZCDpEvent(0.02, 0.01),
        RepeatAndSelectDpEvent(GaussianDpEvent(9.0), 5, 1),
    ):
        (expected,) = rdp.curve(steps_of(event), [lifetime.order], "add-remove")
        assert cost(event, lifetime) == pytest.approx(expected, rel=1e-9)


# The odometer


TYPICAL = sampled(0.1, 6.587, 300)


def test_the_odometer_rises_and_starts_at_nothing():
    lifetime = open_lifetime(6.0, 1e-5, "add-remove")
    assert odometer([], 0.0, lifetime) == 0
    assert odometer([NoOpDpEvent()], 0.0, lifetime) == 0
    said = [odometer([TYPICAL] * runs, 0.0, lifetime) for runs in range(1, 30)]
    assert said == sorted(said)
    assert said[0] < 1.6 * epsilon_of(TYPICAL, 1e-5)  # of a run of epsilon 1
    assert said[9] < 1.4 * epsilon_of(ComposedDpEvent([TYPICAL] * 10), 1e-5)
    assert odometer([TYPICAL, NonPrivateDpEvent()], 0.0, lifetime) == math.inf
    for overflow in (lifetime.overflow_budget * 1.01, -1.0, math.nan):
        assert odometer([TYPICAL], overflow, lifetime) == math.inf
    assert odometer([TYPICAL], lifetime.overflow_budget, lifetime) == said[0]
    huge = SelfComposedDpEvent(GaussianDpEvent(1.0), 10**400)
    assert odometer([huge], 0.0, lifetime) == math.inf


@pytest.mark.parametrize(("epsilon", "delta"), [(3.0, 1e-2), (3.0, 1e-5), (0.3, 1e-3), (20.0, 0.2)])
def test_no_strategy_makes_the_loss_exceed_the_odometer_at_any_time(epsilon, delta):
    """The best of all strategies of four stages, which wins once the loss is above what is said."""
    lifetime = open_lifetime(epsilon, delta, "add-remove")
    menu = list(_runs(lifetime))
    x = np.linspace(-3 * epsilon, 6 * epsilon, 3601)  # the loss so far

    def wins(events):
        """The chance to win from each loss so far, if these were asked and it did not win yet."""
        if len(events) == 4:
            return np.zeros(len(x))
        options = []
        for event, (losses, likely) in menu:
            after, said = wins((*events, event)), odometer((*events, event), 0.0, lifetime)
            if len(losses) > 2:
                losses, likely = losses[::8], likely[::8] * 8
            now = np.add.outer(x, losses)
            # Rounded down to the grid: a coin's losses are few, and would seem to get further.
            place = np.clip((now - x[0]) / (x[1] - x[0]) + 1e-6, 0, len(x) - 1).astype(int)
            options.append(np.where(now > said, 1.0, after[place]) @ likely)
        return np.max(options, axis=0)

    truth = float(np.interp(0, x, wins(())))
    assert truth <= delta * (1 - ASIDE) / 10  # a union bound over levels is far from the truth
    assert truth > delta * 1e-3  # and the adversary is not a weak one


def test_the_least_lifetime_in_hindsight_is_no_odometer():
    """Gaussian releases, the more the longer; whoever stops where it pays best, and then says that
    the lifetime was just what that took, has released at several times the delta."""
    delta, ratio, steps = 1e-5, 1.2, 60
    x = np.linspace(-7, 8, 751)  # the loss so far, in its standard deviations
    kept = math.sqrt(1 / ratio)
    move = norm.pdf(x[None] - kept * x[:, None], scale=math.sqrt(1 - kept * kept))
    move *= x[1] - x[0]
    orders = 1 + np.geomspace(1e-2, 1e6, 20_001)
    of_delta = (math.log(delta * (1 - ASIDE)) + np.log(orders)) / (orders - 1)
    best = np.zeros(len(x))
    for spent in 1e-3 * ratio ** np.arange(steps)[::-1]:  # mu^2 so far
        least = np.min(orders * spent / 2 - of_delta + np.log1p(-1 / orders))
        losses = spent / 2 + x * math.sqrt(spent)
        best = np.maximum(move @ best, -np.expm1(np.minimum(least - losses, 0)))
    truth = float(norm.pdf(x) * (x[1] - x[0]) @ best)
    assert 5 * delta < truth < 6 * delta


def test_orders_of_the_odometer_are_those_that_were_fixed_before():
    first, after = (open_lifetime(epsilon, 1e-5, "add-remove") for epsilon in (6.0, 0.5))
    assert odometer([TYPICAL], 0.0, after, first) == odometer([TYPICAL], 0.0, first)
    assert odometer([TYPICAL], 0.0, after) != odometer([TYPICAL], 0.0, first)
    strict = open_lifetime(6.0, 1e-8, "add-remove")
    assert odometer([TYPICAL], 0.0, strict, first) > odometer([TYPICAL], 0.0, first)


def _runs(lifetime):
    """Runs of several kinds that take a quarter of the budget, as events and as losses."""
    left = lifetime.budget / 4
    noise = noise_that_fits(left, lifetime)
    yield GaussianDpEvent(noise), gaussian(noise)
    rare = dearest(lambda s: sampled(0.02, s), left, lifetime, 1e9, 0.1)
    yield sampled(0.02, rare), on_grid(0.02, rare)
    pure = dearest(PureDpEvent, left, lifetime, 1e-9, 200)
    yield PureDpEvent(pure), coin(pure)


# What is recorded


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_lifetime_comes_back_as_it_was_written(kind, relation):
    for epsilon, delta in [(2, 1e-5), (50.0, 1e-12), (1e-3, 1e-12), (7.25, 0.3)]:
        lifetime = open_lifetime(epsilon, delta, relation, kind)
        written = json.loads(json.dumps(to_json(lifetime)))
        assert set(written) == {"kind", "order", "budget", "overflow"}
        assert from_json(epsilon, delta, relation, written) == lifetime
        less = written | {"budget": written["budget"] / 2, "overflow": 0}
        assert from_json(epsilon, delta, relation, less).budget == lifetime.budget / 2
        assert from_json(epsilon * 1.1, delta, relation, less).budget == lifetime.budget / 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_that_promises_more_is_refused(kind):
    lifetime = open_lifetime(2.0, 1e-5, "add-remove", kind)
    written = to_json(lifetime)
    order, budget, overflow = lifetime.order, lifetime.budget, lifetime.overflow_budget
    changes = [
        {"budget": budget * (1 + 1e-8)},
        {"budget": budget * 2},
        {"order": order * 0.9 if order else 2.0},
        {"order": 1.0},
        {"order": -2.0},
        {"overflow": overflow * (1 + 1e-8)},
        {"overflow": -overflow},
        {"overflow": 1.0},
        {"kind": "gaussian" if kind == "renyi" else "renyi"},
        {"kind": "pld"},
        {"kind": None},
        {"kind": ["renyi"]},
        {"more": 1.0},
    ]
    odd = (math.nan, math.inf, -1.0, 10**400, "1", None, True, [1.0], {})
    changes += [{name: value} for name in ("order", "budget", "overflow") for value in odd]
    changes.append({"budget": 0.0})
    for change in changes:
        with pytest.raises(SilodpError):
            from_json(2.0, 1e-5, "add-remove", written | change)
    for name in written:
        with pytest.raises(SilodpError, match="put back the ledger"):
            from_json(2.0, 1e-5, "add-remove", {k: v for k, v in written.items() if k != name})
    for data in (None, [], "renyi", 3, [("kind", "renyi")]):
        with pytest.raises(SilodpError, match="put back the ledger"):
            from_json(2.0, 1e-5, "add-remove", data)
    # The numbers are those of one epsilon and delta, and of no smaller ones.
    for epsilon, delta in [(1.99, 1e-5), (2.0, 0.99e-5)]:
        with pytest.raises(SilodpError, match="more than"):
            from_json(epsilon, delta, "add-remove", written)
    for field in ("budget", "overflow_budget"):
        with pytest.raises(SilodpError):
            replace(lifetime, **{field: getattr(lifetime, field) * 1.01})


def test_promises_that_are_none():
    for epsilon in (0.0, -1.0, math.inf, math.nan, "2", None, True):
        with pytest.raises(SilodpError, match="lifetime epsilon"):
            open_lifetime(epsilon, 1e-5, "add-remove")
    for delta in (0.0, 1.0, -1e-5, math.nan, "1e-5", None):
        with pytest.raises(SilodpError, match="lifetime delta"):
            open_lifetime(1.0, delta, "add-remove")
    with pytest.raises(SilodpError, match="Relation"):
        open_lifetime(1.0, 1e-5, "swap")  # type: ignore[arg-type]
    with pytest.raises(SilodpError, match="'renyi' or 'gaussian'"):
        open_lifetime(1.0, 1e-5, "add-remove", "reny")  # type: ignore[arg-type]
    with pytest.raises(SilodpError, match="leaves nothing to spend"):
        open_lifetime(1e-3, 1e-5, "add-remove", order=2.0)
    with pytest.raises(SilodpError, match="leaves nothing to spend"):
        open_lifetime(1.0, 1e-5, "add-remove", order=1.0)
    with pytest.raises(SilodpError):
        open_lifetime(1.0, 1e-5, "add-remove", "gaussian", order=2.0)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1e-12, 1e-100), (1e-12, 5e-324), (1e20, 1e-5), (1e300, 1e-5)]
)
def test_extreme_promises_are_kept_or_refused_and_end(epsilon, delta):
    for kind in KINDS:
        with contextlib.suppress(SilodpError):
            lifetime = open_lifetime(epsilon, delta, "add-remove", kind)
            assert from_json(epsilon, delta, "add-remove", to_json(lifetime)) == lifetime


def test_a_ledger_in_use_keeps_its_order():
    before = open_lifetime(2.0, 1e-5, "add-remove")
    after = open_lifetime(4.0, 1e-5, "add-remove", order=before.order)
    assert after.order == before.order
    assert after.budget == pytest.approx(before.budget + 2.0)
    assert isinstance(after, Lifetime)
