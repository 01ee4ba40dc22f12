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

from silodp.base.errors import SilodpError, meant
from silodp.config.choices import TaskName
from silodp.data.federation import pixel_values
from silodp.data.tasks import Task, get_task
from silodp.models import convnet
from silodp.models.gradients import (
    MICROBATCH,
    ClippedSum,
    generic_clipped_sum,
    linear_block_clipped_sum,
    linear_clipped_sum,
)
from silodp.models.losses import (
    LINEAR_MODELS,
    WEIGHTED,
    LinearModel,
    Loss,
    usual_loss,
    weighted_for,
)
from silodp.models.metrics import MeanMetric, Metric
from silodp.models.shared_slope import (
    shared_block_clipped_sum,
    shared_block_whole_sum,
    shared_clipped_sum,
    shared_outputs,
    shared_whole_sum,
)
from silodp.models.steady import steady_norm, tidy
from silodp.models.whole_sums import (
    WholeSum,
    in_a_loop,
    linear_block_whole_sum,
    linear_whole_sum,
    one_by_one_whole_sum,
)

Params = Any
Features = Any
LossOfOne = Callable[[Params, Features, Array], Array]


class BlockSums(NamedTuple):
    """Sums over blocks of records, each of which counts as one (see `subjects`)."""

    clipped_sum: ClippedSum
    whole_sum: WholeSum


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
      heavy: True for models whose single step keeps a processor busy. Then silos and runs are taken
        one after another, images become numbers batch by batch, and batches are gathered rather
        than masked (see `sampling.draw_of`). False to batch silos and runs into each operation.
      linear: True if outputs are features["x"] @ parameters, which lets gradients be clipped
        without forming them.
      convex: True if the loss is convex in the parameters.
      microbatch: records whose gradients are held in memory at once, where they are formed.
      built_in: True if `get_model` makes it anew from its name and the shape of the records.
      of_blocks: sums over blocks of records, where they are faster than going one by one.
      weights: parameters -> weights [features, outputs] and intercepts [outputs], of a model whose
        outputs are linear in the features.
      prevalence: the declared share of the second of two classes, by which records have weights.
      first: the intercept that a linear model begins with, which is public.
      threshold: the log-odds above which the second of two classes is predicted.
      to_module: parameters -> a `torch.nn.Module` with them, of a model that was made of one.
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
    task: TaskName
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
    of_blocks: BlockSums | None = None
    weights: Callable[[Params], tuple[np.ndarray, np.ndarray]] | None = None
    own_loss: LossOfOne | None = None
    prevalence: float | None = None
    first: float = 0.0
    threshold: float = 0.0
    to_module: Callable[[Params], Any] | None = None

    @property
    def has_probabilities(self) -> bool:
        """Whether outputs are log-odds: a support vector machine's are not."""
        usual = self.prevalence is not None or self.loss is usual_loss(self.task)
        return usual and get_task(self.task).has_probabilities

    @property
    def deciding(self) -> Task:
        """The task, whose classes are decided at this model's threshold."""
        return get_task(self.task).deciding_at(self.threshold)

    def predict(self, params: Params, x: Array) -> Array:
        """Outputs for raw features x [n, ...]."""
        return _outputs(self, params, x)


@partial(jax.jit, static_argnums=0)
def _outputs(model: Model, params: Params, x: Array) -> Array:
    """One program for each shape of x: each operation by itself would be compiled as well."""
    return model.apply(params, model.prepare(x))


# A released score is counted in so many steps, so that sums are exact whatever their order.
SCORE_STEPS = 2**12
# So many records' scores add up to what a 32-bit number holds.
MOST_SCORED = 2**31 // SCORE_STEPS - 1


def metric_value(
    model: Model,
    metric: Metric,
    params: Params,
    features: Features,
    y: Array,
    records: Array,
    bound: float,
) -> Array:
    """The metric of the first so many records; their shares are at most `bound`, if it is finite.

    With a bound it is to be released. Then no record may change another's share, not by a last bit:
    records go one at a time through one loop body, and shares are counted in whole steps.
    """
    task, present = model.deciding, jnp.arange(len(y)) < records
    if math.isinf(bound):
        return metric.value(task, model.apply(params, features), y, present)
    if not isinstance(metric, MeanMetric):
        raise TypeError(f"{metric.name} is no mean over records: its value cannot be bounded.")

    largest = metric.largest(bound)
    steps = score_steps(task, metric, partial(model.apply, params), features, y, largest)
    total = jnp.sum(jnp.where(present, steps, 0))
    return total.astype(jnp.float32) / SCORE_STEPS * largest / records


