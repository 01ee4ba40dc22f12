"""Local optimisers, by name, through optax."""

from collections.abc import Callable

import optax
from jax import Array

from silodp.config.choices import Optimiser

# The learning rate may be a traced number, so these are built inside the compiled program.
OPTIMISERS: dict[Optimiser, Callable[[Array], optax.GradientTransformation]] = {
    "sgd": lambda lr: optax.sgd(lr),
    "momentum": lambda lr: optax.sgd(lr, momentum=0.9),
    "adam": lambda lr: optax.adam(lr),
}
