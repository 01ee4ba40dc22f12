"""A method gets no more from records than its schedule pays for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from federations import small

import silodp
from silodp.methods import METHODS
from silodp.methods.base import Method, add, weighted_mean
from silodp.methods.entry import MethodEntry
from silodp.privacy.mechanisms.queries import PassNoise, Schedule, guarded


def models(federation=None, **options):
    options = {"rounds": 6, "batch_size": 16, "lr": 0.1, "epsilon": 4, "seeds": 2} | options
    federation = federation or small()
    return silodp.run(federation=federation, keep_models=True, **options).models


def test_asking_for_more_than_the_schedule_pays_for_is_refused():
    train, select = (lambda asked, params, *_: params), (lambda candidates: jnp.int32(1))
    queries = guarded(
        Schedule(10, train=1, select_rounds=2), 0, train, select, PassNoise(0.0, 0.0, 0.0, 0.0)
    )
    queries.train(0.0)
    with pytest.raises(silodp.SilodpError, match="schedule"):
        queries.train(0.0)
    assert queries.select(jnp.zeros((2, 3)), jnp.int32(0)) == 1
    with pytest.raises(silodp.SilodpError, match="selection 2 of a round"):
        queries.select(jnp.zeros((2, 3)), jnp.int32(0))
    with pytest.raises(silodp.SilodpError, match="pays for 0"):
        guarded(Schedule(10), 0, train, select, PassNoise(0.0, 0.0, 0.0, 0.0)).select(
            jnp.zeros((2, 3)), jnp.int32(0)
        )


def test_beyond_the_scheduled_rounds_a_selection_does_not_look():
    def select(candidates):
        raise AssertionError("the records were looked at")

    queries = guarded(
        Schedule(10, select_rounds=2), 2, lambda *_: None, select, PassNoise(0.0, 0.0, 0.0, 0.0)
    )
    with jax.disable_jit():
        assert queries.select(jnp.zeros((2, 3)), jnp.int32(7)) == 7


def test_a_greedy_method_is_refused_by_the_engine(monkeypatch):
    """A method that trains twice but schedules one pass cannot run: fail closed."""

    def greedy(rounds):
        return Method(
            schedule=lambda rounds: Schedule(rounds),
            init=lambda start: ((), start.params),
            broadcast=lambda server: server,
            local=lambda own, told, queries: (queries.train(queries.train(own)), ()),
            merge=lambda server, messages, weights: server,
            personal=lambda own, told: own,
        )

    monkeypatch.setitem(METHODS, "greedy", MethodEntry("trains twice", "a lie", greedy))
    with pytest.raises(silodp.SilodpError, match="schedule pays for 1"):
        models(method="greedy")


def sneaky(local):
    """A method that does with its queries what `local` does, and sends the outcome."""

    def build(rounds):
        return Method(
            schedule=lambda rounds: Schedule(rounds),
            init=lambda start: (start.params, start.params),
            broadcast=lambda server: server,
            local=local,
            merge=lambda server, messages, weights: add(server, weighted_mean(messages, weights)),
            personal=lambda own, told: add(own, told),
        )

    return MethodEntry("sneaky", "nothing", build)


def test_without_a_query_no_record_reaches_a_method(monkeypatch):
    """Everything that a method is handed, used without asking: the records leave no trace."""

    def hoard(own, told, queries):
        reachable = jax.tree.leaves((own, told, queries))  # arrays, and two functions
        numbers = [jnp.sum(leaf) for leaf in reachable if not callable(leaf)]
        return jax.tree.map(lambda a: a + sum(numbers) + 1, own), own

    monkeypatch.setitem(METHODS, "sneaky", sneaky(hoard))
    for task in ("regression", "binary"):
        one, other = (models(small(task, seed=seed), method="sneaky") for seed in (0, 1))
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["_train", "_select", "records", "silo", "__dict__"])
def test_queries_hold_nothing_but_guarded_functions_and_a_number(monkeypatch, name):
    def steal(own, told, queries):
        return getattr(queries, name)(own), own

    monkeypatch.setitem(METHODS, "sneaky", sneaky(steal))
    with pytest.raises(silodp.SilodpError, match="AttributeError"):
        models(method="sneaky")


def test_a_pass_beyond_the_schedule_is_refused_even_if_the_first_is_thrown_away(monkeypatch):
    def again(own, told, queries):
        train = queries.train
        train(own)
        return train(own), own

    monkeypatch.setitem(METHODS, "sneaky", sneaky(again))
    with pytest.raises(silodp.SilodpError, match="training pass 2"):
        models(method="sneaky")
