"""Folders and files of the user; what is written is there whole or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal

from silodp.base.errors import SilodpError

Sync = Literal["none", "file", "folder"]
"""What is on the disk when a write returns: perhaps nothing yet; the content; its name, too.

Without "file", a power cut may leave an empty file; without "folder", the one that was replaced.
"""

OWNER_ONLY = 0o600
SHARED = 0o666  # for whomever the user's umask allows


@contextlib.contextmanager
def whole_file(path: Path, *, mode: int = OWNER_ONLY, sync: Sync = "file") -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of `path` once all was written; else it is gone.

    Its folder must be there. A full disk and the like are an `OSError`.
    """
    with new_beside(path, mode) as part:
        with part.open("wb") as file:
            yield file
            file.flush()
            if sync != "none":
                os.fsync(file.fileno())
        os.replace(part, path)
        if sync == "folder":
            sync_folder(path.parent)


def write_file(
    path: Path, content: str | bytes, *, mode: int = OWNER_ONLY, sync: Sync = "file"
) -> Path:
    """Writes a file whole or not at all, and the folders above it; refuses where that is denied."""
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(whole_file(path, mode=mode, sync=sync))
        except OSError as error:
            raise SilodpError(
                f"{path} cannot be written ({error.strerror}): choose another folder."
            ) from None
        file.write(content.encode() if isinstance(content, str) else content)
    return path


@contextlib.contextmanager
def new_beside(path: Path, mode: int = OWNER_ONLY) -> Iterator[Path]:
    """A new, empty file in the folder of `path`; gone in the end unless it was given that name."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield part
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def sync_folder(folder: Path) -> None:
    """Returns when the names in a folder are on the disk, as a power cut would leave them."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_writable(folder: Path) -> None:
    """Refuses a folder that cannot be written to. Makes nothing: there may be other reasons."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise SilodpError(f"{there} is a file, not a folder: choose another --out.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise not_writable(folder)


def not_writable(folder: Path) -> SilodpError:
    """The refusal of such a folder."""
    return SilodpError(f"Folder {folder} cannot be written to: choose another --out.")
