"""The private training pass: DP-SGD over one silo's records."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from dp_accounting import dp_event
from jaxtyping import Array, Float, Int, Num, PyTree, Shaped

from silodp.config.choices import Regulariser
from silodp.models.model import Model
from silodp.privacy.mechanisms.queries import SiloNoise, SiloRecords
from silodp.privacy.mechanisms.randomness import PassRandomness, PassSize, as_params
from silodp.privacy.mechanisms.sampling import Batches, Draw, draw_batches, draw_size, given_batches
from silodp.privacy.mechanisms.shapes import Number, Params

# The features of several records: a pytree of arrays with a leading axis of rows.
Rows = PyTree[Shaped[Array, "rows ..."]]


def training_event(noise_multiplier: float, rate: float, steps: int) -> dp_event.DpEvent:
    """What `steps` steps of DP-SGD do to a silo's privacy: a Poisson-sampled Gaussian each."""
    gaussian = dp_event.GaussianDpEvent(noise_multiplier)
    step = gaussian if rate >= 1.0 else dp_event.PoissonSampledDpEvent(rate, gaussian)
    return dp_event.SelfComposedDpEvent(step, steps)


class PassShape(NamedTuple):
    """What is fixed at compile time for a training pass over a group of silos.

    A pass of a release is given its batches and its noise, in whole grains, by the host (see
    `release_draws`). One of an experiment is given random words, and noise in single precision.
    """

    draw: Draw
    epochs: int
    steps: int  # of the silo in the group that takes most
    batch_capacity: int  # slots of a batch
    rows: int  # of the largest silo; the others are padded
    even: bool  # all silos of the group take that many steps
    release: bool = False
    whole: bool = False  # sums are in whole grains: of a release of silos that are private

    def size(self, parameters: int) -> PassSize:
        """The randomness that a pass takes for a model of so many parameters."""
        draws, width = draw_size(self.draw, self.epochs, self.steps, self.batch_capacity, self.rows)
        return PassSize(draws, width, self.steps, parameters)


def training_pass(
    model: Model,
    shape: PassShape,
    regulariser: Regulariser,
    optimiser: Callable[[Float[Array, ""]], optax.GradientTransformation],
    silo: SiloRecords,
    noise: SiloNoise,
    lr: Float[Array, ""],
    randomness: PassRandomness,
    params: Params,
    towards: Params | None = None,
    strength: Number = 0.0,
) -> Params:
    """Sample, clip each record's gradient, sum, add noise, divide, step; and so on.

    The noisy sum is divided by the expected batch size, which is public, never by how many records
    were drawn. The regulariser depends on released models only, so outside the clip it is free: as
    part of the gradient, or as a proximal step after it, which is stable however strong the pull.
    In a release, sum and noise are whole numbers of grains when they meet: see `lattice`.
    """
    batches = _batches(shape, silo, randomness)
    noises = as_params(randomness.noise, params)
    optimise = optimiser(lr)

    def penalty_gradient(p: Params) -> Params | None:
        if towards is None:
            return None
        return jax.tree.map(lambda w, m: strength * (w - m), p, towards)

    def proximal(p: Params) -> Params:
        if towards is None or regulariser != "proximal":
            return p
        pull = lr * strength
        return jax.tree.map(lambda w, m: (w + pull * m) / (1.0 + pull), p, towards)

    def noisy_sum(
        p: Params,
        features: Rows,
        y: Num[Array, "rows ..."],
        mask: Float[Array, " rows"],
        inside: Params | None,
        unit: Params,
    ) -> Params:
        if shape.whole:
            total = model.whole_sum(p, features, y, mask, noise.clip, noise.grain, inside)
            # From here on it is released, and may be rounded.
            return jax.tree.map(lambda s, n: noise.grain * (s + n).astype(jnp.float32), total, unit)
        total = model.clipped_sum(p, features, y, mask, noise.clip, inside)
        return jax.tree.map(lambda s, z: s + noise.scale * z, total, unit)

    def step(carry, inputs):
        p, state = carry
        number, rows, mask, unit = inputs
        features, y = _take(silo, rows)
        penalty = penalty_gradient(p)
        inside = penalty if regulariser == "inside" else None
        total = noisy_sum(p, features, y, mask, inside, unit)
        gradient = jax.tree.map(lambda s: s / silo.expected_batch, total)
        if penalty is not None and regulariser == "outside":
            gradient = jax.tree.map(jnp.add, gradient, penalty)
        updates, new_state = optimise.update(gradient, state, p)
        new = (proximal(optax.apply_updates(p, updates)), new_state)
        if not shape.even:
            new = jax.tree.map(lambda a, b: jnp.where(number < silo.steps, a, b), new, carry)
        return new, None

    inputs = (jnp.arange(shape.steps), batches.rows, batches.mask, noises)
    (params, _), _ = jax.lax.scan(step, (params, optimise.init(params)), inputs)
    return params


def _batches(shape: PassShape, silo: SiloRecords, randomness: PassRandomness) -> Batches:
    if shape.release:
        return given_batches(shape.draw, randomness.sample)
    return draw_batches(
        shape.draw,
        randomness.sample,
        shape.steps,
        shape.batch_capacity,
        silo.true_count,
        silo.public_count,
        silo.expected_batch,
        silo.threshold,
    )


def _take(
    silo: SiloRecords, rows: Int[Array, " rows"] | None
) -> tuple[Rows, Num[Array, "rows ..."]]:
    if rows is None:
        return silo.features, silo.y

    def take(a: Shaped[Array, " records *record"]) -> Shaped[Array, " slots *record"]:
        # Rows are never out of bounds: saying so saves a quarter of the time.
        return a.at[rows].get(mode="promise_in_bounds", wrap_negative_indices=False)

    return jax.tree.map(take, (silo.features, silo.y))
