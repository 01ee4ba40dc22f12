"""Identities of the methods, for equal keys."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from federations import small

import silodp
from silodp.methods import METHODS, get_method
from silodp.methods.base import Method, add, weighted_mean
from silodp.privacy.queries import Schedule, guarded


def models(federation=None, **options):
    options = {"rounds": 6, "batch_size": 16, "lr": 0.1, "epsilon": 4, "seeds": 2} | options
    federation = federation or small()
    return silodp.run(federation=federation, keep_models=True, **options).models


@pytest.mark.parametrize("regulariser", ["outside", "inside"])
@pytest.mark.parametrize("epsilon", [4, math.inf])
def test_lambda_zero_is_local_training(regulariser, epsilon):
    """Outside the clip to the last bit; inside, the compiled program rounds in another order."""
    options = {"regulariser": regulariser, "epsilon": epsilon}
    pulled, alone = models(method="mrmtl", lam=0, **options), models(method="local", **options)
    np.testing.assert_allclose(pulled, alone, atol=0 if regulariser == "outside" else 1e-6, rtol=0)


def test_finetune_fraction_zero_is_local_and_one_is_fedavg():
    np.testing.assert_array_equal(
        models(method="finetune", finetune_fraction=0), models(method="local")
    )
    np.testing.assert_array_equal(
        models(method="finetune", finetune_fraction=1), models(method="fedavg")
    )


def test_finetune_starts_from_the_shared_model():
    """Three rounds of FedAvg, then one silo's path is local training from there."""
    half = models(method="finetune", finetune_fraction=0.5)
    shared = models(method="fedavg", rounds=3)
    assert not np.allclose(half[0, 0], half[0, 1])
    assert np.allclose(shared[0, 0], shared[0, 1])


@pytest.mark.parametrize("method", ["fedavg", "finetune"])
def test_one_silo_is_local_training(method):
    federation = small(sizes=(60,))
    np.testing.assert_allclose(
        models(federation, method=method),
        models(federation, method="local"),
        rtol=1e-5,
        atol=1e-6,
    )


def test_one_silo_one_step_mrmtl_is_local_training():
    """With one step a round, the mean of one silo is where the step starts: no pull."""
    federation = small(sizes=(31,))
    np.testing.assert_allclose(
        models(federation, method="mrmtl", lam=3),
        models(federation, method="local"),
        rtol=1e-5,
        atol=1e-6,
    )


def test_fedavg_gives_everybody_one_model_and_lambda_draws_models_together():
    shared = models(method="fedavg")
    assert np.all(shared == shared[:, :1])
    spread = [models(method="mrmtl", lam=lam).std(axis=1).mean() for lam in (0, 0.3, 2)]
    assert spread[0] > spread[1] > spread[2] > 0


def test_silos_do_not_see_each_other_in_local_training():
    """Another silo's records change nothing."""
    one, two = small(seed=0), small(seed=1)
    mixed = silodp.Federation("mixed", (one.silos[0], *two.silos[1:]), "regression")
    np.testing.assert_array_equal(
        models(one, method="local")[:, 0], models(mixed, method="local")[:, 0]
    )


@pytest.mark.parametrize("method", [name for name in METHODS if name != "ifca"])
def test_methods_without_selection_cost_one_pass_a_round(method):
    costs = [
        silodp.run(federation=small(), method=m, epsilon=2, rounds=3, batch_size=16).privacy
        for m in (method, "local")
    ]
    assert costs[0] == costs[1]
    assert costs[0][0]["steps"] == 3 * (40 // 16)


def test_asking_for_more_than_the_schedule_pays_for_is_refused():
    train, select = (lambda asked, params, *_: params), (lambda candidates: jnp.int32(1))
    queries = guarded(Schedule(10, train=1, select_rounds=2), 0, train, select)
    queries.train(0.0)
    with pytest.raises(silodp.SilodpError, match="schedule"):
        queries.train(0.0)
    assert queries.select(jnp.zeros((2, 3)), jnp.int32(0)) == 1
    with pytest.raises(silodp.SilodpError, match="selection 2 of a round"):
        queries.select(jnp.zeros((2, 3)), jnp.int32(0))
    with pytest.raises(silodp.SilodpError, match="pays for 0"):
        guarded(Schedule(10), 0, train, select).select(jnp.zeros((2, 3)), jnp.int32(0))


def test_beyond_the_scheduled_rounds_a_selection_does_not_look():
    def select(candidates):
        raise AssertionError("the records were looked at")

    queries = guarded(Schedule(10, select_rounds=2), 2, lambda *_: None, select)
    with jax.disable_jit():
        assert queries.select(jnp.zeros((2, 3)), jnp.int32(7)) == 7


def test_a_greedy_method_is_refused_by_the_engine(monkeypatch):
    """A method that trains twice but schedules one pass cannot run: fail closed."""
    from silodp.methods import MethodEntry

    def greedy(rounds):
        return Method(
            schedule=lambda rounds: Schedule(rounds),
            init=lambda params, key: ((), params),
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
    from silodp.methods import MethodEntry

    def build(rounds):
        return Method(
            schedule=lambda rounds: Schedule(rounds),
            init=lambda params, key: (params, params),
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


@pytest.mark.parametrize("name", ["_train", "_select", "records", "silo", "noise", "__dict__"])
def test_queries_hold_nothing_but_two_guarded_functions(monkeypatch, name):
    def steal(own, told, queries):
        return getattr(queries, name)(own), own

    monkeypatch.setitem(METHODS, "sneaky", sneaky(steal))
    with pytest.raises(AttributeError):
        models(method="sneaky")


def test_a_pass_beyond_the_schedule_is_refused_even_if_the_first_is_thrown_away(monkeypatch):
    def again(own, told, queries):
        train = queries.train
        train(own)
        return train(own), own

    monkeypatch.setitem(METHODS, "sneaky", sneaky(again))
    with pytest.raises(silodp.SilodpError, match="training pass 2"):
        models(method="sneaky")


def test_unknown_method_names_the_closest():
    with pytest.raises(silodp.SilodpError, match="'fedavg'"):
        get_method("fedavgg")
