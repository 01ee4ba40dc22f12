"""Bounds from many canaries, and the audit's own accountant, against mechanisms that are known."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from silodp.auditing import betting, one_run
from silodp.auditing.claim import least_delta


def gaussian_delta(mu, epsilon):
    """Of a Gaussian mechanism with a shift of mu deviations, in closed form."""
    below, above = stats.norm.cdf(-epsilon / mu + mu / 2), stats.norm.cdf(-epsilon / mu - mu / 2)
    return below - np.exp(epsilon) * above


def gaussian_epsilon(mu, delta):
    return optimize.brentq(lambda epsilon: gaussian_delta(mu, epsilon) - delta, 0.0, 60.0)


EPSILONS = np.linspace(0, 10, 200)


def curve_of(mu):
    return lambda multiple: (EPSILONS, gaussian_delta(mu / multiple, EPSILONS))


def canaries(rng, mu, *shape):
    inside = rng.random(shape) < 0.5
    return rng.normal(size=shape) + mu * inside, inside


# One run.


def test_without_delta_guesses_are_binomial():
    """Randomised response meets the bound exactly."""
    chance = one_run.guess_chance(100, 100, 80, 1.0, 0.0)
    assert chance == pytest.approx(stats.binom.sf(79, 100, 1 / (1 + math.exp(-1))))


def test_the_part_of_delta_written_out():
    right, guesses, m, epsilon, delta = 9, 10, 20, 1.0, 1e-3
    w = stats.binom(guesses, 1 / (1 + math.exp(-epsilon)))
    steepest = max(
        sum(w.pmf(k) for k in range(max(0, right - i), right)) / i for i in range(1, m + 1)
    )
    expected = w.sf(right - 1) + 2 * m * delta * steepest
    assert one_run.guess_chance(m, guesses, right, epsilon, delta) == pytest.approx(expected)


def test_the_bound_of_randomised_response_holds_and_is_not_idle():
    rng, epsilon, bounds = np.random.default_rng(0), 1.5, []
    truth = 1 / (1 + math.exp(-epsilon))
    for _ in range(200):
        right = int(rng.binomial(500, truth))
        bounds.append(one_run.epsilon_bound(500, 500, right, 0.0, 0.9))
    assert sum(bound > epsilon for bound in bounds) <= stats.binom.isf(1e-4, 200, 0.1)
    assert np.mean(bounds) > 0.8 * epsilon


def test_pure_privacy_as_a_curve_refutes_as_the_binomial_bound_does():
    """The recursion is never stronger than the exact chance, and hardly weaker."""
    epsilon = 1.0
    line = (np.array([epsilon]), np.array([0.0]))
    for right in range(60, 100, 3):
        chance = one_run.guess_chance(1000, 100, right, epsilon, 0.0)
        refuted = not one_run.curve_allows(1000, 100, right, 0.05, *line)
        if refuted:
            assert chance <= 0.05
        elif chance < 0.002:
            pytest.fail(f"{right} right of 100 has a chance of {chance}, but is not refuted")


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_the_curve_of_a_gaussian_sees_more_than_one_point(mu):
    scores, inside = canaries(np.random.default_rng(1), mu, 20_000)
    guesses, right = one_run.right_guesses(scores, inside, 0.06)
    delta = 1e-5
    point = one_run.epsilon_bound(20_000, guesses, right, delta, 0.95)
    most = one_run.noise_bound(20_000, guesses, right, 0.95, curve_of(mu))
    truth = gaussian_epsilon(mu, delta)
    assert point < gaussian_epsilon(mu / most, delta) <= truth
    assert gaussian_epsilon(mu / most, delta) > 0.5 * truth


def test_the_curve_bound_of_one_run_holds_with_its_confidence():
    rng, broken = np.random.default_rng(2), 0
    for _ in range(100):
        scores, inside = canaries(rng, 1.0, 1000)
        guesses, right = one_run.right_guesses(scores, inside, 0.12)
        broken += not one_run.curve_allows(1000, guesses, right, 0.1, *curve_of(1.0)(1.0))
    assert broken <= stats.binom.isf(1e-4, 100, 0.1)


# Betting.


def test_betting_against_the_truth_wins_nothing():
    """At the true curve the mean of what is won is at most 1, point by point."""
    rng = np.random.default_rng(3)
    for epsilon in (0.0, 1.0, 2.5):
        rule = betting.Rule(1, epsilon + 0.5)  # where the likelihood ratio is e^epsilon
        delta = gaussian_delta(1.0, epsilon)
        gains = []
        for _ in range(300):
            flags = rule.flags(*canaries(rng, 1.0, 100, 8))
            gains.append(math.exp(betting.won(flags, epsilon, delta)))
        assert np.mean(gains) < 1 + 4 * np.std(gains) / math.sqrt(300)
        assert np.mean(np.array(gains) > 20) <= stats.binom.isf(1e-4, 300, 0.05) / 300


@pytest.mark.parametrize("sign", [1, -1])
def test_betting_bounds_a_gaussian_closely(sign):
    scores, inside = canaries(np.random.default_rng(4), 1.0, 3000, 32)
    rule = betting.Rule(sign, 1.5 if sign > 0 else 0.5)
    flags = rule.flags(scores, inside)
    truth = gaussian_epsilon(1.0, 1e-3)
    bound = betting.epsilon_bound(flags, 1e-3, 0.99)
    assert 0.4 * truth < bound < truth

    flags = betting.Rule(sign, 0.5 * sign).flags(scores, inside)  # where both worlds are as likely
    most = betting.noise_bound(flags, 0.0, 0.99, lambda m: float(gaussian_delta(1.0 / m, 0.0)))
    assert 1.0 <= most < 1.15


def test_canaries_of_a_run_may_depend_on_each_other():
    """Runs in which all canaries share their noise: nothing is refuted that holds."""
    rng, broken = np.random.default_rng(5), 0
    delta = gaussian_delta(1.0, 1.0)
    for _ in range(200):
        inside = rng.random((60, 16)) < 0.5
        scores = rng.normal(size=(60, 1)) + inside
        flags = betting.Rule(1, 1.5).flags(scores, inside)
        broken += betting.won(flags, 1.0, delta) > math.log(20)
    assert broken <= stats.binom.isf(1e-4, 200, 0.05)


# The accountant.


@pytest.mark.parametrize(
    ("noise", "steps", "epsilon"), [(1.0, 1, 1.0), (2.07, 4, 3.0), (10, 100, 1)]
)
def test_the_least_delta_of_full_batches_is_nearly_the_closed_form(noise, steps, epsilon):
    mu = math.sqrt(steps) / noise
    for replaced, shift in ((False, mu), (True, 2 * mu)):
        truth = gaussian_delta(shift, epsilon)
        assert 0.99 * truth < least_delta(noise, 1.0, steps, epsilon, replaced) <= truth


def test_the_least_delta_of_one_sampled_step_is_nearly_the_closed_form():
    """Amplification by sampling: delta(log(1 + q (e^eps - 1))) = q delta_0(eps)."""
    rate, inner = 0.2, 1.5
    epsilon = math.log1p(rate * math.expm1(inner))
    truth = rate * gaussian_delta(1.0, inner)
    assert 0.99 * truth < least_delta(1.0, rate, 1, epsilon) <= truth
