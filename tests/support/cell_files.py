"""MATLAB files of cell arrays X and Y, and how they are made byte by byte."""

import struct

import numpy as np
import scipy.io

HEADER = b"MATLAB 5.0".ljust(124, b" ") + b"\x00\x01IM"


def row(*arrays):
    box = np.empty((1, len(arrays)), dtype=object)
    for index, array in enumerate(arrays):
        box[0, index] = array
    return box


def column(*arrays):
    return row(*arrays).T


def write_cells(path, xs, ys, cells=row):
    scipy.io.savemat(path, {"X": cells(*xs), "Y": cells(*ys)})


def sensor_silos(sizes=(12, 21, 40), features=5, seed=0):
    """Features and labels -1 and +1, half of each, of each silo."""
    rng = np.random.default_rng(seed)
    xs = [rng.normal(3, 2, (size, features)) for size in sizes]
    ys = [rng.permutation(np.resize([-1.0, 1.0], size))[:, None] for size in sizes]
    return xs, ys


def element(kind, data, order="<"):
    return struct.pack(f"{order}II", kind, len(data)) + data + b"\0" * (-len(data) % 8)


def array(array_class, shape, rest, name=b"", order="<"):
    """An array with its header; `shape` is of whole numbers, or an element that holds it."""
    if not isinstance(shape, bytes):
        shape = element(5, struct.pack(f"{order}{len(shape)}i", *shape), order)
    flags = element(6, struct.pack(f"{order}II", array_class, 0), order)
    return element(14, flags + shape + element(1, name, order) + rest, order)
