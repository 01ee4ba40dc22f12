"""A coin for each record by itself: what it is tossed with, and how it falls.

A coin is a keyed hash of what identifies the record: a stable number of its own, the person whom it
is about, or else all that the record holds. Nothing of any other record takes part in it, but for
one thing: of records that are alike in everything, the first, second, third... have each a coin of
their own, or they would all fall on one side. `split` proves what follows from that.

The key is made of public words. Whoever can choose what a record holds can choose how its coin
falls; privacy does not rest on it.
"""

import decimal
import hashlib
import math
import re
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import numpy as np
import pandas as pd
from pandas.api import types

from silodp.data.tables.files import values_of
from silodp.data.tables.schema import level_text

# A number as pandas reads it in a column of numbers. If another row has a word there, pandas hands
# out the text instead, and the same row must still have the same form.
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
MISSING = b"m" + bytes(8)


def toss(
    identities: Sequence[bytes], share: float, purpose: str, silo: str, seed: int
) -> np.ndarray:
    """Whether each coin falls on the side that has this share of them: [records] of bool.

    Args:
      identities: one for each record; equal ones have one coin.
      share: from 0 to 1.
      purpose: coins for different purposes fall by themselves.
      silo: name of the silo; silos of other names have other coins.
      seed: likewise.
    """
    coins = _coins(identities, purpose, silo, seed)
    # In whole numbers; 1 is all of them.
    limit = math.floor(share * 2**64)
    return np.ones(len(coins), bool) if limit >= 2**64 else coins < np.uint64(limit)


def deal(identities: Sequence[bytes], shares: np.ndarray, purpose: str) -> np.ndarray:
    """The hand that each record is dealt to by itself, [records]; hands get these shares of them.

    `shares` [hands] sum to 1, or are [records, hands] where records are dealt by different ones.
    """
    coins = _coins(identities, purpose, "", 0) / 2.0**64
    ends = np.cumsum(shares, axis=-1)[..., :-1]
    return (coins[:, None] >= ends).sum(axis=-1)


def _coins(identities: Sequence[bytes], purpose: str, silo: str, seed: int) -> np.ndarray:
    """A number from 0 to 2^64 - 1 for each record: uint64 [records]."""
    words = f"{len(purpose)} {purpose} {seed} {silo}".encode("utf-8", "surrogatepass")
    keyed = hashlib.blake2b(key=hashlib.blake2b(words, digest_size=32).digest(), digest_size=8)

    def coin_of(identity: bytes) -> bytes:
        coin = keyed.copy()
        coin.update(identity)
        return coin.digest()

    return np.frombuffer(b"".join(map(coin_of, identities)), ">u8").astype(np.uint64)


def of_texts(texts: Iterable[str]) -> list[bytes]:
    """Identities of records that have a name: those of one name have one coin."""
    return [text.encode("utf-8", "surrogatepass") for text in texts]


def of_rows(frame: pd.DataFrame, as_text: Collection[str]) -> list[bytes]:
    """Identities by all that a row of a table holds, whatever the order of rows and columns.

    A value has one form, whatever type its column has come to have because of other rows. Two rows
    have the same form only if a model sees one and the same record: columns in `as_text` are known
    by what their values are called (there "007" is not "7"), numbers by the float that they are.
    """
    columns = [
        _forms(values_of(frame, name), name in as_text) for name in sorted(map(str, frame.columns))
    ]
    return numbered(_digest(b"".join(row)) for row in zip(*columns, strict=True))


def of_arrays(x: np.ndarray, y: Sequence[bytes] | np.ndarray) -> list[bytes]:
    """Identities by features and label."""
    return numbered(contents(x, y))


def contents(x: np.ndarray, y: Sequence[bytes] | np.ndarray) -> list[bytes]:
    """Identities without numbers: records that are alike have one coin."""
    features = np.ascontiguousarray(x).reshape(len(x), math.prod(x.shape[1:]))  # also of no record
    labels = y if not isinstance(y, np.ndarray) else [label.tobytes() for label in y]
    # The length of the features is the same in all: nothing is taken for something else.
    return [_digest(row.tobytes() + label) for row, label in zip(features, labels, strict=True)]


def numbered(contents: Iterable[bytes]) -> list[bytes]:
    """Each content with how many of the same came before it.

    One copy more or less, wherever it stands, adds or takes away the last number only.
    """
    seen: Counter[bytes] = Counter()
    identities = []
    for content in contents:
        identities.append(content + seen[content].to_bytes(8, "big"))
        seen[content] += 1
    return identities


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32).digest()


def _forms(values: pd.Series, as_text: bool) -> list[bytes]:
    """The form of each value: of numbers the float (in 8 bytes), of all else the text."""
    dtype = values.dtype
    if as_text or not types.is_numeric_dtype(dtype) or types.is_complex_dtype(dtype):
        return [_form(value, as_text) for value in values]
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan) + 0.0  # -0.0 becomes 0.0
    missing = np.isnan(numbers)
    forms = np.empty((len(numbers), 9), np.uint8)
    forms[:, 0] = np.where(missing, ord("m"), ord("n"))
    forms[:, 1:] = np.where(missing, 0.0, numbers).astype(">f8").view(np.uint8).reshape(-1, 8)
    whole = forms.tobytes()
    return [whole[start : start + 9] for start in range(0, len(whole), 9)]


def _form(value: object, as_text: bool) -> bytes:
    """The form (see `_forms`) of one value, in whatever type it came."""
    if value is None or value is pd.NA or value is pd.NaT:
        return MISSING
    if isinstance(value, float | np.floating) and math.isnan(value):
        return MISSING
    if isinstance(value, decimal.Decimal) and value.is_nan():
        return MISSING
    if as_text:
        # As a category it is what it is called: 1, 1.0 and "1" agree, and so do TRUE and true.
        return _text(level_text(value))
    if isinstance(value, str) and NUMBER.fullmatch(value.strip()):
        return _number(float(value))
    if isinstance(value, bool | int | float | np.bool_ | np.number | decimal.Decimal):
        try:
            return _number(float(value))
        except OverflowError:  # a whole number beyond all floats
            return _number(math.inf if value > 0 else -math.inf)
    return _text(str(value))


def _number(value: float) -> bytes:
    return b"n" + struct.pack(">d", value + 0.0)


def _text(text: str) -> bytes:
    words = text.encode("utf-8", "surrogatepass")
    return b"t" + struct.pack(">Q", len(words)) + words
