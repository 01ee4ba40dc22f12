"""The batches of CIFAR-10 in each of their forms, told apart by content.

- binary: records of one label byte and 3,072 pixels, channels first; packed with xz or gzip or not.
- python: a pickle of a dictionary with `data` [n, 3072] and `labels`.

A pickle is a program. Here it is read by an interpreter that can make plain values and nothing
else: the only names that it knows are those of numpy's arrays, and they are stand-ins that keep
what they are given. No code of the file, and none of numpy, runs on it.
"""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from silodp.base.errors import SilodpError
from silodp.data.formats.bounded import read_bounded

SIDE, CHANNELS = 32, 3
PIXELS = CHANNELS * SIDE * SIDE
CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
# Two official batches: pickles hold file names as well.
LARGEST = 2 * 10_000 * (PIXELS + 1)
PICKLE = b"\x80"  # no label byte is that high


class Batch(NamedTuple):
    """Images [n, 32, 32, 3] and the number of each one's class."""

    x: np.ndarray
    y: np.ndarray


def read_batch(path: Path, remedy: str) -> Batch:
    """One file of any form; `remedy` ends the error that is raised whatever is wrong with it."""
    content = read_bounded(path, LARGEST, remedy)
    pixels, labels = (
        _of_pickle(path, content, remedy)
        if content.startswith(PICKLE)
        else _of_binary(path, content, remedy)
    )
    strange = labels[(labels < 0) | (labels >= len(CLASSES))]
    if len(strange):
        raise SilodpError(
            f"{path} holds the label {strange[0]}, but the classes are numbered 0 to 9: {remedy}."
        )
    images = pixels.reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1)
    return Batch(np.ascontiguousarray(images), labels.astype(np.uint8))


def _of_binary(path: Path, content: bytes, remedy: str) -> tuple[np.ndarray, np.ndarray]:
    if not content or len(content) % (PIXELS + 1):
        raise SilodpError(
            f"{path} has {len(content)} bytes, which are no whole number of images of {PIXELS + 1} "
            f"bytes: {remedy}."
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, PIXELS + 1)
    return records[:, 1:], records[:, 0]


class _Array:
    """Keeps the state that numpy's array would be restored from."""

    state: Any = None

    def __init__(self, *_: Any):
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Type(_Array):
    """Stands for numpy's type of numbers, with the name that it is made from."""

    def __init__(self, name: Any = None, *_: Any):
        self.name = name


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes into a pickle of Python 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding}")
    return text.encode("latin1")


_STAND_INS = {
    ("_codecs", "encode"): _encode,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    **{
        (f"numpy.{core}.multiarray", "_reconstruct"): _Array
        for core in ("core", "_core")  # numpy before and after version 2
    },
}


# Of the operations of a pickle, those that make plain values, and call and fill the stand-ins.
_OPERATIONS = (
    *(pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK),
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE),
    *(pickle.BININT, pickle.BININT1, pickle.BININT2),
    *(pickle.BINSTRING, pickle.SHORT_BINSTRING, pickle.BINUNICODE, pickle.SHORT_BINUNICODE),
    *(pickle.BINBYTES, pickle.SHORT_BINBYTES),
    *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
    *(pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS),
    *(pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS),
    *(pickle.GLOBAL, pickle.STACK_GLOBAL, pickle.REDUCE, pickle.BUILD),
    *(pickle.BINGET, pickle.LONG_BINGET, pickle.BINPUT, pickle.LONG_BINPUT, pickle.MEMOIZE),
)
_MOST_OPERATIONS = 400_000  # ten times what an official batch takes


def _counted(operation: Callable[[Any], None]) -> Callable[[Any], None]:
    def counted(reader: "_PlainValues") -> None:
        reader.operations += 1
        if reader.operations > _MOST_OPERATIONS:
            raise pickle.UnpicklingError(f"it takes more than {_MOST_OPERATIONS} operations")
        operation(reader)

    return counted


# The interpreter written in Python: the one in C makes room for as many values as a file claims.
_Interpreter: Any = pickle._Unpickler  # type: ignore[attr-defined]


class _PlainValues(_Interpreter):
    """Reads a pickle of plain values and arrays; refuses all else."""

    operations = 0

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in of that name."""
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is refused")
        return _STAND_INS[module, name]

    def load_build(self) -> None:
        """Fills a stand-in; nothing else has a state to be filled."""
        if not isinstance(self.stack[-2], _Array):
            raise pickle.UnpicklingError("it fills what is no array, which is refused")
        super().load_build()

    dispatch = {code[0]: _counted(_Interpreter.dispatch[code[0]]) for code in _OPERATIONS} | {
        pickle.BUILD[0]: _counted(load_build)
    }


def _of_pickle(path: Path, content: bytes, remedy: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        batch = _PlainValues(io.BytesIO(content), encoding="bytes").load()
        # Python 2 wrote the keys, Python 3 reads them as bytes; a batch saved anew has text.
        batch = {key.decode() if isinstance(key, bytes) else key: v for key, v in batch.items()}
        _, shape, kind, by_columns, pixels = batch["data"].state
        if kind.name not in (b"u1", "u1") or by_columns or not isinstance(pixels, bytes):
            raise ValueError("its data are not an array of bytes")
        labels = batch["labels"]
        # One by one, before numpy makes an array of them: they may be lists of lists of lists.
        if type(labels) is not list or not all(type(label) is int for label in labels):
            raise ValueError("its labels are no list of whole numbers")
        if shape != (len(labels), PIXELS) or len(pixels) != len(labels) * PIXELS or not labels:
            raise ValueError(f"its data have {len(pixels)} bytes with {len(labels)} labels")
    except Exception as error:  # whatever a hostile file may bring about
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SilodpError(
            f"{path} cannot be read as a batch of images ({reason}): {remedy}."
        ) from error
    return np.frombuffer(pixels, np.uint8), np.array(labels)
