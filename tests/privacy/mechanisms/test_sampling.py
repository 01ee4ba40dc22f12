"""Poisson sampling is what it says: the accountant's promise rests on it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from silodp.privacy.mechanisms.sampling import (
    OVERFLOW_SHARE,
    RATE_SLACK,
    capacity_for,
    charged_rate,
    draw_batches,
    draw_of,
    gap_of,
    overflow_chance,
    threshold_of,
)

# Compiled as a whole: one operation after the other takes many times as long.
draw_batches = jax.jit(draw_batches, static_argnums=(0, 2, 3))


def words(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 2**32, shape, dtype=np.uint32)


def drawn(draw, n, batch, steps, slots, seed=0, rows=None):
    """Drawn records as a boolean [steps, n]."""
    width = rows or n if draw == "shuffle" else slots
    draws = 1 if draw == "shuffle" else steps
    batches = draw_batches(
        draw,
        words((draws, width), seed),
        steps,
        slots,
        jnp.int32(n),
        jnp.int32(n),
        jnp.int32(batch),
        jnp.asarray(threshold_of(batch / n)),
    )
    mask = np.asarray(batches.mask) > 0
    if batches.rows is None:
        return mask[:, :n]
    chosen = np.zeros((steps, n), bool)
    step, slot = np.nonzero(mask)
    rows_drawn = np.asarray(batches.rows)[step, slot]
    assert len(set(zip(step, rows_drawn, strict=True))) == len(step)  # never a record twice
    chosen[step, rows_drawn] = True
    return chosen


@pytest.mark.parametrize(("batch", "records"), [(64, 1400), (32, 300), (2, 3), (100, 100_000)])
def test_gaps_draw_at_the_charged_rate_whatever_else_is_drawn(batch, records):
    """How many of the 2^32 words give each gap, found by bisection.

    If gap g has probability (1 +- eta) q (1-q)^g, then a record's odds of being drawn, given all
    the others, are h(a) h(b) / h(a+b+1) for gaps before and behind it: off by at most 3 eta.
    """
    rate = jnp.float32(batch) / jnp.float32(records)
    longest = int(gap_of(jnp.uint32(0), rate)[0])
    assert np.exp(-8) / 4 < (1 - batch / records) ** longest <= np.exp(-8) * (1 + 1e-6)
    gaps = np.arange(longest + 1)
    low, high = np.zeros(len(gaps), np.uint64), np.full(len(gaps), 2**32, np.uint64)
    gap = jax.jit(lambda words: gap_of(words, rate)[0])
    for _ in range(33):  # low: the least word whose gap is at most g (large words, short gaps)
        middle = (low + high) // 2
        fits = np.asarray(gap(jnp.asarray(middle.astype(np.uint32)))) <= gaps
        fits |= middle >= 2**32
        low, high = np.where(fits, low, middle + 1), np.where(fits, middle, high)
        low = np.minimum(low, high)
    below = high.astype(np.float64)
    probability = (np.concatenate([[2.0**32], below[:-1]]) - below) / 2**32
    q = batch / records
    exact = q * (1 - q) ** gaps[:-1]
    eta = np.abs(probability[:-1] / exact - 1).max()
    # The longest one stands for all that are longer, and draws nothing.
    eta_of_longest = abs(probability[-1] / (1 - q) ** longest - 1)
    assert (3 * eta + 2 * eta_of_longest) * q <= RATE_SLACK
    assert not np.asarray(gap_of(jnp.uint32(0), rate)[1])


def test_words_order_gaps():
    """The bisection above rests on it: a larger word never gives a longer gap."""
    rate = jnp.float32(64 / 1400)
    ordered = np.sort(np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32))
    gap = np.asarray(gap_of(jnp.asarray(ordered), rate)[0])
    assert np.all(np.diff(gap) <= 0)


@pytest.mark.parametrize(("draw", "n", "batch"), [("every", 90, 32), ("gaps", 400, 20)])
def test_every_record_is_drawn_independently_with_the_rate(draw, n, batch):
    steps = 20_000
    slots = n if draw == "every" else capacity_for(n, batch, 1e-9)
    chosen = drawn(draw, n, batch, steps, slots)
    q = batch / n
    rates = chosen.mean(0)
    assert np.all(np.abs(rates - q) < 6 * np.sqrt(q * (1 - q) / steps))
    sizes = chosen.sum(1)
    assert abs(sizes.var() / (n * q * (1 - q)) - 1) < 0.1  # binomial, not fixed
    centred = (chosen - q) / np.sqrt(q * (1 - q))
    correlation = centred.T @ centred / steps - np.eye(n)
    np.fill_diagonal(correlation, 0)
    assert np.abs(correlation).max() < 6 / np.sqrt(steps)


@settings(max_examples=30, deadline=None)
@given(rate=st.floats(1e-6, 1.0))
def test_threshold_is_never_above_the_rate(rate):
    chance = (int(threshold_of(rate)) + 1) / 2**32
    assert chance <= max(rate, 2**-32)
    assert chance >= rate - 2**-31


def test_a_full_batch_draws_everybody():
    assert drawn("every", 20, 20, 50, 24).all()


def test_shuffle_visits_each_record_once_in_an_epoch():
    chosen = drawn("shuffle", 70, 16, 4, 16, rows=80)
    assert np.array_equal(chosen.sum(1), [16, 16, 16, 16])
    assert chosen.sum(0).max() == 1


def test_shuffle_takes_a_new_order_each_epoch():
    n = jnp.int32(40)
    batches = draw_batches("shuffle", words((2, 40)), 4, 20, n, n, jnp.int32(20), jnp.uint32(0))
    rows = np.asarray(batches.rows)
    assert sorted(rows[:2].ravel()) == sorted(rows[2:].ravel()) == list(range(40))
    assert not np.array_equal(rows[:2], rows[2:])


def test_slots_overflow_no_more_often_than_promised():
    n, batch, chance = 300, 30, 0.02
    slots = capacity_for(n, batch, chance)
    w = words((40_000, slots + 40))
    args = jnp.int32(n), jnp.int32(n), jnp.int32(batch), jnp.uint32(0)
    wide = draw_batches("gaps", w, 40_000, slots + 40, *args)
    beyond = np.asarray(wide.mask)[:, slots:].any(1).mean()
    assert beyond <= chance + 4 * np.sqrt(chance / 40_000)
    assert beyond > 0  # and not by being far too generous


def test_overflow_is_paid_for_out_of_delta():
    for epsilon, delta, steps in [(0.5, 1e-7, 8400), (6, 1e-3, 400), (20, 1e-5, 10_000)]:
        p = overflow_chance(epsilon, delta, steps)
        assert (1 + np.exp(epsilon)) * steps * p <= OVERFLOW_SHARE * delta * (1 + 1e-9)
        slots = capacity_for(1400, 64, p)
        assert stats.binom.sf(slots - 1, 1400, 64 / 1400) <= p


@pytest.mark.parametrize("chance", [1e-3, 1e-9, 1e-30, 1e-200])
@pytest.mark.parametrize(("batch", "records"), [(8, 100), (64, 1400), (100, 150), (32, 10**6)])
def test_slots_hold_what_the_binomial_law_says(batch, records, chance):
    drawn = min(capacity_for(records, batch, chance) - 1, records)
    assert stats.binom.logsf(drawn, records, batch / records) <= np.log(chance)


def test_an_epsilon_beyond_numbers_has_a_slot_for_everybody():
    assert capacity_for(500, 32, overflow_chance(800.0, 1e-5, 10)) > 500


def test_more_slots_only_add():
    w = words((5, 120))
    args = (jnp.int32(500), jnp.int32(500), jnp.int32(40), jnp.uint32(0))
    few = draw_batches("gaps", w[:, :90], 5, 90, *args)
    many = draw_batches("gaps", w, 5, 120, *args)
    np.testing.assert_array_equal(few.rows, np.asarray(many.rows)[:, :90])
    np.testing.assert_array_equal(few.mask, np.asarray(many.mask)[:, :90])


def test_which_way_depends_on_public_numbers_only():
    assert draw_of("poisson", 200, 32, heavy=False) == "every"
    assert draw_of("poisson", 1400, 64, heavy=False) == "gaps"
    assert draw_of("poisson", 400, 100, heavy=True) == "gaps"
    assert draw_of("shuffle", 200, 32, heavy=False) == "shuffle"
    assert charged_rate("every", 200, 32) == 32 / 200
    assert charged_rate("gaps", 1400, 64) > 64 / 1400
