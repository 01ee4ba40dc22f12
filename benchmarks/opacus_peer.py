"""The same work by Opacus on PyTorch: a GradSampleModule and a DPOptimizer for each silo.

Needs the extra `silodp[bench]`; importing this file fails without it.
"""

# pyright: reportMissingImports=false

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn

from silodp import Federation


@contextmanager
def _without_remark() -> Iterator[None]:
    """Opacus's layers take gradients of their weights only; PyTorch remarks on it once a module.

    Around each call, and not once for the process: whoever restores filters (as pytest does after
    each test) would bring the remark back.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        yield


def _squared(outputs: Tensor, y: Tensor) -> Tensor:
    return 0.5 * ((outputs - y) ** 2).mean()


def _hinge(outputs: Tensor, y: Tensor) -> Tensor:
    return torch.relu(1 - y * outputs).mean()


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"linear": _squared, "svm": _hinge}


class OpacusLoop:
    """MR-MTL with DP-SGD; the arguments are those of `plain_loop.PlainLoop`."""

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
        self._batches = np.minimum(counts, batch_size).tolist()
        self._weights = (counts / counts.sum()).tolist()
        self._random = torch.Generator().manual_seed(seed)
        self._loss = LOSSES[model]
        self._x = [torch.from_numpy(silo.train.x) for silo in federation.silos]
        self._y = [torch.from_numpy(silo.train.y) for silo in federation.silos]
        features = federation.input_shape[0]
        self._mean = [torch.zeros(1, features), torch.zeros(1)]
        self._silos = [
            _private(
                _zeros(nn.Linear(features, 1)),
                lr,
                clip,
                multiplier,
                batch,
                self._random,
                self._pull,
            )
            for batch, multiplier in zip(self._batches, noise_multipliers, strict=True)
        ]
        self._lam = lam

    def _pull(self, optimiser: DPOptimizer) -> None:
        """Adds the penalty's gradient, once the noisy gradient is there."""
        for parameter, mean in zip(optimiser.params, self._mean, strict=True):
            assert parameter.grad is not None
            parameter.grad.add_(parameter.detach() - mean, alpha=self._lam)

    @property
    def models(self) -> list[np.ndarray]:
        """Weights, then the bias, of each silo."""
        return [
            torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()
            for model, _ in self._silos
        ]

    @_without_remark()
    def step(self, number: int, drawn: Tensor) -> None:
        """One private step of a silo on the records `drawn`."""
        self._step(number, drawn)

    def _step(self, number: int, drawn: Tensor) -> None:
        model, optimiser = self._silos[number]
        outputs = model(self._x[number][drawn])[:, 0]
        self._loss(outputs, self._y[number][drawn]).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    @_without_remark()
    def run(self, rounds: int) -> None:
        """Trains so many rounds more."""
        for _ in range(rounds):
            for number, batch in enumerate(self._batches):
                n = len(self._x[number])
                masks = torch.rand(n // batch, n, generator=self._random) < batch / n
                for mask in masks:
                    self._step(number, mask.nonzero()[:, 0])
            self._merge()

    @torch.no_grad()
    def _merge(self) -> None:
        parts = zip(*(list(model.parameters()) for model, _ in self._silos), strict=True)
        weights = torch.tensor(self._weights)
        self._mean = [torch.tensordot(weights, torch.stack(part), 1) for part in parts]


def _zeros(model: nn.Linear) -> nn.Linear:
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


def _private(
    model: nn.Module,
    lr: float,
    clip: float,
    noise_multiplier: float,
    batch: int,
    generator: torch.Generator,
    hook: Callable[[DPOptimizer], None] | None = None,
) -> tuple[GradSampleModule, DPOptimizer]:
    """What `PrivacyEngine.make_private` builds, but for its data loader and accountant."""
    wrapped = GradSampleModule(model)
    optimiser = DPOptimizer(
        torch.optim.SGD(wrapped.parameters(), lr=lr),
        noise_multiplier=noise_multiplier,
        max_grad_norm=clip,
        expected_batch_size=batch,
        generator=generator,
    )
    if hook is not None:
        optimiser.attach_step_hook(hook)
    return wrapped, optimiser


class OpacusConvNet:
    """One step at a time of the paper's ConvNet; `params`, images and labels are those of JAX."""

    def __init__(
        self,
        params: Any,
        x: np.ndarray,
        y: np.ndarray,
        clip: float,
        noise_multiplier: float,
        lr: float,
    ):
        count, height, width, channels = x.shape
        # Not .contiguous(): with one channel that keeps the strides of channels last, for which
        # Opacus (1.6) gets the per-example gradients of the next convolution wrong.
        self._x = torch.empty(count, channels, height, width)
        self._x.copy_(torch.from_numpy(x).permute(0, 3, 1, 2))
        self._y = torch.from_numpy(y).long()
        weights = {layer: _torch_layout(layer, params) for layer in params}
        side = _side(params)
        network = nn.Sequential(
            nn.Conv2d(channels, 32, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * side * side, 10),
        )
        with torch.no_grad():
            for place, layer in ((0, "conv1"), (3, "conv2"), (7, "linear")):
                network[place].weight.copy_(weights[layer][0])  # type: ignore[operator]
                network[place].bias.copy_(weights[layer][1])  # type: ignore[operator]
        random = torch.Generator().manual_seed(0)
        self._model, self._optimiser = _private(network, lr, clip, noise_multiplier, len(y), random)
        self._loss = nn.CrossEntropyLoss()

    @_without_remark()
    def step(self) -> None:
        """One private step on all the images."""
        self._loss(self._model(self._x), self._y).backward()
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)

    def gaps(self, params: Any) -> list[float]:
        """The largest difference between each weight here and in JAX's `params`."""
        expected = [part for layer in params for part in _torch_layout(layer, params)]
        own = [p.detach() for p in self._model.parameters()]
        return [float((a - b).abs().max()) for a, b in zip(own, expected, strict=True)]


def _side(params: Any) -> int:
    """Of the square that reaches the linear layer."""
    return round((params["linear"]["w"].shape[0] // 64) ** 0.5)


def _torch_layout(layer: str, params: Any) -> tuple[Tensor, Tensor]:
    """JAX keeps channels last, PyTorch first."""
    weights, bias = (torch.from_numpy(np.array(params[layer][name])) for name in ("w", "b"))
    if layer != "linear":
        return weights.permute(3, 2, 0, 1), bias
    side = _side(params)
    return weights.reshape(side, side, 64, -1).permute(3, 2, 0, 1).flatten(1), bias


def threads() -> int:
    """That PyTorch uses."""
    return torch.get_num_threads()
