"""Runs spread over devices: seeds or settings, whichever is done sooner, and where arrays lie."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

# What a seed costs by itself (random words, gathering batches), in runs of a single setting.
SEED_WORK = 8


def placed(tree: Any, specs: Any, mesh: Mesh) -> Any:
    """The arrays, where the specs say; of NumPy arrays, copies."""
    return jax.device_put(tree, shardings(specs, mesh))


def shardings(specs: Any, mesh: Mesh) -> Any:
    """Where arrays lie: a sharding for each spec of a pytree."""
    return jax.tree.map(
        lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda s: isinstance(s, P)
    )


def repeated_to(items: Sequence, multiple: int) -> list:
    """Repeats the last item until the number divides; the repeats are left out of results."""
    return [*items, *[items[-1]] * (-len(items) % multiple)]


def spread_over_devices(seeds: int, settings: int) -> tuple[str, list]:
    """Whether to spread seeds or settings over devices, and how many: what is done soonest."""
    devices = jax.local_devices()

    def time(seeds: int, settings: int) -> int:
        return seeds * (SEED_WORK + settings)

    by_seed, by_setting = min(seeds, len(devices)), min(settings, len(devices))
    if time(-(-seeds // by_seed), settings) <= time(seeds, -(-settings // by_setting)):
        return "seeds", devices[:by_seed]
    return "settings", devices[:by_setting]


def with_pivots(settings: Sequence, blocks: int) -> tuple[list, np.ndarray]:
    """The trials in blocks, each after the pivot (the first setting); and where each setting is."""
    pivot, trials = settings[0], repeated_to(settings[1:], blocks)
    size = len(trials) // blocks
    arranged = [one for block in range(blocks) for one in (pivot, *trials[block * size :][:size])]
    number = np.arange(len(settings) - 1)
    return arranged, np.concatenate([[0], number + number // size + 1])
