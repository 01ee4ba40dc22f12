"""How many hyperparameters are tried, and what the best of them costs."""

import math

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, GaussianDpEvent
from dp_accounting.dp_event import (
    NoOpDpEvent,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
)
from dp_accounting.rdp import RdpAccountant, compute_epsilon
from dp_accounting.rdp.rdp_privacy_accountant import _gamma_truncated_negative_binomial
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from silodp import SilodpError
from silodp.privacy.accounting.accountant import epsilon_of, rdp_curve, supporting
from silodp.privacy.accounting.events import EitherDpEvent, from_json, to_json
from silodp.privacy.accounting.rdp import ORDERS
from silodp.privacy.trials import Trials

SHAPES = [-0.5, -0.1, 0.0, 0.5, 1.0, 2.0, 5.0, math.inf]


@settings(max_examples=40, deadline=None)
@given(st.floats(1, 20), st.one_of(st.floats(-0.5, 8), st.just(0.0), st.just(math.inf)))
def test_probabilities_sum_to_one_and_have_the_mean(mean, shape):
    number = np.arange(2**15)
    chances = Trials(mean, shape).probabilities(2**15 - 1)
    assert (chances >= 0).all()
    assert chances.sum() == pytest.approx(1, abs=1e-7)
    assert (chances * number).sum() == pytest.approx(mean, rel=1e-4)
    assert (chances[0] > 0) == (shape == math.inf)


@pytest.mark.parametrize("shape", SHAPES)
def test_probabilities_by_the_papers_formula(shape):
    trials = Trials(10, shape)
    for h in (1, 2, 5, 17):
        if shape == math.inf:
            plain = math.exp(-10) * 10**h / math.factorial(h)
        elif shape == 0:
            plain = (1 - trials.gamma) ** h / (h * math.log(1 / trials.gamma))
        else:
            ratios = [(i + shape) / (i + 1) for i in range(h)]
            plain = (1 - trials.gamma) ** h / (trials.gamma**-shape - 1) * math.prod(ratios)
        assert trials.probabilities(20)[h] == pytest.approx(plain, rel=1e-9)


def test_gamma_as_dp_accounting_has_it():
    for shape in (0.0, 0.5, 1.0, 5.0):
        for mean in (1.5, 10, 300):
            expected = _gamma_truncated_negative_binomial(shape, mean)
            assert Trials(mean, shape).gamma == pytest.approx(expected, rel=1e-8)
    assert Trials(10, -0.5).gamma == pytest.approx(1 / 19**2)  # worked out by hand
    assert Trials(1, 3).probabilities(3).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0, math.inf])
def test_draws_follow_the_probabilities(shape):
    random, trials = np.random.default_rng(1), Trials(4, shape)
    drawn = np.bincount([trials.draw(random.random(), 1000) for _ in range(4000)], minlength=6)[:6]
    expected = 4000 * trials.probabilities(5)
    assert np.all(np.abs(drawn - expected) <= 4.5 * np.sqrt(expected + 1))


@pytest.mark.parametrize("shape", SHAPES)
def test_more_trials_than_the_most_have_at_most_the_chance(shape):
    trials = Trials(6, shape)
    for chance in (1e-2, 1e-5, 1e-9):
        most = trials.most(chance, 20_000)
        beyond = trials.probabilities(2**16)[most + 1 :].sum()
        assert chance / 60 < beyond <= chance
    assert trials.most(1e-9, 5) is None
    random = np.random.default_rng(0)
    assert max(trials.draw(random.random(), 3) for _ in range(100)) == 3
    assert trials.draw(0.0, 9) == (0 if trials.poisson else 1)


@pytest.mark.parametrize(
    ("mean", "shape"), [(0.5, 0), (math.nan, 0), (math.inf, 0), (3, -1), (3, math.nan)]
)
def test_what_is_no_distribution(mean, shape):
    with pytest.raises(SilodpError, match="give"):
        Trials(mean, shape)


