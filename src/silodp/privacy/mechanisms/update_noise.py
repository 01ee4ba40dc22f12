"""How noisy a training pass is: what the noise of its steps makes of the model that it returns."""

from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int32, Integer

from silodp.config.choices import Optimiser
from silodp.models.optimisers import OPTIMISERS
from silodp.privacy.mechanisms.queries import PassNoise, SiloNoise, SiloRecords
from silodp.privacy.mechanisms.shapes import Number
from silodp.privacy.mechanisms.training import PassShape

# Of noise through Adam: they give each variance to within about 1% (a standard deviation).
_PATHS = 20_000
_SHORTEST = 64

# How far paths have moved: many paths, or one number.
Moved = Float[Array, "*paths"]
Gradient = Callable[[Int32[Array, ""]], Moved]  # of a step


def pass_noise(
    optimiser: Optimiser, shape: PassShape, silo: SiloRecords, noise: SiloNoise, lr: Number
) -> PassNoise:
    """How uncertain a training pass of the silo is.

    The mean gradient of its records is the same in all steps, so that these add up; what noise and
    batches change is new in each.

    Args:
      optimiser: the optimiser of the pass, which begins anew in each; static.
      shape: shape of the pass; static.
      silo: its public numbers.
      noise: its privacy.
      lr: the learning rate.
    """
    deviation = noise.scale / silo.expected_batch
    private = noise.scale > 0
    length = _length(shape.steps)
    if optimiser == "adam":  # which divides by the size of the noise, and hides what batches add
        reach = silo.steps / jnp.where(private, deviation, 1.0)
        batches = jnp.zeros_like(deviation)
    else:
        reach = _of_steps(_unit_reaches(optimiser, length), silo.steps)
        drawn = (
            (1.0 - silo.expected_batch / silo.public_count) / silo.expected_batch
            if shape.draw != "shuffle"
            else 0.0
        )
        batches = lr**2 * _of_steps(_unit_variances(optimiser, length), silo.steps) * drawn
    return PassNoise(
        variance=pass_variance(optimiser, shape.steps, silo.steps, lr, deviation),
        sampling=jnp.where(private, lr * reach / jnp.sqrt(silo.public_count), 0.0),
        batches=jnp.where(private, batches, 0.0),
        clip=jnp.where(private, noise.clip, 0.0),
    )


def pass_variance(
    optimiser: Optimiser,
    most_steps: int,
    steps: Integer[Array, "*silos"] | int,
    lr: Number,
    deviation: Float[Array, "*silos"] | float,
) -> Float[Array, "*silos"]:
    """The variance that noise alone gives each entry of what a training pass returns.

    It is that of noise which goes through the optimiser and nothing else: what the curvature of a
    loss, or a pull, takes back of earlier noise is not counted. Adam divides by the size of what it
    sees: noise of any size moves a model alike, and where the gradient has signal as well, Adam
    divides by that too, so that this is an upper estimate.

    Args:
      optimiser: the optimiser of the pass, which begins anew in each; static.
      most_steps: the most steps that any silo takes; static.
      steps: number of steps that this silo takes.
      lr: the learning rate.
      deviation: standard deviation of the noise in one step's gradient; 0 without privacy.
    """
    unit = _of_steps(_unit_variances(optimiser, _length(most_steps)), steps)
    size = jnp.where(deviation > 0, 1.0, 0.0) if optimiser == "adam" else deviation**2
    return lr**2 * size * unit


def _length(most_steps: int) -> int:
    """The length of a table for so many steps: few lengths, since each is compiled."""
    return max(_SHORTEST, 1 << (most_steps - 1).bit_length())


def _of_steps(
    table: Float[np.ndarray, " lengths"], steps: Integer[Array, "*silos"] | int
) -> Float[Array, "*silos"]:
    return jnp.asarray(table)[steps]


@cache
def _unit_reaches(optimiser: Optimiser, most_steps: int) -> Float[np.ndarray, " {most_steps}+1"]:
    """How far 0 to so many steps lead, at a learning rate of 1 and with a gradient of 1."""
    with jax.ensure_compile_time_eval(), jax.disable_jit(False):
        squares = np.asarray(_squares(optimiser, most_steps, _constant), np.float64)
    return np.concatenate([[0.0], np.sqrt(squares)]).astype(np.float32)


@cache
def _unit_variances(optimiser: Optimiser, most_steps: int) -> Float[np.ndarray, " {most_steps}+1"]:
    """After 0 to so many steps, at a learning rate of 1 and with noise of variance 1.

    Longer tables begin as shorter ones do: every engine sees the same numbers.
    """
    # Engines ask while they trace, or with compiling switched off.
    with jax.ensure_compile_time_eval(), jax.disable_jit(False):
        gradient = _noise if optimiser == "adam" else _impulse
        squares = np.asarray(_squares(optimiser, most_steps, gradient), np.float64)
    # All but Adam are linear: noises add up, and each moves the model as an impulse does that comes
    # as many steps before the end.
    after = squares if optimiser == "adam" else np.cumsum(squares)
    return np.concatenate([[0.0], after]).astype(np.float32)


def _noise(step: Int32[Array, ""]) -> Float[Array, " paths"]:
    return jax.random.normal(jax.random.fold_in(jax.random.key(0), step), (_PATHS,))


def _constant(step: Int32[Array, ""]) -> Float[Array, ""]:
    return jnp.ones(())


def _impulse(step: Int32[Array, ""]) -> Float[Array, ""]:
    return jnp.where(step == 0, 1.0, 0.0)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _squares(optimiser: Optimiser, steps: int, gradient: Gradient) -> Float[Array, " {steps}"]:
    """How far the gradients move a model from 0, after each step: the mean square."""
    optimise = OPTIMISERS[optimiser](jnp.float32(1))

    def step(
        carry: tuple[Moved, optax.OptState], number: Int32[Array, ""]
    ) -> tuple[tuple[Moved, optax.OptState], Float[Array, ""]]:
        moved, state = carry
        updates, state = optimise.update(gradient(number), state, moved)
        moved = jnp.asarray(optax.apply_updates(moved, updates))
        return (moved, state), jnp.mean(moved**2)

    start = jnp.zeros_like(gradient(jnp.int32(0)))
    return jax.lax.scan(step, (start, optimise.init(start)), jnp.arange(steps))[1]
