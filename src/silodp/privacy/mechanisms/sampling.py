"""Which records enter each step of a training pass.

True Poisson sampling: in every step each record is drawn with probability `rate`, by itself. That
is what the accountant charges for. How a batch is laid out follows from public numbers alone:

- "every": a place for each record; nothing can overflow. For silos of few batches.
- "gaps": a fixed number of slots, chosen so that the chance of a draw that does not fit is paid for
  out of delta (see `capacity_for`).

A release draws on the host, exactly (see `poisson_batches`). An experiment draws in
the compiled program, from 32 bits: a number for each record, or (for "gaps") the gaps between drawn
records, which are geometric, so that a few numbers give the whole batch however large the silo.
These are right to within single precision, which is good enough where nobody is protected.

"shuffle" is what the authors of the paper do: cut a random permutation into batches. No accountant
here covers it; it is offered for comparison.
"""

import math
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32, Integer, Shaped, UInt32
from scipy import stats

from silodp.config.choices import Sampling
from silodp.privacy.mechanisms.shapes import Number, WholeNumber

Draw = Literal["every", "gaps", "shuffle"]

# Up to this many expected batches a silo is sampled by "every". A light model's step over all rows
# is cheaper than gathering some; a heavy model's is not.
EVERY_UP_TO_LIGHT = 8
EVERY_UP_TO_HEAVY = 1.5
# A gap that is less likely than e^-8 is cut into two draws (the process has no memory, so it stays
# exact): it keeps the probability of every gap far above the resolution of the random numbers.
LONGEST_GAP = 8.0
# Single precision moves the rate at which "gaps" draws a record, whatever else was drawn, by less
# than this (tests work out the probability of every gap). The accountant charges for rate + slack.
RATE_SLACK = 2.0**-16
# The share of delta that pays for draws which do not fit into the slots.
OVERFLOW_SHARE = 1e-3


class Batches(NamedTuple):
    """The batches of one pass: which records (None: all, in order) and which slots count."""

    rows: Int[Array, "steps slots"] | None  # into the silo's records
    mask: Float[Array, "steps slots"]  # 1.0 where a record was drawn


def draw_of(sampling: Sampling, public_count: int, expected_batch: int, heavy: bool) -> Draw:
    """How a silo of so many records is sampled: a rule on public numbers only."""
    if sampling == "shuffle":
        return "shuffle"
    batches = EVERY_UP_TO_HEAVY if heavy else EVERY_UP_TO_LIGHT
    return "every" if public_count <= batches * expected_batch else "gaps"


def charged_rate(draw: Draw, public_count: int, expected_batch: int) -> float:
    """The sampling rate to charge for, never below the one at which records are really drawn."""
    rate = expected_batch / public_count
    return min(1.0, rate + RATE_SLACK) if draw == "gaps" else rate


def capacity_for(
    public_count: int, expected_batch: int, chance: float, max_count: int | None = None
) -> int:
    """Slots that "gaps" needs so that a step overflows with at most this chance.

    Records are drawn at the rate expected_batch/public_count, and there may be up to `max_count` of
    them (None: as many as that): fewer overflow less often.
    """
    max_count = public_count if max_count is None else max_count
    if chance < 1e-300:  # beyond what can be worked out: a slot for all there can ever be
        return 2 * max_count + 1
    drawn = stats.binom.isf(chance / 2, max_count, expected_batch / public_count)
    # Gaps that were cut in two take a slot and draw nothing. More than this many among twice as
    # many slots as hold records, with half the chance at most.
    cut = stats.binom.isf(chance / 2, 2 * int(drawn) + 2, math.exp(-LONGEST_GAP))
    # One more slot sees that the process has left the silo.
    return int(drawn) + int(cut) + 1


def overflow_chance(epsilon: float, delta: float, steps: int) -> float:
    """The chance of overflow in a step that costs at most OVERFLOW_SHARE of delta over all steps.

    If a run without overflow is (epsilon, d)-DP and overflow has chance p on either of two
    neighbours, then the real run is (epsilon, d + (1 + e^epsilon) p)-DP.
    """
    if math.isinf(epsilon):
        return 1e-12
    return OVERFLOW_SHARE * delta * math.exp(-epsilon) / (2 * steps)


