"""Low bits of released sums: fair for exact noise, telling for noise of single precision."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

from silodp.auditing.low_bits import cell_log_odds, low_bit_checks

# A plan of epsilon 1, delta 1e-5: 21 parameters, 40 records, a full batch, 100 rounds of one step.
PARAMETERS, RECORDS, ROUNDS, CLIP = 21, 40, 100, 1.0


def noise_multiplier():
    def excess(mu):
        below, above = stats.norm.cdf(-1 / mu + mu / 2), stats.norm.cdf(-1 / mu - mu / 2)
        return below - math.e * above - 1e-5

    return math.sqrt(ROUNDS) / optimize.brentq(excess, 1e-3, 5.0)


def old_grain():
    """The lattice that releases had: 23 bits for the largest sum."""
    drawn = RECORDS + 10 * math.sqrt(RECORDS)
    return 2.0 ** math.ceil(math.log2(CLIP * (drawn + 10 * noise_multiplier())) - 23)


GRAIN = old_grain()
SIGMA = float(np.float32(CLIP * noise_multiplier()))


def old_noise(seed, *shape):
    """The noise that releases had: single precision, rounded to the lattice."""
    words = jax.random.bits(jax.random.key(seed), (*shape, 2), "uint32")
    uniform = ((words >> 9).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-22) - 1.0
    normal = jnp.float32(np.sqrt(2.0)) * jax.lax.erf_inv(uniform)
    unit = jnp.sum(normal, axis=-1) * jnp.float32(np.sqrt(0.5))
    return np.asarray(jnp.round(jnp.float32(SIGMA) * unit / GRAIN) * GRAIN, np.float64)


def exact_noise(seed, *shape):
    return np.round(SIGMA * np.random.default_rng(seed).normal(size=shape) / GRAIN) * GRAIN


def failing(sums, grain=GRAIN, sigma=SIGMA):
    """Names of the checks whose p-value no honest run gives in a thousand."""
    return {check.name for check in low_bit_checks(sums, grain, sigma) if check.p_value < 1e-3}


def test_exact_noise_has_fair_low_bits():
    p_values = np.array(
        [
            [check.p_value for check in low_bit_checks(exact_noise(seed, 20_000), GRAIN, SIGMA)]
            for seed in range(40)
        ]
    )
    assert p_values.min() > 1e-3 / 40
    # Those of the pattern are spread evenly, as p-values are.
    assert stats.kstest(p_values[:, 2], "uniform").pvalue > 1e-3


def test_the_old_noise_shows():
    found = failing(old_noise(0, 20, ROUNDS, PARAMETERS))
    assert found == {"low bits are even", "cells have no pattern of single precision"}


def test_sums_off_the_lattice_show():
    assert "released sums are whole numbers of grains" in failing(exact_noise(0, 1000) + GRAIN / 3)


@pytest.mark.parametrize("modulus", [2, 8])
def test_a_bit_that_is_always_nil_shows(modulus):
    sums = np.round(exact_noise(1, 5000) / (modulus * GRAIN)) * modulus * GRAIN
    assert "low bits are even" in failing(sums)


def test_sums_beyond_single_precision_are_left_out():
    """2^30 grains of noise: an answer in single precision has no low bits to look at."""
    sums = np.round(2.0**28 * np.random.default_rng(2).normal(size=20_000))
    assert failing(sums.astype(np.float32).astype(float), 1.0, 2.0**28) == set()


def advantage(noise):
    """The area under the curve of the attack: a likelihood ratio over cells, all answers seen."""
    shift = np.round(
        np.random.default_rng(3).normal(size=PARAMETERS) / math.sqrt(PARAMETERS) / GRAIN
    )
    absent, present = (noise(seed, 60, ROUNDS, PARAMETERS) / GRAIN for seed in (10, 11))

    def ratio(cells):
        with_it = cell_log_odds(cells - shift, GRAIN, SIGMA)
        return np.sum(with_it - cell_log_odds(cells, GRAIN, SIGMA), axis=(1, 2))

    wins = stats.mannwhitneyu(ratio(present + shift), ratio(absent)).statistic
    return wins / 60**2


def test_the_attack_on_the_old_noise():
    assert advantage(old_noise) > 0.94


def test_the_same_attack_on_exact_noise():
    """Half, within four standard errors of an area under the curve."""
    assert abs(advantage(exact_noise) - 0.5) < 4 * math.sqrt((2 * 60 + 1) / (12 * 60**2))
