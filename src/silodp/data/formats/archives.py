"""Files of a data set that are published in an archive: fetched once, unpacked with suspicion.

Only the members that are wanted are unpacked, each to a name of our own beside its destination;
what an archive says of paths, owners, links and permissions is never followed. Nothing is put in
place before everything that is wanted was found right.
"""

import contextlib
import gzip
import tarfile
import zipfile
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

from silodp.base.errors import SilodpError
from silodp.data.files import (
    CHUNK,
    TIMEOUT,
    Archive,
    DataFile,
    Progress,
    check_content,
    fetch,
    part_beside,
    put_in_place,
)
from silodp.data.formats.bounded import GZIP

LARGEST_MEMBER = 4 << 30  # bytes, unpacked
LARGEST_TAR = 64 << 30  # bytes, unpacked: all of it must be read to find its members
LARGEST_READ = 1 << 24  # bytes at once: a header that asks for more is no honest one


class _Member(NamedTuple):
    """A file in an archive.

    Attributes:
      path: its path in the archive.
      size: the size that the archive announces, in bytes.
      refused: why it may not be unpacked; empty if it may.
      open: its content.
    """

    path: str
    size: int
    refused: str
    open: Callable[[], IO[bytes]]

    @property
    def name(self) -> str:
        """The name without folders."""
        return self.path.rpartition("/")[2]


def download_members(
    archive: Archive,
    targets: Mapping[Path, DataFile],
    downloading: Progress | None = None,
    unpacking: Progress | None = None,
    timeout: float = TIMEOUT,
) -> None:
    """Fetches an archive once, and puts the wanted files of it in place: all of them, or none.

    Args:
      archive: is deleted afterwards.
      targets: the files to unpack, by where each shall lie.
      downloading: called with the bytes received.
      unpacking: called with the bytes of the archive that were gone through.
      timeout: seconds without an answer.
    """
    folder = next(iter(targets)).parent
    name = urlsplit(archive.url).path.rpartition("/")[2] or archive.url
    files = ", ".join(file.name for file in targets.values())
    by_hand = f"fetch {archive.url} by hand and put {files} of it into {folder}"
    with part_beside(folder / "archive") as packed:
        fetch(name, archive.url, packed, by_hand, downloading, timeout)
        check_content(f"The download of {name}", packed, archive.checksum, by_hand)
        try:
            _unpack(packed, targets, by_hand, unpacking)
        except _Unsound as error:
            raise SilodpError(
                f"The archive {name} is refused because {error}: try again, or {by_hand}."
            ) from error


def read_member(path: Path, name: str, limit: int, remedy: str) -> bytes:
    """The content of the file of that name in an archive at hand; more than `limit` is refused."""
    try:
        with _reading(path) as (_, members):
            member = next((one for one in members if one.name == name), None)
            if member is None:
                raise _Unsound(f"it does not hold {name}")
            if member.refused or member.size > limit:
                raise _Unsound(f"{name} in it is {member.refused or f'of more than {limit} bytes'}")
            with member.open() as content:
                return content.read(limit)
    except _Unsound as error:
        raise SilodpError(f"{path} cannot be read: {error}: {remedy}.") from error


class _Unsound(Exception):
    """What is wrong with an archive, in a few words."""


def _unpack(
    packed: Path, targets: Mapping[Path, DataFile], by_hand: str, progress: Progress | None
) -> None:
    destinations = {file.name: destination for destination, file in targets.items()}
    size = packed.stat().st_size
    parts: dict[Path, Path] = {}
    with contextlib.ExitStack() as stack:
        with _reading(packed) as (raw, members):
            for member in members:
                destination = destinations.get(member.name)
                if destination is None:
                    continue
                if destination in parts:
                    raise _Unsound(f"it holds two files named {member.name}")
                if member.refused:
                    raise _Unsound(f"{member.path!r} in it is {member.refused}")
                part = parts[destination] = stack.enter_context(part_beside(destination))
                for _ in _copying(member, part):
                    if progress is not None:
                        progress(raw.tell(), size)
        missing = [file.name for place, file in targets.items() if place not in parts]
        if missing:
            raise _Unsound(f"it does not hold {', '.join(missing)}")
        for destination, file in targets.items():
            check_content(f"{file.name} in the archive", parts[destination], file.checksum, by_hand)
        for destination, part in parts.items():
            put_in_place(part, destination)


