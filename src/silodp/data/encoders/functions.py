"""A function in Python as an encoder."""

import hashlib
from collections.abc import Callable
from typing import Any, get_args

import numpy as np

from silodp.base.errors import SilodpError, one_of
from silodp.data.encoders.encoder import (
    MOST_FEATURES,
    UNSAID,
    EncoderInfo,
    PublicEncoder,
    Takes,
)

DEFAULT_SIZE = 224


def encoder(
    function: Callable[[Any], Any],
    *,
    takes: Takes,
    name: str | None = None,
    version: str = "1",
    size: int = DEFAULT_SIZE,
    licence: str = UNSAID,
    trained_on: str = UNSAID,
) -> PublicEncoder:
    """Makes a public encoder of a function: features of one record, whatever the others are.

    It has to be public: made without the records that it is used on. Each record is handed to it
    alone, and its features are scaled to unit norm.

    Args:
      function: of one text, or of one image [size, size, 3] of dtype uint8; gives its features, an
        array of numbers, as many for every record.
      takes: "image" or "text".
      name: what it is called in results; by default, the function's name.
      version: changes whenever its features do: models refuse another name or version.
      size: pixels to a side that images are scaled to.
      licence: the licence of its weights, for results and cards.
      trained_on: the data that it was trained on, likewise.

    Examples:
      >>> import numpy as np
      >>> own = silodp.encoder(lambda text: [len(text), text.count("!")], takes="text", name="own")
      >>> own.info.width, own.features("So!!!!").tolist() == own.features("So!!!!").tolist()
      (2, True)
    """
    if takes not in get_args(Takes):
        raise SilodpError(f"takes is {takes!r}: choose {one_of(str(takes), get_args(Takes))}.")
    name = name or str(getattr(function, "__name__", type(function).__name__))
    example = "a text" if takes == "text" else np.full((size, size, 3), 128, np.uint8)
    made = np.asarray(function(example))
    if made.ndim != 1 or made.dtype.kind not in "fiu" or not 0 < len(made) <= MOST_FEATURES:
        raise SilodpError(
            f"Features {name!r}: one record became {made.dtype} {list(made.shape)}: give a "
            f"function that makes 1 to {MOST_FEATURES} numbers of each record."
        )
    size = size if takes == "image" else 0
    info = EncoderInfo(
        name=name,
        takes=takes,
        sha256=hashlib.sha256(f"function\n{name}\n{version}\n{size}".encode()).hexdigest(),
        licence=licence,
        trained_on=trained_on,
        width=len(made),
        size=size,
    )
    return PublicEncoder(
        info, lambda record: np.asarray(function(record)), kept=False, parallel=False
    )
