"""A PyTorch module of plain layers as a model: each layer is written again as a function of JAX.

Epsilon rests on each record's gradient being clipped by itself, in whole grains, within one
compiled program. So a module is not run: its layers are looked up, and those that are not known,
that mix records (batch normalisation) or draw at random (dropout) are refused by their place.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from silodp.base.errors import SilodpError
from silodp.config.choices import TaskName
from silodp.models.losses import Loss
from silodp.models.model import MICROBATCH, Model, Params, custom_model

Tensors = dict[str, Any]
Layer = Callable[[Tensors, Array], Array]
"""A layer's own tensors by name, and x [n, ...] -> its outputs [n, ...]."""


def torch_model(
    module: Any,
    task: TaskName,
    *,
    loss: Loss | None = None,
    name: str = "torch",
    convex: bool = False,
    microbatch: int = MICROBATCH,
) -> Model:
    """A model from a `torch.nn.Module` of plain layers, to be given as `custom_model`.

    Training begins, in every silo, at the weights that the module has now. They must be public:
    drawn at random, or trained on public data. Weights that require no gradient stay as they are.
    `result.model(silo, custom_model=model).to_torch()` is a copy of the module with the silo's own.

    Args:
      module: Linear, LayerNorm, Flatten, Identity, ReLU, LeakyReLU, ELU, GELU, SiLU, Softplus,
        Sigmoid and Tanh in a Sequential, which may hold others. The last one gives outputs as
        `custom_model` has them: log-odds for classes, so no Sigmoid or Softmax.
      task: as for `custom_model`.
      loss: as for `custom_model`.
      name: what results call it.
      convex: as for `custom_model`.
      microbatch: as for `custom_model`.

    Examples:
      >>> import torch  # doctest: +SKIP
      >>> net = torch.nn.Sequential(
      ...     torch.nn.Linear(20, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
      ... )  # doctest: +SKIP
      >>> model = silodp.torch_model(net, "regression")  # doctest: +SKIP
      >>> result = silodp.run(
      ...     data="synthetic", epsilon=3, custom_model=model, keep_models=True
      ... )  # doctest: +SKIP
      >>> result.model("silo-01", custom_model=model).to_torch()  # doctest: +SKIP
    """
    nn = _torch().nn
    if not isinstance(module, nn.Module):
        raise SilodpError(
            f"torch_model takes a torch.nn.Module, not a {type(module).__name__}: give a module."
        )
    module = copy.deepcopy(module if type(module) is nn.Sequential else nn.Sequential(module))
    layers = dict(_in_order(module))
    functions = {place: _function(place, layer) for place, layer in layers.items()}
    owned = {place: dict(layer.named_parameters()) for place, layer in layers.items()}
    values = {
        place: {one: _value(f"{place}.{one}", tensor) for one, tensor in own.items()}
        for place, own in owned.items()
    }
    trained = {
        f"{place}.{one}": values[place][one]
        for place, own in owned.items()
        for one, tensor in own.items()
        if tensor.requires_grad
    }
    if not trained:
        raise SilodpError(
            "The module has no weights that require gradients: unfreeze some, or add a Linear."
        )

    def apply(params: Params, x: Array) -> Array:
        for place, function in functions.items():
            own = {one: params.get(f"{place}.{one}", value) for one, value in values[place].items()}
            x = function(own, x)
        return x

    def with_weights(params: Params) -> Any:
        filled = copy.deepcopy(module)
        tensors = dict(filled.named_parameters())
        for one, value in params.items():
            tensors[one].data.copy_(_torch().from_numpy(np.array(value)))
        return filled.eval()

    model = custom_model(
        lambda key: {one: jnp.asarray(value) for one, value in trained.items()},
        apply,
        task,
        loss=loss,
        name=name,
        convex=convex,
        microbatch=microbatch,
    )
    return model._replace(to_module=with_weights)


def _torch() -> Any:
    try:
        import torch  # pyright: ignore[reportMissingImports]  (optional, so not at the top)
    except ImportError:
        raise SilodpError(
            "A module of PyTorch needs the package torch: install it with `pip install torch`."
        ) from None
    return torch


