"""Cell arrays of number matrices from MATLAB files (versions 5 to 7), and nothing else.

`scipy.io.loadmat` ends the whole process on some damaged files (a segmentation fault in its
compiled reader, scipy 1.17), which no `except` can catch. The part of the format that the paper's
data sets use is small: this reader looks at no byte outside the file, and runs nothing of it.
"""

import struct
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from silodp.errors import SilodpError

HEADER = 128
MATRIX, COMPRESSED = 14, 15  # kinds of elements
CELL = 1  # class of an array; the classes of numbers are:
NUMBER_CLASSES = {
    6: "f8",
    7: "f4",
    8: "i1",
    9: "u1",
    10: "i2",
    11: "u2",
    12: "i4",
    13: "u4",
    14: "i8",
    15: "u8",
}
# Numbers may be stored in a smaller type than that of their array.
STORED_TYPES = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
COMPLEX_FLAG = 0x0800


class _NotReadableError(Exception):
    """What is wrong, in a few words."""


def read_cells(path: Path, names: Collection[str], remedy: str) -> dict[str, list[np.ndarray]]:
    """The matrices in each named cell array, in order; every name must be there.

    `remedy` ends the one error that is raised whatever is wrong with the file.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SilodpError(f"{path} cannot be read ({error}): check its permissions.") from error
    try:
        found = dict(_variables(content, names))
    except (_NotReadableError, zlib.error) as error:
        raise SilodpError(f"{path} cannot be read as a MATLAB file ({error}): {remedy}.") from error
    for name in names:
        if name not in found:
            raise SilodpError(f"{path} has no cell array {name}: {remedy}.")
    return found


def _variables(content: bytes, names: Collection[str]) -> Iterator[tuple[str, list[np.ndarray]]]:
    order = {b"IM": "<", b"MI": ">"}.get(content[HEADER - 2 : HEADER])
    if order is None or not content.startswith(b"MATLAB"):
        raise _NotReadableError("it does not start as one")
    if content.startswith(b"MATLAB 7.3"):
        raise _NotReadableError("it is of version 7.3; save it with -v7")
    for kind, element in _elements(memoryview(content)[HEADER:], order):
        if kind == COMPRESSED:
            inner = _elements(memoryview(zlib.decompress(element)), order)
            kind, element = _next(inner)
        if kind != MATRIX:
            raise _NotReadableError("it holds something that is not an array")
        array_class, _, dimensions, name, rest = _array_header(element, order)
        if name not in names:
            continue
        if array_class != CELL:
            raise _NotReadableError(f"{name} is not a cell array")
        cells = [_matrix(kind, cell, order) for kind, cell in rest]
        if len(cells) != _size(dimensions):
            raise _NotReadableError(f"{name} ends after {len(cells)} of its cells")
        yield name, cells


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """The kind and the content of each element that stands in `data`."""
    start = 0
    while start < len(data):
        if len(data) - start < 8:
            raise _NotReadableError("it is cut short")
        kind, size = struct.unpack_from(f"{order}II", data, start)
        if kind >> 16:  # up to four bytes, packed into the tag
            kind, size = kind & 0xFFFF, kind >> 16
            first, after = start + 4, start + 8
            if size > 4:
                raise _NotReadableError("a tag is damaged")
        else:
            first = start + 8
            # Elements start at multiples of eight bytes, except after a compressed one.
            after = first + (size if kind == COMPRESSED else size + -size % 8)
        if first + size > len(data):
            raise _NotReadableError("it is cut short")
        yield kind, data[first : first + size]
        start = after


def _next(elements: Iterator[tuple[int, memoryview]]) -> tuple[int, memoryview]:
    try:
        return next(elements)
    except StopIteration:
        raise _NotReadableError("an array is cut short") from None


def _array_header(
    element: memoryview, order: str
) -> tuple[int, int, tuple[int, ...], str, Iterator[tuple[int, memoryview]]]:
    """Class, flags, dimensions and name of an array, and the elements that follow."""
    parts = _elements(element, order)
    flags = _numbers(*_next(parts), order)
    dimensions = _numbers(*_next(parts), order).tolist()
    name = bytes(_next(parts)[1]).decode("latin-1")
    if not len(flags) or not all(isinstance(size, int) and size >= 0 for size in dimensions):
        raise _NotReadableError("the header of an array is damaged")
    return int(flags[0]) & 0xFF, int(flags[0]), tuple(dimensions), name, parts


def _numbers(kind: int, data: memoryview, order: str) -> np.ndarray:
    stored = STORED_TYPES.get(kind)
    if stored is None or len(data) % int(stored[1]):
        raise _NotReadableError("numbers are stored in a way that is not known")
    return np.frombuffer(data, dtype=order + stored)


def _matrix(kind: int, element: memoryview, order: str) -> np.ndarray:
    if kind != MATRIX:
        raise _NotReadableError("a cell holds something that is not an array")
    if not len(element):
        return np.empty((0, 0))
    array_class, flags, dimensions, _, rest = _array_header(element, order)
    if array_class not in NUMBER_CLASSES or flags & COMPLEX_FLAG:
        raise _NotReadableError("a cell does not hold a plain matrix of numbers")
    values = _numbers(*_next(rest), order)
    if len(values) != _size(dimensions):
        raise _NotReadableError("a matrix has not as many numbers as its shape says")
    # Columns come first in MATLAB. The cast also brings the bytes into this machine's order.
    return values.reshape(dimensions, order="F").astype(NUMBER_CLASSES[array_class])


def _size(dimensions: tuple[int, ...]) -> int:
    size = 1
    for length in dimensions:  # in whole numbers of Python, which do not overflow
        size *= length
    return size
