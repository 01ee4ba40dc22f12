"""Data files: where they are looked for, and how they are fetched and checked."""

import contextlib
import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from silodp.base.cache import cache_dir
from silodp.base.errors import DataMissingError, SilodpError
from silodp.base.files import SHARED, new_beside
from silodp.data.formats.bounded import read_bounded

TIMEOUT = 30.0  # seconds without an answer
CHUNK = 1 << 18
LARGEST = 1 << 30  # bytes of a content that is unpacked to be checked
LARGEST_DOWNLOAD = 8 << 30
SCHEMES = ("https", "http", "file")

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all where known


@dataclass(frozen=True)
class Archive:
    """A published archive (zip, tar, or tar.gz) that holds files of a data set.

    Attributes:
      url: where it is published.
      checksum: "sha256:..." or "md5:..." of the archive; None where none is known.
    """

    url: str
    checksum: str | None


@dataclass(frozen=True)
class DataFile:
    """A file of a data set, where it is published, and the checksum that it must have.

    Attributes:
      name: what loaders look for; in an archive, the file of that name in any folder.
      origin: the address of the file itself, or the archive that holds it; None where a person must
        ask for access.
      checksum: "sha256:...", "md5:...", or "git:..." (the id that git gives a file's content); None
        where none is known.
      also: other names under which loaders accept it, packed in another way or not at all; the
        checksum does not hold for those.
      forms: names of files that hold the same in a form of their own.
      content: the checksum of what is in it once it is unpacked, whatever packed it; None where the
        file is not packed, or it is not known.
    """

    name: str
    origin: str | Archive | None
    checksum: str | None
    also: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    content: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All names under which it may lie."""
        return self.name, *self.also, *self.forms

    def is_other_form(self, path: Path) -> bool:
        """Whether a file that was found is not this one, however it is packed."""
        return any(path.parts[-len(Path(form).parts) :] == Path(form).parts for form in self.forms)


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


def find_file(dataset: str, names: str | Sequence[str], data_dir: Path | None = None) -> Path:
    """The first place where the file lies, under any of its names (such as packed or not).

    The error names every folder that was looked into.
    """
    names = [names] if isinstance(names, str) else list(names)
    folders = data_folders(data_dir)
    for folder in folders:
        for name in names:
            for place in candidates(dataset, name, folder):
                if place.is_file():
                    return place
    looked = dict.fromkeys(
        str(place) for folder in folders for place in candidates(dataset, "", folder)
    )
    others = " (also looked for under its other names)" if len(names) > 1 else ""
    raise DataMissingError(
        f"Data set {dataset!r}: {names[0]} was not found in {', '.join(looked)}{others}: fetch it "
        f"with `silodp data get {dataset}`, or put it into one of these."
    )


def present(dataset: str, file: DataFile, data_dir: Path | None = None) -> Path | None:
    """Where the file lies, under any of its names; None if it does not."""
    try:
        return find_file(dataset, file.names, data_dir)
    except SilodpError:
        return None


def present_in(dataset: str, file: DataFile, folder: Path) -> Path | None:
    """Where in this folder alone the file lies, under any of its names; None if it does not."""
    places = (place for name in file.names for place in candidates(dataset, name, folder))
    return next((place for place in places if place.is_file()), None)


def download_path(dataset: str, filename: str, data_dir: Path | None = None) -> Path:
    """Where `silodp data get` puts a file: under the folder given, else the user's cache."""
    folder = Path(data_dir).expanduser() if data_dir is not None else cache_dir() / "data"
    return candidates(dataset, filename, folder)[0]


def has_checksum(path: Path, checksum: str) -> bool:
    """Whether the file's content is the one that "kind:hexadecimal" stands for."""
    kind, _, expected = checksum.partition(":")
    return digest_of(path, kind) == expected


def has_content(path: Path, checksum: str) -> bool:
    """Whether what is in the file, unpacked where it is packed, has the checksum."""
    kind, _, expected = checksum.partition(":")
    content = read_bounded(path, LARGEST, "copy it again")
    return hashlib.new(kind, content, usedforsecurity=False).hexdigest() == expected


def check_not_swapped(path: Path, name: str, md5: str, published: Mapping[str, str]) -> None:
    """Refuses a file whose content is published under another name than `name`."""
    for other, content in published.items():
        if md5 == content and other != name:
            raise SilodpError(f"{path} holds what belongs into {other}: put each where it belongs.")


