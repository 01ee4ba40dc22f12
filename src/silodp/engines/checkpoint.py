"""Where an interrupted run stood, so that it can go on: one file, written whole or not at all."""

import contextlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from silodp.base.arrays import read_all_arrays, save_arrays
from silodp.base.errors import SilodpError
from silodp.base.files import check_writable, not_writable

CHECKPOINT_FILE = "checkpoint.npz"
# Those that were written before they had a number are 1.
FORMAT = 1
_ABOUT = "about"  # the name of the document in it


class Checkpoint(NamedTuple):
    """A run that is not finished.

    Attributes:
      fingerprint: digest of job, seeds, settings and records; a run goes on only with the same.
      chunk: which part of the runs was being trained.
      round: rounds done in that part.
      history: the metric at each evaluation, for each part so far: [evaluations, seeds, settings,
        silos].
      state: state of that part, as a flat list of arrays.
      models: models of the parts before, likewise, if they are kept.
      learned: what methods found out in the parts before, likewise.
      charge: the run's name in the silos' ledgers; empty without.
      secret: what its noise comes from, so that rounds which are done again are the same ones;
        empty if that is a seed.
    """

    fingerprint: str
    chunk: int
    round: int
    history: list[np.ndarray]
    state: list[np.ndarray]
    models: list[list[np.ndarray]]
    learned: list[list[np.ndarray]]
    charge: str
    secret: bytes


class CheckpointFolder:
    """The folder that holds the checkpoint of a run."""

    def __init__(self, folder: Path, resume: bool = False, overwrite: bool = False):
        """Checks at once, before any work is done, that the folder can be used."""
        self.folder, self.overwrite, self._fingerprint = folder, overwrite, ""
        self.charge = ""  # the run's name in the silos' ledgers, if it has one
        self.secret = b""  # what its noise comes from, if not a seed
        self._kept = False  # whether a checkpoint of this run is in the folder
        self.models: list[list[np.ndarray]] = []  # of finished parts, if they are kept
        self.learned: list[list[np.ndarray]] = []  # likewise, always
        check_writable(folder)
        self._found = None if overwrite else load(folder)
        self.replaced = ""  # the name, in the silos' ledgers, of the run that is overwritten
        if overwrite:
            with contextlib.suppress(SilodpError):  # a damaged one has no name to replace
                before = load(folder)
                self.replaced = before.charge if before is not None else ""
        if self._found is not None and not resume:
            raise SilodpError(
                f"{folder} holds an interrupted run (round {self._found.round}): go on with "
                "--resume, or start anew with --overwrite."
            )

    @property
    def can_resume(self) -> bool:
        """Whether there is a checkpoint of this run to go on from."""
        return self._kept

    @property
    def interrupted(self) -> bool:
        """Whether the folder holds an interrupted run, to go on with."""
        return self._found is not None

    def begin(self, fingerprint: str) -> Checkpoint | None:
        """Where to go on from, if anywhere."""
        self._fingerprint = fingerprint
        if self._found is not None and self._found.fingerprint != fingerprint:
            raise SilodpError(
                f"{self.folder} holds an interrupted run with other options, budgets or records: "
                "resume it with the same, or start anew with --overwrite."
            )
        self._kept = self._found is not None
        return self._found

    def open(self) -> None:
        """The run starts: the folder is made, and a checkpoint that is to be overwritten goes."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            raise not_writable(self.folder) from None
        if self.overwrite:
            self.clear()

    def save(
        self, chunk: int, done: int, history: list[np.ndarray], state: list[np.ndarray]
    ) -> None:
        """Replaces the checkpoint, whole or not at all."""
        about = {
            "format": FORMAT,
            "fingerprint": self._fingerprint,
            "chunk": chunk,
            "round": done,
            "parts": len(history),
            "leaves": len(state),
            "models": [len(leaves) for leaves in self.models],
            "learned": [len(leaves) for leaves in self.learned],
            "charge": self.charge,
            "secret": self.secret.hex(),
        }
        arrays = {f"history{i}": a for i, a in enumerate(history)}
        arrays |= {f"state{i}": np.asarray(a) for i, a in enumerate(state)}
        for name, kept in (("model", self.models), ("learned", self.learned)):
            arrays |= {f"{name}{i}_{j}": a for i, of in enumerate(kept) for j, a in enumerate(of)}
        save_arrays(self.folder / CHECKPOINT_FILE, _ABOUT, about, arrays)
        self._kept = True

    def clear(self) -> None:
        """Forgets the checkpoint, and what a killed process left half-written."""
        (self.folder / CHECKPOINT_FILE).unlink(missing_ok=True)
        for leftover in self.folder.glob(f".{CHECKPOINT_FILE}.*"):
            leftover.unlink(missing_ok=True)


def load(folder: Path) -> Checkpoint | None:
    """The folder's checkpoint, if there is one."""
    path = folder / CHECKPOINT_FILE
    if not path.exists():
        return None
    about, arrays = read_all_arrays(path, "start anew with --overwrite", _ABOUT)

    def of_parts(name: str, leaves: list[int]) -> list[list[np.ndarray]]:
        return [[arrays[f"{name}{i}_{j}"] for j in range(n)] for i, n in enumerate(leaves)]

    try:
        number = about.get("format", 1)
        if number == FORMAT:
            return Checkpoint(
                about["fingerprint"],
                about["chunk"],
                about["round"],
                [arrays[f"history{i}"] for i in range(about["parts"])],
                [arrays[f"state{i}"] for i in range(about["leaves"])],
                of_parts("model", about["models"]),
                of_parts("learned", about["learned"]),
                about["charge"],
                bytes.fromhex(about["secret"]),
            )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SilodpError(
            f"{path} is damaged ({type(error).__name__}): start anew with --overwrite."
        ) from None
    raise SilodpError(
        f"{path} has format {number!r}, but this silodp knows only {FORMAT}: go on with the "
        "version that wrote it, or start anew with --overwrite."
    )


def flatten(state: Any) -> list[np.ndarray]:
    """A state's arrays."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


def unflatten(
    leaves: list[np.ndarray], like: Any, remedy: str = "start anew with --overwrite"
) -> Any:
    """The state again; `like` has its structure."""
    expected, treedef = jax.tree.flatten(like)
    fits = len(expected) == len(leaves) and all(
        a.shape == b.shape and a.dtype == b.dtype for a, b in zip(expected, leaves, strict=False)
    )
    if not fits:
        raise SilodpError(f"The state that was kept does not fit this run: {remedy}.")
    return jax.tree.unflatten(treedef, leaves)
