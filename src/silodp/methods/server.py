"""How the server moves a shared model along the silos' mean update.

Plain averaging adds the mean. Taken as a negative gradient, the mean can also go to an optimiser:
- FedAvgM: T.-M. H. Hsu, H. Qi, M. Brown. Measuring the effects of non-identical data distribution
  for federated visual classification. 2019.
- FedAdam: S. Reddi et al. Adaptive federated optimization. ICLR 2021.

It works on released updates only, so it costs no privacy.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from silodp.config.choices import ServerOptimiser
from silodp.methods.base import Params, weighted_mean

# Learning rate (which may be traced), momentum -> optimiser.
SERVER_OPTIMISERS: dict[
    ServerOptimiser, Callable[[Array | float, float], optax.GradientTransformation]
] = {
    "average": lambda lr, momentum: optax.sgd(lr),
    "fedavgm": lambda lr, momentum: optax.sgd(lr, momentum=momentum),
    # The other numbers as in Reddi et al.: beta_2 0.99, tau 0.001.
    "fedadam": lambda lr, momentum: optax.adam(lr, b1=momentum, b2=0.99, eps=1e-3),
}

# Unless the user says; of FedAdam as in the experiments of its authors.
SERVER_LR: dict[ServerOptimiser, float] = {"average": 1.0, "fedavgm": 1.0, "fedadam": 0.01}


class Shared(NamedTuple):
    """A model that the server keeps, and what its optimiser remembers."""

    model: Params
    memory: Any


class Merging(NamedTuple):
    """What a method that merges updates is built with.

    Examples:
      >>> import optax
      >>> import jax.numpy as jnp
      >>> server = silodp.Merging(optax.sgd(1.0))
      >>> shared = server.begin(jnp.zeros(2))
      >>> updates, weights = jnp.array([[1.0, 0.0], [3.0, 4.0]]), jnp.array([0.5, 0.5])
      >>> server.merge(shared, updates, weights).model.tolist()
      [2.0, 2.0]
    """

    optimiser: optax.GradientTransformation

    def begin(self, params: Params) -> Shared:
        """Starts from these parameters."""
        return Shared(params, self.optimiser.init(params))

    def merge(self, shared: Shared, updates: Params, weights: Array) -> Shared:
        """One step along the mean of the silos' updates."""
        gradient = jax.tree.map(jnp.negative, weighted_mean(updates, weights))
        step, memory = self.optimiser.update(gradient, shared.memory, shared.model)
        return Shared(optax.apply_updates(shared.model, step), memory)


AVERAGE = Merging(SERVER_OPTIMISERS["average"](1.0, 0.0))
