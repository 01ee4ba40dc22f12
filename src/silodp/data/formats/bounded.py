"""Whole files in memory up to a limit, unpacked where gzip or xz packed them (their content says).

A file may be damaged, or made to do harm: what is read from it is bounded before it is there.
"""

import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from silodp.base.errors import SilodpError

GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
# An xz file says how much memory unpacking takes; the highest preset of the format takes 65 MiB.
XZ_MEMORY = 256 << 20
CHUNK = 1 << 18


def read_bounded(path: Path, limit: int, remedy: str) -> bytes:
    """The content, unpacked where it is packed; more than `limit` bytes are refused.

    `remedy` ends the error that is raised whatever is wrong.
    """
    try:
        with path.open("rb") as file:
            start = file.read(len(XZ))
            file.seek(0)
            if start.startswith(GZIP):
                with gzip.GzipFile(fileobj=file) as packed:
                    content = _joined(lambda _: packed.read(CHUNK), limit)
            elif start == XZ:
                content = _joined(_unxz(file), limit)
            else:
                content = _joined(lambda _: file.read(CHUNK), limit)
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        reason = str(error).rstrip(".")
        raise SilodpError(f"{path} cannot be unpacked ({reason}): {remedy}.") from error
    except OSError as error:
        raise SilodpError(f"{path} cannot be read ({error}): check its permissions.") from error
    if len(content) > limit:
        raise SilodpError(f"{path} holds more than {limit} bytes: {remedy}.")
    return content


def _joined(read: Callable[[int], bytes], limit: int) -> bytes:
    """Parts until there are none, or they exceed the limit: no more room is taken than they need.

    `read` takes how much is wanted at most.
    """
    parts, size = [], 0
    while size <= limit and (part := read(limit + 1 - size)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _unxz(file: BinaryIO) -> Callable[[int], bytes]:
    unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=XZ_MEMORY)

    def read(most: int) -> bytes:
        part = b""
        while not part and not unpacker.eof:
            packed = file.read(CHUNK) if unpacker.needs_input else b""
            if not packed and unpacker.needs_input:
                raise EOFError("it ends before its end mark")
            part = unpacker.decompress(packed, min(most, CHUNK))
        return part

    return read