def threshold_of(rate: float) -> np.uint32:
    """A uint32 drawn at random is at most this with the largest chance that is not above `rate`."""
    return np.uint32(max(math.floor(rate * 2**32), 1) - 1)


def draw_size(
    draw: Draw, epochs: int, steps: int, batch_capacity: int, rows: int
) -> tuple[int, int]:
    """Random words that `draw_batches` needs: [draws, width]."""
    return (epochs, rows) if draw == "shuffle" else (steps, batch_capacity)


def draw_batches(
    draw: Draw,
    words: UInt32[Array, "draws width"],
    steps: int,
    batch_capacity: int,
    true_count: WholeNumber,
    public_count: Integer[Array, ""],
    expected_batch: Integer[Array, ""],
    threshold: UInt32[Array, ""] | np.uint32,
) -> Batches:
    """The batches of one pass over a silo.

    Args:
      draw: "every", "gaps" or "shuffle"; static.
      words: random, as many as `draw_size` says. More slots or steps only add to what is drawn.
      steps: batches to draw; static.
      batch_capacity: slots of a batch; static. For "every", the padded number of records.
      true_count: how many of the silo's rows are records; the rest is padding.
      public_count: n_k as far as it is public: with the batch it sets the rate of "gaps".
      expected_batch: the expected (for "shuffle": exact) batch size, as a whole number.
      threshold: what `threshold_of(rate)` gives; used by "every".
    """
    if draw == "every":
        mask = (words <= threshold) & (jnp.arange(batch_capacity) < true_count)
        return Batches(None, mask.astype(jnp.float32))
    if draw == "gaps":
        rate = expected_batch.astype(jnp.float32) / public_count.astype(jnp.float32)
        gap, drawn = gap_of(words, rate)
        index = jnp.cumsum(gap + drawn, axis=1) - 1
        mask = drawn & (index < true_count)
        return Batches(jnp.where(mask, index, 0), mask.astype(jnp.float32))
    return _shuffle(words, steps, batch_capacity, true_count, public_count, expected_batch)


def given_batches(draw: Draw, sample: Shaped[Array | np.ndarray, "steps slots"]) -> Batches:
    """The batches that the host drew: flags, or numbers of records (-1: none)."""
    given = jnp.asarray(sample)
    if draw == "every":
        return Batches(None, given.astype(jnp.float32))
    return Batches(jnp.maximum(given, 0), (given >= 0).astype(jnp.float32))


def _shuffle(
    words: UInt32[Array, "epochs rows"],
    steps: int,
    batch_capacity: int,
    true_count: WholeNumber,
    public_count: WholeNumber,
    expected_batch: WholeNumber,
) -> Batches:
    """A random permutation an epoch, cut into batches; what is left over is dropped.

    Where fewer records are there than is public, the last batches are short.
    """
    padding = jnp.arange(words.shape[1]) >= true_count
    permutation = jnp.argsort(jnp.where(padding, jnp.uint32(2**32 - 1), words >> 1), axis=1)
    a_pass = public_count // expected_batch
    step, slot = jnp.arange(steps)[:, None], jnp.arange(batch_capacity)[None, :]
    epoch, place = step // a_pass, (step % a_pass) * expected_batch + slot
    mask = (slot < expected_batch) & (place < true_count)
    index = permutation[epoch, jnp.where(mask, place, 0)]
    return Batches(index, jnp.broadcast_to(mask, index.shape).astype(jnp.float32))


def gap_of(
    words: UInt32[Array, "*draws"], rate: Number
) -> tuple[Int32[Array, "*draws"], Bool[Array, "*draws"]]:
    """Random words -> how many records are passed over, and whether one is then drawn."""
    # In (0, 1]; small numbers, which make long gaps, keep all 32 bits.
    uniform = (words.astype(jnp.float32) + 0.5) * jnp.float32(2.0**-32)
    hazard = -jnp.log1p(-rate)
    longest = jnp.ceil(LONGEST_GAP / hazard)
    gap = jnp.floor(-jnp.log(uniform) / hazard)
    return jnp.minimum(gap, longest).astype(jnp.int32), gap < longest
