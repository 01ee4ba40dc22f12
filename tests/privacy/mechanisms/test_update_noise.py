"""A silo knows how noisy its training pass is."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from federations import small

import silodp
from silodp.methods import METHODS
from silodp.methods.base import Method, difference, one_pass_a_round
from silodp.privacy.mechanisms.update_noise import pass_variance

# The first silo is smaller than a batch: it takes all its records in each step.
DIMS, SIZES, BATCH, EPOCHS, SEEDS = 99, (5, 16, 24, 24), 8, 2, 20
OPTIMISERS = ("sgd", "momentum", "adam")


def reporting(train):
    """A method whose silos end up with a pass's update; the variance is in its last entry.

    Without training the update is 0: that is for slow engines.
    """

    def local(own, told, queries):
        update = difference(queries.train(told), told) if train else jnp.zeros_like(told)
        return update.at[-1].set(queries.noise.variance), ()

    def build(rounds):
        return Method(
            schedule=one_pass_a_round,
            init=lambda start: (start.params, start.params),
            broadcast=lambda server: server,
            local=local,
            merge=lambda server, messages, weights: server,
            personal=lambda own, told: own,
        )

    return silodp.MethodEntry("reports what a pass does", "1 pass", build)


@pytest.fixture(autouse=True)
def methods(monkeypatch):
    monkeypatch.setitem(METHODS, "reporting", reporting(train=True))
    monkeypatch.setitem(METHODS, "idle", reporting(train=False))


def reported(federation, **options):
    """For each epsilon: updates without the bias [seeds, silos, dims], variances [seeds, silos]."""
    options = {"method": "reporting", "rounds": 1, "lr": 0.3, "delta": 1e-4} | options
    results = silodp.sweep(federation=federation, keep_models=True, **options)
    return [(r.models[..., :-1].astype(float), r.models[..., -1].astype(float)) for r in results]


def without_signal():
    """Features and answers of 0: gradients vanish wherever the weights are."""
    silos = tuple(
        silodp.Silo(f"s{i}", *[silodp.Records(np.zeros((m, DIMS)), np.zeros(m)) for m in (n, 5)])
        for i, n in enumerate(SIZES)
    )
    return silodp.Federation("nothing", silos, "regression")


@pytest.mark.parametrize("sampling", ["poisson", pytest.param("shuffle", marks=pytest.mark.slow)])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_noise_has_the_variance_that_silos_are_told(optimiser, sampling):
    how = {"optimiser": optimiser, "sampling": sampling, "batch_size": BATCH, "epochs": EPOCHS}
    how |= {"small_silos": "full-batch", "seeds": SEEDS, "epsilon": [3.0, math.inf]}
    # The square of a normal number has sqrt(2) times its mean as standard deviation; of what Adam
    # makes of it, a little less. Its table has an error of its own.
    own = 5 * math.sqrt(2 / 20_000) if optimiser == "adam" else 0.0
    tolerance = 5 * math.sqrt(2 / (SEEDS * DIMS)) + own
    assert tolerance < 0.22
    for clip in (0.2, 3.0):
        (updates, variances), (still, zeros) = reported(without_signal(), clip=clip, **how)
        for place in range(len(SIZES)):
            (told,) = set(variances[:, place].tolist())
            assert np.mean(updates[:, place] ** 2) == pytest.approx(told, rel=tolerance)
        assert not still.any()
        assert not zeros.any()


@pytest.mark.usefixtures("debug_in_pieces")
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_both_engines_tell_the_same(optimiser):
    """Also where silos of a group take 2 and 4 steps: the other engine has no groups."""
    how = {"batch_size": 16, "optimiser": optimiser, "epsilon": 3, "seeds": 1, "method": "idle"}
    federation = small(sizes=(40, 70))
    ((_, fast),) = reported(federation, **how)
    ((_, slow),) = reported(federation, engine="debug", **how)
    np.testing.assert_allclose(fast, slow, rtol=1e-6)
    assert fast[0, 0] != fast[0, 1]


def test_of_linear_optimisers_the_variance_is_known():
    """Momentum moves a model by (1 + 0.9 + 0.81 + ...) times the noise of a step."""
    steps, lr, deviation = np.arange(7), 0.3, 0.02
    moved = np.cumsum(0.9 ** np.arange(6))
    expected = {"sgd": steps, "momentum": [0, *np.cumsum(moved**2)]}
    for optimiser, unit in expected.items():
        found = pass_variance(optimiser, 6, jnp.asarray(steps), lr, deviation)
        np.testing.assert_allclose(found, np.multiply(unit, (lr * deviation) ** 2), rtol=1e-5)


def test_adam_forgets_how_large_noise_is_but_not_that_there_is_none():
    deviations = jnp.array([0.0, 1e-4, 10.0])
    # Its first step is as long as the learning rate, whatever the gradient.
    np.testing.assert_allclose(pass_variance("adam", 6, 1, 0.3, deviations), [0, 0.09, 0.09], 1e-4)


def test_a_pass_of_any_length_has_a_variance():
    lengths = [1, 64, 65, 200]
    found = [float(pass_variance("sgd", most, most, 1.0, 1.0)) for most in lengths]
    assert found == lengths
