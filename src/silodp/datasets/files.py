"""Data files: where they are looked for, and how they are fetched and checked."""

import contextlib
import hashlib
import http.client
import os
import secrets
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from silodp.cache import cache_dir
from silodp.errors import SilodpError

TIMEOUT = 30.0  # seconds without an answer
CHUNK = 1 << 16

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all where known


@dataclass(frozen=True)
class DataFile:
    """A file of a data set, where it is published, and the checksum that it must have."""

    name: str
    url: str
    sha256: str


def data_folders(data_dir: Path | None = None) -> tuple[Path, ...]:
    """Folders that are looked into, in order: the one given, `$SILODP_DATA`, the user's cache."""
    folders = []
    if data_dir is not None:
        folders.append(Path(data_dir).expanduser())
    if from_environment := os.environ.get("SILODP_DATA"):
        folders.append(Path(from_environment).expanduser())
    folders.append(cache_dir() / "data")
    return tuple(folders)


def candidates(dataset: str, filename: str, folder: Path) -> tuple[Path, Path]:
    """Where in `folder` a file of a data set may lie: in the data set's own folder, or plainly."""
    return folder / dataset / filename, folder / filename


def find_file(dataset: str, filename: str, data_dir: Path | None = None) -> Path:
    """The first place where the file lies; the error names every place that was looked at."""
    places = [
        place
        for folder in data_folders(data_dir)
        for place in candidates(dataset, filename, folder)
    ]
    for place in places:
        if place.is_file():
            return place
    raise SilodpError(
        f"Data set {dataset!r}: {filename} was not found at {', '.join(map(str, places))}: fetch "
        f"it with `silodp data get {dataset}`, or put it at one of these."
    )


def download_path(dataset: str, filename: str, data_dir: Path | None = None) -> Path:
    """Where `silodp data get` puts a file: under the folder given, else the user's cache."""
    folder = Path(data_dir).expanduser() if data_dir is not None else cache_dir() / "data"
    return candidates(dataset, filename, folder)[0]


def sha256_of(path: Path) -> str:
    """Checksum of a file, in hexadecimal."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SilodpError(f"{path} cannot be read ({error}): check its permissions.") from error


def download(
    file: DataFile, destination: Path, progress: Progress | None = None, timeout: float = TIMEOUT
) -> None:
    """Fetches a file to `destination`, which holds it whole and checked, or not at all.

    The bytes go to a temporary file in the same folder, whose name takes the destination's place
    only after length and checksum were found right.
    """
    by_hand = f"fetch {file.url} by hand and put it at {destination}"
    # Not tempfile: that would leave the file readable by its owner alone.
    part = destination.with_name(f".{destination.name}.{secrets.token_hex(4)}.part")
    try:
        try:
            destination.parent.mkdir(parents=True, exist_ok=True)
            out = part.open("xb")
        except OSError as error:
            raise SilodpError(
                f"{destination.parent} cannot be written to ({error}): choose another folder with "
                "--data-dir."
            ) from error
        try:
            with out:
                received, expected, digest = _stream(file.url, out.write, progress, timeout)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # it holds the connection
            raise SilodpError(
                f"{file.name} could not be downloaded ({_reason(error)}): try again, or {by_hand}."
            ) from error
        if expected is not None and received != expected:
            raise SilodpError(
                f"The download of {file.name} ended after {received} of {expected} bytes: try "
                f"again, or {by_hand}."
            )
        if digest != file.sha256:
            raise SilodpError(
                f"The download of {file.name} has sha256 {digest}, but {file.sha256} is expected: "
                f"the file was changed or damaged; try again, or {by_hand}."
            )
        try:
            os.replace(part, destination)
        except OSError as error:
            raise SilodpError(
                f"{destination} cannot be written ({error}): move away what stands there."
            ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _stream(
    url: str, write: Callable[[bytes], object], progress: Progress | None, timeout: float
) -> tuple[int, int | None, str]:
    """Bytes received, bytes announced (if any), and their checksum."""
    digest = hashlib.sha256()
    received = 0
    with urllib.request.urlopen(url, timeout=timeout) as response:
        announced = response.headers.get("Content-Length")
        expected = int(announced) if announced is not None else None
        while chunk := response.read(CHUNK):
            write(chunk)
            digest.update(chunk)
            received += len(chunk)
            if progress is not None:
                progress(received, expected)
    return received, expected, digest.hexdigest()


def _reason(error: Exception) -> str:
    """The cause in a few words, without urllib's wrapping."""
    reason = getattr(error, "reason", None) or error
    return str(reason) or type(error).__name__
