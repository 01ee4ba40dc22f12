"""Declarations about a table: what is public knowledge, so that nothing is learned from records.

ignore = ["patient_id"]            # columns to leave out

[levels]                           # what a category column may hold
ward = ["north", "south"]

[bounds]                           # lowest and highest value of a number column
age = [0, 120]

[other]                            # the level that takes whatever is not listed; else it is refused
ward = "south"

[missing]                          # what a missing value counts as; else it is refused, or the row
age = 50                           # is left out (drop_missing)
ward = "north"

[target]                           # one of the two
range = [0, 100]                   # of a regression, or of counts
classes = ["no", "yes"]            # ordered classes: the lowest first

exposure_column = "person_years"   # of counts: for how long, or of how many
exposure_range = [0.1, 40]
event_column = "status"            # of times: whether the event was seen, else censored
event_value = 2                    # what stands for it; else 1, true or yes
cut_points = [90, 180, 365]        # where time is cut into intervals
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from silodp.base.documents import check_keys, read_toml
from silodp.base.errors import SilodpError
from silodp.config.data_options import DataOptions
from silodp.data.tables.beside import KEYS as BESIDE
from silodp.data.tables.beside import Beside, checked_beside


@dataclass(frozen=True)
class Schema:
    """Declarations about a table; see the module for their meaning."""

    ignore: tuple[str, ...] = ()
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    other: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, float | str] = field(default_factory=dict)
    target_range: tuple[float, float] | None = None
    classes: tuple[str, ...] | None = None
    beside: Beside = field(default_factory=Beside)


def level_text(value: object) -> str:
    """One spelling of a level, however it was stored: 1, 1.0 and "1" agree, and TRUE and true."""
    if isinstance(value, str):
        text = value.strip()
        return text.capitalize() if text.lower() in ("true", "false") else text
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def read_schema(path: Path) -> Schema:
    """Reads a TOML schema file; an unknown key is refused, since it may be a misspelling."""
    where = f"Schema {path}"
    document = read_toml(path, where)
    sections = ("levels", "bounds", "other", "missing", "target")
    check_keys(where, document, ("ignore", *sections))
    for section in sections:
        if not isinstance(document.get(section, {}), dict):
            raise SilodpError(f"{where}: {section!r} is not a section: write [{section}].")
    target = document.get("target", {})
    check_keys(f"{where}, section [target]", target, ("range", "classes", *BESIDE))
    return checked_schema(
        where,
        ignore=document.get("ignore"),
        levels=document.get("levels"),
        bounds=document.get("bounds"),
        other=document.get("other"),
        missing=document.get("missing"),
        target_range=target.get("range"),
        classes=target.get("classes"),
        beside={key: target.get(key) for key in BESIDE},
    )


def schema_of(options: DataOptions) -> Schema:
    """The declarations of the schema file, if any, under those that are given directly."""
    filed = read_schema(options.schema) if options.schema is not None else Schema()
    given = checked_schema(
        "Data options",
        ignore=options.ignore,
        levels={**filed.levels, **(options.levels or {})},
        bounds={**filed.bounds, **(options.bounds or {})},
        other={**filed.other, **(options.other or {})},
        missing={**filed.missing, **(options.missing or {})},
        target_range=options.target_range,
        classes=options.classes,
        beside={
            key: own if (own := getattr(options, key)) is not None else getattr(filed.beside, key)
            for key in BESIDE
        },
    )
    target = given if given.target_range or given.classes else filed
    return replace(
        given,
        ignore=tuple(dict.fromkeys((*filed.ignore, *given.ignore))),
        target_range=target.target_range,
        classes=target.classes,
    )


def checked_schema(
    where: str,
    *,
    ignore: Any,
    levels: Any,
    bounds: Any,
    target_range: Any,
    classes: Any,
    other: Any = None,
    missing: Any = None,
    beside: Mapping[str, Any] | None = None,
) -> Schema:
    """A schema from plain values, each of which is checked."""
    if target_range is not None and classes is not None:
        raise SilodpError(
            f"{where}: the target has both a range and classes: declare the range for regression, "
            "or the classes for classification."
        )
    levels = {
        column: _levels(f"{where}: levels of column {column!r}", values)
        for column, values in (levels or {}).items()
    }
    bounds = {
        column: _range(f"{where}: bounds of column {column!r}", values)
        for column, values in (bounds or {}).items()
    }
    return Schema(
        ignore=_names(where, ignore),
        levels=levels,
        bounds=bounds,
        other={
            column: _level(f"{where}: other of column {column!r}", value, levels.get(column, ()))
            for column, value in (other or {}).items()
        },
        missing={
            column: _counts_as(where, column, value, levels, bounds)
            for column, value in (missing or {}).items()
        },
        target_range=None
        if target_range is None
        else _range(f"{where}: target range", target_range),
        classes=None if classes is None else _levels(f"{where}: target classes", classes),
        beside=checked_beside(where, _with_level_text(beside or {})),
    )


def _with_level_text(beside: Mapping[str, Any]) -> dict[str, Any]:
    event = beside.get("event_value")
    return {
        **beside,
        "event_value": level_text(event) if isinstance(event, str | int | float) else event,
    }


def _is_list(values: Any) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str | bytes)


def _names(where: str, values: Any) -> tuple[str, ...]:
    if values is None:
        return ()
    if not _is_list(values) or not all(isinstance(name, str) for name in values):
        raise SilodpError(f"{where}: 'ignore' is {values!r}: give a list of column names.")
    return tuple(values)


def _levels(where: str, values: Any) -> tuple[str, ...]:
    if not _is_list(values) or not all(isinstance(v, str | int | float) for v in values):
        raise SilodpError(f"{where} are {values!r}: give a list of words or numbers.")
    texts = tuple(level_text(value) for value in values)
    if len(texts) < 2 or len(set(texts)) < len(texts):
        raise SilodpError(f"{where} are {list(values)!r}: give at least two, and each one once.")
    return texts


def _level(where: str, value: Any, levels: tuple[str, ...]) -> str:
    if not levels:
        raise SilodpError(f"{where} is {value!r}, but it has no levels: declare them.")
    text = level_text(value) if isinstance(value, str | int | float) else None
    if text not in levels:
        raise SilodpError(
            f"{where} is {value!r}, which is not among its levels ({', '.join(levels)}): give one "
            "of them, or add it there."
        )
    return text


def _counts_as(
    where: str,
    column: str,
    value: Any,
    levels: Mapping[str, tuple[str, ...]],
    bounds: Mapping[str, tuple[float, float]],
) -> float | str:
    """What a missing value of the column counts as: one of its levels, or a number."""
    where = f"{where}: missing of column {column!r}"
    if column in levels:
        return _level(where, value, levels[column])
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise SilodpError(
            f"{where} is {value!r}, which is no number: give one, or declare the column's levels "
            "if it is a category."
        )
    low, high = bounds.get(column, (-math.inf, math.inf))
    if not low <= value <= high:
        raise SilodpError(
            f"{where} is {value!r}, beyond its bounds {[low, high]!r}: give a number within them."
        )
    return float(value)


def _range(where: str, values: Any) -> tuple[float, float]:
    if (
        not _is_list(values)
        or len(values) != 2
        or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        or not all(_is_finite(v) for v in values)
        or not values[0] < values[1]
    ):
        raise SilodpError(
            f"{where}: {values!r} is not a range: give two numbers, the lower one first."
        )
    return float(values[0]), float(values[1])


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all decimal ones
        return False
