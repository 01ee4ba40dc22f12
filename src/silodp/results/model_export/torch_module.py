"""A silo's model as a module of PyTorch, to be used or trained further there.

It is made of plain layers with the model's numbers, and takes what `PersonalModel.features` gives:
prepared features, or images in bytes. Its outputs are the model's: numbers in units of the scaled
target, log-odds of the second class, or a score for each class.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from silodp.base.errors import SilodpError
from silodp.data.tasks import get_task

if TYPE_CHECKING:
    from silodp.results.model_export.personal_model import PersonalModel


def torch_module(model: "PersonalModel") -> Any:
    """The `torch.nn.Module` of a built-in model, in eval mode."""
    try:
        import torch  # pyright: ignore[reportMissingImports]  (optional, so not at the top)
    except ImportError:
        raise SilodpError(
            "A module of PyTorch needs the package torch: install it with `pip install torch`."
        ) from None
    if model.model.to_module is not None and model.about.pixels is None:
        return model.model.to_module(model.params)
    if not model.about.built_in:
        raise SilodpError(
            f"Silo {model.about.silo!r}: its model {model.about.name!r} is a custom one, whose "
            "layers are not known here: build them in PyTorch, and copy model.params into them."
        )
    from silodp.results.model_export.torch_layers import ChannelsFirst, FromBytes

    nn, layers = torch.nn, []
    if model.about.pixels is not None:
        layers.append(FromBytes(*model.about.pixels))
    if model.model.weights is not None:
        layers += [nn.Flatten(), _linear(torch, *model.model.weights(model.params))]
    else:
        layers.append(ChannelsFirst())
        for name in ("conv1", "conv2"):
            layers += [_conv(torch, **model.params[name]), nn.MaxPool2d(2), nn.ReLU()]
        last = model.params["linear"]
        weights = _channels_first(last["w"], channels=model.params["conv2"]["b"].shape[0])
        layers += [nn.Flatten(), _linear(torch, weights, last["b"])]
    if not get_task(model.about.task).output_shape(model.about.num_classes):
        layers.append(nn.Flatten(0))  # [n, 1] to [n]
    return nn.Sequential(*layers).eval()


def _linear(torch: Any, weights: Any, bias: Any) -> Any:
    """From weights [inputs, outputs]."""
    layer = torch.nn.Linear(*weights.shape)
    return _filled(torch, layer, np.transpose(weights), bias)


def _conv(torch: Any, w: Any, b: Any) -> Any:
    """From weights [height, width, inputs, outputs]."""
    height, width, inputs, outputs = w.shape
    layer = torch.nn.Conv2d(inputs, outputs, (height, width))
    return _filled(torch, layer, np.transpose(w, (3, 2, 0, 1)), b)


def _filled(torch: Any, layer: Any, weights: Any, bias: Any) -> Any:
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(np.array(weights, np.float32)))
        layer.bias.copy_(torch.tensor(np.array(bias, np.float32)))
    return layer


def _channels_first(weights: Any, channels: int) -> np.ndarray:
    """Weights [places of channels, outputs] of the last layer, for inputs with channels first."""
    by_place = np.reshape(weights, (-1, channels, weights.shape[-1]))
    return np.transpose(by_place, (1, 0, 2)).reshape(weights.shape)
