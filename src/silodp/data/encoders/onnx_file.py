"""A user's own network in a file of ONNX, as an encoder; the file may come from anybody.

    clip.onnx      one input: an image [1, 3, size, size] (or [1, size, size, 3]), or the numbers of
                   word pieces [1, pieces], or a text; its first output is taken
    clip.toml      beside it, if something is to be said of it:
        licence = "MIT"
        trained_on = "LAION-400M"
        mean = [0.48, 0.46, 0.41]      # of pixels from 0 to 1, for each colour; without these,
        deviation = [0.27, 0.26, 0.28] # numbers from 0 to 1 go in
        pieces = "vocab.txt"           # for texts: the list of word pieces of BERT

Nothing in the file is run but the standard's own operations, and it may read no other file.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from silodp.base.documents import declared, decode, read_toml
from silodp.base.errors import SilodpError
from silodp.data.encoders.encoder import (
    MOST_FEATURES,
    UNSAID,
    EncoderInfo,
    PublicEncoder,
    Takes,
)
from silodp.data.encoders.runtime import need_onnx, session_of
from silodp.data.encoders.wordpiece import WordPieces
from silodp.data.formats.bounded import read_bounded
from silodp.data.images.images import MAX_SIZE

_MOST_BYTES = (1 << 31) - 1  # of the format itself
_MOST_PIECES = 256
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
_DEFAULT_SIZE = 224
# Beyond rounding: of features of unit norm.
_ROUNDING = 1e-3


def _three(values: tuple[float, ...]) -> bool:
    return len(values) == 3


@dataclass(frozen=True)
class _About:
    """What is said of the network in the file beside it."""

    licence: str = declared("give a text", UNSAID, bool)
    trained_on: str = declared("give a text", UNSAID, bool)
    mean: tuple[float, ...] = declared("give three numbers", (0.0, 0.0, 0.0), _three)
    deviation: tuple[float, ...] = declared(
        "give three numbers above 0",
        (1.0, 1.0, 1.0),
        lambda values: _three(values) and min(values) > 0,
    )
    pieces: str = declared("give the name of a file beside it", "")


@dataclass(frozen=True)
class _Input:
    """What a network takes.

    Attributes:
      names: of its inputs; of texts in pieces, the numbers come first.
      takes: an image or a text.
      size: pixels to a side, where the network fixes them.
      channels_first: whether colours come before rows and columns.
      dtype: of its numbers.
      in_pieces: whether texts go in as the numbers of word pieces.
      batches: whether it takes several records at once.
    """

    names: tuple[str, ...]
    takes: Takes
    size: int | None = None
    channels_first: bool = False
    dtype: Any = None
    in_pieces: bool = False
    batches: bool = False


def onnx_encoder(path: Path, size: int | None) -> PublicEncoder:
    """The encoder in a file; `size` is that of its images where the file leaves it open."""
    onnx = need_onnx(str(path))
    content = read_bounded(path, _MOST_BYTES, "give a file of ONNX")
    _check_content(onnx, path, content)
    beside = path.with_suffix(".toml")
    about = decode(_About, read_toml(beside), str(beside)) if beside.exists() else _About()
    try:
        session = session_of(content)
    except Exception as error:  # onnxruntime has errors of many kinds
        raise _unusable(path, error) from None
    taken = _input_of(path, session)
    size = _size(path, taken, size)
    listed = _pieces(path, about, taken)
    encode = _encode_with(path, session, taken, about, listed)
    example = "a text" if taken.takes == "text" else np.full((size, size, 3), 128, np.uint8)
    made = encode(example)
    if not 0 < len(made) <= MOST_FEATURES:
        raise SilodpError(
            f"{path}: it makes {len(made)} features of a record: give a network with an output of "
            f"1 to {MOST_FEATURES} numbers."
        )
    digest = hashlib.sha256(content)
    digest.update(repr(("onnx 1", about.mean, about.deviation, size)).encode() + (listed or b""))
    info = EncoderInfo(
        name=path.name,
        takes=taken.takes,
        sha256=digest.hexdigest(),
        licence=about.licence,
        trained_on=about.trained_on,
        width=len(made),
        size=size,
    )
    found = PublicEncoder(info, encode)

    def alone_and_together(one: Any, other: Any) -> None:
        """Refuses a network in which records of one batch have a part in each other's features."""
        together = np.concatenate([_array(taken, about, each) for each in (one, other)])
        try:
            both = np.asarray(session.run(None, {taken.names[0]: together})[0], np.float64)
        except Exception:  # it takes one at a time, whatever it says
            return
        alone = np.stack([found.features(each) for each in (one, other)]).astype(np.float64)
        if both.size != alone.size:
            return
        both = both.reshape(alone.shape)
        norms = np.linalg.norm(both, axis=1, keepdims=True)
        if not np.allclose(both / np.where(norms == 0, 1, norms), alone, atol=_ROUNDING):
            raise SilodpError(
                f"{path}: a record became other features beside another than alone, so that they "
                "are no function of one record: export the network for inference (in PyTorch: "
                "after eval())."
            )

    if not taken.batches:
        return found
    return PublicEncoder(info, encode, probe=alone_and_together)


