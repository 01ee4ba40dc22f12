"""Checks of the folders that are read and written, and of the files of data sets."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from silodp.base.cache import cache_dir
from silodp.doctor.findings import Finding


def check_folders(results: Path) -> Iterator[Finding]:
    """Checks that the folders of results and of the cache can be written to."""
    for name, folder, remedy in (
        ("results", results, "Work in another folder, or give --out with each command."),
        ("cache", cache_dir(), "Set SILODP_CACHE to a folder that can be written to."),
    ):
        problem = _not_writable(folder)
        if problem is None:
            there = "" if folder.exists() else ", made when it is needed"
            yield Finding("folders", name, f"{folder.absolute()}{there}")
        else:
            yield Finding("folders", name, f"{folder.absolute()}: {problem}", "problem", remedy)


def _not_writable(folder: Path) -> str | None:
    """Says why a folder cannot be written to, without making it; None if it can."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        return f"{there} is a file"
    return None if os.access(there, os.W_OK | os.X_OK) else "it cannot be written to"


def check_data(data_dir: Path | None = None) -> Iterator[Finding]:
    """Checks the data folders and each data set: where it is, or how to get it."""
    from silodp.data.files import data_folders, present
    from silodp.data.registry import SOURCES

    part = "data"
    for folder in data_folders(data_dir):
        if folder.is_dir():
            yield Finding(part, "folder", str(folder))
        else:
            yield Finding(part, "folder", f"{folder} is not there yet", "absent")
    for source in SOURCES.values():
        places = {file.name: present(source.name, file, data_dir) for file in source.files}
        missing = [file for file in source.files if places[file.name] is None]
        if source.by_hand and not source.files:
            found = "has to be asked for"
            yield Finding(part, source.name, found, "absent", f"silodp data show {source.name}")
        elif not missing:
            yield Finding(part, source.name, _where(places))
        else:
            verb = "show" if any(file.origin is None for file in missing) else "get"
            found = f"{len(missing)} of {len(places)} files are not here"
            remedy = f"silodp data {verb} {source.name}"
            yield Finding(part, source.name, found, "absent", remedy)


def _where(places: Mapping[str, Path | None]) -> str:
    folders = dict.fromkeys(str(place.parent) for place in places.values() if place)
    return f"in {', '.join(folders)}" if folders else "needs no file"
