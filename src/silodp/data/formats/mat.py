"""Cell arrays of number matrices from MATLAB files (versions 5 to 7), and nothing else.

`scipy.io.loadmat` ends the whole process on some damaged files (a segmentation fault in its
compiled reader, scipy 1.17), which no `except` can catch. The part of the format that the paper's
data sets use is small: this reader looks at no byte outside the file, and runs nothing of it. It
believes no size that a file claims before the bytes are there, and cells in cells are refused, so
that nothing in a file decides how deep it goes.
"""

import struct
import zlib
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from silodp.base.errors import SilodpError
from silodp.data.formats.bounded import read_bounded

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
# The largest of the paper's matrices take 43 MB. Numbers that are stored in one byte each take
# eight once they are read, so that a hostile file may take ten times this for a moment.
MAX_BYTES = 1 << 27
MAX_CELLS = 1 << 16  # an empty cell has few bytes in a file, and many in memory
MAX_DIMENSIONS = 32


class _NotReadableError(Exception):
    """What is wrong, in a few words."""


def read_cells(path: Path, names: Collection[str], remedy: str) -> dict[str, list[np.ndarray]]:
    """The matrices in each named cell array, in order; every name must be there.

    `remedy` ends the one error that is raised whatever is wrong with the file.
    """
    content = read_bounded(path, MAX_BYTES, remedy)
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
    left = MAX_BYTES  # for all that is inflated, together
    for kind, element in _elements(memoryview(content)[HEADER:], order):
        if kind == COMPRESSED:
            inflated = _inflate(element, order, left)
            left -= len(inflated)
            kind, element = _next(_elements(inflated, order))
        if kind != MATRIX:
            raise _NotReadableError("it holds something that is not an array")
        array_class, _, dimensions, name, rest = _array_header(element, order)
        if name not in names:
            continue
        if array_class != CELL:
            raise _NotReadableError(f"{name} is not a cell array")
        count = _size(dimensions)
        if count > MAX_CELLS:
            raise _NotReadableError(f"{name} has more than {MAX_CELLS} cells")
        cells = [_matrix(kind, cell, order) for kind, cell in islice(rest, count)]
        if len(cells) != count:
            raise _NotReadableError(f"{name} ends after {len(cells)} of its cells")
        yield name, cells


def _inflate(packed: memoryview, order: str, limit: int) -> memoryview:
    """The one element that was compressed: never more bytes than its own tag announces."""
    start = zlib.decompressobj().decompress(packed, 8)
    if len(start) < 8:
        raise _NotReadableError("it is cut short")
    size = 8 + struct.unpack(f"{order}II", start)[1]
    if size > limit:
        raise _NotReadableError(f"it would unpack to more than {MAX_BYTES >> 20} MiB")
    # One byte more shows that the stream goes on; at its end, zlib tests the checksum.
    stream = zlib.decompressobj()
    inflated = stream.decompress(packed, size + 1)
    if len(inflated) < size or not stream.eof:
        raise _NotReadableError("a compressed array has not as many bytes as it announces")
    return memoryview(inflated)


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
    lengths = _numbers(*_next(parts), order)
    name = bytes(_next(parts)[1]).decode("latin-1")
    whole = flags.dtype.kind in "iu" and lengths.dtype.kind in "iu"
    if not whole or not len(flags) or len(lengths) > MAX_DIMENSIONS:
        raise _NotReadableError("the header of an array is damaged")
    dimensions = tuple(lengths.tolist())
    # No array that the file has bytes for is longer; one without any elements may claim to be.
    if not all(0 <= length <= MAX_BYTES for length in dimensions):
        raise _NotReadableError(f"an array claims the impossible shape {dimensions}")
    return int(flags[0]) & 0xFF, int(flags[0]), dimensions, name, parts


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
    number_class = np.dtype(NUMBER_CLASSES[array_class])
    if values.dtype.itemsize > number_class.itemsize or (
        values.dtype.kind == "f" and number_class.kind != "f"
    ):
        raise _NotReadableError("numbers are stored in a type that does not fit into their array's")
    # Columns come first in MATLAB. The cast also brings the bytes into this machine's order.
    return values.reshape(dimensions, order="F").astype(number_class)


def _size(dimensions: tuple[int, ...]) -> int:
    size = 1
    for length in dimensions:  # in whole numbers of Python, which do not overflow
        size *= length
    return size
