"""Folders and files of the user; files are written whole or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal

from silodp.base.errors import SilodpError

Sync = Literal["none", "file", "folder"]
"""What is on the disk when a write returns: maybe nothing; the content; or its name too.

Without "file", a power cut may leave an empty file; without "folder", the one that was replaced.
"""

OWNER_ONLY = 0o600
SHARED = 0o666  # for all that the user's umask allows


@contextlib.contextmanager
def whole_file(path: Path, *, mode: int = OWNER_ONLY, sync: Sync = "file") -> Iterator[IO[bytes]]:
    """Opens a file that replaces `path` when the block ends; if the block fails, it is removed.

    Its folder must exist. A full disk and the like are an `OSError`.
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
    """Writes a file whole or not at all, and makes its folders; refuses where that is denied."""
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
    """Makes an empty file beside `path`, and removes it in the end unless it was renamed."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield part
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def sync_folder(folder: Path) -> None:
    """Waits until the names in a folder are on the disk, where a power cut leaves them."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_writable(folder: Path) -> None:
    """Refuses a folder that cannot be written to; makes nothing yet."""
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise SilodpError(f"{existing} is a file, not a folder: choose another --out.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise not_writable(folder)


def not_writable(folder: Path) -> SilodpError:
    """The error for a folder that cannot be written to."""
    return SilodpError(f"Folder {folder} cannot be written to: choose another --out.")
