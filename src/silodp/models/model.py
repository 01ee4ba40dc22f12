"""What a silo trains: linear models, the paper's ConvNets, or a user's own `init`/`apply` pair.

A model is a few pure functions. Parameters are a pytree of float32 arrays. Linear models keep their
weights in one array whose last row is the bias, so that a whole gradient is one matrix product.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from silodp.base.errors import SilodpError, one_of
from silodp.config.choices import Task
from silodp.data.federation import pixel_values
from silodp.models import convnet
from silodp.models.gradients import MICROBATCH, ClippedSum, generic_clipped_sum, linear_clipped_sum
from silodp.models.steady import steady_norm, tidy
from silodp.models.whole_sums import (
    Residual,
    WholeSum,
    hinge_residual,
    in_a_loop,
    linear_whole_sum,
    logistic_residual,
    one_by_one_whole_sum,
    softmax_residual,
    squared_residual,
)

Params = Any
Features = Any
Loss = Callable[[Array, Array], Array]
LossOfOne = Callable[[Params, Features, Array], Array]


class Model(NamedTuple):
    """A model for one task, as pure functions.

    Attributes:
      name: what results call it.
      task: the task that its loss is for.
      init: key -> parameters.
      apply: parameters, features of n records -> outputs [n] (one output) or [n, classes].
      loss: outputs, labels [n] -> the loss of each record [n].
      prepare: x [n, ...] -> the features that `apply` takes, worked out once for each silo. It maps
        each record by itself: it must not mix records.
      clipped_sum: the sum over records of their clipped loss gradients (see `gradients`).
      whole_sum: the same in whole grains, for releases (see `whole_sums`).
      heavy: True for models with so much work in one step that silos and runs are best taken one
        after another; False to batch them all into each operation.
      linear: True if outputs are features["x"] @ parameters, which lets gradients be clipped
        without forming them.
      convex: True if the loss is convex in the parameters.
      microbatch: records whose gradients are held in memory at once, where they are formed.
      built_in: True if `get_model` makes it anew from its name and the shape of the records.
      own_loss: parameters, features and label of one row -> its loss, for releases, where `apply`
        and `loss` would round it by how large other rows are.

    Examples:
      >>> import jax.numpy as jnp
      >>> model = silodp.custom_model(
      ...     lambda key: jnp.zeros(3), lambda params, x: x @ params, "regression"
      ... )
      >>> model.predict(jnp.ones(3), jnp.ones((2, 3))).tolist()
      [3.0, 3.0]
    """

    name: str
    task: Task
    init: Callable[[Array], Params]
    apply: Callable[[Params, Features], Array]
    loss: Loss
    clipped_sum: ClippedSum
    whole_sum: WholeSum
    prepare: Callable[[Array], Features]
    heavy: bool
    linear: bool = False
    convex: bool = False
    microbatch: int = MICROBATCH
    built_in: bool = False
    own_loss: LossOfOne | None = None

    @property
    def has_chances(self) -> bool:
        """Whether outputs are log-odds of classes: a support vector machine's are not."""
        return self.task != "regression" and self.loss is LOSS_OF[self.task]

    def predict(self, params: Params, x: Array) -> Array:
        """Outputs for raw features x [n, ...]."""
        return _outputs(self, params, x)


@partial(jax.jit, static_argnums=0)
def _outputs(model: Model, params: Params, x: Array) -> Array:
    """One program for each shape of x: each operation by itself would be compiled as well."""
    return model.apply(params, model.prepare(x))


def squared_loss(outputs: Array, y: Array) -> Array:
    """Half the squared error, as in the paper's code."""
    return 0.5 * (outputs - y) ** 2


def hinge_loss(outputs: Array, y: Array) -> Array:
    """Of a linear support vector machine; labels are -1 and +1."""
    return jax.nn.relu(1.0 - y * outputs)


