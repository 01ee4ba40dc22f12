"""Pytrees as lists of arrays, as they travel between machines, and checks of what arrives.

The receiver knows shapes and types beforehand, and refuses all else.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.tree_util import keystr, tree_leaves_with_path

from silodp.base.errors import SilodpError
from silodp.engines.one_silo import UNDISCLOSED
from silodp.privacy.mechanisms.queries import PassNoise

# A site that keeps the scale of its noise to itself says infinity here, and nowhere else.
_MAY_BE_INFINITE = {
    field for field, value in zip(PassNoise._fields, UNDISCLOSED, strict=True) if np.isinf(value)
}
# The largest number in a model: training gives no larger one.
_LARGEST = 2.0**60
# The remedy for a state on disk that another version wrote.
OTHER_VERSION = "go on with the version of silodp that wrote it"


def tree_of(arrays: Sequence[np.ndarray], like: Any) -> Any:
    """Makes a pytree of arrays; refuses any that do not have the shapes and types of `like`."""
    expected, structure = tree_leaves_with_path(like), jax.tree.structure(like)
    if len(arrays) != len(expected):
        raise SilodpError(f"there are {len(arrays)} arrays, not {len(expected)}")
    for array, (path, leaf), field in zip(arrays, expected, _noise_fields(like), strict=True):
        problem = _problem(array, leaf, field)
        if problem:
            raise SilodpError(f"array {keystr(path) or 'of the model'} {problem}")
    return jax.tree.unflatten(structure, arrays)


def norm_of(arrays: Sequence[np.ndarray], like: Any) -> float:
    """The Euclidean norm of a message's numbers, without those that say how noisy it is."""
    squares = [
        float(np.sum(np.square(array, dtype=np.float64)))
        for array, field in zip(arrays, _noise_fields(like), strict=True)
        if array.dtype.kind == "f" and field is None
    ]
    return float(np.sqrt(sum(squares)))


def largest_noise(arrays: Sequence[np.ndarray], like: Any) -> float:
    """The largest finite number that says how noisy a message is; 0 without any."""
    noise = [a for a, field in zip(arrays, _noise_fields(like), strict=True) if field is not None]
    return max((float(a[np.isfinite(a)].max(initial=0.0)) for a in noise), default=0.0)


def _noise_fields(like: Any) -> list[str | None]:
    """For each leaf the field of `PassNoise` that it is, or None."""
    nodes = jax.tree.leaves(like, is_leaf=lambda node: isinstance(node, PassNoise))
    return [
        field
        for node in nodes
        for field in (PassNoise._fields if isinstance(node, PassNoise) else (None,))
    ]


def _problem(array: Any, leaf: Any, field: str | None) -> str:
    if type(array) is not np.ndarray:  # a subclass may have ideas of its own
        return f"is a {type(array).__name__}"
    if array.dtype != leaf.dtype:
        return f"is of type {array.dtype}, not {leaf.dtype}"
    if array.shape != leaf.shape:
        return f"has shape {array.shape}, not {leaf.shape}"
    if array.dtype.kind != "f":
        return ""
    fine = np.isfinite(array)
    if field in _MAY_BE_INFINITE:
        fine = fine | (array == np.inf)
    if not fine.all():
        return "is not finite"
    if field is None and (np.abs(array) > _LARGEST).any():
        return "is too large for a model"
    if field is not None and (array < 0).any():
        return "is negative"
    return ""