def theorem(mean, shape, noise, delta):
    """Theorem 2 over all pairs of orders, written out for one Gaussian mechanism."""
    gamma, a = Trials(mean, shape).gamma, np.array(ORDERS)
    first, second = a[:, None], a[None, :]
    bounds = (
        first / (2 * noise**2)
        + (1 + shape) * (1 - 1 / second) * second / (2 * noise**2)
        + (1 + shape) * np.log(1 / gamma) / second
        + np.log(mean) / (first - 1)
    ).min(axis=1)
    return compute_epsilon(ORDERS, bounds.tolist(), delta)[0]


@settings(max_examples=40, deadline=None)
@given(st.floats(1, 100), st.floats(-0.9, 6), st.floats(0.5, 50), st.sampled_from([1e-3, 1e-6]))
def test_price_equals_the_theorem(mean, shape, noise, delta):
    event = RepeatAndSelectDpEvent(GaussianDpEvent(noise), mean, shape)
    charged = epsilon_of(event, delta, "rdp")
    assert charged == pytest.approx(theorem(mean, shape, noise, delta), rel=1e-5)
    assert epsilon_of(event, delta) <= charged
    if shape >= 0:
        theirs = RdpAccountant(ORDERS).compose(event).get_epsilon(delta)
        assert charged == pytest.approx(theirs, rel=1e-5)


def best_of(trials, cdf, pdf):
    """The density of the best of so many trials, whose scores are what they release."""
    if trials.poisson:
        return pdf * trials.mean * np.exp(trials.mean * (cdf - 1))
    gamma, eta = trials.gamma, trials.shape
    return pdf * trials.mean * gamma ** (eta + 1) * (1 - (1 - gamma) * cdf) ** (-eta - 1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("noise", [0.8, 3.0])
def test_the_best_of_trials_keeps_its_promise(shape, noise):
    """An attack: the score is the release itself, so that the best is where the record shows."""
    trials, delta = Trials(6, shape), 1e-4
    event = RepeatAndSelectDpEvent(GaussianDpEvent(noise), 6, shape)
    claimed = epsilon_of(event, delta, "rdp")
    y = np.linspace(-12 * noise, 1 + 12 * noise, 400_001)
    with_it, without = (
        best_of(trials, norm.cdf(y, shift, noise), norm.pdf(y, shift, noise)) for shift in (1, 0)
    )
    step = y[1] - y[0]
    assert with_it.sum() * step == pytest.approx(1 - math.exp(-6) * trials.poisson, abs=1e-4)
    for a, b in ((with_it, without), (without, with_it)):
        spent = np.maximum(a - math.exp(claimed) * b, 0).sum() * step
        assert spent <= delta
    # One trial's price would be a lie: the attack sees more than that.
    single = epsilon_of(GaussianDpEvent(noise), delta)
    assert np.maximum(with_it - math.exp(single) * without, 0).sum() * step > delta


def test_records_that_take_part_in_one_mechanism_only():
    strong, weak = GaussianDpEvent(3.0), SelfComposedDpEvent(GaussianDpEvent(2.0), 3)
    either = EitherDpEvent([strong, weak])
    orders = [2, 5, 30]
    both = np.maximum(rdp_curve(strong, orders), rdp_curve(weak, orders))
    assert rdp_curve(either, orders) == pytest.approx(both)
    twice = SelfComposedDpEvent(either, 2)
    assert rdp_curve(twice, orders) == pytest.approx(2 * both)
    for accountant in ("rdp", "pld"):
        assert epsilon_of(either, 1e-5, accountant) == epsilon_of(weak, 1e-5, accountant)
    assert epsilon_of(either, 1e-5) < epsilon_of(ComposedDpEvent([strong, weak]), 1e-5)
    assert from_json(to_json(twice)) == twice
    assert supporting(either) == ("pld", "rdp")
    assert epsilon_of(EitherDpEvent([NoOpDpEvent()]), 1e-5) == 0
    concentrated = EitherDpEvent([strong, ZCDpEvent(0.1)])
    assert supporting(concentrated) == ("rdp",)
    with pytest.raises(SilodpError, match="pld accountant has no price"):
        epsilon_of(concentrated, 1e-5, "pld")
