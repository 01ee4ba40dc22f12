"""Nobody compares different work: without noise, all contenders must get the same models."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import convnets, plain_loop
from benchmarks.plain_loop import CarefulLoop, PlainLoop
from benchmarks.workloads import made_up
from silodp import Federation
from silodp.base.progress import Reporter
from silodp.engines.job import Setting
from silodp.engines.simulation import Simulation
from silodp.models.model import get_model
from silodp.privacy.session import free_rounds
from silodp.runs.prepare import prepare
from silodp.runs.requests import requests_of
from silodp.runs.run import job_of

TOLERANCE = 1e-4
_ROUNDS, _LR, _LAM = 3, 0.5, 0.7


def check_agreement(opacus: ModuleType | None) -> float:
    """The largest difference between models that should be equal; fails above TOLERANCE."""
    worst = max(
        _linear_gap("linear", 0.5, opacus),
        _linear_gap("svm", 2.0, opacus),
        *(_convnet_gap(name, opacus) for name in convnets.SHAPES),
    )
    if not worst <= TOLERANCE:
        raise AssertionError(f"The contenders do not do the same work: they differ by {worst:.2g}.")
    return worst


def _linear_gap(model: str, clip: float, opacus: ModuleType | None) -> float:
    """One step on a drawn batch, then whole runs with all records in each batch."""
    counts = np.array([20, 25, 31])
    task = "binary" if model == "svm" else "regression"
    federation = made_up("agreement", counts, 6, task, seed=0)
    drawn = np.arange(0, counts[0], 3)
    args: tuple[Any, ...] = (federation, model, 32, clip, _LR, _LAM, [0.0] * len(counts))

    expected_step = _our_step(federation, model, clip, drawn)
    expected = _our_models(federation, model, clip)
    gaps = []
    for kind in (PlainLoop, CarefulLoop):
        loop = kind(*args)
        gaps.append(_gap(loop.step(0, loop.models[0], drawn), expected_step))
        loop.run(_ROUNDS)
        gaps.append(_gap(loop.models, expected))
    if opacus is not None:
        import torch  # pyright: ignore[reportMissingImports]

        peer = opacus.OpacusLoop(*args)
        peer.step(0, torch.from_numpy(drawn))
        gaps.append(_gap(peer.models[0], expected_step))
        peer = opacus.OpacusLoop(*args)
        peer.run(_ROUNDS)
        gaps.append(_gap(peer.models, expected))
    return max(gaps)


def _our_step(federation: Federation, name: str, clip: float, drawn: np.ndarray) -> np.ndarray:
    model = get_model(name, federation.task, federation.input_shape)
    train = federation.silos[0].train
    params = model.init(jax.random.key(0))
    mask = jnp.zeros(len(train)).at[drawn].set(1.0)
    x, y = jnp.asarray(train.x), jnp.asarray(train.y)
    total = model.clipped_sum(params, model.prepare(x), y, mask, clip)
    return np.asarray(params - _LR * total / len(train))


def _our_models(federation: Federation, name: str, clip: float) -> np.ndarray:
    # As `silodp.run` makes them of options, so that a new option cannot be forgotten here.
    options: dict[str, Any] = {"method": "mrmtl", "model": name, "lam": _LAM, "lr": _LR}
    options |= {"rounds": _ROUNDS, "batch_size": 32, "clip": clip, "small_silos": "full-batch"}
    options |= {"epsilon": float("inf"), "delta": 1e-3}
    prepared = prepare(requests_of(options), federation, None, Reporter())
    # Clipped as if private, but with a noise of zero.
    plans = tuple(replace(plan, epsilon=1.0, noise_multiplier=0.0) for plan in prepared.plans[0])
    job = job_of(prepared)
    values = job.method.traced_values(prepared.specs[0].values)
    simulation = Simulation(job, [0], [federation], [Setting(_LR, plans, values)])
    state, _ = simulation.advance(simulation.initial_state(), free_rounds(0, _ROUNDS))
    return simulation.personal_models(state)[0, 0]


def _convnet_gap(name: str, opacus: ModuleType | None) -> float:
    """One step from the same weights; a large learning rate, so that gradients show."""
    model, params, x, y = convnets.images(name, 7)
    clip, lr = 1.0, 1.0
    key = jax.random.key(0)
    ours = convnets.our_step(model, clip, 0.0, lr)(params, key, x, y)
    plain = plain_loop.convnet_step(clip, 0.0, lr)(params, key, x, y)
    gaps = [_gap(a, b) for a, b in zip(*map(jax.tree.leaves, (ours, plain)), strict=True)]
    if opacus is not None:
        peer = opacus.OpacusConvNet(params, x, y, clip, 0.0, lr)
        peer.step()
        gaps += peer.gaps(ours)
    return max(gaps)


def _gap(a: Any, b: Any) -> float:
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape, f"{a.shape} is not {b.shape}"
    return float(np.abs(a - b).max())
