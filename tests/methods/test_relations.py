"""Replace-one against closed forms, direct integration, and an accountant written for the tests."""

import math

import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from independent_accountant import epsilon as independent
from independent_accountant import gaussian_losses
from scipy.optimize import brentq
from scipy.stats import norm

from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.accounting.losses import gaussian
from silodp.privacy.calibration import CalibrationRequest, calibrate_many


def sampled(rate, noise, count=1):
    return SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), count)


def gaussian_epsilon(noise, delta, moved):
    """Balle and Wang 2018, theorem 8, where neighbours' sums differ by `moved`."""
    mu = moved / noise

    def excess(e):
        return norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta

    return brentq(excess, 0, 300, xtol=1e-12)


@pytest.mark.parametrize(("relation", "moved"), [("add-remove", 1), ("replace-one", 2)])
@pytest.mark.parametrize(("noise", "count", "delta"), [(2.0, 1, 1e-5), (9.0, 40, 1e-7)])
def test_gaussian_mechanism_is_exact(relation, moved, noise, count, delta):
    truth = gaussian_epsilon(noise / math.sqrt(count), delta, moved)
    event = SelfComposedDpEvent(GaussianDpEvent(noise), count)
    assert truth <= epsilon_of(event, delta, "pld", relation) * (1 + 1e-9)
    assert epsilon_of(event, delta, "pld", relation) == pytest.approx(truth, rel=1e-4)
    # The Rényi bound is looser by its conversion alone, and moves as much with the relation.
    assert truth <= epsilon_of(event, delta, "rdp", relation) <= truth * 1.1


def test_replacing_a_record_doubles_what_noise_has_to_hide():
    assert epsilon_of(GaussianDpEvent(2.0), 1e-5, "pld", "replace-one") == pytest.approx(
        4.377, abs=1e-3
    )
    for accountant in ("pld", "rdp"):
        replaced = epsilon_of(GaussianDpEvent(2.0), 1e-5, accountant, "replace-one")
        assert replaced == epsilon_of(GaussianDpEvent(1.0), 1e-5, accountant)


@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-12])
def test_nearly_sure_samples_approach_the_gaussian_mechanism(delta):
    for count, noise in [(100, 7.0), (100_000, 400.0)]:
        truth = gaussian_epsilon(noise / math.sqrt(count), delta, 2)
        charged = epsilon_of(sampled(1 - 1e-9, noise, count), delta, "pld", "replace-one")
        assert charged >= truth
        if delta > 1e-10:
            assert charged <= truth * 1.002


def plane_divergence(g, h, rate, noise, epsilon):
    """How far neighbours diverge whose record's gradient is g or h in the plane, by integration."""
    x = np.linspace(-8 * noise - 1, 8 * noise + 1, 601)
    across, along = np.meshgrid(x, x)

    def density(centre):
        square = (across - centre[0]) ** 2 + (along - centre[1]) ** 2
        return np.exp(-square / (2 * noise**2)) / (2 * math.pi * noise**2)

    rest = (1 - rate) * (1 - math.exp(epsilon)) * density((0, 0))
    excess = rest + rate * density(g) - rate * math.exp(epsilon) * density(h)
    return np.maximum(0, excess).sum() * (x[1] - x[0]) ** 2


@settings(max_examples=40, deadline=None)
@given(
    rate=st.floats(0.02, 0.99),
    noise=st.floats(0.6, 5),
    at=st.floats(-1, 1),
    angles=st.tuples(st.floats(0, 6.3), st.floats(0, 6.3)),
    lengths=st.tuples(st.floats(0, 1), st.floats(0, 1)) | st.just((1.0, 1.0)),
)
def test_no_pair_of_gradients_diverges_more_than_opposite_ones(rate, noise, at, angles, lengths):
    g, h = ((r * math.cos(a), r * math.sin(a)) for r, a in zip(lengths, angles, strict=True))
    epsilon = at * 4 * rate / noise
    charged = gaussian(noise, rate, 1e-3, "replace-one").get_delta_for_epsilon(epsilon)
    rounding = 2e-5  # of the integration
    assert plane_divergence(g, h, rate, noise, epsilon) <= charged + rounding
    opposite = plane_divergence((1, 0), (-1, 0), rate, noise, epsilon)
    assert charged == pytest.approx(opposite, abs=1e-4)


@pytest.mark.parametrize(
    ("rate", "steps", "epsilon", "delta"),
    [
        (32 / 88, 400, 6.0, 1e-3),
        (64 / 1400, 8400, 0.5, 1e-7),
        (0.01, 1000, 2.0, 1e-5),
        (0.9, 20, 3.0, 1e-6),
        (0.2, 3, 1.0, 1e-4),
    ],
)
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_noise_is_within_a_hundredth_of_the_least_and_never_below(
    rate, steps, epsilon, delta, relation
):
    asked = CalibrationRequest(
        lambda noise: sampled(rate, noise, steps), epsilon, delta, relation=relation
    )
    (answer,) = calibrate_many([asked], cache=False)

    def truth(noise):
        return independent([(gaussian_losses(rate, noise, relation), steps)], delta)

    assert truth(answer.noise_multiplier) <= epsilon
    assert truth(answer.noise_multiplier * 0.99) > epsilon


@settings(max_examples=10, deadline=None)
@given(st.floats(0.01, 0.95), st.floats(1, 20), st.integers(1, 300))
def test_replacing_costs_no_less_than_removing(rate, noise, count):
    event = sampled(rate, noise, count)
    assert epsilon_of(event, 1e-5) <= epsilon_of(event, 1e-5, "best", "replace-one") * 1.001
