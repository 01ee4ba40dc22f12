"""Bounds on an attacker: closed forms beside brute force, and mechanisms that reach them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from silodp.base.errors import SilodpError
from silodp.privacy.attacker import guessed_right, hit_rate

EPSILONS = st.floats(0, 30)
DELTAS = st.floats(0, 1)
CHANCES = st.floats(0, 1)


def best_by_linear_programme(epsilon: float, delta: float, prior: float) -> float:
    """Over all (false alarms, hits) that (epsilon, delta) allows."""
    grows = math.exp(epsilon)
    # hits - e^eps false <= delta;  (1 - false) - e^eps (1 - hits) <= delta
    found = linprog(
        [(1 - prior), -prior],
        A_ub=[[-grows, 1], [-1, grows]],
        b_ub=[delta, delta - 1 + grows],
        bounds=[(0, 1), (0, 1)],
    )
    return (1 - prior) - found.fun


@pytest.mark.parametrize("epsilon", [0, 0.1, 1, 3, 8])
@pytest.mark.parametrize("delta", [0, 1e-5, 0.1, 1])
@pytest.mark.parametrize("prior", [0, 0.01, 0.3, 0.5, 0.9, 1])
def test_the_best_guess_is_that_of_a_linear_programme(epsilon, delta, prior):
    expected = best_by_linear_programme(epsilon, delta, prior)
    assert guessed_right(epsilon, delta, prior) == pytest.approx(expected, abs=1e-9)


@given(EPSILONS, DELTAS, CHANCES)
def test_hit_rates_keep_both_inequalities_and_reach_one(epsilon, delta, false_alarms):
    hits = hit_rate(epsilon, delta, false_alarms)
    assert 0 <= hits <= 1
    slack_few = math.exp(epsilon) * false_alarms + delta - hits
    slack_many = math.exp(epsilon) * (1 - hits) + delta - (1 - false_alarms)
    assert slack_few >= -1e-9
    assert slack_many >= -1e-6 * math.exp(epsilon)
    assert hits == 1 or min(slack_few, slack_many / math.exp(epsilon)) <= 1e-9


@given(EPSILONS, DELTAS, CHANCES)
def test_guessing_never_gets_harder_with_a_larger_budget(epsilon, delta, prior):
    right = guessed_right(epsilon, delta, prior)
    assert max(prior, 1 - prior) - 1e-12 <= right <= 1
    assert guessed_right(epsilon + 1, delta, prior) >= right - 1e-12


def test_randomised_response_reaches_the_bound():
    epsilon = 1.3
    random = np.random.default_rng(0)
    truth = random.random(400_000) < 0.5
    told = np.where(random.random(truth.size) < 1 / (1 + math.exp(-epsilon)), truth, ~truth)
    right = (told == truth).mean()  # the attacker believes what it is told
    assert right == pytest.approx(guessed_right(epsilon, 0), abs=0.003)


def test_limits():
    assert guessed_right(0, 0) == 0.5
    assert guessed_right(math.inf, 0) == 1
    assert hit_rate(math.inf, 0, 0) == 1  # nothing is promised
    assert hit_rate(0, 0, 0.2) == pytest.approx(0.2)
    assert guessed_right(math.log(3), 0) == pytest.approx(0.75)
    assert hit_rate(1, 1e-5, 0.01) == pytest.approx(math.e * 0.01 + 1e-5)


@pytest.mark.parametrize(("epsilon", "delta"), [(-1, 0), (math.nan, 0), (1, -0.1), (1, 1.1)])
def test_what_is_no_privacy_statement_is_refused(epsilon, delta):
    with pytest.raises(SilodpError, match="no privacy statement"):
        guessed_right(epsilon, delta)
    with pytest.raises(SilodpError, match="no privacy statement"):
        hit_rate(epsilon, delta, 0.1)


def test_rates_that_are_none_are_refused():
    with pytest.raises(SilodpError, match="false alarms"):
        hit_rate(1, 0, 1.5)
    with pytest.raises(SilodpError, match="prior"):
        guessed_right(1, 0, math.nan)
