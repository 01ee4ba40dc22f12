"""Our step of DP-SGD on a ConvNet, and images to time it on."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from silodp import Model
from silodp.models.model import get_model
from silodp.privacy.mechanisms.randomness import PassSize, as_params, draw_pass

SHAPES = {"MNIST": (28, 28, 1), "CIFAR": (32, 32, 3)}


class Images(NamedTuple):
    """A model with its first weights, and one batch."""

    model: Model
    params: Any
    x: np.ndarray
    y: np.ndarray


def images(name: str, count: int) -> Images:
    """Random images of a data set's shape: what is in them does not change the work."""
    shape = SHAPES[name]
    model = get_model("convnet", "multiclass", shape, 10)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, *shape), np.float32)
    y = rng.integers(0, 10, count).astype(np.int32)
    return Images(model, model.init(jax.random.key(0)), x, y)


def our_step(model: Model, clip: float, noise_multiplier: float, lr: float) -> Callable:
    """(params, key, x, y) -> params: one step, with the noise of a training pass."""

    @jax.jit
    def step(params, key, x, y):
        total = model.clipped_sum(params, x, y, jnp.ones(len(y)), clip)
        size = PassSize(1, 1, 1, sum(leaf.size for leaf in jax.tree.leaves(params)))
        unit = as_params(draw_pass(jax.random.key_data(key), size).noise[0], params)
        return jax.tree.map(
            lambda p, g, z: p - lr * (g + clip * noise_multiplier * z) / len(y), params, total, unit
        )

    return step