def _in_order(module: Any) -> Iterator[tuple[str, Any]]:
    """The layers, each with its place, such as "0" or "2.1"."""
    seen: set[int] = set()

    def below(part: Any, place: str) -> Iterator[tuple[str, Any]]:
        for name, child in part._modules.items():  # named_children leaves out what comes again
            own = f"{place}{name}"
            if type(child) is type(module):
                yield from below(child, f"{own}.")
                continue
            if id(child) in seen and any(True for _ in child.parameters()):
                raise SilodpError(
                    f"Layer {own} of the module stands in two places: make it two layers."
                )
            seen.add(id(child))
            yield own, child

    return below(module, "")


def _function(place: str, layer: Any) -> Layer:
    """What the layer does, written again."""
    kind = type(layer).__name__
    known = type(layer) is getattr(_torch().nn, kind, None)  # a class of that name may be another
    if known and kind.startswith("BatchNorm"):
        raise SilodpError(
            f"Layer {place} of the module is {kind}, which mixes records, so that no record's "
            "gradient is its own: use LayerNorm."
        )
    if known and "Dropout" in kind:
        raise SilodpError(
            f"Layer {place} of the module is {kind}, which draws at random: leave it out; private "
            "training has noise of its own."
        )
    if not known or kind not in _LAYERS or layer._forward_hooks or layer._forward_pre_hooks:
        raise SilodpError(
            f"Layer {place} of the module is {kind} (its own class, or with hooks), which is not "
            f"among those that can be translated: use {', '.join(_LAYERS)} in a Sequential, or "
            "write init and apply for silodp.custom_model."
        )
    return _LAYERS[kind](place, layer)


def _value(name: str, tensor: Any) -> np.ndarray:
    if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
        raise SilodpError(
            f"Weights {name} of the module are not finite real numbers: set them anew."
        )
    return tensor.detach().float().cpu().numpy()


def _linear(place: str, layer: Any) -> Layer:
    def function(own: Tensors, x: Array) -> Array:
        outputs = x @ own["weight"].T
        return outputs + own["bias"] if "bias" in own else outputs

    return function


def _layer_norm(place: str, layer: Any) -> Layer:
    axes = tuple(range(-len(layer.normalized_shape), 0))

    def function(own: Tensors, x: Array) -> Array:
        centred = x - x.mean(axes, keepdims=True)
        outputs = centred / jnp.sqrt((centred**2).mean(axes, keepdims=True) + layer.eps)
        outputs = outputs * own["weight"] if "weight" in own else outputs
        return outputs + own["bias"] if "bias" in own else outputs

    return function


def _flatten(place: str, layer: Any) -> Layer:
    if (layer.start_dim, layer.end_dim) != (1, -1):
        raise SilodpError(
            f"Layer {place} of the module flattens from {layer.start_dim} to {layer.end_dim}: a "
            "model may flatten each record alone (Flatten())."
        )
    return lambda own, x: x.reshape(x.shape[0], -1)


def _each(function: Callable[[Any], Callable[[Array], Array]]) -> Callable[[str, Any], Layer]:
    """A layer without weights, of what a layer's settings make of numbers."""

    def layer_of(place: str, layer: Any) -> Layer:
        of_numbers = function(layer)
        return lambda own, x: of_numbers(x)

    return layer_of


_LAYERS: dict[str, Callable[[str, Any], Layer]] = {
    "Linear": _linear,
    "LayerNorm": _layer_norm,
    "Flatten": _flatten,
    "Identity": _each(lambda layer: lambda x: x),
    "ReLU": _each(lambda layer: jax.nn.relu),
    "LeakyReLU": _each(lambda layer: lambda x: jax.nn.leaky_relu(x, layer.negative_slope)),
    "ELU": _each(lambda layer: lambda x: jax.nn.elu(x, layer.alpha)),
    "GELU": _each(lambda layer: lambda x: jax.nn.gelu(x, layer.approximate == "tanh")),
    "SiLU": _each(lambda layer: jax.nn.silu),
    "Softplus": _each(lambda layer: lambda x: jax.nn.softplus(layer.beta * x) / layer.beta),
    "Sigmoid": _each(lambda layer: jax.nn.sigmoid),
    "Tanh": _each(lambda layer: jnp.tanh),
}
