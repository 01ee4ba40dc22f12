"""Whole-number noise: exactly the probabilities of a rounded Gaussian."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtri

from silodp.privacy.mechanisms.keystream import Keystream
from silodp.privacy.mechanisms.rounded_gaussian import _FAR, _MARGIN, rounded_gaussian


def stream(seed=0):
    return Keystream(seed.to_bytes(32, "big"), bytes(12))


def draws(count, deviation, seed=0):
    words = stream(seed)
    return rounded_gaussian(words.words(count), deviation, lambda _, more: words.read(more))


def test_the_quantile_is_as_exact_as_the_margin_takes_for_granted():
    """Against 50 digits: bits not yet drawn, rounding of U and the function itself."""
    rng = np.random.default_rng(0)
    tails = np.concatenate(
        [
            rng.integers(0, 2**63, 300, dtype=np.uint64),
            (2.0 ** rng.uniform(42, 63, 300)).astype(np.uint64),
            np.array([2**63 - 1, 2**62, 2**62 - 1], np.uint64),
        ]
    )
    quantile = -ndtri((tails.astype(np.float64) + 0.5) * 2.0**-64)
    for tail, found in zip(tails.tolist(), quantile, strict=True):
        if found > _FAR:
            continue
        with mpmath.workdps(50):
            for bound in (tail, tail + 1):  # what the bits to come may make of it
                u = mpmath.mpf(bound) / 2**64
                exact = -mpmath.sqrt(2) * mpmath.erfinv(2 * u - 1) if bound < 2**63 else 0
                assert abs(exact - mpmath.mpf(float(found))) < _MARGIN / 2


@pytest.mark.parametrize("deviation", [0.3, 1.0, 7.3])
def test_probabilities_are_those_of_the_cells(deviation):
    count = 400_000
    drawn = draws(count, deviation, seed=int(10 * deviation))
    most = math.ceil(3 * deviation)
    edges = np.array([-np.inf, *(np.arange(-most, most) + 0.5), np.inf])
    exact = np.diff(stats.norm.cdf(edges / deviation))
    seen = np.histogram(drawn, edges)[0]
    assert (count * exact > 5).all()
    assert stats.chisquare(seen, count * exact).pvalue > 1e-4


@settings(max_examples=60, deadline=None)
@given(
    deviation=st.floats(0.05, 2.0**40),
    share=st.floats(0.0, 1.0),
    more=st.sampled_from([bytes(8), b"\xff" * 8]),
)
def test_a_word_falls_into_the_cell_that_it_must(deviation, share, more):
    """The largest size that a word can stand for, in 60 digits, whatever the bits to come."""
    word = min(int(share * 2**63), 2**63 - 1) | 2**40
    (drawn,) = rounded_gaussian(
        np.array([word << 1 | 1], np.uint64), deviation, lambda _, count: more[:count]
    )
    with mpmath.workdps(60):

        def tail(size):
            return mpmath.erfc((size + mpmath.mpf("0.5")) / (deviation * mpmath.sqrt(2))) / 2

        low, high = mpmath.mpf(word) / 2**64, mpmath.mpf(word + 1) / 2**64
        assert tail(int(drawn)) < high
        assert drawn == 0 or low < tail(int(drawn) - 1)


def test_where_double_precision_cannot_tell_further_bits_do():
    """A word on the very edge of a cell: all depends on what comes next."""
    deviation, size = 3.7, 5
    with mpmath.workdps(60):
        edge = mpmath.erfc((size + mpmath.mpf("0.5")) / (deviation * mpmath.sqrt(2))) / 2
        word = int(mpmath.floor(edge * 2**64))
        next_bits = int(mpmath.floor(edge * 2**128)) - (word << 64)
    words = np.array([word << 1 | 1], np.uint64)
    asked = []

    def bits(value):
        def more(_, count):
            asked.append(count)
            return value.to_bytes(8, "little")

        return more

    assert rounded_gaussian(words, deviation, bits(next_bits + 1)).tolist() == [size]
    assert rounded_gaussian(words, deviation, bits(next_bits - 1)).tolist() == [size + 1]
    assert asked == [8, 8]


def test_tails_have_no_end():
    """The least of all words: beyond 9 deviations, however far the next bits say."""
    (near,) = rounded_gaussian(np.array([1], np.uint64), 10.0, lambda _, n: b"\xff" * n)
    (far,) = rounded_gaussian(np.array([1], np.uint64), 10.0, lambda _, n: bytes(7) + b"\x01")
    assert 90 <= near < far < 200


def test_both_signs_are_as_likely():
    words = stream(3)
    uneven = words.words(1000) | np.uint64(1)
    plus = rounded_gaussian(uneven, 100.0, lambda _, n: bytes(n))
    minus = rounded_gaussian(uneven ^ np.uint64(1), 100.0, lambda _, n: bytes(n))
    assert (plus >= 0).all()
    np.testing.assert_array_equal(plus, -minus)


def test_low_bits_of_fine_noise_are_uniform():
    """At two million grains a deviation, every residue is as likely as any other."""
    drawn = draws(300_000, 2.0e6, seed=5)
    for modulus in (2, 8, 32, 128):
        assert stats.chisquare(np.bincount(drawn % modulus)).pvalue > 1e-4
    assert stats.kstest(drawn / 2.0e6, "norm").pvalue > 1e-3


def test_without_a_deviation_there_is_no_noise_however_far_out_a_word_lies():
    """Silos without privacy take words as well, one in two million of them far out in a tail."""
    words = np.array([0, 1, 2, 2**63, 2**64 - 1], np.uint64)
    drawn = rounded_gaussian(words, 0.0, lambda _, count: bytes(count))
    np.testing.assert_array_equal(drawn, 0)
