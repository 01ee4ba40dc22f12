"""Named arrays as one `.npz` file, and back: what is read is what was expected, or refused.

Nothing that is read is ever run (no pickles), packed (a small file could unpack to anything), or
longer than the file itself. NumPy reads these files, and they are like those that it writes.
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
    _write(content, arrays)
    return content.getvalue()


class Kept(NamedTuple):
    """What a file of arrays holds beside numbers: a document, if it has one.

    Attributes:
      document: plain values, as JSON has them; None where there is none.
      arrays: of numbers, by name; not to be written to.
    """

    document: Any
    arrays: dict[str, np.ndarray]


def save_arrays(
    path: Path, key: str, document: Any, arrays: Mapping[str, Any], *, sync: Sync = "file"
) -> None:
    """Replaces a file by one with these arrays, and the document under a name of its own.

    It is there whole or not at all; a folder that cannot be written to is an `OSError`.
    """
    with whole_file(path, sync=sync) as file:
        _write(file, {key: np.array(json.dumps(document)), **arrays})


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


def read_all_arrays(path: Path, remedy: str, key: str | None = None) -> Kept:
    """All arrays of numbers in the file, of whatever shape; those of words are left out.

    No more is unpacked than the file itself takes, whatever it says.

    Args:
      path: of the file.
      remedy: what to do about one that cannot be read, for errors.
      key: the name under which the file has a document.
    """
    document = None
    try:
        with path.open("rb") as raw, zipfile.ZipFile(raw) as archive:
            left, arrays = path.stat().st_size, {}
            for info in archive.infolist():
                name = info.filename.removesuffix(".npy")
                found = _parsed(_content(archive, name, left), name)
                left -= len(found.content)  # members may say that they are all in one place
                if found.dtype.kind != "U":
                    arrays[name] = _array(found, name)
                elif name == key:
                    document = json.loads(_text(found, name))
            if key is not None and document is None:
                raise KeyError(f"it has no {key}")
            return Kept(document, arrays)
    except (*_DAMAGED, RecursionError) as error:
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


def _write(file: IO[bytes], arrays: Mapping[str, Any]) -> None:
    with zipfile.ZipFile(file, "w") as archive:  # as np.savez does, which takes not every name
        for name, array in arrays.items():
            # Named so, it has a date of its own and not today's.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def _text(found: _Parsed, name: str) -> str:
    if found.shape != () or len(found.content) - found.start != found.dtype.itemsize:
        raise ValueError(f"{name} is no text")
    return str(np.frombuffer(found.content, found.dtype, 1, found.start)[0])


def _array(found: _Parsed, name: str) -> np.ndarray:
    size = found.dtype.itemsize * math.prod(found.shape)
    if found.dtype.kind not in "fiub" or len(found.content) - found.start != size:
        raise ValueError(f"{name} does not hold numbers {list(found.shape)}")
    array = np.frombuffer(memoryview(found.content)[found.start :], found.dtype)
    return array.reshape(found.shape, order="F" if found.by_columns else "C")
