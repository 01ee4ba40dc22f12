"""Writes named arrays into one `.npz` file, and reads them strictly.

Reading runs nothing (no pickles), takes nothing compressed (a small file could unpack to anything),
and no more than the file's size. NumPy can read these files.
"""

import io
import json
import math
import tokenize
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from silodp.base.errors import SilodpError
from silodp.base.files import Sync, whole_file

# Bytes of the longest header of an array.
_LONGEST_HEADER = 1 << 14
# Errors that zipfile and NumPy raise on a file that is damaged or hostile.
_DAMAGED = (
    *(KeyError, ValueError, EOFError, OSError, RuntimeError, NotImplementedError),
    *(zipfile.BadZipFile, SyntaxError, tokenize.TokenError),
)


def array_name(path: tuple[Any, ...]) -> str:
    """An array's name after its place in the model, as "model/conv1/w"; a lone one is "model"."""
    places = (str(getattr(key, "key", getattr(key, "idx", key))) for key in path)
    return "/".join(["model", *places])


def arrays_content(arrays: Mapping[str, Any]) -> bytes:
    """The content of a file with these arrays; equal arrays give equal bytes."""
    content = io.BytesIO()
    _write(content, arrays)
    return content.getvalue()


class ArrayFile(NamedTuple):
    """The content of a file of arrays: numbers, and a document if it has one.

    Attributes:
      document: values as JSON has them; None where there is none.
      arrays: arrays of numbers, by name; they are read-only.
    """

    document: Any
    arrays: dict[str, np.ndarray]


def save_arrays(
    path: Path, key: str, document: Any, arrays: Mapping[str, Any], *, sync: Sync = "file"
) -> None:
    """Writes a file with these arrays, and the document under the name `key`.

    It replaces an old file whole or not at all; a folder that cannot be written to is an `OSError`.
    """
    with whole_file(path, sync=sync) as file:
        _write(file, {key: np.array(json.dumps(document)), **arrays})


def read_arrays(where: object, content: bytes, expected: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the arrays of these names; refuses any without the expected shape and dtype.

    It reads no more bytes than these take, whatever the file says.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name: _read(archive, name, like) for name, like in expected.items()}
    except _DAMAGED as error:
        reason = _reason(error)
    raise SilodpError(f"{where} does not hold the model ({reason}): get the file again.")


def read_all_arrays(path: Path, remedy: str, key: str | None = None) -> ArrayFile:
    """Reads all arrays of numbers in the file, of any shape; those of text are left out.

    It reads no more bytes than the file has, whatever the file says.

    Args:
      path: the file.
      remedy: what to do about one that cannot be read, for errors.
      key: the name under which the file has a document.
    """
    document = None
    try:
        with path.open("rb") as raw, zipfile.ZipFile(raw) as archive:
            left, arrays = path.stat().st_size, {}
            for info in archive.infolist():
                name = info.filename.removesuffix(".npy")
                member = _parsed(_content(archive, name, left), name)
                left -= len(member.content)  # members of a hostile file may overlap
                if member.dtype.kind != "U":
                    arrays[name] = _array(member, name)
                elif name == key:
                    document = json.loads(_text(member, name))
            if key is not None and document is None:
                raise KeyError(f"it has no {key}")
            return ArrayFile(document, arrays)
    except (*_DAMAGED, RecursionError) as error:
        reason = _reason(error)
    raise SilodpError(f"{path} cannot be read ({reason}): {remedy}.")


class _Member(NamedTuple):
    """An array in the file: its bytes, the fields of its header, and where its numbers begin."""

    content: bytes
    shape: tuple[int, ...]
    by_columns: bool
    dtype: np.dtype
    start: int


def _reason(error: BaseException) -> str:
    reason = getattr(error, "strerror", None) or next(iter(error.args), error)
    return str(reason).strip("'\"").rstrip(".")


def _read(archive: zipfile.ZipFile, name: str, like: Any) -> np.ndarray:
    size = np.dtype(like.dtype).itemsize * math.prod(like.shape)
    member = _parsed(_content(archive, name, size + _LONGEST_HEADER), name)
    if (
        member.shape != tuple(like.shape)
        or member.dtype != like.dtype
        or len(member.content) - member.start != size
    ):
        raise ValueError(
            f"{name} is {member.dtype} {list(member.shape)}, not {like.dtype} {list(like.shape)}"
        )
    return _array(member, name)


def _content(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    if archive.getinfo(f"{name}.npy").compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is packed")  # a small file could unpack to anything
    with archive.open(f"{name}.npy") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{name} is longer than expected")
    return content


def _parsed(content: bytes, name: str) -> _Member:
    start = io.BytesIO(content[:_LONGEST_HEADER])
    if np.lib.format.read_magic(start) != (1, 0):
        raise ValueError(f"{name} is of another format")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(start)
    return _Member(content, shape, by_columns, dtype, start.tell())


def _write(file: IO[bytes], arrays: Mapping[str, Any]) -> None:
    with zipfile.ZipFile(file, "w") as archive:  # like np.savez, which does not take every name
        for name, array in arrays.items():
            # ZipInfo has a fixed date, so that equal arrays give equal bytes.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def _text(member: _Member, name: str) -> str:
    if member.shape != () or len(member.content) - member.start != member.dtype.itemsize:
        raise ValueError(f"{name} is not text")
    return str(np.frombuffer(member.content, member.dtype, 1, member.start)[0])


def _array(member: _Member, name: str) -> np.ndarray:
    size = member.dtype.itemsize * math.prod(member.shape)
    if member.dtype.kind not in "fiub" or len(member.content) - member.start != size:
        raise ValueError(f"{name} does not hold numbers {list(member.shape)}")
    array = np.frombuffer(memoryview(member.content)[member.start :], member.dtype)
    return array.reshape(member.shape, order="F" if member.by_columns else "C")
