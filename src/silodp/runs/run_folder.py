"""The folder of a run: its checkpoint while it goes on, then its result."""

from pathlib import Path

from silodp.base.errors import SilodpError
from silodp.base.files import check_writable
from silodp.engines.checkpoint import CheckpointFolder
from silodp.results.model_export.files import remove_handovers
from silodp.results.result import MODELS_FILE, RESULT_FILE


def run_folder(out: Path | str | None, resume: bool, overwrite: bool) -> "RunFolder | None":
    """The folder of a run; None without `out`, where `resume` and `overwrite` are refused."""
    if out is not None:
        return RunFolder(Path(out), resume, overwrite)
    for flag, given in (("--resume", resume), ("--overwrite", overwrite)):
        if given:
            raise SilodpError(f"{flag} is about what a folder holds: give --out, or leave it out.")
    return None


class RunFolder(CheckpointFolder):
    """Refuses to destroy a result, and keeps the checkpoint until there is one."""

    def __init__(self, folder: Path, resume: bool = False, overwrite: bool = False):
        """Checks at once, before any work is done, that the folder can be used."""
        check_writable(folder)
        if not overwrite and (folder / RESULT_FILE).exists():
            raise SilodpError(
                f"{folder} holds a finished run: choose another --out, or replace it with "
                "--overwrite."
            )
        super().__init__(folder, resume, overwrite)

    def open(self) -> None:
        """Makes the folder, and removes what is to be overwritten."""
        super().open()
        if self.overwrite:
            for name in (RESULT_FILE, MODELS_FILE):
                (self.folder / name).unlink(missing_ok=True)
            remove_handovers(self.folder)
