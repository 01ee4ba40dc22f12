"""The state of a job on disk: lists of arrays and a few plain values, whole or not at all."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from silodp.base.arrays import read_all_arrays, save_arrays
from silodp.base.errors import SilodpError

_STATE = "state"  # the name of the document in it
_REMEDY = "put back an intact copy; the job cannot go on without it"


def save_state(
    path: Path, about: Mapping[str, Any], lists: Mapping[str, Sequence[np.ndarray]]
) -> None:
    """Replaces the file; it is on the disk when this returns."""
    sizes = {name: len(arrays) for name, arrays in lists.items()}
    arrays = {f"{name}_{i}": a for name, own in lists.items() for i, a in enumerate(own)}
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without its folder, a power cut could bring back the file that was replaced.
    save_arrays(path, _STATE, {"about": dict(about), "sizes": sizes}, arrays, sync="folder")


def load_state(path: Path) -> tuple[dict[str, Any], dict[str, list[np.ndarray]]] | None:
    """The saved state; None if there is none."""
    try:
        path.stat()
    except FileNotFoundError:
        return None
    except OSError:
        pass  # reading it below says what is wrong
    state, arrays = read_all_arrays(path, _REMEDY, _STATE)
    try:
        return state["about"], {
            name: [arrays[f"{name}_{i}"] for i in range(number)]
            for name, number in state["sizes"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise SilodpError(f"{path} is damaged ({type(error).__name__}): {_REMEDY}.") from None
