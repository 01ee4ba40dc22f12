"""Decoded images in the user's cache: reading a data set a second time takes a second.

An entry is named after the content of the files that it was made from, and after the way of making
it, so it can never be out of date. It begins with the checksum of all that follows: a line of JSON
that names the arrays with their types and shapes, and their bytes. A damaged one is made anew.
"""

import contextlib
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from silodp.base.cache import cache_dir
from silodp.base.files import whole_file
from silodp.data.files import digest_of

ENDING = ".arrays"
CHECKSUM = hashlib.sha256().digest_size

Arrays = dict[str, np.ndarray]


def content_key(files: Sequence[Path], how: str) -> str:
    """A digest of the files' content, in order, and of `how` they are decoded."""
    parts = [how, *(digest_of(path, "sha256") for path in files)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def decoded(
    name: str, files: Sequence[Path], how: str, decode: Callable[[], Arrays], no_cache: bool
) -> Arrays:
    """What `decode` makes of the files, from the cache where it is there.

    Args:
      name: begins the entry's name, for people.
      files: all that `decode` reads.
      how: changes whenever `decode` makes something else of the same files.
      decode: reads the files.
      no_cache: always decode, and leave nothing in the cache.
    """
    if no_cache:
        return decode()
    entry = cache_dir() / "decoded" / f"{name}-{content_key(files, how)[:32]}{ENDING}"
    arrays = _read(entry)
    if arrays is None:
        arrays = decode()
        _write(entry, arrays)
    return arrays


def _read(entry: Path) -> Arrays | None:
    """None if it is not there, or damaged."""
    try:
        content = entry.read_bytes()
    except OSError:
        return None
    if hashlib.sha256(memoryview(content)[CHECKSUM:]).digest() != content[:CHECKSUM]:
        return None
    end = content.index(b"\n", CHECKSUM)
    arrays, start = {}, end + 1
    for name, kind, shape in json.loads(content[CHECKSUM:end]):
        count = math.prod(shape)
        flat = np.frombuffer(content, kind, count, start)  # a view: nothing is copied
        arrays[name] = flat.reshape(shape)
        start += flat.nbytes
    return arrays


def _write(entry: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Whole or not at all, for the owner alone: records may be in it. A full disk is no error."""
    about = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
    parts = [json.dumps(about).encode() + b"\n"]
    parts += [np.ascontiguousarray(array).data.cast("B") for array in arrays.values()]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with whole_file(entry, sync="none") as out:
            out.write(digest.digest())
            out.writelines(parts)
