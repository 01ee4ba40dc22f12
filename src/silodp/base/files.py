"""Folders and files of the user."""

import os
from pathlib import Path

from silodp.base.errors import SilodpError


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
