"""Losses, their derivatives, and the linear models that they make: a new one is declared here.

A loss is [outputs, labels [n] or [n, ...]] -> the loss of each record [n]. Releases take its
derivative by the outputs apart (`whole_sums`), in arithmetic whose result for a record depends on
it alone.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from silodp.config.choices import TaskName
from silodp.data.tasks import get_task
from silodp.models.whole_sums import (
    LARGEST_LOG_RATE,
    LEAST_GAP,
    Residual,
    class_boundaries,
    hazard_residual,
    hinge_residual,
    intervals,
    logistic_residual,
    ordinal_residual,
    poisson_residual,
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


def poisson_loss(outputs: Array, y: Array) -> Array:
    """Half the Poisson deviance; outputs are logarithms of rates, labels (count, exposure).

    Beyond a rate that no record has, expected counts go on in a straight line: still convex, and
    steep enough to come back from, but never beyond single precision.
    """
    count, exposure = y[..., 0], y[..., 1]
    capped = jnp.minimum(outputs, LARGEST_LOG_RATE)
    expected = exposure * jnp.exp(capped)
    # By how much a prediction is off: near 0, terms as large as the count would round away what
    # is left of them.
    off = capped - jnp.log(jnp.maximum(count, 1.0) / exposure)
    within = jnp.where(count > 0, count * (jnp.expm1(off) - off), expected)
    return within + (outputs - capped) * (expected - count)


def ordinal_loss(outputs: Array, y: Array) -> Array:
    """Less the log-likelihood of proportional odds; outputs are log-odds of a class above each.

    With u the log-odds at the boundary below a class and v at the one above, its probability is
    logistic(u) - logistic(v) = logistic(u) logistic(-v) (1 - e^-(u - v)). The last factor is none
    where boundaries are in the wrong order, as noise may have them: below LEAST_GAP its logarithm
    goes on in a straight line, which leaves the loss convex and pushes them apart.
    """
    below, above, gap = class_boundaries(outputs, y)
    wide = jnp.maximum(gap, LEAST_GAP)
    closeness = -jnp.log(-jnp.expm1(-wide)) + (wide - gap) / math.expm1(LEAST_GAP)
    ends = jnp.where(below, jax.nn.softplus(-outputs), 0.0)
    ends += jnp.where(above, jax.nn.softplus(outputs), 0.0)
    return ends.sum(-1) + jnp.where(below.any(-1) & above.any(-1), closeness, 0.0)


def hazard_loss(outputs: Array, y: Array) -> Array:
    """Less the log-likelihood of a subject's whole course; labels (intervals lived, event, time).

    Outputs are the log-odds of the event in each interval, for who comes to it. All intervals of a
    subject are terms of one loss: they have one gradient, which is clipped as one, so epsilon is
    for the subject's whole course and does not grow with how long it is.
    """
    lived, died = intervals(outputs, y)
    terms = jnp.where(lived, jax.nn.softplus(outputs), 0.0)
    return (terms + jnp.where(died, jax.nn.softplus(-outputs), 0.0)).sum(-1)


class LinearModel(NamedTuple):
    """A linear model: its task, its loss, the derivative of that by the outputs, and its words.

    `shared` says that all outputs have one slope for each feature, and an intercept of their own;
    `first` is the intercept to begin with, of other models.
    """

    task: TaskName
    loss: Loss
    residual: Residual
    about: str
    shared: bool = False
    first: float = 0.0


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
    "poisson": LinearModel(
        "count", poisson_loss, poisson_residual, "Poisson regression (log link)"
    ),
    "ordered": LinearModel(
        "ordinal",
        ordinal_loss,
        ordinal_residual,
        "ordered logistic regression (proportional odds)",
        shared=True,
    ),
    "hazards": LinearModel(
        "hazard",
        hazard_loss,
        hazard_residual,
        "discrete-time hazards (logistic, one slope over all intervals)",
        shared=True,
    ),
}


WEIGHTED = "logistic"
"""The model whose records can have weights by their class."""


@cache
def weighted_for(prevalence: float) -> LinearModel:
    """Logistic regression in which both classes weigh alike, where the second's share is declared.

    The more frequent class has less weight, the rarer one has 1:

        loss = weight(y) log(1 + e^(-y (output + shift))),   shift = log(weight(+1) / weight(-1))

    Weights would move log-odds by the shift; with it in the loss, outputs are those of the records
    as they are, and nothing has to be corrected afterwards. A record's weight follows from its own
    label and a number that is public, and is part of its gradient before that is clipped: what a
    record adds is at most the clip, and epsilon is what it was.
    """
    odds = prevalence / (1.0 - prevalence)
    weight_no, weight_yes = min(1.0, odds), min(1.0, 1.0 / odds)
    shift = math.log(weight_yes / weight_no)

    def weight(y: Array) -> Array:
        return jnp.where(y > 0, weight_yes, weight_no)

    def loss(outputs: Array, y: Array) -> Array:
        return weight(y) * logistic_loss(outputs + shift, y)

    def residual(outputs: Array, y: Array) -> Array:
        return weight(y) * logistic_residual(outputs + shift, y)

    return LINEAR_MODELS[WEIGHTED]._replace(loss=loss, residual=residual, first=-shift)


def usual_loss(task: TaskName) -> Loss:
    """The loss of the task's usual model."""
    return LINEAR_MODELS[get_task(task).model].loss
