"""The simulation of the paper's set-up against its closed forms, and lambda estimated for free."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silodp import theory
from silodp.base.errors import SilodpError
from silodp.theory import simulation as simulations
from silodp.theory.simulation import (
    best_lambda,
    errors_of_silos,
    errors_of_trials,
    mean_and_standard_error,
    simulate,
)

LAMS = np.array([0.0, 0.1, 1.0, 10.0, math.inf])
# So many standard errors apart is no chance, over all that is compared here.
FAR = 5


def draw(silos=5, records=4, sigma=1.0, tau=1.0, seed=0, trials=400, **more):
    random = np.random.default_rng(seed)
    return simulate(silos, records, sigma, tau, trials=trials, random=random, **more)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    silos=st.integers(2, 12),
    records=st.integers(1, 40),
    sigma=st.floats(0.05, 3),
    tau=st.floats(0.05, 3),
    noise=st.floats(0, 20),
    theta=st.floats(-5, 5),
    seed=st.integers(0, 2**32),
)
def test_closed_forms_hold(silos, records, sigma, tau, noise, theta, seed):
    drawn = draw(silos, records, sigma, tau, seed, theta=theta)
    by_trial = errors_of_trials(LAMS, drawn.means(noise), drawn.centres)
    mean, spread = mean_and_standard_error(by_trial)
    variance = theory.local_variance(records, sigma, noise)
    assert (np.abs(mean - theory.error(LAMS, variance, tau, silos)) < FAR * spread).all()
    assert (spread < 0.2 * mean).all()  # or else anything would hold


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    own=st.lists(
        st.tuples(st.integers(1, 30), st.floats(0.1, 3), st.floats(0, 20)), min_size=2, max_size=5
    ),
    tau=st.floats(0.1, 3),
    seed=st.integers(0, 2**32),
)
def test_closed_forms_hold_where_silos_differ(own, tau, seed):
    records, sigma, noise = map(np.array, zip(*own, strict=True))
    drawn = draw(len(own), records, sigma, tau, seed, trials=1500)
    variances = theory.local_variance(records, sigma, noise)
    for lams in (0.0, theory.lambda_stars(variances, tau), math.inf):
        squares = errors_of_silos(lams, drawn.means(noise), drawn.centres)
        mean, spread = mean_and_standard_error(squares, axis=0)
        assert (np.abs(mean - theory.errors(lams, variances, tau)) < FAR * spread).all()


def test_errors_of_trials_are_those_of_silos():
    drawn = draw()
    means = drawn.means(3.0)
    for lam, by_trial in zip(LAMS, errors_of_trials(LAMS, means, drawn.centres), strict=True):
        squares = errors_of_silos(lam, means, drawn.centres)
        np.testing.assert_allclose(by_trial, squares.mean(axis=1))


def test_the_best_lambda_is_the_best():
    drawn = draw(tau=0.5)
    means = drawn.means(2.0)
    best = best_lambda(means, drawn.centres)
    near = best * np.array([0.9, 1, 1.1])
    errors = errors_of_trials(near, means, drawn.centres).mean(axis=-1)
    assert errors.argmin() == 1
    assert best == pytest.approx(
        theory.lambda_star(theory.local_variance(4, 1.0, 2.0), 0.5), rel=0.2
    )
    assert math.isnan(best_lambda(np.ones((3, 2)), np.zeros((3, 2))))


def test_every_record_is_clipped_by_itself():
    # Means alone would hardly ever be clipped: the bias shows that records are.
    drawn = draw(silos=3, records=400, sigma=1.0, tau=1e-9, theta=0.5, clip=0.5, trials=100)
    # E[clip(x)] for x ~ N(1/2, 1): 1/2 - E[(x - 1/2)+] + E[(-1/2 - x)+] = 0.5 - 0.39894 + 0.08332
    mean, spread = mean_and_standard_error(drawn.means().ravel())
    assert abs(mean - 0.18438) < FAR * spread
    assert spread < 0.01
    wide = draw(silos=3, records=400, sigma=1.0, tau=1e-9, theta=0.5, clip=100, trials=100)
    assert abs(wide.means().mean() - 0.5) < 0.02


def test_clipping_biases_errors_where_the_bound_is_small():
    tight, loose = (draw(sigma=0.3, records=50, clip=clip) for clip in (0.3, math.inf))
    errors = [errors_of_trials(0.0, d.means(), d.centres).mean() for d in (tight, loose)]
    assert errors[1] == pytest.approx(0.09 / 50, rel=0.1)
    assert errors[0] > 50 * errors[1]


def test_noise_goes_on_the_sum_of_each_silo():
    drawn = draw(silos=2, records=np.array([1, 10]), sigma=1e-9, tau=1e-9, trials=4000)
    spreads = drawn.means(np.array([3.0, 5.0])).std(axis=0)
    np.testing.assert_allclose(spreads, [3, 0.5], rtol=0.05)
    np.testing.assert_allclose(drawn.means(), 0, atol=1e-6)


def test_repeatable_and_in_blocks(monkeypatch):
    once, again, other = draw(), draw(), draw(seed=1)
    np.testing.assert_array_equal(once.means(1.0), again.means(1.0))
    assert (once.means() != other.means()).all()
    monkeypatch.setattr(simulations, "_BLOCK", 7 * 20 + 3)
    np.testing.assert_allclose(draw().means(), once.means())


def test_too_much_is_refused():
    with pytest.raises(SilodpError, match="0 trials"):
        draw(silos=10, records=2_000_000, trials=1)
    with pytest.raises(SilodpError, match="0 trials"):
        draw(silos=10, records=1000, trials=1_000_000)


def test_estimate_by_hand():
    # Variance of (0, 2, 4): 4. With 1 known, tau^2 is 3 and lambda 1/3; with 4 or more, FedAvg.
    means = np.array([0.0, 2.0, 4.0])
    assert theory.estimate_tau(means, 1.0) == pytest.approx(math.sqrt(3))
    np.testing.assert_allclose(theory.estimate_lambdas(means, 1.0), 1 / 3)
    assert (theory.estimate_lambdas(means, 5.0) == math.inf).all()
    assert (theory.estimate_lambdas(means, 0.0) == 0).all()
    known = np.array([0.5, 1.0, 1.5])
    assert theory.estimate_tau(means, known) == pytest.approx(math.sqrt(3))
    expected = theory.lambda_stars(known, math.sqrt(3))
    np.testing.assert_allclose(theory.estimate_lambdas(np.stack([means] * 2), known)[1], expected)
    with pytest.raises(SilodpError, match="two or more"):
        theory.estimate_tau(np.ones((5, 1)), 1.0)


def test_the_estimate_is_right_on_average():
    records = np.array([5, 10, 20, 40])
    drawn = draw(silos=4, records=records, sigma=1.0, tau=2.0, trials=4000)
    known = theory.local_variance(records, 1.0, 6.0)
    squares = theory.estimate_tau(drawn.means(6.0), known) ** 2
    mean, spread = mean_and_standard_error(squares)
    assert abs(mean - 4) < FAR * spread
    assert spread < 0.1
    # Without a guess of sigma, what sampling adds counts as silos that differ.
    ignorant = theory.estimate_tau(drawn.means(6.0), theory.local_variance(records, 0.0, 6.0)) ** 2
    assert ignorant.mean() - mean == pytest.approx(np.mean(1 / records), rel=0.05)


def test_the_estimate_gains_nearly_all_that_the_best_lambda_does():
    drawn = draw(silos=20, records=200, sigma=0.4, tau=0.08, trials=500)
    means, noise = drawn.means(19.4), theory.local_variance(200, 0.0, 19.4)
    estimated = errors_of_silos(theory.estimate_lambdas(means, noise), means, drawn.centres).mean()
    local, best, fedavg = errors_of_trials(
        np.array([0.0, 1.59, math.inf]), means, drawn.centres
    ).mean(axis=-1)
    assert best < estimated < best + 0.25 * (min(local, fedavg) - best)
