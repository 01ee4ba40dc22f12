"""Identities of the methods, for equal keys, and what they cost."""

import math
from functools import cache

import numpy as np
import pytest
from federations import small

import silodp
from silodp.engines.job import Setting
from silodp.engines.simulation import Simulation
from silodp.methods import METHODS, get_method, warm_starts
from silodp.privacy.session import free_rounds
from silodp.runs.run import job_of

pytestmark = pytest.mark.usefixtures("kept_programs")

OPTIONS = {"rounds": 6, "batch_size": 16, "lr": 0.1, "delta": 1e-4, "seeds": 2}
ONE_PASS = ("ebmtl", "fedavg", "finetune", "mrmtl", "meanpull", "mocha")


@cache
def models(method, epsilon=4, sizes=(40, 70, 55), **options):
    """Personal models [seeds, silos, ...]."""
    options = OPTIONS | {"method": method, "epsilon": epsilon} | options
    return silodp.run(federation=small(sizes=sizes), keep_models=True, **options).models


def with_plans_of(other, method, others=(), **options):
    """The method's models with the noise that another method needs: they differ in cost alone.

    `others`: options of the other method alone.
    """
    options = OPTIONS | {"federation": small(), "epsilon": 4, "seeds": 1} | options
    plans = silodp.plan(method=other, **options | dict(others)).plans[0]
    prepared = silodp.plan(method=method, **options)
    values = prepared.specs[0].method.traced_values(prepared.specs[0].values)
    job = job_of(prepared)
    simulation = Simulation(job, [0], prepared.federations, [Setting(0.1, plans, values)])
    state, _ = simulation.advance(simulation.initial_state(), free_rounds(0, job.rounds))
    return simulation.personal_models(state)


# Ends of the spectrum


@pytest.mark.parametrize("epsilon", [4, math.inf])
@pytest.mark.parametrize("method", ["mrmtl", "meanpull", "mocha"])
def test_lambda_zero_is_local_training(method, epsilon):
    np.testing.assert_array_equal(models(method, epsilon, lam=0), models("local", epsilon))


@pytest.mark.parametrize("regulariser", ["inside", "proximal"])
def test_lambda_zero_is_local_training_wherever_the_pull_goes(regulariser):
    """Inside the clip the compiled program rounds in another order."""
    pulled = models("mrmtl", lam=0, regulariser=regulariser)
    tolerance = 1e-6 if regulariser == "inside" else 0
    np.testing.assert_allclose(pulled, models("local"), atol=tolerance, rtol=0)


def test_lambda_zero_makes_ditto_local_training_at_dittos_cost():
    np.testing.assert_array_equal(models("ditto", math.inf, lam=0), models("local", math.inf))
    np.testing.assert_array_equal(
        with_plans_of("ditto", "ditto", lam=0), with_plans_of("ditto", "local")
    )


