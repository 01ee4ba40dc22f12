"""Free tests: inner products of released updates with directions, in units of their noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

from silodp.methods.ebmtl.free_tests import Layers, products, score, scores

LAYERS = Layers((3, 4, 9))
WEIGHTS = np.array([0.5, 0.3, 0.2])
VARIANCES = np.array([0.1, 2.0, 0.0])


def made_up(seed=0, estimates=3, silos=3):
    """Updates [silos, parameters], and that many estimates of the same shape."""
    rng = np.random.default_rng(seed)
    shape = (silos, LAYERS.ends[-1])
    return rng.normal(size=shape), [rng.normal(size=shape) for _ in range(estimates)]


def shares_of(seed=1):
    return np.asarray(jax.nn.softmax(np.random.default_rng(seed).normal(size=(3, 3)), axis=0))


def test_against_plain_loops():
    updates, estimates = made_up()
    shares = shares_of()
    arrays = jnp.asarray(updates), jnp.asarray(np.stack(estimates))
    rises, errors = products(*arrays, jnp.asarray(WEIGHTS), jnp.asarray(VARIANCES), LAYERS)
    z = scores(rises, errors, jnp.asarray(shares))
    total_rise, total_variance = np.zeros(3), np.zeros(3)
    for layer, (start, stop) in enumerate([(0, 3), (3, 4), (4, 9)]):
        # From the mixture that was used to each of the estimates.
        used = sum(shares[i, layer] * estimates[i] for i in range(3))
        for i in range(3):
            rise = variance = 0.0
            for silo in range(3):
                way = (estimates[i] - used)[silo, start:stop]
                rise += WEIGHTS[silo] * way @ updates[silo, start:stop]
                variance += WEIGHTS[silo] ** 2 * VARIANCES[silo] * way @ way
            assert z[i, layer] == pytest.approx(rise / variance**0.5, rel=1e-4)
            total_rise[i] += rise
            total_variance[i] += variance
    np.testing.assert_allclose(z[:, -1], total_rise / total_variance**0.5, rtol=1e-4)


def test_on_noise_alone_scores_are_standard_normal():
    """Noise that has nothing to do with the estimates, of unequal variance."""
    _, estimates = made_up()
    shares = jnp.asarray(shares_of())
    weights, variances = jnp.asarray(WEIGHTS), jnp.asarray(VARIANCES)
    many = jax.random.normal(jax.random.key(0), (4000, 3, LAYERS.ends[-1]))

    def of_noise(unit):
        updates = unit * jnp.sqrt(variances)[:, None]
        rises, errors = products(
            updates, jnp.asarray(np.stack(estimates)), weights, variances, LAYERS
        )
        return scores(rises, errors, shares)

    for z in jax.jit(jax.vmap(of_noise))(many).reshape(4000, -1).T:
        assert kstest(np.asarray(z), "norm").pvalue > 1e-4


def test_scores_are_positive_where_losses_fall():
    """An update along an estimate speaks for it and against the opposite one."""
    update, _ = made_up()
    estimates = jnp.asarray(np.stack([update, np.zeros_like(update), -update]))
    rises, errors = products(
        jnp.asarray(update), estimates, jnp.asarray(WEIGHTS), jnp.asarray(VARIANCES), LAYERS
    )
    for z in scores(rises, errors, jnp.full((3, 3), 1 / 3)).T:
        assert z[0] > 0 > z[2]
        assert z[1] == pytest.approx(0, abs=1e-4)


def test_a_score_without_noise_or_beyond_numbers_says_nothing():
    rises = jnp.array([2.0, 2.0, -2.0, jnp.nan, jnp.inf, 1.0])
    variances = jnp.array([4.0, 0.0, 4.0, 1.0, 1.0, jnp.inf])
    np.testing.assert_array_equal(score(rises, variances), [1, 0, -1, 0, 0, 0])


def test_layers():
    np.testing.assert_allclose(LAYERS.sizes, [3 / 9, 1 / 9, 5 / 9])
    np.testing.assert_array_equal(
        LAYERS.widened(jnp.array([[5.0, 6.0, 7.0]])), [[5, 5, 5, 6, 7, 7, 7, 7, 7]]
    )
