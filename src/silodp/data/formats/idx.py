"""Arrays of bytes in the idx format of MNIST: a magic number, the dimensions, the bytes."""

import math
import struct
from pathlib import Path

import numpy as np

from silodp.base.errors import SilodpError
from silodp.data.formats.bounded import read_bounded

UNSIGNED_BYTE = 0x08
# MNIST's largest file has 47 million bytes.
LARGEST = 1 << 29


def read_idx(path: Path, dimensions: int, remedy: str) -> np.ndarray:
    """The array of bytes in the file, packed or not, which must have so many dimensions."""
    content = read_bounded(path, LARGEST, remedy)
    header = 4 + 4 * dimensions
    if len(content) < header or content[:3] != bytes([0, 0, UNSIGNED_BYTE]):
        raise SilodpError(f"{path} does not start as an idx file of bytes: {remedy}.")
    if content[3] != dimensions:
        raise SilodpError(
            f"{path} has {content[3]} dimensions, but {dimensions} are expected (images have 3, "
            f"labels 1; were two files swapped?): {remedy}."
        )
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    if len(content) - header != math.prod(shape):
        raise SilodpError(
            f"{path} says that it holds {' x '.join(map(str, shape))} bytes, but there are "
            f"{len(content) - header}: {remedy}."
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