def logistic_loss(outputs: Array, y: Array) -> Array:
    """Binary cross-entropy; labels are -1 and +1."""
    return jax.nn.softplus(-y * outputs)


def softmax_loss(outputs: Array, y: Array) -> Array:
    """Cross-entropy over classes; labels are class numbers."""
    picked = jnp.sum(outputs * jax.nn.one_hot(y, outputs.shape[-1]), axis=-1)
    return jax.nn.logsumexp(outputs, axis=-1) - picked


LOSS_OF: dict[Task, Loss] = {
    "regression": squared_loss,
    "binary": logistic_loss,
    "multiclass": softmax_loss,
}


# As the sums of releases take them: the derivative of each loss by the outputs.
RESIDUAL_OF: dict[Loss, Residual] = {
    squared_loss: squared_residual,
    hinge_loss: hinge_residual,
    logistic_loss: logistic_residual,
    softmax_loss: softmax_residual,
}


def score(task: Task, outputs: Array, y: Array) -> Array:
    """What the metric averages: each record's squared error, or 1 where its class is right."""
    if task == "regression":
        return (outputs - y) ** 2
    if task == "binary":
        # An output of exactly 0 is a draw and counts as wrong for both classes.
        return (outputs * y > 0).astype(jnp.float32)
    return (jnp.argmax(outputs, axis=-1) == y).astype(jnp.float32)


def bounded_score(task: Task, outputs: Array, y: Array, bound: float) -> Array:
    """The same, at most `bound`: what a record can add, whatever it and the model are.

    An output that is not a number has the largest score, or one record would make the mean of all
    of them not a number. Without a bound nothing is hidden.
    """
    scores = score(task, outputs, y)
    return scores if math.isinf(bound) else jnp.fmin(scores, bound)


# A released score is counted in so many steps, so that sums are exact whatever their order.
SCORE_STEPS = 2**12
# So many records' scores add up to what a 32-bit number holds.
MOST_SCORED = 2**31 // SCORE_STEPS - 1


def mean_score(
    model: "Model", params: Params, features: Features, y: Array, records: Array, bound: float
) -> Array:
    """The mean score of the first so many records; at most `bound` each, if that is finite.

    With a bound it is to be released. Then no record may change another's share, not by a last bit:
    records go one at a time through one loop body, and shares are counted in whole steps.
    """
    present = jnp.arange(len(y)) < records
    if math.isinf(bound):
        scores = score(model.task, model.apply(params, features), y)
        return jnp.sum(jnp.where(present, scores, 0)) / records

    largest = bound if model.task == "regression" else 1.0

    def steps(record: tuple[Features, Array]) -> Array:
        alone = jax.tree.map(lambda a: a[None], record)
        scores = bounded_score(model.task, model.apply(params, alone[0]), alone[1], largest)
        return jnp.rint(scores[0] / largest * SCORE_STEPS).astype(jnp.int32)

    total = jnp.sum(jnp.where(present, jax.lax.map(steps, in_a_loop((features, y)))[: len(y)], 0))
    return total.astype(jnp.float32) / SCORE_STEPS * largest / records


def with_error_as_loss(model: Model) -> Model:
    """The model with a loss of 1 for a record that is classified wrongly, and 0 for others."""
    return model._replace(loss=lambda outputs, y: 1.0 - score(model.task, outputs, y))


def on_pixels(model: Model, low: float, high: float) -> Model:
    """The model for images in one byte a value, of which 0 and 255 stand for `low` and `high`.

    A heavy model gets them as numbers batch by batch, so that a silo's records stay small; any
    other once for each silo. Features that are numbers already stay as they are.
    """

    # A table: worked out anew, a value might be rounded in one program as in no other.
    values = pixel_values(np.arange(256, dtype=np.float32), low, high)

    def numbers(x: Array) -> Array:
        return jnp.asarray(values, jnp.float32)[x] if x.dtype == jnp.uint8 else x

    if not model.heavy:
        return model._replace(prepare=lambda x: model.prepare(numbers(x)))

    def clipped_sum(params, features, y, mask, clip, offset=None):
        return model.clipped_sum(params, features_of(features), y, mask, clip, offset)

    def whole_sum(params, features, y, mask, clip, grain, offset=None):
        return model.whole_sum(params, features_of(features), y, mask, clip, grain, offset)

    def features_of(x: Array) -> Features:
        return model.prepare(numbers(x))

    return model._replace(
        prepare=lambda x: x,
        apply=lambda params, x: model.apply(params, features_of(x)),
        clipped_sum=clipped_sum,
        whole_sum=whole_sum,
    )


