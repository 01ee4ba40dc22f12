"""How the server moves a shared model along the silos' mean update.

Plain averaging adds the mean. Taken as a negative gradient, the mean can also go to an optimiser:
- FedAvgM: T.-M. H. Hsu, H. Qi, M. Brown. Measuring the effects of non-identical data distribution
  for federated visual classification. 2019.
- FedAdam: S. Reddi et al. Adaptive federated optimization. ICLR 2021.

It works on released updates only, so it costs no privacy.
"""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from silodp.config.choices import ServerOptimiserName
from silodp.methods.base import OfSilos, Params, weighted_mean
from silodp.privacy.mechanisms.shapes import Number

# Learning rate (which may be traced), momentum -> optimiser.
SERVER_OPTIMISERS: dict[
    ServerOptimiserName, Callable[[Number, float], optax.GradientTransformation]
] = {
    "average": lambda lr, momentum: optax.sgd(lr),
    "fedavgm": lambda lr, momentum: optax.sgd(lr, momentum=momentum),
    # The other numbers as in Reddi et al.: beta_2 0.99, tau 0.001.
    "fedadam": lambda lr, momentum: optax.adam(lr, b1=momentum, b2=0.99, eps=1e-3),
}

# Unless the user says; of FedAdam as in the experiments of its authors.
SERVER_LR: dict[ServerOptimiserName, float] = {"average": 1.0, "fedavgm": 1.0, "fedadam": 0.01}


class Shared(NamedTuple):
    """A model that the server keeps, and the state of its optimiser."""

    model: Params
    opt_state: optax.OptState


class ServerOptimiser(NamedTuple):
    """Moves a shared model along the silos' mean update; methods that merge updates take one.

    Attributes:
      optimiser: takes the negative mean update for a gradient.

    Examples:
      >>> import optax
      >>> import jax.numpy as jnp
      >>> server = silodp.ServerOptimiser(optax.sgd(1.0))
      >>> shared = server.init(jnp.zeros(2))
      >>> updates, weights = jnp.array([[1.0, 0.0], [3.0, 4.0]]), jnp.array([0.5, 0.5])
      >>> server.merge(shared, updates, weights).model.tolist()
      [2.0, 2.0]
    """

    optimiser: optax.GradientTransformation

    def init(self, params: Params) -> Shared:
        """The state to start from, with this model."""
        return Shared(params, self.optimiser.init(params))

    def begin(self, params: Params) -> Shared:
        """`init` by its former name."""
        warnings.warn(
            "ServerOptimiser.begin leaves with the next minor release: it is `init` now.",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.init(params)

    def merge(self, shared: Shared, updates: OfSilos, weights: Float[Array, " silos"]) -> Shared:
        """One step along the mean of the silos' updates."""
        gradient = jax.tree.map(jnp.negative, weighted_mean(updates, weights))
        step, opt_state = self.optimiser.update(gradient, shared.opt_state, shared.model)
        return Shared(optax.apply_updates(shared.model, step), opt_state)


AVERAGE = ServerOptimiser(SERVER_OPTIMISERS["average"](1.0, 0.0))
