"""The plain way in JAX: a Python loop over rounds, silos and batches around one jitted step.

Twice: as it is usually written (and as the paper's authors do), and as someone would who knows what
each call costs. In both the step compiles once: batches are padded to one shape.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from silodp import Federation
from silodp.models.losses import hinge_loss, softmax_loss, squared_loss
from silodp.privacy.mechanisms.sampling import capacity_for

LOSSES = {"linear": squared_loss, "svm": hinge_loss}
OVERFLOW = 1e-9  # chance that a drawn batch does not fit; it is then cut


class _Silo(NamedTuple):
    """On the device."""

    x: Array  # [rows, features + 1], zeros below the records
    y: Array
    batch: Array
    noise: Array  # standard deviation on the clipped sum


class CarefulLoop:
    """MR-MTL with DP-SGD, with little to do between two steps.

    Records stay on the device, noise is drawn inside the step, no numbers are passed, and nothing
    waits for a result before the end.

    Args:
      federation: the silos.
      model: "linear" or "svm".
      batch_size: expected; a smaller silo takes all its records.
      clip: largest norm of a record's gradient.
      lr: learning rate.
      lam: the strength of the pull.
      noise_multipliers: of each silo, in units of the clip.
      seed: of batches and noise.
    """

    def __init__(
        self,
        federation: Federation,
        model: str,
        batch_size: int,
        clip: float,
        lr: float,
        lam: float,
        noise_multipliers: Sequence[float],
        seed: int = 0,
    ):
        counts = federation.train_counts
        self.clip, self.lr, self.lam = clip, lr, lam
        self._counts = counts
        self._batches = np.minimum(counts, batch_size)
        self._weights = jnp.asarray(counts / counts.sum(), jnp.float32)
        self._rng = np.random.default_rng(seed)
        self._key = jax.random.PRNGKey(seed)  # two plain words: a typed key takes longer to pass
        self._capacity = max(
            int(min(n, capacity_for(n, b, OVERFLOW))) if b < n else int(n)
            for n, b in zip(counts, self._batches, strict=True)
        )
        rows = int(counts.max())
        self._silos = [
            _Silo(
                jnp.asarray(_padded(_with_ones(silo.train.x), rows)),
                jnp.asarray(_padded(silo.train.y, rows)),
                jnp.float32(batch),
                jnp.float32(clip * multiplier),
            )
            for silo, batch, multiplier in zip(
                federation.silos, self._batches, noise_multipliers, strict=True
            )
        ]
        self.models = [jnp.zeros(self._silos[0].x.shape[1])] * len(self._silos)
        self._mean = self.models[0]
        self._step = jax.jit(partial(_linear_step, LOSSES[model], clip, lr, lam))
        self._merge = jax.jit(lambda models, weights: weights @ jnp.stack(models))

    def step(self, number: int, params: Array, drawn: np.ndarray) -> Array:
        """One private step of a silo on the records `drawn`."""
        index = np.full(self._capacity, -1, np.int32)
        index[: len(drawn)] = drawn[: self._capacity]
        params, self._key = self._step(params, self._key, self._mean, self._silos[number], index)
        return params

    def run(self, rounds: int) -> None:
        """Trains so many rounds more, and waits until they are done."""
        for _ in range(rounds):
            for number, (n, batch) in enumerate(zip(self._counts, self._batches, strict=True)):
                params = self.models[number]
                masks = self._rng.random((n // batch, n)) < batch / n
                for mask in masks:
                    params = self.step(number, params, np.flatnonzero(mask))
                self.models[number] = params
            self._mean = self._merge(self.models, self._weights)
        jax.block_until_ready((self.models, self._mean))


class PlainLoop(CarefulLoop):
    """The same as it is usually written.

    A batch is gathered in NumPy and handed to the step, with the key split before it and numbers
    passed as they are.
    """

    def __init__(self, federation: Federation, model: str, *settings: Any, **more: Any):
        super().__init__(federation, model, *settings, **more)
        self._records = [(_with_ones(silo.train.x), silo.train.y) for silo in federation.silos]
        self._noises = [float(silo.noise) for silo in self._silos]
        self._plain_step = jax.jit(partial(_plain_step, LOSSES[model]))
        self._numbers = (self.clip, self.lr, self.lam)

    def step(self, number: int, params: Array, drawn: np.ndarray) -> Array:
        """One private step of a silo on the records `drawn`."""
        drawn = drawn[: self._capacity]
        x, y = self._records[number]
        batch_x = np.zeros((self._capacity, x.shape[1]), x.dtype)
        batch_y = np.zeros(self._capacity, y.dtype)
        mask = np.zeros(self._capacity, np.float32)
        batch_x[: len(drawn)], batch_y[: len(drawn)], mask[: len(drawn)] = x[drawn], y[drawn], 1
        self._key, noise_key = jax.random.split(self._key)
        batch, noise = int(self._batches[number]), self._noises[number]
        return self._plain_step(
            params, noise_key, self._mean, batch_x, batch_y, mask, batch, noise, *self._numbers
        )


def _plain_step(loss, params, key, mean, x, y, mask, batch, noise, clip, lr, lam):
    gradients = jax.vmap(jax.grad(lambda p, x, y: loss(x @ p, y)), (None, 0, 0))(params, x, y)
    norms = jnp.linalg.norm(gradients, axis=1)
    scale = jnp.minimum(1.0, clip / jnp.maximum(norms, 1e-12)) * mask
    noisy = scale @ gradients + noise * jax.random.normal(key, params.shape)
    return params - lr * (noisy / batch + lam * (params - mean))


def _with_ones(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1)


def _padded(array: np.ndarray, rows: int) -> np.ndarray:
    return np.pad(array, [(0, rows - len(array))] + [(0, 0)] * (array.ndim - 1))


def _linear_step(loss, clip, lr, lam, params, key, mean, silo: _Silo, index):
    def loss_of_one(params, x, y):
        return loss(x @ params, y)

    # Index -1 marks an empty slot.
    gradients = jax.vmap(jax.grad(loss_of_one), (None, 0, 0))(params, silo.x[index], silo.y[index])
    norms = jnp.linalg.norm(gradients, axis=1)
    scale = jnp.minimum(1.0, clip / jnp.maximum(norms, 1e-12)) * (index >= 0)
    key, noise_key = jax.random.split(key)
    noise = silo.noise * jax.random.normal(noise_key, params.shape)
    gradient = (scale @ gradients + noise) / silo.batch + lam * (params - mean)
    return params - lr * gradient, key


def apply_convnet(params: Any, x: Array) -> Array:
    """The paper's ConvNet by XLA's own convolution and pooling; images [n, h, w, c] -> [n, 10]."""
    for layer in ("conv1", "conv2"):
        x = jax.lax.conv_general_dilated(
            x, params[layer]["w"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + params[layer]["b"])
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.reshape(len(x), -1) @ params["linear"]["w"] + params["linear"]["b"]


def convnet_step(clip: float, noise_multiplier: float, lr: float) -> Callable:
    """(params, key, x, y) -> params: one step of DP-SGD with `jax.vmap(jax.grad)`."""

    def loss_of_one(params, x, y):
        return softmax_loss(apply_convnet(params, x[None]), y[None])[0]

    @jax.jit
    def step(params, key, x, y):
        gradients = jax.vmap(jax.grad(loss_of_one), (None, 0, 0))(params, x, y)
        squares = [(g**2).sum(tuple(range(1, g.ndim))) for g in jax.tree.leaves(gradients)]
        norms = jnp.sqrt(sum(squares[1:], squares[0]))
        scale = jnp.minimum(1.0, clip / jnp.maximum(norms, 1e-12))
        leaves, treedef = jax.tree.flatten(params)
        keys = jax.tree.unflatten(treedef, jax.random.split(key, len(leaves)))

        def update(p, g, k):
            noise = clip * noise_multiplier * jax.random.normal(k, p.shape)
            return p - lr * (jnp.tensordot(scale, g, 1) + noise) / len(y)

        return jax.tree.map(update, params, gradients, keys)

    return step
