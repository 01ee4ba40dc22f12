"""Shapes that types name are checked where noise and samples are drawn."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from silodp.privacy.mechanisms.randomness import HostRandom, pass_keys, selection_words
from silodp.privacy.mechanisms.rounded_gaussian import rounded_gaussian
from silodp.privacy.mechanisms.statistics import noisy_label_moments, noisy_moments


def test_keys_that_are_no_two_words_are_refused():
    key, silos = jnp.array([1, 2], jnp.uint32), jnp.arange(3)
    assert pass_keys(key, silos, 0, 4).shape == (3, 4, 2)
    for wrong in (key[:1], key.astype(jnp.float32)):
        with pytest.raises(TypeCheckError):
            pass_keys(wrong, silos, 0, 4)
        with pytest.raises(TypeCheckError):
            selection_words(wrong, 5)


def test_one_deviation_for_each_draw():
    words = np.arange(4, dtype=np.uint64)
    assert rounded_gaussian(words, np.zeros(4), lambda place, more: bytes(more)).shape == (4,)
    with pytest.raises(TypeCheckError):
        rounded_gaussian(words, np.zeros(3), lambda place, more: bytes(more))
    with pytest.raises(TypeCheckError):
        rounded_gaussian(words.astype(np.int64), 1.0, lambda place, more: bytes(more))


def test_statistics_take_a_subject_for_each_record():
    random, x = HostRandom(0, b"", "features"), np.ones((4, 2, 3))
    mean, deviation = noisy_moments(x, 1.0, 4, 0.0, random, subject=np.array([0, 0, 1, 1]))
    assert mean.shape == deviation.shape == (2, 3)
    with pytest.raises(TypeCheckError):
        noisy_moments(x, 1.0, 4, 0.0, random, subject=np.array([0, 1]))
    with pytest.raises(TypeCheckError):
        noisy_label_moments(np.ones(4), 4, 0.0, random)