def score_steps(
    task: Task,
    metric: MeanMetric,
    outputs_of: Callable[[Features], Array],
    features: Features,
    y: Array,
    largest: float,
) -> Array:
    """[n]: each record's share, of at most `largest`, in steps of which that has SCORE_STEPS.

    Each comes from its record and the model alone, to the last bit: see `metric_value`.
    """

    def steps(record: tuple[Features, Array]) -> Array:
        alone = jax.tree.map(lambda a: a[None], record)
        shares = metric.bounded_share(task, outputs_of(alone[0]), alone[1], largest)
        return jnp.rint(shares[0] / largest * SCORE_STEPS).astype(jnp.int32)

    return jax.lax.map(steps, in_a_loop((features, y)))[: len(y)]


def with_error_as_loss(model: Model) -> Model:
    """The model with a loss of 1 for a record that is classified wrongly, and 0 for others."""
    right = model.deciding.right
    # Only scored, never trained: what a linear model sums gradients with has no such loss.
    return model._replace(
        loss=lambda outputs, y: 1.0 - right(outputs, y).astype(jnp.float32), linear=False
    )


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


def _linear(name: str, kind: LinearModel, input_shape: tuple[int, ...], num_classes: int) -> Model:
    shape = (math.prod(input_shape) + 1, *get_task(kind.task).output_shape(num_classes))

    def prepare(x: Array) -> Features:
        flat = x.reshape(len(x), -1)
        augmented = jnp.concatenate([tidy(flat), jnp.ones((len(x), 1), flat.dtype)], axis=1)
        # A record's gradient is (its residual) times (its features): the norm needs only this.
        return {"x": augmented, "norm": steady_norm(augmented, 1)}

    def apply(params: Params, features: Features) -> Array:
        return features["x"] @ params

    def weights(params: Params) -> tuple[np.ndarray, np.ndarray]:
        rows = np.asarray(params).reshape(len(params), -1)  # the last one is the intercepts
        return rows[:-1], rows[-1]

    return Model(
        name=name,
        task=kind.task,
        init=lambda key: jnp.zeros(shape, jnp.float32).at[-1].set(kind.first),
        apply=apply,
        loss=kind.loss,
        clipped_sum=linear_clipped_sum(kind.loss),
        whole_sum=linear_whole_sum(kind.residual),
        prepare=prepare,
        heavy=False,
        linear=True,
        convex=True,
        built_in=True,
        of_blocks=BlockSums(
            linear_block_clipped_sum(kind.loss), linear_block_whole_sum(kind.residual)
        ),
        weights=weights,
    )


def _shared(name: str, kind: LinearModel, input_shape: tuple[int, ...], num_classes: int) -> Model:
    """A linear model with one slope for each feature (see `shared_slope`)."""
    task, features = get_task(kind.task), math.prod(input_shape)
    start = np.concatenate([np.zeros(features), task.first_outputs(num_classes)])

    def prepare(x: Array) -> Features:
        flat = tidy(x.reshape(len(x), -1))
        return {"x": flat, "norm": steady_norm(flat, 1)}

    def weights(params: Params) -> tuple[np.ndarray, np.ndarray]:
        slopes, intercepts = np.split(np.asarray(params), [features])
        return np.repeat(slopes[:, None], len(intercepts), axis=1), intercepts

    return Model(
        name=name,
        task=kind.task,
        init=lambda key: jnp.asarray(start, jnp.float32),
        apply=lambda params, features: shared_outputs(params, features["x"]),
        loss=kind.loss,
        clipped_sum=shared_clipped_sum(kind.loss),
        whole_sum=shared_whole_sum(kind.residual),
        prepare=prepare,
        heavy=False,
        convex=True,
        built_in=True,
        of_blocks=BlockSums(
            shared_block_clipped_sum(kind.loss), shared_block_whole_sum(kind.residual)
        ),
        weights=weights,
    )


