"""Named arrays as one `.npz` file, and back: what is read is what was expected, or refused."""

import io
import math
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from silodp.errors import SilodpError

# Of what stands before an array's numbers.
_LONGEST_HEADER = 1 << 14


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
    except (KeyError, ValueError, EOFError, OSError, RuntimeError, NotImplementedError) as error:
        reason = str(error).strip("'\"").rstrip(".")
    except zipfile.BadZipFile as error:
        reason = str(error)
    raise SilodpError(f"{where} does not hold the model ({reason}): get the file anew.")


def _read(archive: zipfile.ZipFile, name: str, like: Any) -> np.ndarray:
    size = np.dtype(like.dtype).itemsize * math.prod(like.shape)
    if archive.getinfo(f"{name}.npy").compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is packed")  # a small file could unpack to anything
    with archive.open(f"{name}.npy") as file:
        content = file.read(size + _LONGEST_HEADER + 1)
    if len(content) > size + _LONGEST_HEADER:
        raise ValueError(f"{name} is longer than expected")
    start = io.BytesIO(content)
    if np.lib.format.read_magic(start) != (1, 0):
        raise ValueError(f"{name} is of another format")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(start)
    if shape != tuple(like.shape) or dtype != like.dtype or len(content) - start.tell() != size:
        raise ValueError(f"{name} is {dtype} {list(shape)}, not {like.dtype} {list(like.shape)}")
    array = np.frombuffer(content, dtype, offset=start.tell())
    return array.reshape(shape, order="F" if by_columns else "C")
