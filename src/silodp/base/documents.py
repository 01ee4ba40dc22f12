"""Reads documents in TOML and JSON, and checks them against declared fields.

The writer of a document (a person, another program, another site) may have got anything wrong. An
error is one sentence: where the fault is, what it is, and what to do about it.
"""

import dataclasses
import json
import math
import re
import tomllib
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from silodp.base.errors import SilodpError, meant

_Declared = TypeVar("_Declared")

# The end of tomllib's messages: before Python 3.14 the line stands nowhere else.
_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


def read_toml(
    path: Path | str, where: str = "", *, missing: str = "check the path", hint: str = ""
) -> dict[str, Any]:
    """Reads a TOML file.

    Args:
      path: the file.
      where: its name in errors; by default its path.
      missing: the remedy where there is no such file.
      hint: what people often get wrong in such a file.
    """
    where = where or str(path)
    return toml_of(_text(Path(path), where, missing), where, hint)


def toml_of(text: str, where: str, hint: str = "") -> dict[str, Any]:
    """Parses a text in TOML."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error)
        place = _PLACE.search(reason)
    line = "it"
    if place is not None:
        line = f"line {place[1] or len(text.splitlines())}"
        reason = reason[: place.start()]
    more = f"; {hint}" if hint else ""
    raise SilodpError(f"{where} is not valid TOML: fix {line} ({reason}){more}.")


def read_json(
    path: Path | str, where: str = "", *, missing: str = "check the path", remedy: str
) -> Any:
    """Reads a JSON file.

    Args:
      path: the file.
      where: its name in errors; by default its path.
      missing: the remedy where there is no such file.
      remedy: the remedy for one that is not JSON.
    """
    where = where or str(path)
    return json_of(_text(Path(path), where, missing), where, remedy)


def json_of(text: str | bytes, where: str, remedy: str) -> Any:
    """Parses a text in JSON."""
    try:
        return json.loads(text.decode("utf-8") if isinstance(text, bytes) else text)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        line = f"line {error.lineno}: " if isinstance(error, json.JSONDecodeError) else ""
    raise SilodpError(f"{where} is not valid JSON ({line}{reason}): {remedy}.")


def _text(path: Path, where: str, missing: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SilodpError(f"{where} does not exist: {missing}.") from None
    except OSError as error:
        raise SilodpError(
            f"{where} cannot be read ({error.strerror or error}): check the path and its "
            "permissions."
        ) from None
    except UnicodeDecodeError:
        raise SilodpError(f"{where} is not text: save it as UTF-8.") from None


def check_keys(where: str, given: Iterable[Any], known: Collection[str], kind: str = "key") -> None:
    """Refuses unknown names: they may be misspellings."""
    for name in given:
        if name not in known:
            raise SilodpError(f"{where}: the {kind} {name!r} is unknown: {meant(name, known)}")


def declared(
    remedy: str, default: Any = dataclasses.MISSING, fits: Callable[[Any], object] | None = None
) -> Any:
    """A field of a dataclass that `decode` fills from a document.

    Args:
      remedy: the remedy where the value is missing or wrong.
      default: the value where the field may be left out.
      fits: whether a value of the right type is valid; it may raise an error of its own.
    """
    about = {"remedy": remedy, "fits": fits}
    if isinstance(default, Mapping):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=about)
    return dataclasses.field(default=default, metadata=about)


def decode(kind: type[_Declared], table: Any, where: str) -> _Declared:
    """Makes a dataclass of a document's table; refuses unknown names and other types.

    Fields are made by `declared`, of the types that documents have: bool, int, float (whole
    numbers included), str, tuple[str, ...] or of another of these, a Literal, Mapping[str, Any], or
    such a dataclass.
    """
    if not isinstance(table, Mapping):
        # Its value is not repeated: it may be a password in the wrong place.
        raise SilodpError(f"{where} is not a table: write names and their values.")
    own = {field.name: field for field in dataclasses.fields(kind) if field.init}  # type: ignore[arg-type]
    check_keys(where, table, own)
    hints, values = get_type_hints(kind), {}
    for name, field in own.items():
        remedy, fits = field.metadata["remedy"], field.metadata["fits"]
        if name in table:
            value = _typed(hints[name], table[name], f"{where}: [{name}]")
            if value is None or not _fits(fits, value, where):
                is_table = get_origin(hints[name]) is Mapping
                found = "not a table" if is_table else repr(table[name])
                raise SilodpError(f"{where}: {name} is {found}: {remedy}.")
            values[name] = value
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise SilodpError(f"{where} has no {name}: {remedy}.")
    return kind(**values)


def _fits(fits: Callable[[Any], object] | None, value: Any, where: str) -> bool:
    try:
        return fits is None or bool(fits(value))
    except SilodpError as error:  # an error of its own
        raise SilodpError(f"{where}: {error}") from None


def _typed(hint: Any, value: Any, where: str) -> Any:
    """The value if it has the type; else None, which no document has."""
    if dataclasses.is_dataclass(hint):
        return decode(hint, value, where)  # type: ignore[arg-type]
    kind = get_origin(hint) or hint
    if kind in (Union, types.UnionType):  # with None, for what may be left out
        return _typed(next(t for t in get_args(hint) if t is not type(None)), value, where)
    if kind is Literal:
        return next(
            (one for one in get_args(hint) if type(one) is type(value) and one == value), None
        )
    if kind is tuple:
        if not isinstance(value, list):
            return None
        items = [_typed(get_args(hint)[0], item, where) for item in value]
        return None if any(item is None for item in items) else tuple(items)
    if kind is float and type(value) is int:
        return float(value) if abs(value) < 2**1023 else None
    if kind is float and type(value) is float and math.isnan(value):
        return None
    return value if isinstance(value, kind) and isinstance(value, bool) == (kind is bool) else None