def _check_content(onnx: Any, path: Path, content: bytes) -> None:
    """Refuses what is no network, or wants more than the standard's own operations.

    Before anything of it is loaded: a file may name others, which would be read from anywhere.
    """
    try:
        model = onnx.load_model_from_string(content)
        graphs = list(_graphs(model))
    except Exception as error:  # protobuf's own
        raise SilodpError(f"{path} is no file of ONNX, or a part of one: get it again.") from error
    if not model.graph.node or not model.graph.output:
        raise SilodpError(f"{path} is no file of ONNX, or a part of one: get it again.")
    for graph in graphs:
        for tensor in _tensors(graph):
            if tensor.data_location == onnx.TensorProto.EXTERNAL or len(tensor.external_data):
                raise SilodpError(
                    f"{path} wants to read its weights from another file, which is not done: save "
                    "it as one file."
                )
        for node in graph.node:
            if node.domain not in _DOMAINS:
                raise SilodpError(
                    f"{path} has the operation {node.op_type!r} of {node.domain!r}, which is none "
                    "of the standard's: export it without such."
                )


def _graphs(model: Any) -> Iterator[Any]:
    """The graph, the functions, and all graphs within them."""
    waiting = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [*attribute.graphs]
                if attribute.HasField("g"):
                    waiting.append(attribute.g)


def _tensors(graph: Any) -> Iterator[Any]:
    yield from getattr(graph, "initializer", ())
    sparse = [*getattr(graph, "sparse_initializer", ())]
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            sparse += [attribute.sparse_tensor, *attribute.sparse_tensors]
    for one in sparse:
        yield from (one.values, one.indices)


def _unusable(path: Path, error: Exception) -> SilodpError:
    reason = " ".join(str(error).split())[:160]
    return SilodpError(f"{path} cannot be run ({reason}): export it again.")


def _input_of(path: Path, session: Any) -> _Input:
    inputs = session.get_inputs()
    first = inputs[0] if inputs else None
    shape = [] if first is None else [s if isinstance(s, int) else None for s in first.shape]
    names = tuple(one.name for one in inputs)
    kind = "" if first is None else first.type
    batches = bool(shape) and shape[0] != 1
    if len(inputs) == 1 and kind == "tensor(string)" and len(shape) == 1:
        return _Input(names, "text", batches=batches)
    kinds = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
    if kind in kinds and len(shape) == 2 and all(one.type == kind for one in inputs):
        in_order = sorted(names, key=lambda name: ("mask" in name, "type" in name, name))
        return _Input(tuple(in_order), "text", dtype=kinds[kind], in_pieces=True)
    pixels = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(double)": np.float64}
    if len(inputs) == 1 and kind in pixels and len(shape) == 4:
        first_is = shape[1] == 3 and shape[3] != 3
        if first_is or shape[3] == 3:
            rows, columns = shape[2:] if first_is else shape[1:3]
            if rows == columns:
                return _Input(names, "image", rows, first_is, pixels[kind], batches=batches)
    raise SilodpError(
        f"{path}: it takes {', '.join(f'{one.type} {one.shape}' for one in inputs) or 'nothing'}, "
        "which is neither an image [1, 3, size, size] in colour nor a text: export it with such an "
        "input."
    )


def _size(path: Path, taken: _Input, size: int | None) -> int:
    if taken.takes == "text":
        return 0
    if taken.size is not None and size not in (None, taken.size):
        raise SilodpError(
            f"{path}: image_size is {size}, but it takes {taken.size} pixels to a side: leave "
            "image_size out."
        )
    found = taken.size or size or _DEFAULT_SIZE
    if not 1 <= found <= MAX_SIZE:
        raise SilodpError(
            f"{path}: it takes {found} pixels to a side, but images have at most {MAX_SIZE}: "
            "give another network."
        )
    return found


def _pieces(path: Path, about: _About, taken: _Input) -> bytes | None:
    """The list of word pieces, where the network takes such."""
    if not taken.in_pieces:
        return None
    if not about.pieces or Path(about.pieces).name != about.pieces:
        raise SilodpError(
            f"{path}: it takes texts as the numbers of word pieces: name their list, a file beside "
            f'it, in {path.with_suffix(".toml").name} (pieces = "vocab.txt").'
        )
    return read_bounded(path.parent / about.pieces, 1 << 26, "give a list of word pieces")


def _encode_with(path: Path, session: Any, taken: _Input, about: _About, listed: bytes | None):
    """Features of one record, from the network's first output.

    Of an output for each piece, the mean is taken.
    """
    words = None
    if listed is not None:
        try:
            words = WordPieces(listed.decode().split("\n"))
        except (UnicodeDecodeError, KeyError):
            raise SilodpError(
                f"{path.parent / about.pieces} is no list of word pieces of BERT: give its "
                "vocab.txt."
            ) from None

    def encode(record: Any) -> np.ndarray:
        if words is None:
            given = {taken.names[0]: _array(taken, about, record)}
        else:
            numbers = words.numbers(record, _MOST_PIECES)[None].astype(taken.dtype)
            given = {taken.names[0]: numbers}
            for name in taken.names[1:]:
                given[name] = np.ones_like(numbers) if "mask" in name else np.zeros_like(numbers)
        try:
            made = np.asarray(session.run(None, given)[0])
        except Exception as error:
            raise _unusable(path, error) from None
        if words is not None and made.ndim == 3:
            made = made.mean(axis=1)
        return made.reshape(-1)

    return encode


def _array(taken: _Input, about: _About, record: Any) -> np.ndarray:
    """The record as the network takes it, in a batch of its own."""
    if taken.takes == "text":
        return np.array([record], dtype=object)
    if taken.dtype == np.uint8:
        x = record
    else:
        x = (record / 255.0 - np.array(about.mean)) / np.array(about.deviation)
    x = x.transpose(2, 0, 1) if taken.channels_first else x
    return np.ascontiguousarray(x[None], taken.dtype)