def test_a_large_lambda_makes_ditto_fedavg_without_privacy():
    """On full batches nothing is random: each silo has the shared model that it was last told."""
    options = {"batch_size": 100, "small_silos": "full-batch"}
    shared = models("fedavg", math.inf, rounds=5, **options)
    own = models("ditto", math.inf, lam=1e9, **options)
    np.testing.assert_allclose(own, shared, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("server", ["average", "fedadam"])
def test_meanpull_with_an_infinite_lambda_is_fedavg(server):
    options = {"server_optimiser": server}
    np.testing.assert_array_equal(
        models("meanpull", lam=math.inf, **options), models("fedavg", **options)
    )


def test_finetune_fraction_zero_is_local_and_one_is_fedavg():
    np.testing.assert_array_equal(models("finetune", finetune_fraction=0), models("local"))
    np.testing.assert_array_equal(models("finetune", finetune_fraction=1), models("fedavg"))


def test_finetune_starts_from_the_shared_model():
    """Three rounds of FedAvg, then one silo's path is local training from there."""
    half = models("finetune", finetune_fraction=0.5)
    shared = models("fedavg", rounds=3)
    assert not np.allclose(half[0, 0], half[0, 1])
    assert np.allclose(shared[0, 0], shared[0, 1])


@pytest.mark.slow
def test_fedavg_gives_everybody_one_model_and_lambda_draws_models_together():
    shared = models("fedavg")
    assert np.all(shared == shared[:, :1])
    for method in ("mrmtl", "mocha"):
        spread = [models(method, lam=lam).std(axis=1).mean() for lam in (0, 0.3, 2)]
        assert spread[0] > spread[1] > spread[2] > 0


# One silo, one cluster, no clustering


@pytest.mark.parametrize("method", ["fedavg", "finetune", "meanpull"])
def test_one_silo_is_local_training(method):
    alone = models("local", sizes=(60,))
    np.testing.assert_allclose(models(method, sizes=(60,)), alone, rtol=1e-5, atol=1e-6)


def test_one_silo_one_step_mrmtl_is_local_training():
    """With one step a round, the mean of one silo is where the step starts: no pull."""
    alone = models("local", sizes=(31,))
    np.testing.assert_allclose(models("mrmtl", lam=3, sizes=(31,)), alone, rtol=1e-5, atol=1e-6)


def test_one_cluster_makes_ifca_fedavg_plus_its_selection_cost():
    options = {"clusters": 1, "select_fraction": 0.5}
    np.testing.assert_array_equal(models("ifca", math.inf, **options), models("fedavg", math.inf))
    np.testing.assert_array_equal(
        with_plans_of("ifca", "ifca", **options), with_plans_of("ifca", "fedavg", options)
    )


@pytest.mark.parametrize("method", ["local", "mrmtl"])
def test_a_warm_start_without_clustering_rounds_is_the_method_itself(method):
    warm = models(f"ifca+{method}", select_fraction=0, clusters=3)
    np.testing.assert_array_equal(warm, models(method))


def test_a_warm_start_that_never_ends_is_ifca():
    options = {"select_fraction": 0.5, "clusters": 2}
    np.testing.assert_allclose(models("ifca+fedavg", **options), models("ifca", **options))


def test_hypcluster_is_ifca():
    assert get_method("hypcluster") is get_method("ifca")
    assert get_method("hypcluster+mrmtl").cost == get_method("ifca+mrmtl").cost


def test_silos_do_not_see_each_other_in_local_training():
    """Another silo's records change nothing."""
    one, two = small(seed=0), small(seed=1)
    mixed = silodp.Federation("mixed", (one.silos[0], *two.silos[1:]), "regression")
    options = OPTIONS | {"method": "local", "epsilon": 4, "keep_models": True}
    alone = silodp.run(federation=mixed, **options).models
    np.testing.assert_array_equal(models("local")[:, 0], alone[:, 0])


# Costs


@cache
def noise(method, **options):
    """The noise multiplier of the first silo."""
    options = OPTIONS | {"federation": small(), "epsilon": 2, "rounds": 20} | options
    return silodp.plan(method=method, **options).plans[0][0].noise_multiplier


@pytest.mark.parametrize("method", ONE_PASS)
def test_methods_of_one_pass_cost_what_local_training_costs(method):
    assert noise(method) == noise("local")


def test_ditto_costs_what_its_passes_cost():
    """Exactly what local training of so many times the rounds costs."""
    assert noise("ditto") == noise("local", rounds=40) > noise("local")
    assert noise("ditto", shared_passes=2) == noise("local", rounds=60)
    assert noise("ditto", shared_passes=2, personal_passes=3) == noise("local", rounds=100)


def test_ifca_costs_its_selections():
    growing = [noise("ifca", select_fraction=fraction) for fraction in (0, 0.1, 0.5, 1)]
    assert growing[0] == noise("local")
    assert growing == sorted(growing)
    assert growing[-1] > growing[0] * 1.01
    assert noise("ifca", select_fraction=0.5, select_share=0.1) > growing[2]


@pytest.mark.parametrize("method", warm_starts())
def test_a_warm_start_costs_the_method_and_the_selections(method):
    _, then = method.split("+")
    as_ifca = noise("ifca", select_fraction=0.5)
    if then == "ditto":
        assert noise(method, select_fraction=0.5) > max(as_ifca, noise("ditto"))
    else:
        assert noise(method, select_fraction=0.5) == as_ifca


def test_every_method_says_what_it_costs():
    for name in (*METHODS, *warm_starts()):
        entry = get_method(name)
        assert entry.summary
        assert "pass" in entry.cost
        rounds = 3 if entry.in_messages else 10
        values = dict.fromkeys(entry.options, 0.5)
        fixed = entry.fixed_values(vars(silodp.RunRequest(method=name)))
        schedule = entry.build(rounds=rounds, **values, **fixed).schedule(rounds)
        assert (schedule.select_rounds > 0) == ("selection" in entry.cost)


def test_unknown_methods_name_the_closest():
    with pytest.raises(silodp.SilodpError, match="'fedavg'"):
        get_method("fedavgg")
    with pytest.raises(silodp.SilodpError, match="only ifca can go before"):
        get_method("fedavg+mrmtl")
    with pytest.raises(silodp.SilodpError, match=r"'ifca\+mocha'.*cannot go on.*ifca\+mrmtl"):
        get_method("ifca+mocha")
