"""Losses, their derivatives, and the linear models that they make: a new one is declared here.

A loss is [outputs, labels [n]] -> the loss of each record [n]. Releases take its derivative by the
outputs apart (`whole_sums`), in arithmetic whose result for a record depends on it alone.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from silodp.config.choices import TaskName
from silodp.data.tasks import get_task
from silodp.models.whole_sums import (
    Residual,
    hinge_residual,
    logistic_residual,
    softmax_residual,
    squared_residual,
)

Loss = Callable[[Array, Array], Array]


def squared_loss(outputs: Array, y: Array) -> Array:
    """Half the squared error, as in the paper's code."""
    return 0.5 * (outputs - y) ** 2


def hinge_loss(outputs: Array, y: Array) -> Array:
    """The loss of a linear support vector machine; labels are -1 and +1."""
    return jax.nn.relu(1.0 - y * outputs)


def logistic_loss(outputs: Array, y: Array) -> Array:
    """Binary cross-entropy; labels are -1 and +1."""
    return jax.nn.softplus(-y * outputs)


def softmax_loss(outputs: Array, y: Array) -> Array:
    """Cross-entropy over classes; labels are class numbers."""
    picked = jnp.sum(outputs * jax.nn.one_hot(y, outputs.shape[-1]), axis=-1)
    return jax.nn.logsumexp(outputs, axis=-1) - picked


class LinearModel(NamedTuple):
    """A linear model: its task, its loss, the derivative of that by the outputs, and its words."""

    task: TaskName
    loss: Loss
    residual: Residual
    about: str


LINEAR_MODELS: dict[str, LinearModel] = {
    "linear": LinearModel("regression", squared_loss, squared_residual, "linear regression"),
    "svm": LinearModel(
        "binary", hinge_loss, hinge_residual, "linear support vector machine (hinge loss)"
    ),
    "logistic": LinearModel("binary", logistic_loss, logistic_residual, "logistic regression"),
    "softmax": LinearModel(
        "multiclass",
        softmax_loss,
        softmax_residual,
        "softmax (multinomial logistic) regression",
    ),
}

RESIDUAL_OF: dict[Loss, Residual] = {made.loss: made.residual for made in LINEAR_MODELS.values()}


def usual_loss(task: TaskName) -> Loss:
    """The loss of the task's usual model."""
    return LINEAR_MODELS[get_task(task).model].loss
