"""Plans of methods of messages: closed forms, blocks, neighbours by exchange, and small silos."""

import math

import pytest
from dp_accounting import get_epsilon_gaussian
from hypothesis import given, settings
from hypothesis import strategies as st

from silodp import Policy
from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.mechanisms.message_queries import MessageSchedule
from silodp.privacy.mechanisms.queries import PREPARATION
from silodp.privacy.plan import SideQueries, TrainingSettings, make_plans

THREE = MessageSchedule(rounds=3, shares=(0.4, 0.25, 0.35))
TRAINING = TrainingSettings(batch_size=32, clip=1.0)


def plan(policy, n=100, schedule=THREE, **more):
    return make_plans(["a"], [n], [policy], schedule, TRAINING, "best", **more)[0]


@settings(max_examples=20, deadline=None)
@given(epsilon=st.floats(0.05, 20), delta=st.sampled_from([1e-7, 1e-5, 1e-3]))
def test_all_messages_together_are_one_gaussian_mechanism(epsilon, delta):
    made = plan(Policy(epsilon, delta))
    noises = [made.message_noise(number) for number in range(3)]
    total = 1 / math.sqrt(sum(1 / noise**2 for noise in noises))
    assert total == pytest.approx(made.noise_multiplier)
    exact = get_epsilon_gaussian(total, delta)
    assert exact <= epsilon * (1 + 1e-9)
    assert exact >= epsilon * 0.99  # nothing is left unspent
    assert epsilon_of(made.event, delta, "pld") <= epsilon * (1 + 1e-9)


def test_a_record_exchanged_moves_sums_twice_as_far():
    added = plan(Policy(1.0, 1e-5))
    exchanged = plan(Policy(1.0, 1e-5, relation="replace-one"))
    assert exchanged.noise_multiplier == pytest.approx(2 * added.noise_multiplier, rel=1e-3)


def test_each_message_is_charged_by_itself():
    made = plan(Policy(1.0, 1e-5))
    assert list(made.queries()) == ["messages"]
    spent = [epsilon_of(made.event_of(PREPARATION, last), 1e-5, "best") for last in (1, 2, 3)]
    assert 0 < spent[0] < spent[1] < spent[2] <= 1.0
    assert made.queries(3, 4) == {}


def test_messages_share_the_budget_with_what_else_is_asked():
    alone = plan(Policy(1.0, 1e-5))
    shared = plan(
        Policy(1.0, 1e-5),
        side=SideQueries(statistics_share=0.2, metric_share=0.1, evaluated=(3,)),
    )
    assert set(shared.queries()) == {"messages", "statistics", "metric"}
    assert shared.noise_multiplier > alone.noise_multiplier
    assert epsilon_of(shared.event, 1e-5, "best") <= 1.0 + 1e-9


def test_silos_smaller_than_a_batch_are_asked_like_others():
    made = plan(Policy(1.0, 1e-5), n=5)
    assert made.noise_multiplier == plan(Policy(1.0, 1e-5), n=500).noise_multiplier
    assert (made.sampling_rate, made.total_steps, made.draw) == (1.0, 3, "every")
    assert made.overflow == 0.0


def test_without_privacy_there_is_no_noise():
    assert plan(Policy(math.inf, 1e-5)).message_noise(0) == 0.0
