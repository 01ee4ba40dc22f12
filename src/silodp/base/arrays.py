"""Named arrays as one `.npz` file, and back: what is read is what was expected, or refused."""

import io
import math
import tokenize
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from silodp.base.errors import SilodpError

# Of what stands before an array's numbers.
_LONGEST_HEADER = 1 << 14
# What zipfile, and NumPy on an array's header, make of a file that somebody else made.
_DAMAGED = (
    *(KeyError, ValueError, EOFError, OSError, RuntimeError, NotImplementedError),
    *(zipfile.BadZipFile, SyntaxError, tokenize.TokenError),
)


def array_name(path: tuple[Any, ...]) -> str:
    """After an array's place in the model, such as "model/conv1/w"; a lone one is "model"."""
    places = (str(getattr(key, "key", getattr(key, "idx", key))) for key in path)
    return "/".join(["model", *places])


def arrays_content(arrays: Mapping[str, Any]) -> bytes:
    """The content of the file; the same arrays give the same bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:  # as np.savez does, which takes not every name
        for name, array in arrays.items():
            # Named so, it has a date of its own and not today's.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
    return content.getvalue()


def read_arrays(where: object, content: bytes, expected: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of these names, each of the shape and dtype of what is expected.

    No more is unpacked than these take, whatever the file says.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name: _read(archive, name, like) for name, like in expected.items()}
    except _DAMAGED as error:
        reason = _reason(error)
    raise SilodpError(f"{where} does not hold the model ({reason}): get the file anew.")


def read_all_arrays(path: Path, remedy: str) -> dict[str, np.ndarray]:
    """All arrays of numbers in the file, of whatever shape; those of words are left out.

    No more is unpacked than the file itself takes, whatever it says.
    """
    try:
        with path.open("rb") as raw, zipfile.ZipFile(raw) as archive:
            left, arrays = path.stat().st_size, {}
            for info in archive.infolist():
                name = info.filename.removesuffix(".npy")
                found = _parsed(_content(archive, name, left), name)
                left -= len(found.content)  # members may say that they are all in one place
                if found.dtype.kind != "U":
                    arrays[name] = _array(found, name)
            return arrays
    except _DAMAGED as error:
        reason = _reason(error)
    raise SilodpError(f"{path} cannot be read ({reason}): {remedy}.")


class _Parsed(NamedTuple):
    """The content of a member, what its header says, and where its numbers begin."""

    content: bytes
    shape: tuple[int, ...]
    by_columns: bool
    dtype: np.dtype
    start: int


def _reason(error: BaseException) -> str:
    said = getattr(error, "strerror", None) or next(iter(error.args), error)
    return str(said).strip("'\"").rstrip(".")


def _read(archive: zipfile.ZipFile, name: str, like: Any) -> np.ndarray:
    size = np.dtype(like.dtype).itemsize * math.prod(like.shape)
    found = _parsed(_content(archive, name, size + _LONGEST_HEADER), name)
    if (
        found.shape != tuple(like.shape)
        or found.dtype != like.dtype
        or len(found.content) - found.start != size
    ):
        raise ValueError(
            f"{name} is {found.dtype} {list(found.shape)}, not {like.dtype} {list(like.shape)}"
        )
    return _array(found, name)


def _content(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    if archive.getinfo(f"{name}.npy").compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is packed")  # a small file could unpack to anything
    with archive.open(f"{name}.npy") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{name} is longer than expected")
    return content


def _parsed(content: bytes, name: str) -> _Parsed:
    start = io.BytesIO(content[:_LONGEST_HEADER])
    if np.lib.format.read_magic(start) != (1, 0):
        raise ValueError(f"{name} is of another format")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(start)
    return _Parsed(content, shape, by_columns, dtype, start.tell())


def _array(found: _Parsed, name: str) -> np.ndarray:
    size = found.dtype.itemsize * math.prod(found.shape)
    if found.dtype.kind not in "fiub" or len(found.content) - found.start != size:
        raise ValueError(f"{name} does not hold numbers {list(found.shape)}")
    array = np.frombuffer(memoryview(found.content)[found.start :], found.dtype)
    return array.reshape(found.shape, order="F" if found.by_columns else "C")
