"""Values out of JSON that somebody else may have written: each is checked, and named in errors.

`at` says where a value stands.
"""

import sys
from collections.abc import Mapping
from typing import Any

from silodp.base.errors import SilodpError


def value_of(at: str, plain: Any, key: str) -> Any:
    """What stands under the key."""
    if not isinstance(plain, Mapping) or key not in plain:
        raise SilodpError(f"{at} has no {key!r}: get the file anew.")
    return plain[key]


def wrong(at: str, key: str, expected: str) -> SilodpError:
    """The error for a value that is not as expected."""
    return SilodpError(f"{at}: {key} is no {expected}: get the file anew.")


def part_of(at: str, plain: Any, key: str) -> Mapping[str, Any]:
    """Names and values."""
    if not isinstance(value := value_of(at, plain, key), Mapping):
        raise wrong(at, key, "set of names and values")
    return value


def list_of(at: str, plain: Any, key: str) -> list[Any]:
    """A list of anything."""
    if not isinstance(value := value_of(at, plain, key), list):
        raise wrong(at, key, "list")
    return value


def text_of(at: str, plain: Any, key: str) -> str:
    """A text."""
    if not isinstance(value := value_of(at, plain, key), str):
        raise wrong(at, key, "text")
    return value


def texts_of(at: str, plain: Any, key: str) -> tuple[str, ...]:
    """At least one text, each once."""
    values = list_of(at, plain, key)
    if not values or not all(isinstance(v, str) for v in values) or len(set(values)) < len(values):
        raise wrong(at, key, "list of different texts")
    return tuple(values)


def choice_of(at: str, plain: Any, key: str, known: tuple[Any, ...]) -> Any:
    """One of the values that are known."""
    value = value_of(at, plain, key)
    for one in known:
        if type(value) is type(one) and value == one:
            return one
    raise wrong(at, key, f"one of {', '.join(map(repr, known))}")


def number_of(at: str, plain: Any, key: str) -> float:
    """A finite number."""
    value = value_of(at, plain, key)
    if not _is_finite(value):
        raise wrong(at, key, "finite number")
    return float(value)


def numbers_of(at: str, plain: Any, key: str, count: int | None = None) -> tuple[float, ...]:
    """Finite numbers: so many, if that is known."""
    values = list_of(at, plain, key)
    if not all(map(_is_finite, values)) or count not in (None, len(values)):
        raise wrong(at, key, "list of finite numbers" if count is None else f"list of {count}")
    return tuple(map(float, values))


def _is_finite(value: Any) -> bool:
    # Beyond all decimal numbers, a whole one of JSON is no number to us.
    return type(value) in (int, float) and abs(value) <= sys.float_info.max
