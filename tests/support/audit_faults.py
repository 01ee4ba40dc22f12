"""Faults that break a promise of privacy, each planted in a release by patching the product.

Those of noise and batches are in what the host draws (`release_draws`); those of the clip are in
the compiled program (`whole_sums`). `experiment_faults` has those of experiments.
"""

import jax
import jax.numpy as jnp
import numpy as np

from silodp.engines import layout, one_silo
from silodp.models import model as models
from silodp.models import whole_sums
from silodp.privacy.mechanisms import release_draws, selection
from silodp.privacy.mechanisms.release_draws import ReleaseDraws

# Noise.


def _on_draws(patch, change):
    """Noise by `change(honest, words, deviations)`; honest takes words and deviations."""
    honest = release_draws.rounded_gaussian

    def drawn(words, deviations, more):
        return change(lambda w, d: honest(w, d, more), words, deviations).astype(np.int64)

    patch.setattr(release_draws, "rounded_gaussian", drawn)


def _on_pass(patch, noise=None, samples=None):
    """Changes noise or samples of every pass, of silos alike: [seeds, silos, steps, ...]."""
    honest = ReleaseDraws._pass

    def changed(self, number, asked):
        return [
            (
                own if samples is None else samples(own, number),
                grains if noise is None else noise(grains, number).astype(np.int32),
            )
            for own, grains in honest(self, number, asked)
        ]

    patch.setattr(ReleaseDraws, "_pass", changed)


def _on_noise(patch, change):
    """Changes the noise of every pass, in place."""

    def noise(grains, number):
        change(grains)
        return grains

    _on_pass(patch, noise)


def no_noise(patch):
    _on_draws(patch, lambda honest, words, deviations: np.zeros(len(words)))


def half_the_noise(patch):
    _on_draws(patch, lambda honest, words, deviations: honest(words, 0.5 * deviations))


def noise_times_0_8(patch):
    _on_draws(patch, lambda honest, words, deviations: honest(words, 0.8 * deviations))


def _on_lattice(patch, change):
    honest = layout.lattice_of

    def changed(clip, *more):
        lattice = honest(clip, *more)
        return lattice._replace(deviation=change(lattice.deviation, clip))

    patch.setattr(layout, "lattice_of", changed)


def a_lattice_whose_deviation_is_0_8(patch):
    _on_lattice(patch, lambda deviation, clip: 0.8 * deviation)


def noise_without_the_clip(patch):
    _on_lattice(patch, lambda deviation, clip: deviation / clip)


def no_noise_on_one_parameter(patch):
    def change(noise):
        noise[..., 2] = 0

    _on_noise(patch, change)


def half_the_noise_on_the_last_parameter(patch):
    def change(noise):
        noise[..., -1] //= 2

    _on_noise(patch, change)


def noise_in_the_first_step_only(patch):
    def change(noise):
        noise[..., 1:, :] = 0

    _on_noise(patch, change)


def no_noise_in_the_last_step(patch):
    def change(noise):
        noise[..., -1, :] = 0

    _on_noise(patch, change)


def the_same_noise_in_all_steps(patch):
    def change(noise):
        noise[...] = noise[..., :1, :]

    _on_noise(patch, change)


