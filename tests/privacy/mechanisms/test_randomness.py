"""Random words: each has its own address, whatever the padding."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry2x32_p
from scipy import stats

from silodp.privacy.mechanisms.randomness import (
    PassSize,
    _hash,
    _noise,
    _normal,
    as_params,
    draw_pass,
    draw_passes,
    pass_keys,
    run_key,
)

# Compiled as wholes: one operation after the other takes many times as long.
draw_pass = jax.jit(draw_pass, static_argnums=1)
pass_keys = jax.jit(pass_keys, static_argnums=3)


@partial(jax.jit, static_argnums=1)
def drawn_of_groups(keys, sizes):
    return draw_passes(keys, sizes)


def test_the_hash_is_threefry():
    words = [np.random.default_rng(i).integers(0, 2**32, 100, dtype=np.uint32) for i in range(4)]
    expected = np.stack(jax.jit(threefry2x32_p.bind)(*words), axis=-1)
    np.testing.assert_array_equal(jax.jit(_hash)(*words), expected)


def test_padding_and_grouping_change_nothing():
    keys = np.random.default_rng(0).integers(0, 2**32, (3, 2), dtype=np.uint32)
    small, large = PassSize(2, 7, 2, 5), PassSize(4, 12, 4, 5)
    alone = draw_pass(keys[1], small)
    group, other = drawn_of_groups([keys[:2], keys[2:]], (large, small))
    np.testing.assert_array_equal(alone.sample, np.asarray(group.sample)[1, :2, :7])
    np.testing.assert_array_equal(alone.noise, np.asarray(group.noise)[1, :2])
    np.testing.assert_array_equal(draw_pass(keys[2], small).noise, np.asarray(other.noise)[0])


def test_no_two_places_share_randomness():
    """Silos, rounds, passes, steps, and sampling against noise: all words differ."""
    size = PassSize(3, 8, 3, 8)
    seen = set()
    for seed in range(2):
        key = jnp.asarray(run_key(seed, b""))
        for number in range(3):
            keys = pass_keys(key, jnp.arange(4), jnp.int32(number), 2).reshape(-1, 2)
            (drawn,) = drawn_of_groups([keys], (size,))
            seen.update(np.asarray(drawn.sample).ravel().tolist())
            seen.update(np.asarray(keys).ravel().tolist())
            seen.update(np.asarray(drawn.noise).ravel().tolist())
    assert len(seen) >= 2 * 3 * 4 * 2 * (3 * 8 * 2) - 2  # but for chance


def test_noise_is_standard_normal():
    noise = np.asarray(draw_pass(jnp.asarray(run_key(7, b"")), PassSize(1, 1, 100, 3000)).noise)
    assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-3
    correlation = np.corrcoef(noise[:50], noise[50:])
    assert np.abs(correlation - np.eye(100)).max() < 6 / np.sqrt(3000)


def test_noise_is_finite_and_symmetric_for_every_word():
    """All 2^23 numbers that a word can give: one infinite draw would ruin a run."""
    words = np.arange(2**23, dtype=np.uint32) << 9
    normal = np.asarray(jax.jit(_normal)(words))
    assert np.all(np.isfinite(normal))
    np.testing.assert_allclose(normal, -normal[::-1], rtol=1e-5)
    assert abs(normal.astype(np.float64).var() - 1) < 1e-5


def test_noise_reaches_beyond_seven_deviations():
    """A sum of two draws: no edge where a record could be told from its absence."""
    most = _noise(jnp.full((1, 2), 2**32 - 1, jnp.uint32))
    assert 7.3 < float(most[0]) < 7.7
    assert float(_noise(jnp.zeros((1, 2), jnp.uint32))[0]) == -float(most[0])


def test_vectors_take_the_shape_of_parameters():
    like = {"w": jnp.zeros((2, 3)), "b": jnp.zeros(2)}
    shaped = as_params(jnp.arange(16.0).reshape(2, 8), like)
    assert shaped["w"].shape == (2, 2, 3)
    assert shaped["b"].shape == (2, 2)
    flat = [np.asarray(leaf).reshape(2, -1) for leaf in jax.tree.leaves(shaped)]
    np.testing.assert_array_equal(np.concatenate(flat, axis=1), np.arange(16.0).reshape(2, 8))
