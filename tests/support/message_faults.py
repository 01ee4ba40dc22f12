"""Faults that break a promise of privacy, each planted in a release of messages."""

import numpy as np

from silodp.engines.messages import SiloOfMessages
from silodp.privacy.mechanisms import message_queries, moments
from silodp.privacy.mechanisms.randomness import HostRandom


def _on_noise(patch, change):
    """Noise by `change(honest, deviation, shape)`."""
    honest = HostRandom.rounded_gaussian

    def drawn(self, deviation, shape):
        return change(lambda d, s: honest(self, d, s), deviation, shape)

    patch.setattr(HostRandom, "rounded_gaussian", drawn)


def noise_too_small_by_the_root_of_two(patch):
    _on_noise(patch, lambda honest, d, shape: honest(np.asarray(d) / np.sqrt(2), shape))


def noise_times_0_9(patch):
    _on_noise(patch, lambda honest, d, shape: honest(0.9 * np.asarray(d), shape))


def no_noise_on_one_number(patch):
    def change(honest, deviation, shape):
        noise = honest(deviation, shape)
        noise.ravel()[min(2, noise.size - 1)] = 0
        return noise

    _on_noise(patch, change)


def less_noise_below_the_diagonal_too(patch):
    """Half the variance on the diagonal as well."""

    def change(honest, deviation, shape):
        return honest(np.min(deviation) * np.ones(shape), shape)

    _on_noise(patch, change)


def noise_in_single_precision(patch):
    def change(honest, deviation, shape):
        return honest(deviation, shape).astype(np.float32).astype(np.int64)

    _on_noise(patch, change)


def _on_address(patch, change):
    """Noise that comes from another address than it should."""
    honest = SiloOfMessages.local

    def local(self, own, broadcast, paid, random):
        return honest(self, own, broadcast, paid, lambda purpose: random(change(purpose)))

    patch.setattr(SiloOfMessages, "local", local)


def the_same_noise_in_every_round(patch):
    _on_address(patch, lambda purpose: purpose.split(" ", 2)[2])


def noise_shared_between_silos(patch):
    _on_address(patch, lambda purpose: " ".join([*purpose.split()[:2], purpose.split()[-1]]))


def the_same_noise_for_every_question(patch):
    _on_address(patch, lambda purpose: purpose.rsplit(" ", 1)[0])


def vectors_that_are_not_shortened(patch):
    honest = moments._whole

    def whole(vectors, bits):
        short = np.nan_to_num(np.clip(vectors, -3.0, 3.0))
        fine = np.linalg.norm(short, axis=1, keepdims=True) <= 1
        return np.where(fine, honest(vectors, bits), np.rint(short * 2.0**bits))

    patch.setattr(moments, "_whole", whole)


def residuals_that_are_not_cut_off(patch):
    def uncut(records, outputs, scale):
        return np.clip((records.y * 2.0**-records.bits - outputs) / scale, -3.0, 3.0)

    def noisy(records, residuals, noise_multiplier, random):
        whole = np.rint(residuals * 2.0**records.bits)
        sums = moments._sums_of_products(records.x, whole, records)
        return moments._released(sums, noise_multiplier, random)

    patch.setattr(message_queries, "squared_residuals", uncut)
    patch.setattr(message_queries, "noisy_gradient_of", noisy)


def a_mean_over_records_in_place_of_a_sum(patch):
    """What a record adds then hangs on how many others there are."""
    honest = moments._sums_of_products

    def divided(left, right, records):
        return honest(left, right, records) * 16 / max(1, len(left))

    patch.setattr(moments, "_sums_of_products", divided)


def records_of_a_subject_that_add_up(patch):
    """Not their mean."""
    honest = moments._sums_of_products

    def added(left, right, records):
        return honest(left, right, records._replace(subject=None))

    patch.setattr(moments, "_sums_of_products", added)


NOISE = (
    noise_too_small_by_the_root_of_two,
    noise_times_0_9,
    no_noise_on_one_number,
    less_noise_below_the_diagonal_too,
    noise_in_single_precision,
    the_same_noise_in_every_round,
    noise_shared_between_silos,
    the_same_noise_for_every_question,
)
SUMS = (
    vectors_that_are_not_shortened,
    residuals_that_are_not_cut_off,
    a_mean_over_records_in_place_of_a_sum,
)
