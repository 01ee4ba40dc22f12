"""What an encoder is: a public function of one record, which makes features of a picture or a text.

It was made without the records, and is frozen. Each record is encoded alone, never beside others:
what it becomes hangs on nothing else, to the last bit, so that neighbouring data sets stay
neighbours. Features are scaled to unit norm, record by record, which is a public bound.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np

from silodp.base.errors import SilodpError
from silodp.data.images.images import MAX_SIZE
from silodp.data.scaling import LARGEST, records_to_unit_norm

Takes = Literal["image", "text"]
MOST_FEATURES = 1 << 16
MOST_CHARACTERS = 20_000  # of a text; what follows is not read
UNSAID = "not stated"
_NAMES_OF: dict[Takes, str] = {"image": "a picture", "text": "a text"}


@dataclass(frozen=True)
class EncoderInfo:
    """What is said of an encoder, wherever its features go.

    Attributes:
      name: as it was asked for.
      takes: what a record is: an image or a text.
      sha256: the hash of all that features follow from: weights, version of the code, size.
      licence: the licence of its weights.
      trained_on: the data that it was trained on.
      width: how many features it makes.
      size: pixels to a side of an image; 0 for texts.
    """

    name: str
    takes: Takes
    sha256: str
    licence: str
    trained_on: str
    width: int
    size: int = 0

    def to_plain(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        return asdict(self)

    @property
    def words(self) -> str:
        """The encoder in words: name, hash, licence and training data."""
        return (
            f"{self.name!r} (sha256 {self.sha256[:16]}, {self.width} features of "
            f"{_NAMES_OF[self.takes]}, licence: {self.licence}, trained on: {self.trained_on})"
        )


def info_of_plain(where: str, plain: Any) -> EncoderInfo:
    """What a card says of an encoder, checked; `where` names the card in errors."""
    kinds = {"width": int, "size": int}
    names = {field.name for field in fields(EncoderInfo)}
    sound = (
        isinstance(plain, Mapping)
        and plain.keys() == names
        and all(type(value) is kinds.get(name, str) for name, value in plain.items())
        and plain["takes"] in get_args(Takes)
        and 0 < plain["width"] <= MOST_FEATURES
        and 0 <= plain["size"] <= MAX_SIZE
    )
    if not sound:
        raise SilodpError(f"{where}: it does not say which encoder: get the file again.")
    return EncoderInfo(**plain)


@dataclass(frozen=True)
class PublicEncoder:
    """An encoder that can be used.

    Attributes:
      info: what is said of it.
      encode: of one record, a text or an image [size, size, 3] of dtype uint8, the features
        [width].
      kept: whether features may stay in the user's cache. Not those of a function in Python, which
        may change while its name stays.
      parallel: whether several threads may call `encode` at once.
      probe: refuses an encoder that is no function of one record alone, by means of its own.
    """

    info: EncoderInfo
    encode: Callable[[Any], np.ndarray]
    kept: bool = True
    parallel: bool = True
    probe: Callable[[Any, Any], None] | None = None

    def features(self, record: Any) -> np.ndarray:
        """The features of one record [width], float32, of unit norm (or all zeros)."""
        found = np.asarray(self.encode(record))
        if found.dtype.kind not in "fiu" or found.shape != (self.info.width,):
            raise SilodpError(
                f"Features {self.info.name!r}: one record became {found.dtype} "
                f"{list(found.shape)}, not {self.info.width} numbers: give an encoder that makes "
                "as many of every record."
            )
        found = found.astype(np.float64)
        # The negated form, so that NaN is refused as well.
        if not (np.abs(found) <= LARGEST).all():
            raise SilodpError(
                f"Features {self.info.name!r}: a record became NaN, infinite numbers or numbers "
                f"beyond {LARGEST:g}: give another encoder."
            )
        return records_to_unit_norm(found[None])[0].astype(np.float32)


_ready: dict[str, PublicEncoder] = {}
_ready_lock = threading.Lock()


def make_ready(encoder: PublicEncoder, *, kept: bool = True) -> EncoderInfo:
    """Makes an encoder known to this process: where features are made, its hash finds it."""
    with _ready_lock:
        _ready[encoder.info.sha256] = replace(encoder, kept=encoder.kept and kept)
    return encoder.info


def ready_encoder(info: EncoderInfo) -> PublicEncoder | None:
    """The encoder of this hash, if this process knows it."""
    return _ready.get(info.sha256)