def _convnet(
    name: str, task: TaskName, kernel: int, input_shape: tuple[int, int, int], num_classes: int
) -> Model:
    output_shape, loss = get_task(task).output_shape(num_classes), usual_loss(task)
    outputs = math.prod(output_shape)

    def shaped(columns: Array) -> Array:
        return columns if output_shape else columns[:, 0]

    def apply(params: Params, x: Array) -> Array:
        return shaped(convnet.apply_convnet(params, x))

    def loss_of_columns(out: Array, y: Array) -> Array:
        return loss(shaped(out), y)

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


_CONVNETS: dict[str, tuple[int, str]] = {
    "convnet": (3, "the paper's CIFAR/MNIST ConvNet: 3x3x32, pool, 3x3x64, pool, linear"),
    "convnet5": (5, "the paper's ADNI ConvNet: 5x5x32, pool, 5x5x64, pool, linear"),
}
MODELS: dict[str, str] = {name: kind.about for name, kind in LINEAR_MODELS.items()} | {
    name: about for name, (_, about) in _CONVNETS.items()
}


def get_model(
    name: str,
    task: TaskName,
    input_shape: tuple[int, ...],
    num_classes: int = 0,
    prevalence: float | None = None,
    first: float = 0.0,
) -> Model:
    """The built-in model of that name for a federation's task and input shape.

    With a prevalence, records have weights by their class (see `losses.weighted_for`). A linear
    model of one output begins with the intercept `first`, which is public.
    """
    if prevalence is not None and name != WEIGHTED:
        choose = f"choose --model {WEIGHTED}, or " if LINEAR_MODELS[WEIGHTED].task == task else ""
        raise SilodpError(
            f"--prevalence weighs the records of two classes, which the model {name!r} does not "
            f"know: {choose}leave it out."
        )
    if name in LINEAR_MODELS:
        kind = LINEAR_MODELS[name]._replace(first=first)
        if kind.task != task:
            fitting = [other for other, own in LINEAR_MODELS.items() if own.task == task]
            raise SilodpError(
                f"Model {name!r} ({kind.about}) is for a {kind.task} task, but the data are "
                f"{task}: choose --model {' or '.join(fitting)}."
            )
        if prevalence is not None:
            kind = weighted_for(prevalence)
        make = _shared if kind.shared else _linear
        model = make(name, kind, input_shape, num_classes)
        return model._replace(prevalence=prevalence, first=first)
    if name in _CONVNETS:
        kernel, _ = _CONVNETS[name]
        smallest = 3 * kernel + 1
        if len(input_shape) != 3 or min(input_shape[:2]) < smallest:
            raise SilodpError(
                f"Model {name!r} takes images [height, width, channels] of at least {smallest} by "
                f"{smallest} pixels, but the records have shape {list(input_shape)}: choose a "
                "linear model."
            )
        height, width, channels = input_shape
        shape = (height, width, channels)
        return _convnet(name, task, kernel, shape, num_classes)
    raise SilodpError(f"Model {name!r} is unknown: {meant(name, MODELS, most=20)}")


def is_heavy(name: str) -> bool:
    """Whether the built-in model of that name is heavy (see `Model.heavy`)."""
    return name in _CONVNETS


def check_custom(model: Any) -> None:
    """Refuses a custom model that is something else, such as a module of PyTorch."""
    if model is None or isinstance(model, Model):
        return
    kind = type(model)
    if any(base.__module__.startswith("torch.") for base in kind.__mro__):
        raise SilodpError(
            f"custom_model is a module of PyTorch ({kind.__name__}), which JAX cannot look into: "
            "give silodp.torch_model(module, task), which translates plain layers."
        )
    raise SilodpError(
        f"custom_model is a {kind.__name__}: give what silodp.custom_model makes of init and apply."
    )


def custom_model(
    init: Callable[[Array], Params],
    apply: Callable[[Params, Array], Array],
    task: TaskName,
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
      task: what it is for, such as regression or binary: see `docs/data.md` for all, and for what
        labels and outputs are then.
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

    single = not get_task(task).output_shape(num_classes=2)

    def one_column(params: Params, x: Array) -> Array:
        outputs = apply(params, x)
        if single and outputs.ndim == 2 and outputs.shape[1] == 1:
            return outputs[:, 0]
        return outputs

    chosen = loss or usual_loss(task)
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
