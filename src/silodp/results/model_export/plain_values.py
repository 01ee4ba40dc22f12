"""Reads values of JSON from others: checks each, and names its place in errors.

`at` is that place.
"""

import sys
from collections.abc import Mapping
from typing import Any

from silodp.base.errors import SilodpError


def value_of(at: str, plain: Any, key: str) -> Any:
    """The value of the key; refuses where there is none."""
    if not isinstance(plain, Mapping) or key not in plain:
        raise SilodpError(f"{at} has no {key!r}: get the file again.")
    return plain[key]


def wrong(at: str, key: str, expected: str) -> SilodpError:
    """The error for a value that is not as expected."""
    return SilodpError(f"{at}: {key} is not {expected}: get the file again.")


def part_of(at: str, plain: Any, key: str) -> Mapping[str, Any]:
    """The names and values under the key."""
    if not isinstance(value := value_of(at, plain, key), Mapping):
        raise wrong(at, key, "a set of names and values")
    return value


def list_of(at: str, plain: Any, key: str) -> list[Any]:
    """The list under the key."""
    if not isinstance(value := value_of(at, plain, key), list):
        raise wrong(at, key, "a list")
    return value


def text_of(at: str, plain: Any, key: str) -> str:
    """The text under the key."""
    if not isinstance(value := value_of(at, plain, key), str):
        raise wrong(at, key, "text")
    return value


def texts_of(at: str, plain: Any, key: str) -> tuple[str, ...]:
    """The different texts under the key, at least one."""
    values = list_of(at, plain, key)
    if not values or not all(isinstance(v, str) for v in values) or len(set(values)) < len(values):
        raise wrong(at, key, "a list of different texts")
    return tuple(values)


def choice_of(at: str, plain: Any, key: str, known: tuple[Any, ...]) -> Any:
    """The value under the key, which must be one of `known`."""
    value = value_of(at, plain, key)
    for one in known:
        if type(value) is type(one) and value == one:
            return one
    raise wrong(at, key, f"one of {', '.join(map(repr, known))}")


def number_of(at: str, plain: Any, key: str) -> float:
    """The finite number under the key."""
    value = value_of(at, plain, key)
    if not _is_finite(value):
        raise wrong(at, key, "a finite number")
    return float(value)


def numbers_of(at: str, plain: Any, key: str, count: int | None = None) -> tuple[float, ...]:
    """The finite numbers under the key; `count` of them, if given."""
    values = list_of(at, plain, key)
    if not all(map(_is_finite, values)) or count not in (None, len(values)):
        raise wrong(at, key, "a list of finite numbers" if count is None else f"a list of {count}")
    return tuple(map(float, values))


def _is_finite(value: Any) -> bool:
    # JSON may hold whole numbers beyond the largest float.
    return type(value) in (int, float) and abs(value) <= sys.float_info.max
