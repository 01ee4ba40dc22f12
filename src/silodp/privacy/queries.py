"""The questions that a method may ask about a silo's records, and nothing else.

A method never sees a record: it holds a `Queries` and asks. What each question costs is fixed
beforehand by the method's `Schedule`; asking for more than was scheduled is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from dp_accounting import dp_event
from jax import Array

from silodp.errors import SilodpError
from silodp.models import Model
from silodp.privacy.randomness import PassRandomness, PassSize, as_params
from silodp.privacy.sampling import Draw, draw_batches, draw_size

Params = Any
Regulariser = Literal["outside", "inside"]


@dataclass(frozen=True)
class Schedule:
    """What a method will ask of every silo over a whole run.

    Attributes:
      training_passes: private training passes (local epochs of DP-SGD).
    """

    training_passes: int


def training_event(noise_multiplier: float, rate: float, steps: int) -> dp_event.DpEvent:
    """What `steps` steps of DP-SGD do to a silo's privacy: a Poisson-sampled Gaussian each."""
    gaussian = dp_event.GaussianDpEvent(noise_multiplier)
    step = gaussian if rate >= 1.0 else dp_event.PoissonSampledDpEvent(rate, gaussian)
    return dp_event.SelfComposedDpEvent(step, steps)


class PassShape(NamedTuple):
    """What is fixed at compile time for a training pass over a group of silos."""

    draw: Draw
    epochs: int
    steps: int  # of the silo in the group that takes most
    slots: int
    rows: int  # records of the silo that has most; the others are padded
    even: bool  # all silos of the group take that many steps

    def size(self, parameters: int) -> PassSize:
        """The randomness that a pass takes for a model of so many parameters."""
        draws, width = draw_size(self.draw, self.epochs, self.steps, self.slots, self.rows)
        return PassSize(draws, width, self.steps, parameters)


class SiloRecords(NamedTuple):
    """The records of one silo, padded, with the public numbers that sampling needs.

    Engines add leading axes, and hold NumPy arrays or JAX's: the fields are arrays of either kind.
    """

    features: Any  # a pytree of [rows, ...]
    y: Any  # [rows]
    records: Any  # n_k
    batch: Any  # expected batch size b_k
    steps: Any  # steps of a pass
    threshold: Any  # see `sampling.threshold_of`


class SiloNoise(NamedTuple):
    """The privacy of one silo in one run: both come out of its plan."""

    clip: Any  # infinite without privacy
    scale: Any  # standard deviation of the noise on the clipped sum; 0 without privacy


class Queries:
    """What a method may ask of one silo in one round."""

    def __init__(self, train: Callable[..., Params], passes: int):
        self._train = train
        self._passes = passes
        self._asked = 0

    def train(self, params: Params, towards: Params | None = None, strength=0.0) -> Params:
        """One private training pass from `params`.

        Args:
          params: where to start.
          towards: a model that the penalty strength/2 * |params - towards|^2 pulls to, if any. It
            must itself come from released models only.
          strength: lambda of that penalty.
        """
        if self._asked >= self._passes:
            raise SilodpError(
                f"The method asks for training pass {self._asked + 1} of a round, but its schedule "
                f"pays for {self._passes}: correct the schedule, so that the noise covers it."
            )
        self._asked += 1
        return self._train(self._asked - 1, params, towards, strength)


def training_pass(
    model: Model,
    shape: PassShape,
    regulariser: Regulariser,
    optimiser: Callable[[Array], optax.GradientTransformation],
    silo: SiloRecords,
    noise: SiloNoise,
    lr: Array,
    randomness: PassRandomness,
    params: Params,
    towards: Params | None = None,
    strength: Array | float = 0.0,
) -> Params:
    """DP-SGD over one silo: sample, clip each record's gradient, sum, add noise, divide, step.

    The noisy sum is divided by the expected batch size, which is public, never by how many records
    were drawn. The regulariser depends on released models only, so outside the clip it is free.
    """
    batches = draw_batches(
        shape.draw,
        randomness.sample,
        shape.steps,
        shape.slots,
        silo.records,
        silo.batch,
        silo.threshold,
    )
    noises = as_params(randomness.noise, params)
    optimise = optimiser(lr)

    def penalty_gradient(p: Params) -> Params | None:
        if towards is None:
            return None
        return jax.tree.map(lambda w, m: strength * (w - m), p, towards)

    def step(carry, inputs):
        p, state = carry
        number, rows, mask, unit = inputs
        features, y = _take(silo, rows)
        penalty = penalty_gradient(p)
        inside = penalty if regulariser == "inside" else None
        total = model.clipped_sum(p, features, y, mask, noise.clip, inside)
        gradient = jax.tree.map(lambda g, z: (g + noise.scale * z) / silo.batch, total, unit)
        if penalty is not None and regulariser == "outside":
            gradient = jax.tree.map(jnp.add, gradient, penalty)
        updates, new_state = optimise.update(gradient, state, p)
        new = (optax.apply_updates(p, updates), new_state)
        if not shape.even:
            new = jax.tree.map(lambda a, b: jnp.where(number < silo.steps, a, b), new, carry)
        return new, None

    inputs = (jnp.arange(shape.steps), batches.rows, batches.mask, noises)
    (params, _), _ = jax.lax.scan(step, (params, optimise.init(params)), inputs)
    return params


def _take(silo: SiloRecords, rows: Array | None) -> tuple[Any, Array]:
    if rows is None:
        return silo.features, silo.y

    def take(a: Array) -> Array:
        # Rows are never out of bounds: saying so saves a quarter of the time.
        return a.at[rows].get(mode="promise_in_bounds", wrap_negative_indices=False)

    return jax.tree.map(take, (silo.features, silo.y))
