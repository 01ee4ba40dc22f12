"""What the server does with the silos' mean update: plain averaging, FedAvgM, FedAdam."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from federations import small

import silodp
from silodp.methods.base import add, weighted_mean
from silodp.methods.clusters import merge_by_cluster
from silodp.methods.server import AVERAGE, SERVER_OPTIMISERS, ServerOptimiser

SMALL = ("--data", "synthetic", "--silos", "2", "--rounds", "2", "--epsilon", "3")
OPTIONS = {"rounds": 1, "batch_size": 16, "epsilon": 4}
WEIGHTS = np.array([0.5, 0.3, 0.2], np.float32)


def updates(rounds=4, silos=3):
    rng = np.random.default_rng(0)
    shape = (rounds, silos, 5)
    return {
        "w": rng.normal(size=shape).astype(np.float32),
        "b": rng.normal(size=shape[:2]).astype(np.float32),
    }


def start():
    return {"w": jnp.arange(5.0), "b": jnp.float32(-1)}


def merged(server, rounds=4):
    shared = server.init(start())
    for number in range(rounds):
        sent = jax.tree.map(lambda u, number=number: u[number], updates())
        shared = server.merge(shared, sent, jnp.asarray(WEIGHTS))
    return shared


def by_hand(step):
    """The weights `w` after all updates; step: mean update, memory, number -> change, memory."""
    w, memory = np.arange(5.0), None
    for number, sent in enumerate(updates()["w"].astype(float), start=1):
        change, memory = step(WEIGHTS.astype(float) @ sent, memory, number)
        w = w + change
    return w


def test_plain_averaging_adds_the_weighted_mean_to_the_last_bit():
    shared, expected = AVERAGE.init(start()), start()
    for number in range(4):
        sent = jax.tree.map(lambda u, number=number: u[number], updates())
        shared = AVERAGE.merge(shared, sent, jnp.asarray(WEIGHTS))
        expected = add(expected, weighted_mean(sent, jnp.asarray(WEIGHTS)))
        jax.tree.map(np.testing.assert_array_equal, shared.model, expected)


def test_fedavgm():
    def step(mean, momentum, number):
        momentum = mean if momentum is None else 0.7 * momentum + mean
        return 0.4 * momentum, momentum

    model = merged(ServerOptimiser(SERVER_OPTIMISERS["fedavgm"](0.4, 0.7))).model
    np.testing.assert_allclose(model["w"], by_hand(step), rtol=1e-5)


def test_fedadam():
    def step(mean, memory, number):
        m, v = memory or (0.0, 0.0)
        m, v = 0.7 * m + 0.3 * mean, 0.99 * v + 0.01 * mean**2
        unbiased = m / (1 - 0.7**number), v / (1 - 0.99**number)
        return 0.4 * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-3), (m, v)

    model = merged(ServerOptimiser(SERVER_OPTIMISERS["fedadam"](0.4, 0.7))).model
    np.testing.assert_allclose(model["w"], by_hand(step), rtol=1e-4)


def test_without_momentum_fedavgm_is_plain_averaging():
    plain = merged(AVERAGE).model
    jax.tree.map(
        np.testing.assert_array_equal,
        merged(ServerOptimiser(SERVER_OPTIMISERS["fedavgm"](1.0, 0.0))).model,
        plain,
    )


@pytest.mark.parametrize("optimiser", ["fedavgm", "fedadam"])
def test_what_an_empty_cluster_remembers_stays_as_it_is(optimiser):
    server = ServerOptimiser(SERVER_OPTIMISERS[optimiser](0.4, 0.7))
    before = merged(server)
    states = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf, leaf]), before)
    sent = jax.tree.map(lambda u: u[0], updates())
    chosen = jnp.array([[1.0, 0, 0], [0, 0, 1], [1, 0, 0]])  # nobody is in the second
    after = merge_by_cluster(server.merge, states, sent, chosen, jnp.asarray(WEIGHTS))

    def of(cluster):
        return jax.tree.map(lambda leaf: leaf[cluster], after)

    jax.tree.map(np.testing.assert_array_equal, of(1), before)
    alone = server.merge(before, sent, jnp.array([0.5, 0, 0.2]) / 0.7)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), of(0), alone)


def test_a_sweep_over_server_lr_and_a_run_agree():
    """After one round from zero, a model is the mean update times the rate."""
    how = {"federation": small(sizes=(40, 40)), "method": "fedavg", "keep_models": True, **OPTIONS}
    half, whole = silodp.sweep(server_lr=[0.5, 1.0], **how)
    np.testing.assert_allclose(half.models, whole.models / 2, rtol=1e-6)
    assert (half.options["server_lr"], whole.options["server_lr"]) == (0.5, 1.0)
    np.testing.assert_allclose(silodp.run(**how).models, whole.models, rtol=1e-6)


def test_the_rate_fits_the_optimiser_unless_it_is_given():
    def rate(**options):
        options |= OPTIONS | {"method": "fedavg"}
        return silodp.plan(federation=small(sizes=(40,)), **options).specs[0].server_lr

    assert [rate(server_optimiser=name) for name in SERVER_OPTIMISERS] == [1.0, 1.0, 0.01]
    assert rate(server_optimiser="fedadam", server_lr=0.2) == 0.2


def test_an_optimiser_by_name_from_the_command_line(cli):
    flags = ("--server-optimiser", "fedavgm", "--server-lr", "0.5", "--server-momentum", "0.8")
    done = cli("run", *SMALL, "--method", "mrmtl", *flags)
    assert done.exit_code == 0, done.stderr
    text = " ".join(done.stdout.replace("│", " ").split())
    for part in ("server lr 0.5", "server fedavgm", "server momentum 0.8"):
        assert all(word in text for word in part.split())


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--server-lr", "0", "is 0.0: give a number above 0"),
        ("--server-lr", "-1", "is -1.0: give a number above 0"),
        ("--server-lr", "nan", "is nan: give a number above 0"),
        ("--server-lr", "inf", "is inf: give a number below 1e+30"),
        ("--server-momentum", "1", "is 1.0: give a number from 0 to below 1"),
        ("--server-momentum", "1.5", "is 1.5: give a number from 0 to below 1"),
        ("--server-momentum", "-0.1", "is -0.1: give a number from 0 to below 1"),
        ("--server-momentum", "nan", "is nan: give a number from 0 to below 1"),
        ("--server-optimiser", "adam", "is 'adam': choose one of average, fedavgm, fedadam"),
    ],
)
def test_wrong_values(cli, sentence, flag, value, said):
    text = sentence(cli("plan", *SMALL, "--method", "fedavg", flag, value))
    assert f"{flag} {said}" in text


@pytest.mark.parametrize("value", [0, -1.0, math.nan, "fast", True])
def test_wrong_values_in_a_sweep(value):
    with pytest.raises(silodp.SilodpError, match="--server-lr is"):
        silodp.sweep(federation=small(), method="fedavg", server_lr=[1.0, value], **OPTIONS)


@pytest.mark.parametrize("method", ["local", "mocha"])
def test_methods_that_do_not_merge_say_that_they_do_not_use_it(cli, sentence, method):
    flags = {"--server-optimiser": "fedavgm", "--server-lr": "0.5", "--server-momentum": "0.8"}
    for flag, value in flags.items():
        text = sentence(cli("plan", *SMALL, "--method", method, flag, value))
        assert f"{flag}: method '{method}' does not use it: leave it out, or use one of" in text
