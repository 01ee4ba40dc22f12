"""Faults of the experiment path, each planted by patching the product: see `audit_faults`."""

import jax
import jax.numpy as jnp

from silodp.engines import layout, rounds, simulation
from silodp.models import gradients
from silodp.models import model as models
from silodp.privacy.mechanisms import randomness, training

# Noise.


def no_noise(patch):
    patch.setattr(randomness, "_noise", lambda words: jnp.zeros(words.shape[:-1]))


def half_the_noise(patch):
    whole = randomness._noise
    patch.setattr(randomness, "_noise", lambda words: 0.5 * whole(words))


def noise_times_0_8(patch):
    whole = randomness._noise
    patch.setattr(randomness, "_noise", lambda words: 0.8 * whole(words))


def _on_noise(patch, change):
    """Changes the noise [steps, parameters] of every pass."""
    honest = training.as_params
    patch.setattr(training, "as_params", lambda vector, like: honest(change(vector), like))


def no_noise_on_one_parameter(patch):
    _on_noise(patch, lambda noise: noise.at[..., 2].set(0.0))


def half_the_noise_on_the_last_parameter(patch):
    _on_noise(patch, lambda noise: noise.at[..., -1].multiply(0.5))


def noise_in_the_first_step_only(patch):
    _on_noise(patch, lambda noise: noise.at[1:].set(0.0))


def no_noise_in_the_last_step(patch):
    _on_noise(patch, lambda noise: noise.at[-1].set(0.0))


def the_same_noise_in_all_steps(patch):
    _on_noise(patch, lambda noise: jnp.broadcast_to(noise[:1], noise.shape))


def noise_that_cancels_over_steps(patch):
    def alternate(noise):
        sign = jnp.where(jnp.arange(noise.shape[0]) % 2 == 0, 1.0, -1.0)
        return noise[:1] * sign[:, None]

    _on_noise(patch, alternate)


def the_same_noise_on_two_parameters(patch):
    _on_noise(patch, lambda noise: noise.at[..., 1].set(noise[..., 0]))


def opposite_noise_on_halves(patch):
    def mirrored(noise):
        half = noise.shape[-1] // 2
        return noise.at[..., half : 2 * half].set(-noise[..., :half])

    _on_noise(patch, mirrored)


def uniform_noise(patch):
    def uniform(words):
        return ((words[..., 0] >> 8).astype(jnp.float32) * 2.0**-23 - 1.0) * 3**0.5

    patch.setattr(randomness, "_noise", uniform)


def laplace_noise(patch):
    def laplace(words):
        u = ((words[..., 0] >> 9).astype(jnp.float32) + 0.5) * 2.0**-22 - 1.0
        return -jnp.sign(u) * jnp.log1p(-jnp.abs(u)) * 2**-0.5

    patch.setattr(randomness, "_noise", laplace)


def noise_cut_off(patch):
    whole = randomness._noise
    patch.setattr(randomness, "_noise", lambda words: jnp.clip(whole(words), -2.5, 2.5))


def the_same_noise_in_every_round(patch):
    keys = rounds.pass_keys
    patch.setattr(rounds, "pass_keys", lambda key, silos, number, *more: keys(key, silos, 0, *more))


def noise_again_every_third_round(patch):
    keys = rounds.pass_keys
    patch.setattr(
        rounds,
        "pass_keys",
        lambda key, silos, number, *more: keys(key, silos, number % 3, *more),
    )


def no_noise_in_the_third_round(patch):
    honest = rounds._local

    def local(job, shape, number, silos, told, group, *more):
        noise = group.noise._replace(scale=jnp.where(number == 2, 0.0, group.noise.scale))
        return honest(job, shape, number, silos, told, group._replace(noise=noise), *more)

    patch.setattr(rounds, "_local", local)


def the_same_noise_in_every_silo(patch):
    keys = rounds.pass_keys

    def alike(key, silos, *more):
        return keys(key, jnp.zeros_like(silos), *more)

    patch.setattr(rounds, "pass_keys", alike)


def noise_shared_between_silos(patch):
    """Batches stay each silo's own."""
    honest = rounds.draw_passes

    def shared(keys, sizes):
        drawn = honest(keys, sizes)
        return [
            own._replace(noise=jnp.broadcast_to(own.noise[:1], own.noise.shape)) for own in drawn
        ]

    patch.setattr(rounds, "draw_passes", shared)


def the_same_noise_in_every_trial(patch):
    honest = simulation.run_key
    patch.setattr(simulation, "run_key", lambda seed, secret: honest(0, secret))


def noise_of_another_silo(patch):
    honest = layout.silo_noise

    def turned(plans):
        noise = honest(plans)
        return noise._replace(scale=noise.scale[::-1])

    patch.setattr(layout, "silo_noise", turned)


def noise_without_the_clip(patch):
    honest = layout.silo_noise

    def unscaled(plans):
        noise = honest(plans)
        return noise._replace(scale=noise.scale / plans[0][0].clip)

    patch.setattr(layout, "silo_noise", unscaled)


# Clip, sum and divisor.


def no_clipping(patch):
    patch.setattr(gradients, "clip_factor", lambda norm, clip: jnp.ones_like(norm))