def digest_of(path: Path, kind: str) -> str:
    """Checksum of a file, in hexadecimal: of kind sha256, md5, or git."""
    try:
        digest = new_digest(kind, path.stat().st_size)
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise SilodpError(f"{path} cannot be read ({error}): check its permissions.") from error
    return digest.hexdigest()


def new_digest(kind: str, size: int):
    """A digest to be fed with a content of that many bytes."""
    if kind == "git":  # what git calls a blob
        return hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    return hashlib.new(kind, usedforsecurity=False)


def download(
    file: DataFile, destination: Path, progress: Progress | None = None, timeout: float = TIMEOUT
) -> None:
    """Fetches a file to `destination`, which holds it whole and checked, or not at all."""
    url = file.origin
    assert isinstance(url, str)
    by_hand = f"fetch {url} by hand and put it at {destination}"
    with part_beside(destination) as part:
        fetch(file.name, url, part, by_hand, progress, timeout)
        check_content(f"The download of {file.name}", part, file.checksum, by_hand)
        put_in_place(part, destination)


@contextlib.contextmanager
def part_beside(destination: Path) -> Iterator[Path]:
    """An empty file in the same folder, which is gone in the end unless it was put in place."""
    with contextlib.ExitStack() as stack:
        try:
            destination.parent.mkdir(parents=True, exist_ok=True)
            part = stack.enter_context(new_beside(destination, SHARED))
        except OSError as error:
            raise SilodpError(
                f"{destination.parent} cannot be written to ({error}): choose another folder with "
                "--data-dir."
            ) from error
        yield part


def put_in_place(part: Path, destination: Path) -> None:
    """Gives a file its name, in one step."""
    try:
        os.replace(part, destination)
    except OSError as error:
        raise SilodpError(
            f"{destination} cannot be written ({error}): move away what stands there."
        ) from error


def check_content(what: str, path: Path, checksum: str | None, by_hand: str) -> None:
    """Refuses a content that has another checksum than the published one, where there is one."""
    if checksum is None or has_checksum(path, checksum):
        return
    kind, _, expected = checksum.partition(":")
    raise SilodpError(
        f"{what} has {kind} {digest_of(path, kind)}, but {expected} is expected: the file was "
        f"changed or damaged; try again, or {by_hand}."
    )


def fetch(
    name: str,
    url: str,
    path: Path,
    by_hand: str,
    progress: Progress | None = None,
    timeout: float = TIMEOUT,
) -> None:
    """Writes what is published at `url` to `path`, of as many bytes as were announced.

    Args:
      name: what errors call it.
      url: a URL of one of the schemes that are known here.
      path: is overwritten.
      by_hand: what a person can do instead, for errors.
      progress: called with the bytes received.
      timeout: seconds without an answer.
    """
    try:
        with path.open("wb") as out:
            received, expected = _stream(url, out.write, progress, timeout)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it holds the connection
        raise SilodpError(
            f"{name} could not be downloaded ({_reason(error)}): try again, or {by_hand}."
        ) from error
    if expected is not None and received != expected:
        raise SilodpError(
            f"The download of {name} ended after {received} of {expected} bytes: try again, or "
            f"{by_hand}."
        )


class _CarefulRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect within its scheme and to https; urllib itself would also go to ftp."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        scheme = urlsplit(newurl).scheme
        if scheme not in (req.type, "https"):
            reason = f"it is redirected from {req.type} to {scheme}, which is not followed"
            raise urllib.error.HTTPError(newurl, code, reason, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _stream(
    url: str, write: Callable[[bytes], object], progress: Progress | None, timeout: float
) -> tuple[int, int | None]:
    """Bytes received, and bytes announced (if any)."""
    if urlsplit(url).scheme not in SCHEMES:
        raise ValueError(f"the address {url} is not one of {', '.join(SCHEMES)}")
    received = 0
    opener = urllib.request.build_opener(_CarefulRedirects)
    with opener.open(url, timeout=timeout) as response:
        announced = response.headers.get("Content-Length")
        expected = int(announced) if announced is not None else None
        while chunk := response.read(CHUNK):
            write(chunk)
            received += len(chunk)
            if received > LARGEST_DOWNLOAD:
                raise ValueError(f"it does not end after {LARGEST_DOWNLOAD} bytes")
            if progress is not None:
                progress(received, expected)
    return received, expected


def _reason(error: Exception) -> str:
    """The cause in a few words, without urllib's wrapping."""
    reason = getattr(error, "reason", None) or error
    return str(reason) or type(error).__name__
