"""Records to features, one by one: from the cache where they are there, on all cores else."""

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from PIL import Image

from silodp.base.errors import SilodpError
from silodp.base.progress import listener
from silodp.data.encoders.encoder import MOST_CHARACTERS, PublicEncoder
from silodp.data.encoders.kept_features import kept_features
from silodp.data.images.images import read_image, reading_quietly

_BATCH = 256  # records between two writes: what an interruption costs at most
_MOST_BYTES = 16 << 30  # of all features of one data set

Record = Path | np.ndarray | str
"""A file of an image, an image [height, width, 1 or 3] of dtype uint8, or a text."""


def features_of(encoder: PublicEncoder, records: Sequence[Record]) -> np.ndarray:
    """The features of records [records, width], float32, each of unit norm.

    No more than a batch of records is in memory at once, besides the features.
    """
    info = encoder.info
    if len(records) * info.width * 4 > _MOST_BYTES:
        raise SilodpError(
            f"Features {info.name!r} of {len(records)} records take more than "
            f"{_MOST_BYTES >> 30} GiB: give fewer records, or an encoder with fewer features."
        )
    x = np.zeros((len(records), info.width), np.float32)
    began, made = time.perf_counter(), 0
    workers = (os.cpu_count() or 1) if encoder.parallel else 1
    with kept_features(info, encoder.kept) as kept, ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(records), _BATCH):
            batch = records[start : start + _BATCH]
            keys = list(pool.map(record_key, batch))
            known = kept.of(keys)
            # Records that are alike are encoded once.
            new = {key: record for key, record in zip(keys, batch, strict=True) if key not in known}
            if new and not made:
                _check_by_record(encoder, list(islice(new.values(), 2)))
            encode = _encode_with(encoder)
            with reading_quietly():
                own = dict(zip(new, pool.map(encode, new.values()), strict=True))
            kept.keep(own)
            made += len(own)
            known |= own
            x[start : start + len(batch)] = [known[key] for key in keys]
            done = start + len(batch)
            seconds = time.perf_counter() - began
            listener().encoded(info.name, done, len(records), made, seconds)
    return x


def record_key(record: Record) -> bytes:
    """What a record is, in 32 bytes: of a file, its content and how it is read."""
    digest = hashlib.sha256()
    if isinstance(record, np.ndarray):
        digest.update(f"array {record.shape} {PIL.__version__}\n".encode())
        digest.update(np.ascontiguousarray(record).data)
    elif isinstance(record, Path):
        digest.update(f"file {PIL.__version__}\n".encode())
        digest.update(file_digest(record))
    else:
        digest.update(b"text\n" + record.encode("utf-8", "surrogatepass"))
    return digest.digest()


def file_digest(path: Path) -> bytes:
    """The hash of a file's content."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise SilodpError(f"{path} cannot be read ({error.strerror}): check it.") from error


def _encode_with(encoder: PublicEncoder) -> Callable[[Record], np.ndarray]:
    def encode(record: Record) -> np.ndarray:
        return encoder.features(_taken(encoder, record))

    return encode


def _taken(encoder: PublicEncoder, record: Record) -> Any:
    """The record as the encoder takes it."""
    if isinstance(record, str):
        return record[:MOST_CHARACTERS]
    size = encoder.info.size
    if isinstance(record, Path):
        return read_image(record, size, grey=False)
    if record.shape[-1] == 1:
        record = np.repeat(record, 3, axis=-1)
    if record.shape[:2] == (size, size):
        return record
    return np.asarray(Image.fromarray(record).resize((size, size), Image.Resampling.BILINEAR))


def _check_by_record(encoder: PublicEncoder, records: Sequence[Record]) -> None:
    """Refuses an encoder that makes other features of a record after another than before.

    Such as one that draws at random, or that learns from what it sees.
    """
    with reading_quietly():
        first, *others = (_taken(encoder, record) for record in records)
    before = encoder.features(first)
    for other in others:
        encoder.features(other)
    if not np.array_equal(before, encoder.features(first)):
        raise SilodpError(
            f"Features {encoder.info.name!r}: the same record became other features the second "
            "time, so that they are no function of one record alone: give an encoder without "
            "dropout, chance or statistics of batches."
        )
    if encoder.probe is not None:
        encoder.probe(first, (others or [first])[0])
