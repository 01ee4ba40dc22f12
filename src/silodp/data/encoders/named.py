"""Encoders by name: those that are built in, a file of ONNX, or a function that was given."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from silodp.base.errors import SilodpError, alike, meant
from silodp.data.encoders.encoder import (
    EncoderInfo,
    PublicEncoder,
    Takes,
    make_ready,
    ready_encoder,
)
from silodp.data.images.images import checked_size

NONE = "none"
IMAGE = "image"
"""What the images of a folder are called, where a column would be."""

_NAMES_OF_KINDS: Mapping[Takes, str] = {"image": "images", "text": "texts"}


def _scattering(size: int | None) -> PublicEncoder:
    from silodp.data.encoders.scattering import DEFAULT_SIZE, scattering

    return scattering(size or DEFAULT_SIZE)


def _efficientnet(size: int | None) -> PublicEncoder:
    from silodp.data.encoders.efficientnet import DEFAULT_SIZE, efficientnet_lite0

    return efficientnet_lite0(size or DEFAULT_SIZE)


def _minilm(_: int | None) -> PublicEncoder:
    from silodp.data.encoders.minilm import minilm

    return minilm()


# Each is imported, and its packages looked for, when it is asked for.
BUILT_IN: dict[str, Callable[[int | None], PublicEncoder]] = {
    "scattering": _scattering,
    "efficientnet-lite0": _efficientnet,
    "minilm": _minilm,
}


def asked_for(features: str | Sequence[str] | None, where: str = "--features") -> dict[str, str]:
    """What an option asks for: the name of an encoder by column.

    `review=minilm, photo=scattering` names columns; one name alone stands for all images.
    """
    parts = [features] if isinstance(features, str) else list(features or ())
    if parts in ([], [NONE]):
        return {}
    found: dict[str, str] = {}
    for part in parts:
        column, equals, name = part.rpartition("=")
        column, name = column.strip() if equals else IMAGE, name.strip()
        if not column or not name or column in found:
            raise SilodpError(
                f"{where} is {','.join(parts)!r}: give an encoder (for images), or column=encoder "
                "for each column that is to be encoded."
            )
        found[column] = name
    return {column: name for column, name in found.items() if name != NONE}


def encoder_info(
    wanted: Any, *, size: int | None = None, takes: Takes | None = None, no_cache: bool = False
) -> EncoderInfo:
    """Makes an encoder ready, by its name, its file, or as it was made in Python.

    Args:
      wanted: a name, the path of a file of ONNX, or what `silodp.encoder` makes.
      size: pixels to a side of its images; by default, those that suit it.
      takes: refuses an encoder of something else.
      no_cache: nothing of what it makes is kept.
    """
    if size is not None:
        checked_size(size)
    if isinstance(wanted, PublicEncoder):
        found = wanted
    elif isinstance(wanted, str | Path):
        found = _by_name(str(wanted), size)
    else:
        given = "a function" if inspect.isroutine(wanted) else f"{type(wanted).__name__}"
        raise SilodpError(
            f"Features are to be made by {given}: wrap it by silodp.encoder(function, "
            'takes="image") or takes="text".'
        )
    if takes is not None and found.info.takes != takes:
        raise SilodpError(
            f"Features {found.info.name!r} are made of {_NAMES_OF_KINDS[found.info.takes]}, but "
            f"these are {_NAMES_OF_KINDS[takes]}: give another encoder."
        )
    return make_ready(found, kept=not no_cache)


def encoder_of(info: EncoderInfo) -> PublicEncoder:
    """The encoder that made a model's features; another of its name is refused."""
    if (found := ready_encoder(info)) is not None:
        return found
    if info.name not in BUILT_IN:
        kind = "file" if info.name.endswith(".onnx") else "function"
        raise SilodpError(
            f"The features are made by {info.words}, a {kind} which does not come with the model: "
            "give it (--features on the command line, or features=... in Python)."
        )
    check_same(info, encoder_info(info.name, size=info.size or None, no_cache=True))
    found = ready_encoder(info)
    assert found is not None
    return found


def check_same(needed: EncoderInfo, given: EncoderInfo) -> None:
    """Refuses an encoder that is not the one that a model's features were made by."""
    if given.sha256 != needed.sha256:
        raise SilodpError(
            f"The model's features are made by {needed.words}, but given is another encoder, "
            f"{given.name!r} (sha256 {given.sha256[:16]}): give the one that it was trained with."
        )


def _by_name(name: str, size: int | None) -> PublicEncoder:
    if name in BUILT_IN:
        return _built_in(name, size)
    if name.lower().endswith(".onnx"):
        path = Path(name).expanduser()
        if not path.is_file():
            beside = alike(path.name, [one.name for one in path.parent.glob("*.onnx")])
            remedy = meant(path.name, beside) if beside else "check its path."
            raise SilodpError(f"{path} does not exist: {remedy}")
        # The file may change while its name stays, so that this one is not remembered.
        from silodp.data.encoders.onnx_file import onnx_encoder

        return onnx_encoder(path, size)
    known = (*BUILT_IN, "none")
    raise SilodpError(
        f"Features {name!r} are unknown: {meant(name, known)} Or give the path of a file that ends "
        "in .onnx."
    )


@lru_cache(maxsize=4)
def _built_in(name: str, size: int | None) -> PublicEncoder:
    return BUILT_IN[name](size)
