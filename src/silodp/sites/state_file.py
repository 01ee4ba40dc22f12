"""Where a job stands, on disk: lists of arrays and a few plain values, whole or not at all."""

import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from silodp.base.errors import SilodpError
from silodp.results.result import write_file


def save_state(
    path: Path, about: Mapping[str, Any], lists: Mapping[str, Sequence[np.ndarray]]
) -> None:
    """Replaces the file; it is on the disk when this returns."""
    content = io.BytesIO()
    sizes = {name: len(arrays) for name, arrays in lists.items()}
    arrays = {f"{name}_{i}": a for name, own in lists.items() for i, a in enumerate(own)}
    text = json.dumps({"about": dict(about), "sizes": sizes})
    np.savez(content, allow_pickle=False, state=np.array(text), **arrays)
    write_file(path, content.getvalue())
    # Without this a power cut could bring back the file that was replaced.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load_state(path: Path) -> tuple[dict[str, Any], dict[str, list[np.ndarray]]] | None:
    """What was saved; None if nothing was."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            state = json.loads(str(file["state"]))
            return state["about"], {
                name: [file[f"{name}_{i}"] for i in range(number)]
                for name, number in state["sizes"].items()
            }
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise SilodpError(
            f"{path} is damaged ({type(error).__name__}): put back a sound copy; the job cannot go "
            "on without it."
        ) from None