def no_clipping_of_the_first_record(patch):
    honest = gradients.clip_factor

    def but_one(norm, clip):
        factor = honest(norm, clip)
        return factor.at[0].set(1.0) if factor.ndim else factor

    patch.setattr(gradients, "clip_factor", but_one)


def _linear_sum(patch, finish):
    """Sums of linear models by `finish(gradients of records [n, d], mask, clip)`."""

    def linear_clipped_sum(loss):
        def clipped_sum(params, features, y, mask, clip, offset=None):
            outputs = features["x"] @ params
            residual = jax.grad(lambda out: loss(out, y).sum())(outputs)
            return finish(features["x"] * residual[:, None], mask, clip)

        return clipped_sum

    patch.setattr(models, "linear_clipped_sum", linear_clipped_sum)


def _clipped(each, clip):
    return each * gradients.clip_factor(jnp.linalg.norm(each, axis=1), clip)[:, None]


def clipping_the_sum(patch):
    def finish(each, mask, clip):
        total = mask @ each
        return total * gradients.clip_factor(jnp.linalg.norm(total), clip)

    _linear_sum(patch, finish)


def clipping_each_coordinate(patch):
    _linear_sum(patch, lambda each, mask, clip: mask @ jnp.clip(each, -clip, clip))


def clipping_by_the_largest_coordinate(patch):
    def finish(each, mask, clip):
        largest = jnp.max(jnp.abs(each), axis=1)
        return mask @ (each * gradients.clip_factor(largest, clip)[:, None])

    _linear_sum(patch, finish)


def records_counted_twice(patch):
    _linear_sum(patch, lambda each, mask, clip: 2.0 * mask @ _clipped(each, clip))


def division_by_the_number_drawn(patch):
    """By changing the sum: it is divided by the expected number afterwards."""

    def finish(each, mask, clip):
        return mask @ _clipped(each, clip) * 10.0 / jnp.maximum(mask.sum(), 1.0)

    _linear_sum(patch, finish)


# Batches.


def _on_batches(patch, change):
    """Changes the mask [steps, slots] of every pass; for silos that draw over every record."""
    honest = training.draw_batches

    def drawn(draw, words, steps, slots, records, *more):
        batches = honest(draw, words, steps, slots, records, *more)
        return batches._replace(mask=change(batches.mask, words, records, *more))

    patch.setattr(training, "draw_batches", drawn)


def batches_of_fixed_size(patch):
    def fixed(mask, words, records, count, batch, threshold):
        there = jnp.where(jnp.arange(mask.shape[1]) < records, words, jnp.uint32(2**32 - 1))
        return (jnp.argsort(jnp.argsort(there, axis=1), axis=1) < batch).astype(jnp.float32)

    _on_batches(patch, fixed)


def the_same_batch_in_all_steps(patch):
    _on_batches(patch, lambda mask, *_: jnp.broadcast_to(mask[:1], mask.shape))


def the_first_record_always(patch):
    _on_batches(patch, lambda mask, *_: mask.at[:, 0].set(1.0))


def neighbours_drawn_together(patch):
    def paired(mask, *_):
        even = mask[:, : mask.shape[1] // 2 * 2 : 2]
        return mask.at[:, 1 : 2 * even.shape[1] : 2].set(even)

    _on_batches(patch, paired)


def a_higher_rate(patch):
    honest = layout.threshold_of
    patch.setattr(layout, "threshold_of", lambda rate: honest(min(1.0, 1.15 * rate)))


def with_replacement(patch):
    def again(mask, words, *_):
        return mask + jnp.where((words & 63) == 0, mask, 0.0)

    _on_batches(patch, again)


def the_same_batches_in_every_round(patch):
    """Noise stays each round's own."""
    honest = rounds.draw_passes
    fixed = jax.random.bits(jax.random.key(0), (64, 64, 64), "uint32")

    def drawn(keys, sizes):
        return [
            own._replace(
                sample=jnp.broadcast_to(
                    fixed[:1, : own.sample.shape[1], : own.sample.shape[2]], own.sample.shape
                )
            )
            for own in honest(keys, sizes)
        ]

    patch.setattr(rounds, "draw_passes", drawn)


NOISE = [
    no_noise,
    half_the_noise,
    noise_times_0_8,
    no_noise_on_one_parameter,
    half_the_noise_on_the_last_parameter,
    noise_in_the_first_step_only,
    no_noise_in_the_last_step,
    the_same_noise_in_all_steps,
    noise_that_cancels_over_steps,
    the_same_noise_on_two_parameters,
    opposite_noise_on_halves,
    uniform_noise,
    laplace_noise,
    noise_cut_off,
    the_same_noise_in_every_round,
    noise_again_every_third_round,
    no_noise_in_the_third_round,
    the_same_noise_in_every_silo,
    noise_shared_between_silos,
    the_same_noise_in_every_trial,
    noise_of_another_silo,
    noise_without_the_clip,
]
CLIP = [
    no_clipping,
    no_clipping_of_the_first_record,
    clipping_the_sum,
    clipping_each_coordinate,
    clipping_by_the_largest_coordinate,
    records_counted_twice,
]
BATCHES = [
    division_by_the_number_drawn,
    batches_of_fixed_size,
    the_same_batch_in_all_steps,
    the_first_record_always,
    neighbours_drawn_together,
    a_higher_rate,
    with_replacement,
    the_same_batches_in_every_round,
]
