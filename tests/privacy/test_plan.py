"""Plans: what a silo will be asked, and that its noise covers it."""

import math

import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st

from silodp import Policy, SilodpError
from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.mechanisms.queries import Schedule
from silodp.privacy.mechanisms.sampling import OVERFLOW_SHARE, RATE_SLACK
from silodp.privacy.mechanisms.training import training_event
from silodp.privacy.plan import TrainingSettings, make_plans


def plan(n=88, epsilon=6.0, delta=1e-3, rounds=10, batch=32, accountant="pld", heavy=False, **kw):
    training = TrainingSettings(batch_size=batch, clip=1.0, **kw)
    return make_plans(
        ["a"],
        [n],
        [Policy(epsilon, delta)],
        Schedule(rounds),
        training,
        accountant,
        heavy=heavy,
    )[0]


@settings(max_examples=15, deadline=None)
@given(
    n=st.integers(32, 3000),
    epsilon=st.floats(0.2, 10),
    batch=st.integers(8, 32),
    rounds=st.integers(1, 50),
)
def test_the_promise_holds_for_what_will_be_done(n, epsilon, batch, rounds):
    """Steps, rate and delta worked out by hand here; the cost is never above the policy."""
    made = plan(n, epsilon, 1e-4, rounds, batch)
    assert made.total_steps == rounds * (n // batch)
    gaussian = dp_event.GaussianDpEvent(made.noise_multiplier)
    step = dp_event.PoissonSampledDpEvent(batch / n, gaussian) if batch < n else gaussian
    event = dp_event.SelfComposedDpEvent(step, made.total_steps)
    assert epsilon_of(event, 1e-4, "pld") <= epsilon * (1 + 1e-9)
    assert made.epsilon <= epsilon


def test_gaps_pay_for_rounding_and_overflow():
    made = plan(n=1400, batch=64, delta=1e-5)
    assert made.draw == "gaps"
    assert made.sampling_rate == pytest.approx(64 / 1400 + RATE_SLACK)
    event = training_event(made.noise_multiplier, made.sampling_rate, made.total_steps)
    assert made.epsilon == epsilon_of(event, 1e-5 * (1 - OVERFLOW_SHARE), "pld") <= 6


def test_stored_fingerprints_know_a_plan_whatever_its_fields_are_called():
    """Renaming a field must not keep an interrupted run from going on."""
    made = plan()
    text = repr(made)
    for now, stored in (
        ("public_count", "records"),
        ("true_count", "held"),
        ("max_count", "most"),
        ("expected_batch", "batch"),
        ("batch_capacity", "slots"),
    ):
        assert f" {now}=" in text
        text = text.replace(f" {now}=", f" {stored}=")
    assert made.stored_text() == text
    assert text.startswith(
        "SiloPlan(silo='a', unit='record', relation='add-remove', records=88, held=88, most=88, "
        "batch=32, clip=1.0, epochs=1, steps=2, schedule=Schedule("
    )


def test_rdp_needs_more_noise_than_pld():
    assert plan(accountant="rdp").noise_multiplier > plan().noise_multiplier * 1.02


def test_school_as_measured():
    """epsilon 6, delta 1e-3, q = 32/88, 400 steps: 4.42 by PLD and 4.83 by RDP."""
    assert plan(rounds=200).noise_multiplier == pytest.approx(4.418, rel=2e-3)
    assert plan(rounds=200, accountant="rdp").noise_multiplier == pytest.approx(4.830, rel=2e-3)


def test_no_privacy_has_no_noise():
    made = plan(epsilon=math.inf)
    assert made.noise_multiplier == 0
    assert not made.private


def test_shuffling_is_not_proven():
    assert any("shuffle" in reason for reason in plan(sampling="shuffle").unproven)
    assert plan().unproven == ()


def test_small_silos():
    with pytest.raises(SilodpError, match=r"'a'.*20.*--batch-size 20.*full-batch"):
        plan(n=20)
    made = plan(n=20, small_silos="full-batch")
    assert (made.expected_batch, made.steps, made.sampling_rate) == (20, 1, 1.0)


def test_more_passes_need_more_noise():
    training = TrainingSettings(batch_size=32, clip=1.0)
    one, two = (
        make_plans(["a"], [88], [Policy(1, 1e-4)], Schedule(10, passes), training, "pld")[0]
        for passes in (1, 2)
    )
    assert two.total_steps == 2 * one.total_steps
    assert two.noise_multiplier > 1.3 * one.noise_multiplier
