"""Where an interrupted run stood, so that it can go on: one file, written whole or not at all."""

import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from silodp.errors import SilodpError

CHECKPOINT_FILE = "checkpoint.npz"


class Checkpoint(NamedTuple):
    """A run that is not finished.

    Attributes:
      fingerprint: what was asked for; a run goes on only with the same.
      chunk: which part of the runs was being trained.
      round: rounds done in that part.
      history: the metric at each evaluation, for each part so far: [evaluations, seeds, settings,
        silos].
      state: of that part, as a flat list of arrays.
    """

    fingerprint: str
    chunk: int
    round: int
    history: list[np.ndarray]
    state: list[np.ndarray]


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Replaces the folder's checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "fingerprint": checkpoint.fingerprint,
        "chunk": checkpoint.chunk,
        "round": checkpoint.round,
        "parts": len(checkpoint.history),
        "leaves": len(checkpoint.state),
    }
    arrays = {f"history{i}": a for i, a in enumerate(checkpoint.history)}
    arrays |= {f"state{i}": np.asarray(a) for i, a in enumerate(checkpoint.state)}
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{CHECKPOINT_FILE}.")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, about=np.array(json.dumps(about)), **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder / CHECKPOINT_FILE)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(folder: Path) -> Checkpoint | None:
    """The folder's checkpoint, if there is one."""
    path = folder / CHECKPOINT_FILE
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            return Checkpoint(
                about["fingerprint"],
                about["chunk"],
                about["round"],
                [file[f"history{i}"] for i in range(about["parts"])],
                [file[f"state{i}"] for i in range(about["leaves"])],
            )
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise SilodpError(
            f"{path} is damaged ({type(error).__name__}): start anew with --overwrite."
        ) from None


def remove(folder: Path) -> None:
    """Forgets the checkpoint: the run is finished, or begins anew."""
    (folder / CHECKPOINT_FILE).unlink(missing_ok=True)


def flatten(state: Any) -> list[np.ndarray]:
    """A state's arrays."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


def unflatten(leaves: list[np.ndarray], like: Any) -> Any:
    """The state again; `like` has its structure."""
    expected, treedef = jax.tree.flatten(like)
    fits = len(expected) == len(leaves) and all(
        a.shape == b.shape and a.dtype == b.dtype for a, b in zip(expected, leaves, strict=False)
    )
    if not fits:
        raise SilodpError(
            "The checkpoint's state does not fit this run: start anew with --overwrite."
        )
    return jax.tree.unflatten(treedef, leaves)