def loss_of_one(apply: Callable[[Params, Features], Array], loss: Loss) -> LossOfOne:
    """Parameters, and features and label of one record -> its loss."""

    def of_one(params: Params, features: Features, y: Array) -> Array:
        alone = jax.tree.map(lambda a: a[None], features)
        return loss(apply(params, alone), y[None])[0]

    return of_one


def gradient_of_one(apply: Callable[[Params, Features], Array], loss: Loss) -> Callable:
    """Parameters, and features and label of one record -> the gradient of its loss."""
    return jax.grad(loss_of_one(apply, loss))


def _linear(
    name: str, task: Task, loss: Loss, input_shape: tuple[int, ...], num_classes: int
) -> Model:
    rows = math.prod(input_shape) + 1
    shape = (rows, num_classes) if task == "multiclass" else (rows,)

    def prepare(x: Array) -> Features:
        flat = x.reshape(len(x), -1)
        augmented = jnp.concatenate([tidy(flat), jnp.ones((len(x), 1), flat.dtype)], axis=1)
        # A record's gradient is (its residual) times (its features): the norm needs only this.
        return {"x": augmented, "norm": steady_norm(augmented, 1)}

    def apply(params: Params, features: Features) -> Array:
        return features["x"] @ params

    return Model(
        name=name,
        task=task,
        init=lambda key: jnp.zeros(shape, jnp.float32),
        apply=apply,
        loss=loss,
        clipped_sum=linear_clipped_sum(loss),
        whole_sum=linear_whole_sum(RESIDUAL_OF[loss]),
        prepare=prepare,
        heavy=False,
        linear=True,
        convex=True,
        built_in=True,
    )


def _convnet(
    name: str, task: Task, kernel: int, input_shape: tuple[int, int, int], outputs: int
) -> Model:
    def apply(params: Params, x: Array) -> Array:
        out = convnet.apply_convnet(params, x)
        return out if task == "multiclass" else out[:, 0]

    loss = LOSS_OF[task]

    def loss_of_columns(out: Array, y: Array) -> Array:
        return loss(out if task == "multiclass" else out[:, 0], y)

    slow = generic_clipped_sum(apply, loss)

    def clipped_sum(params, features, y, mask, clip, offset=None):
        if offset is not None:  # the regulariser inside the clip: for comparison, so speed is moot
            return slow(params, features, y, mask, clip, offset)
        return convnet.clipped_gradient_sum(params, features, loss_of_columns, y, mask, clip)

    def gradient(params: Params, image: Array, y: Array) -> Params:
        return convnet.gradient_of_one(params, image, loss_of_columns, y)

    return Model(
        name=name,
        task=task,
        init=lambda key: convnet.init_convnet(key, input_shape, outputs, kernel),
        apply=apply,
        loss=loss,
        clipped_sum=clipped_sum,
        whole_sum=one_by_one_whole_sum(gradient),
        prepare=lambda x: x,
        heavy=True,
        built_in=True,
    )