def noise_that_cancels_over_steps(patch):
    def change(noise):
        noise[..., 1::2, :] = -noise[..., : noise.shape[-2] // 2 * 2 : 2, :]

    _on_noise(patch, change)


def the_same_noise_on_two_parameters(patch):
    def change(noise):
        noise[..., 1] = noise[..., 0]

    _on_noise(patch, change)


def opposite_noise_on_halves(patch):
    def change(noise):
        half = noise.shape[-1] // 2
        noise[..., half : 2 * half] = -noise[..., :half]

    _on_noise(patch, change)


def no_noise_in_the_third_round(patch):
    _on_pass(patch, lambda noise, number: noise * (number != 2))


def uniform_noise(patch):
    def uniform(honest, words, deviations):
        return np.rint((words * 2.0**-63 - 1) * 3**0.5 * deviations)

    _on_draws(patch, uniform)


def laplace_noise(patch):
    def laplace(honest, words, deviations):
        u = ((words >> np.uint64(12)) + 0.5) * 2.0**-51 - 1
        return np.rint(-np.sign(u) * np.log1p(-np.abs(u)) * 2**-0.5 * deviations)

    _on_draws(patch, laplace)


def noise_cut_off(patch):
    def cut(honest, words, deviations):
        return np.clip(honest(words, deviations), -2.5 * deviations, 2.5 * deviations)

    _on_draws(patch, cut)


def noise_of_one_sign(patch):
    _on_draws(patch, lambda honest, words, deviations: np.abs(honest(words, deviations)))


def noise_of_12_bits(patch):
    """Words of which all but the first bits, and the sign, are left out."""

    def coarse(honest, words, deviations):
        kept = np.uint64((2**12 - 1) << 52 | 1)
        return honest(words & kept | np.uint64(1 << 51), deviations)

    _on_draws(patch, coarse)


def _on_streams(patch, change, *purposes):
    """Bytes of another round and pass: `change(number, asked)`, for these purposes."""
    honest = release_draws.pass_stream

    def changed(key, number, asked, purpose):
        if purpose in purposes:
            number, asked = change(number, asked)
        return honest(key, number, asked, purpose)

    patch.setattr(release_draws, "pass_stream", changed)


def the_same_noise_in_every_round(patch):
    _on_streams(patch, lambda number, asked: (0, asked), "noise")


def noise_again_every_third_round(patch):
    _on_streams(patch, lambda number, asked: (number % 3, asked), "noise")


def the_same_noise_in_every_pass(patch):
    _on_streams(patch, lambda number, asked: (number, 0), "noise")


def _the_first_silos(patch, purpose):
    """All silos, which are of one size, have the words of the first."""
    honest = ReleaseDraws._words

    def changed(self, number, asked, asked_for, count):
        words = honest(self, number, asked, asked_for, count)
        if asked_for != purpose:
            return words
        by_silo = words.reshape(len(self._keys), len(self._plans), -1)
        return np.broadcast_to(by_silo[:, :1], by_silo.shape).ravel()

    patch.setattr(ReleaseDraws, "_words", changed)


def noise_shared_between_silos(patch):
    """Batches stay each silo's own."""
    _the_first_silos(patch, "noise")


def the_same_noise_in_every_trial(patch):
    honest = release_draws.key_of
    patch.setattr(
        release_draws, "key_of", lambda secret, what, seed, trial: honest(secret, what, 0, trial)
    )


def noise_of_another_silo(patch):
    def turned(*args):
        return ReleaseDraws(*args[:5], args[5][::-1], *args[6:])

    patch.setattr(one_silo, "ReleaseDraws", turned)


# Low bits.


def noise_rounded_to_even_numbers(patch):
    _on_draws(patch, lambda honest, words, deviations: 2 * honest(words, deviations / 2))


def noise_of_single_precision(patch):
    """As releases had it: two float32 numbers by the inverse CDF of 23 bits, then rounded."""

    def old(honest, words, deviations):
        normal = [
            np.float32(np.sqrt(2)) * np.asarray(jax.lax.erf_inv(jnp.asarray(u)))
            for u in (
                ((words >> np.uint64(shift)) & np.uint64(2**23 - 1)).astype(np.float32)
                * np.float32(2.0**-22)
                + np.float32(2.0**-23 - 1.0)
                for shift in (9, 41)
            )
        ]
        unit = (normal[0] + normal[1]) * np.float32(np.sqrt(0.5))
        return np.rint(unit * deviations.astype(np.float32))

    _on_draws(patch, old)


def noise_of_float16(patch):
    """The quantile is right to 11 bits."""

    def coarse(honest, words, deviations):
        drawn = honest(words, deviations)
        return np.rint((drawn / deviations).astype(np.float16) * deviations)

    _on_draws(patch, coarse)


# Clip, sum and divisor.


def no_clipping(patch):
    patch.setattr(whole_sums, "clip_factor", lambda norm, clip: jnp.ones_like(norm))


def no_clipping_of_the_first_record(patch):
    honest = whole_sums.clip_factor

    def but_one(norm, clip):
        factor = honest(norm, clip)
        return factor.at[0].set(1.0) if factor.ndim else factor

    patch.setattr(whole_sums, "clip_factor", but_one)


def _linear_sum(patch, finish):
    """Sums of linear models by `finish(gradients of records [n, d], mask, clip, grain)`."""

    def linear_whole_sum(residual_of):
        def whole_sum(params, features, y, mask, clip, grain, offset=None):
            residual = residual_of(features["x"] @ params, y)
            total = finish(features["x"] * residual[:, None], mask, clip, grain)
            return total if total.dtype == jnp.int32 else (total / grain).astype(jnp.int32)

        return whole_sum

    patch.setattr(models, "linear_whole_sum", linear_whole_sum)


def _clipped(each, clip):
    return each * whole_sums.clip_factor(jnp.linalg.norm(each, axis=1), clip)[:, None]


def _whole(each, grain):
    return (each / grain).astype(jnp.int32)


def clipping_the_sum(patch):
    def finish(each, mask, clip, grain):
        total = mask @ each
        return total * whole_sums.clip_factor(jnp.linalg.norm(total), clip)

    _linear_sum(patch, finish)


def clipping_each_coordinate(patch):
    _linear_sum(patch, lambda each, mask, clip, grain: mask @ jnp.clip(each, -clip, clip))


def clipping_by_the_largest_coordinate(patch):
    def finish(each, mask, clip, grain):
        largest = jnp.max(jnp.abs(each), axis=1)
        return mask @ (each * whole_sums.clip_factor(largest, clip)[:, None])

    _linear_sum(patch, finish)


def records_counted_twice(patch):
    _linear_sum(patch, lambda each, mask, clip, grain: 2.0 * mask @ _clipped(each, clip))


def rounding_the_sum(patch):
    """To whole grains, in place of what each record adds."""
    _linear_sum(patch, lambda each, mask, clip, grain: mask @ _clipped(each, clip))


def rounding_away_from_nought(patch):
    """What each record adds is then longer than the clip."""

    def finish(each, mask, clip, grain):
        entries = _clipped(each, clip) / grain
        away = jnp.sign(entries) * jnp.ceil(jnp.abs(entries))
        return (mask[:, None] * away).astype(jnp.int32).sum(axis=0)

    _linear_sum(patch, finish)


def division_by_the_number_drawn(patch):
    """By changing the sum: it is divided by the expected number afterwards."""

    def finish(each, mask, clip, grain):
        return mask @ _clipped(each, clip) * 10.0 / jnp.maximum(mask.sum(), 1.0)

    _linear_sum(patch, finish)


# Batches.


def _on_flags(patch, change):
    """Changes which records are drawn in every pass, in place; for silos that flag each record."""

    def samples(flags, number):
        change(flags)
        return flags

    _on_pass(patch, samples=samples)


def batches_of_fixed_size(patch):
    random = np.random.default_rng(0)

    def fixed(flags):
        flags[...] = np.argsort(np.argsort(random.random(flags.shape)), axis=-1) < 10

    _on_flags(patch, fixed)


def the_same_batch_in_all_steps(patch):
    def change(flags):
        flags[...] = flags[..., :1, :]

    _on_flags(patch, change)


def the_first_record_always(patch):
    def change(flags):
        flags[..., 0] = True

    _on_flags(patch, change)


def neighbours_drawn_together(patch):
    def change(flags):
        flags[..., 1::2] = flags[..., : flags.shape[-1] // 2 * 2 : 2]

    _on_flags(patch, change)


def every_silo_draws_alike(patch):
    def change(flags):
        flags[...] = flags[:, :1]

    _on_flags(patch, change)


def every_trial_draws_alike(patch):
    def change(flags):
        flags[...] = flags[:1]

    _on_flags(patch, change)


def a_higher_rate(patch):
    honest = release_draws.threshold_of
    patch.setattr(
        release_draws,
        "threshold_of",
        lambda expected_batch, public_count: np.uint64(
            1.15 * float(honest(expected_batch, public_count))
        ),
    )


def the_same_batches_in_every_round(patch):
    """Noise stays each round's own."""
    _on_streams(patch, lambda number, asked: (0, asked), "sample", "sample refined")


def noise_from_the_bytes_of_batches(patch):
    honest = release_draws.pass_stream

    def shared(key, number, asked, purpose):
        return honest(key, number, asked, "sample" if purpose == "noise" else purpose)

    patch.setattr(release_draws, "pass_stream", shared)


# Batches of records by number, where few of many are drawn.


def _on_rows(patch, change):
    """Changes the numbers of the records that are drawn, -1 for none, in place."""
    _on_flags(patch, change)


def with_replacement(patch):
    """The first record of a batch once more, if there is room."""

    def change(rows):
        rows[..., -1] = np.where(rows[..., -1] < 0, rows[..., 0], rows[..., -1])

    _on_rows(patch, change)


def too_few_slots(patch):
    honest = release_draws.subsets

    def few(*args):
        rows = honest(*args)
        rows[:, 10:] = -1
        return rows

    patch.setattr(release_draws, "subsets", few)


def a_higher_rate_of_many(patch):
    honest = release_draws.DrawnCounts
    patch.setattr(
        release_draws,
        "DrawnCounts",
        lambda true_count, batch, *more: honest(true_count, 1.15 * batch, *more),
    )


def the_first_half_of_many_alone(patch):
    honest = release_draws.subsets
    patch.setattr(
        release_draws,
        "subsets",
        lambda counts, true_count, *more: honest(
            np.minimum(counts, true_count // 2), true_count // 2, *more
        ),
    )


# Selections.


def no_noise_in_selections(patch):
    honest = selection._exponential
    patch.setattr(selection, "_exponential", lambda words: jnp.ones_like(honest(words)))


def twice_the_sharpness(patch):
    honest = layout.sharpness
    patch.setattr(layout, "sharpness", lambda *args: 2 * honest(*args))


def constant_selection_words(patch):
    honest = ReleaseDraws._words

    def constant(self, number, asked, purpose, count):
        words = honest(self, number, asked, purpose, count)
        return np.full_like(words, 12345) if purpose == "selection" else words

    patch.setattr(ReleaseDraws, "_words", constant)


def the_same_selection_words_for_all_candidates(patch):
    honest = ReleaseDraws._words

    def alike(self, number, asked, purpose, count):
        words = honest(self, number, asked, purpose, count)
        if purpose != "selection":
            return words
        by_silo = words.reshape(-1, release_draws.MOST_CANDIDATES)
        return np.broadcast_to(by_silo[:, :1], by_silo.shape).ravel()

    patch.setattr(ReleaseDraws, "_words", alike)


def the_same_selection_noise_in_every_round(patch):
    _on_streams(patch, lambda number, asked: (0, asked), "selection")


def the_same_selection_noise_in_every_silo(patch):
    _the_first_silos(patch, "selection")


NOISE = [
    no_noise,
    half_the_noise,
    noise_times_0_8,
    a_lattice_whose_deviation_is_0_8,
    noise_without_the_clip,
    no_noise_on_one_parameter,
    half_the_noise_on_the_last_parameter,
    noise_in_the_first_step_only,
    no_noise_in_the_last_step,
    the_same_noise_in_all_steps,
    noise_that_cancels_over_steps,
    the_same_noise_on_two_parameters,
    opposite_noise_on_halves,
    no_noise_in_the_third_round,
    uniform_noise,
    laplace_noise,
    noise_cut_off,
    noise_of_one_sign,
    the_same_noise_in_every_round,
    noise_again_every_third_round,
    the_same_noise_in_every_pass,
    noise_shared_between_silos,
    the_same_noise_in_every_trial,
    noise_of_another_silo,
]
LOW_BITS = [
    noise_rounded_to_even_numbers,
    noise_of_single_precision,
    noise_of_float16,
    noise_of_12_bits,
]
CLIP = [
    no_clipping,
    no_clipping_of_the_first_record,
    clipping_the_sum,
    clipping_each_coordinate,
    clipping_by_the_largest_coordinate,
    records_counted_twice,
    rounding_the_sum,
    rounding_away_from_nought,
    division_by_the_number_drawn,
]
BATCHES = [
    batches_of_fixed_size,
    the_same_batch_in_all_steps,
    the_first_record_always,
    neighbours_drawn_together,
    every_silo_draws_alike,
    every_trial_draws_alike,
    a_higher_rate,
    the_same_batches_in_every_round,
    noise_from_the_bytes_of_batches,
]
FEW_OF_MANY = [
    with_replacement,
    too_few_slots,
    a_higher_rate_of_many,
    the_first_half_of_many_alone,
]
SELECTIONS = [
    no_noise_in_selections,
    twice_the_sharpness,
    constant_selection_words,
    the_same_selection_words_for_all_candidates,
    the_same_selection_noise_in_every_round,
    the_same_selection_noise_in_every_silo,
]