@contextlib.contextmanager
def _reading(packed: Path) -> Iterator[tuple[IO[bytes], Iterator[_Member]]]:
    """The archive as a file, and its members. Any error in reading it becomes `_Unsound`."""
    try:
        with packed.open("rb") as raw, contextlib.closing(_members(raw)) as members:
            yield raw, members
    except (SilodpError, _Unsound):
        raise
    except Exception as error:  # what the readers of a damaged archive raise knows no bounds
        reason = str(error) or type(error).__name__
        raise _Unsound(f"it is damaged, or of no kind known here ({reason})") from error


def _members(raw: IO[bytes]) -> Generator[_Member, None, None]:
    """Every file in the archive, in order; each is to be read before the next is asked for."""
    beginning = raw.read(8)
    raw.seek(0)
    if beginning.startswith(b"PK"):
        found = _zip_members(raw)
    else:
        found = _tar_members(raw, gzipped=beginning.startswith(GZIP))
    for member in found:
        path = member.path.replace("\\", "/")
        parts = path.split("/")
        if ".." in parts or path.startswith("/") or parts[0].endswith(":"):
            raise _Unsound(f"{member.path!r} in it points out of the folder")
        if not member.refused and member.size > LARGEST_MEMBER:
            too_large = f"of {member.size} bytes, more than {LARGEST_MEMBER}"
            member = member._replace(refused=too_large)
        yield member._replace(path=path)


def _zip_members(raw: IO[bytes]) -> Iterator[_Member]:
    with zipfile.ZipFile(raw) as archive:
        for info in archive.infolist():
            if info.is_dir():
                continue
            refused = ""
            kind = info.external_attr >> 28  # of a file made on Unix: 8 is a plain one
            if info.flag_bits & 1:
                refused = "encrypted"
            elif kind not in (0, 8):
                refused = "a link or a device, not a file"
            elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                # The others are unpacked into memory by as much as the archive pleases.
                refused = "packed in an unusual way"
            yield _Member(
                info.filename, info.file_size, refused, lambda info=info: archive.open(info)
            )


def _tar_members(raw: IO[bytes], gzipped: bool) -> Iterator[_Member]:
    with contextlib.ExitStack() as stack:
        stream: Any = stack.enter_context(gzip.open(raw)) if gzipped else raw
        # Mode "r:" reads the stream as it is: tarfile's own unpacking could not be bounded.
        bounded: Any = _Bounded(stream)
        archive = stack.enter_context(tarfile.open(fileobj=bounded, mode="r:"))
        while (info := archive.next()) is not None:
            # The list that tarfile keeps of all of them would only fill memory.
            archive.members = []  # type: ignore[attr-defined]
            if info.isdir():
                continue
            refused = "" if info.isreg() else "a link or a device, not a file"
            yield _Member(
                info.name,
                info.size,
                refused,
                lambda info=info: archive.extractfile(info),  # type: ignore[return-value]
            )
        bounded.read_on()


class _Bounded:
    """A stream of which no read is large, and which ends by an error if it is too long."""

    def __init__(self, stream: IO[bytes]):
        self._stream = stream

    def read(self, size: int) -> bytes:
        if not 0 <= size <= LARGEST_READ:
            raise _Unsound(f"a header in it asks for {size} bytes")
        return self._stream.read(size)

    def seek(self, position: int) -> int:
        if position > LARGEST_TAR:
            raise _Unsound(f"it claims to hold more than {LARGEST_TAR} bytes")
        return self._stream.seek(position)

    def tell(self) -> int:
        return self._stream.tell()

    def read_on(self) -> None:
        """Reads to the end, where the packing keeps its own checksum of all that went before."""
        while self._stream.read(CHUNK):
            self.seek(self.tell())


def _copying(member: _Member, part: Path) -> Iterator[None]:
    """Copies as many bytes as the archive announces, no fewer and no more; stops by the way."""
    left = member.size
    with member.open() as content, part.open("wb") as out:
        while left and (chunk := content.read(min(CHUNK, left))):
            try:
                out.write(chunk)
                out.flush()
            except OSError as error:
                raise SilodpError(
                    f"{part.parent} cannot be written to ({error}): choose another folder with "
                    "--data-dir."
                ) from error
            left -= len(chunk)
            yield
    if left:
        raise _Unsound(f"{member.path!r} in it is cut short")