_LINEAR: dict[str, tuple[Task, Loss, str]] = {
    "linear": ("regression", squared_loss, "linear regression"),
    "svm": ("binary", hinge_loss, "linear support vector machine (hinge loss)"),
    "logistic": ("binary", logistic_loss, "logistic regression"),
    "softmax": ("multiclass", softmax_loss, "softmax (multinomial logistic) regression"),
}
_CONVNETS: dict[str, tuple[int, str]] = {
    "convnet": (3, "the paper's CIFAR/MNIST ConvNet: 3x3x32, pool, 3x3x64, pool, linear"),
    "convnet5": (5, "the paper's ADNI ConvNet: 5x5x32, pool, 5x5x64, pool, linear"),
}
MODELS: dict[str, str] = {name: about for name, (_, _, about) in _LINEAR.items()} | {
    name: about for name, (_, about) in _CONVNETS.items()
}


def get_model(name: str, task: Task, input_shape: tuple[int, ...], num_classes: int = 0) -> Model:
    """The built-in model of that name for a federation's task and input shape."""
    if name in _LINEAR:
        own_task, loss, about = _LINEAR[name]
        if own_task != task:
            fitting = [other for other, (t, _, _) in _LINEAR.items() if t == task]
            raise SilodpError(
                f"Model {name!r} ({about}) is for a {own_task} task, but the data are {task}: "
                f"choose --model {' or '.join(fitting)}."
            )
        return _linear(name, task, loss, input_shape, num_classes)
    if name in _CONVNETS:
        kernel, about = _CONVNETS[name]
        smallest = 3 * kernel + 1
        if len(input_shape) != 3 or min(input_shape[:2]) < smallest:
            raise SilodpError(
                f"Model {name!r} takes images [height, width, channels] of at least {smallest} by "
                f"{smallest} pixels, but the records have shape {list(input_shape)}: choose a "
                "linear model."
            )
        height, width, channels = input_shape
        shape = (height, width, channels)
        return _convnet(name, task, kernel, shape, max(num_classes, 1))
    raise SilodpError(f"Model {name!r} is unknown: use {one_of(name, MODELS)}.")


def is_heavy(name: str) -> bool:
    """Whether the built-in model of that name is one whose steps are dear."""
    return name in _CONVNETS


def custom_model(
    init: Callable[[Array], Params],
    apply: Callable[[Params, Array], Array],
    task: Task,
    *,
    loss: Loss | None = None,
    name: str = "custom",
    convex: bool = False,
    microbatch: int = MICROBATCH,
) -> Model:
    """A model of the user's own, from any pair of pure functions (Flax, Haiku, Equinox, plain JAX).

    Args:
      init: key -> parameters, a pytree of float32 arrays.
      apply: parameters, x [n, ...] -> outputs [n] or [n, 1] (regression, binary) or [n, classes].
        It must treat each record by itself (no batch normalisation), or clipping means nothing.
      task: regression, binary or multiclass.
      loss: outputs, labels -> the loss of each record [n]; by default the task's usual one.
      name: what results call it.
      convex: whether the loss is convex in the parameters, as some methods need.
      microbatch: records whose gradients are held in memory at once.

    Examples:
      >>> import jax.numpy as jnp
      >>> model = silodp.custom_model(
      ...     init=lambda key: jnp.zeros(20), apply=lambda params, x: x @ params, task="regression"
      ... )
      >>> result = silodp.run(
      ...     data="synthetic", silos=2, method="local", epsilon=3, rounds=2, custom_model=model
      ... )
      >>> result.options["model"]
      'custom'
    """

    def one_column(params: Params, x: Array) -> Array:
        outputs = apply(params, x)
        if task != "multiclass" and outputs.ndim == 2 and outputs.shape[1] == 1:
            return outputs[:, 0]
        return outputs

    chosen = loss or LOSS_OF[task]
    return Model(
        name=name,
        task=task,
        init=init,
        apply=one_column,
        loss=chosen,
        clipped_sum=generic_clipped_sum(one_column, chosen, microbatch),
        whole_sum=one_by_one_whole_sum(gradient_of_one(one_column, chosen)),
        prepare=partial(jnp.asarray),
        heavy=True,
        convex=convex,
        microbatch=microbatch,
    )
