"""What of the differences between silos is real: against closed forms and simulated truths."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from silodp.methods.ebmtl.constants import CONSTANTS
from silodp.methods.ebmtl.estimators import (
    by_coordinate,
    by_relations,
    gram,
    heterogeneity,
    surely_found,
)

# Compiled as wholes: one operation after the other takes many times as long.
by_coordinate, by_relations = jax.jit(by_coordinate), jax.jit(by_relations)
gram, heterogeneity = jax.jit(gram), jax.jit(heterogeneity)
surely_found = jax.jit(surely_found, static_argnums=(1, 2))


def planted(rng, silos, parameters, strength):
    """The direction among silos of a matrix of rank 1, and that matrix with noise of variance 1."""
    left, right = rng.normal(size=silos), rng.normal(size=parameters)
    left, right = left / np.linalg.norm(left), right / np.linalg.norm(right)
    signal = strength * np.sqrt(parameters) * np.outer(left, right)
    return left, signal + rng.normal(size=(silos, parameters))


@pytest.mark.parametrize(("silos", "parameters"), [(30, 300), (120, 60)])
@pytest.mark.parametrize("strong", [2.0, 3.0, 6.0])  # times what can just be found
def test_directions_are_found_as_surely_as_is_said(silos, parameters, strong):
    rng = np.random.default_rng(0)
    truth, said = [], []
    for _ in range(20):
        strength = strong * (silos / parameters) ** 0.25
        left, noisy = planted(rng, silos, parameters, strength)
        vectors, values, _ = np.linalg.svd(noisy, full_matrices=False)
        truth.append((vectors[:, 0] @ left) ** 2)
        said.append(surely_found(jnp.asarray(values**2), silos, parameters)[0])
    assert np.mean(said) == pytest.approx(np.mean(truth), abs=0.07)  # they are not large
    assert 0.3 < np.mean(said) < 1


@pytest.mark.parametrize(("silos", "parameters"), [(30, 300), (120, 60)])
def test_in_noise_alone_next_to_nothing_is_found(silos, parameters):
    """The largest of the noise is beyond the edge in about one matrix of six, and not by much."""
    rng = np.random.default_rng(1)
    sums = []
    for _ in range(40):
        values = np.linalg.svd(rng.normal(size=(silos, parameters)), compute_uv=False) ** 2
        sums.append(float(jnp.sum(surely_found(jnp.asarray(values), silos, parameters))))
    assert np.mean(np.array(sums) > 0) < 0.4
    assert np.mean(sums) < 0.15


def test_of_any_size_it_is_a_share():
    values = jnp.array([0.0, 1e-30, 1.0, 50.0, 1e6, 1e20, 1e30, 1e37])
    for silos, parameters in [(1, 1), (2, 50), (50, 2), (1000, 100_000)]:
        shares = np.asarray(surely_found(values, silos, parameters))
        assert (shares >= 0).all()
        assert (shares <= 1).all()
        assert (np.diff(shares) >= 0).all()
        assert shares[-1] == 1


def test_each_entry_is_its_mean_given_what_was_seen():
    """Normal truth, normal noise: against the closed form, and nothing else is nearer the truth."""
    rng = np.random.default_rng(2)
    tau2 = np.array([0.0, 0.5, 3.0])
    variances = np.array([0.2, 1.0, 5.0, 0.2] * 500)
    truth = rng.normal(size=(2000, 3)) * np.sqrt(tau2)
    seen = truth + rng.normal(size=truth.shape) * np.sqrt(variances)[:, None]
    kept = np.asarray(by_coordinate(jnp.asarray(seen), jnp.asarray(variances), jnp.asarray(tau2)))
    for number in range(4):
        for place in range(3):
            share = tau2[place] / (tau2[place] + variances[number])
            assert kept[number, place] == pytest.approx(share * seen[number, place], rel=1e-5)
    error = np.mean((kept - truth) ** 2)
    for factor in (0.0, 0.8, 1.2):
        assert error < np.mean((factor * kept - truth) ** 2)
    assert error < np.mean((seen - truth) ** 2)


def test_how_much_silos_differ_is_found():
    rng = np.random.default_rng(3)
    tau2 = np.array([0.0, 0.5, 3.0])
    variances = np.array([0.2, 1.0, 5.0, 0.2] * 1000)
    noise = rng.normal(size=(4000, 3)) * np.sqrt(variances)[:, None]
    seen = rng.normal(size=(4000, 3)) * np.sqrt(tau2) + noise
    estimate = np.asarray(heterogeneity(jnp.asarray(seen), jnp.asarray(variances)))
    np.testing.assert_allclose(estimate, tau2, rtol=0.1, atol=0.02)
    weights = 1 / variances**2
    plain = [np.average(seen[:, j] ** 2 - variances, weights=weights) for j in range(3)]
    parts = weights / weights.sum() * variances
    freedom = 3999 / 4000 * parts.sum() ** 2 / np.sum(parts**2)
    chance = parts.sum() * (stats.chi2.ppf(stats.norm.cdf(CONSTANTS.chance), freedom) / freedom - 1)
    np.testing.assert_allclose(estimate, np.maximum(np.subtract(plain, chance), 0), rtol=1e-3)


@pytest.mark.parametrize("silos", [2, 4, 20])
def test_noise_alone_is_seldom_taken_for_differences(silos):
    rng = np.random.default_rng(silos)
    seen = rng.normal(size=(silos, 20000))
    seen = (seen - seen.mean(axis=0)) * math.sqrt(silos / (silos - 1))
    share = np.mean(np.asarray(heterogeneity(jnp.asarray(seen), jnp.ones(silos))) > 0)
    assert share == pytest.approx(stats.norm.sf(CONSTANTS.chance), rel=0.2)


@pytest.mark.parametrize("shape", [(4, 9), (9, 4)])
def test_relations_keep_their_share_of_each_direction(shape):
    rows = np.random.default_rng(4).normal(size=shape)
    left, values, right = np.linalg.svd(rows, full_matrices=False)
    expected, vectors = np.linalg.eigh(np.asarray(gram(jnp.asarray(rows))))
    np.testing.assert_allclose(expected[::-1], values**2, rtol=1e-4)
    share = np.array([0.0, 0.3, 0.5, 1.0])
    kept = by_relations(jnp.asarray(rows), jnp.asarray(vectors), jnp.asarray(share))
    plain = (left * (share[::-1] * values)) @ right
    np.testing.assert_allclose(kept, plain, rtol=1e-4, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    arrays(np.float32, (3, 4), elements=st.floats(-(2.0**20), 2.0**20, width=32)),
    arrays(np.float32, 3, elements=st.floats(2.0**-20, 2.0**20, width=32)),
)
def test_whatever_was_seen_nothing_grows(seen, variances):
    tau2 = np.asarray(heterogeneity(jnp.asarray(seen), jnp.asarray(variances)))
    assert (tau2 >= 0).all()
    kept = np.asarray(by_coordinate(jnp.asarray(seen), jnp.asarray(variances), jnp.asarray(tau2)))
    assert np.isfinite(kept).all()
    assert (np.abs(kept) <= np.abs(seen) * (1 + 1e-6)).all()
    assert (kept * seen >= 0).all()
