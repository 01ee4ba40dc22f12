"""Declarations about a table: what is public knowledge, so that nothing is learned from records.

ignore = ["patient_id"]            # columns to leave out

[file]                             # how a text table is written; without this, it is found from it
delimiter = ";"
decimal = ","
thousands = "."
encoding = "cp1252"
sheet = "visits"                   # of a workbook

[levels]                           # what a category column may hold
ward = ["north", "south"]

[bounds]                           # lowest and highest value of a number column
age = [0, 120]
admitted = [0, 4000]

[dates]                            # columns of dates, which become days since an origin
admitted = {origin = "2015-01-01", format = "%d.%m.%Y"}

[words.age]                        # what words among the numbers of a column stand for
"90+" = 90
unknown = "missing"

[features]                         # public encoders of images (paths of files) and of texts
report = "minilm"

[other]                            # the level that takes whatever is not listed; else it is refused
ward = "south"

[missing]                          # what a missing value counts as; else it is refused, or the row
age = {value = 50, indicator = true}    # is left out (drop_missing). With an indicator, a feature
ward = "north"                     # says where a value was missing.
score = "drop"                     # rows without this value are left out
weight = "noisy mean"              # each silo's own, within the bounds, at a price

[target]                           # one of the two
range = [0, 100]                   # of a regression, or of counts
classes = ["no", "yes"]            # ordered classes: the lowest first

exposure_column = "person_years"   # of counts: for how long, or of how many
exposure_range = [0.1, 40]
event_column = "status"            # of times: whether the event was seen, else censored
event_value = 2                    # what stands for it; else 1, true or yes
cut_points = [90, 180, 365]        # where time is cut into intervals

A schema that silodp has proposed also has `from_records`: the columns for which a person has not
yet replaced what was taken from records by what is public. Results say that epsilon does not cover
it.
"""

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from silodp.base.documents import check_keys, read_toml
from silodp.base.errors import SilodpError
from silodp.config.data_options import DataOptions
from silodp.data.encoders.named import NONE as NO_ENCODER
from silodp.data.encoders.named import asked_for
from silodp.data.problems import Problems
from silodp.data.tables.beside import KEYS as BESIDE
from silodp.data.tables.beside import Beside, checked_beside
from silodp.data.tables.dialect import Dialect, dialect_of

DROP = "drop"
NOISY_MEAN = "noisy mean"
MISSING_WORD = "missing"
FEATURES = "features"
SECTIONS = ("levels", "bounds", "dates", "words", "other", "missing")
_Declared = TypeVar("_Declared")


@dataclass(frozen=True)
class MissingRule:
    """What a missing value counts as: a number or level, or nothing (None): the row is left out.

    NOISY_MEAN in a column without levels: the mean of the silo's training records that have a
    value, with noise that a run pays for. With an indicator, a feature of its own says where a
    value was missing.
    """

    value: float | str | None
    indicator: bool = False

    def to_plain(self) -> Any:
        """The rule as TOML and JSON have it."""
        if self.value is None:
            return DROP
        return {"value": self.value, "indicator": True} if self.indicator else self.value


@dataclass(frozen=True)
class DateForm:
    """How dates become numbers: days since an origin.

    Attributes:
      origin: a date as 2015-01-31.
      format: how dates are written, in the letters of Python's strptime; ISO dates are read too.
    """

    origin: str
    format: str = "%Y-%m-%d"

    @property
    def start(self) -> datetime.datetime:
        """The origin, as a point in time."""
        return datetime.datetime.fromisoformat(self.origin)

    def to_plain(self) -> dict[str, str]:
        """The form as TOML and JSON have it."""
        return {"origin": self.origin, "format": self.format}


@dataclass(frozen=True)
class Schema:
    """Declarations about a table; see the module for their meaning."""

    ignore: tuple[str, ...] = ()
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    other: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, MissingRule] = field(default_factory=dict)
    target_range: tuple[float, float] | None = None
    classes: tuple[str, ...] | None = None
    beside: Beside = field(default_factory=Beside)
    dates: Mapping[str, DateForm] = field(default_factory=dict)
    words: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    dialect: Dialect | None = None
    sheet: str | None = None
    features: Mapping[str, Any] = field(default_factory=dict)
    from_records: tuple[str, ...] = ()

    @property
    def by_value(self) -> set[str]:
        """The columns with a rule for single values, which are read value by value."""
        return {*self.levels, *self.missing, *self.dates, *self.words}

    def noisy_means(self) -> tuple[str, ...]:
        """The columns in which a missing value counts as the silo's noisy mean."""
        return tuple(
            column
            for column, rule in self.missing.items()
            if rule.value == NOISY_MEAN and column not in self.levels
        )

    def drops(self, column: str) -> bool:
        """Whether rows without a value of this column are left out."""
        return column in self.missing and self.missing[column].value is None


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
    sections = (*SECTIONS, "target", "file", FEATURES)
    problems = Problems()
    with problems.noted():
        check_keys(where, document, ("ignore", "from_records", *sections))
    for section in sections:
        if not isinstance(document.get(section, {}), dict):
            raise SilodpError(f"{where}: {section!r} is not a section: write [{section}].")
    target = document.get("target", {})
    with problems.noted():
        check_keys(f"{where}, section [target]", target, ("range", "classes", *BESIDE))
    schema = Schema()
    with problems.noted():
        schema = checked_schema(
            where,
            ignore=document.get("ignore"),
            target_range=target.get("range"),
            classes=target.get("classes"),
            beside={key: target.get(key) for key in BESIDE},
            file=document.get("file"),
            features=_from_folder(document.get(FEATURES), path.parent),
            **{section: document.get(section) for section in SECTIONS},
        )
    with problems.noted():
        from_records = _names(where, document.get("from_records"), "from_records")
        schema = replace(schema, from_records=from_records)
    problems.check()
    return schema


def schema_of(options: DataOptions) -> Schema:
    """The declarations of the schema file, if any, under those that are given directly."""
    filed = read_schema(options.schema) if options.schema is not None else Schema()
    given = checked_schema(
        "Data options",
        ignore=options.ignore,
        target_range=options.target_range,
        classes=options.classes,
        file=options.file,
        features={**filed.features, **asked_for(options.features), **(options.encoders or {})},
        beside={
            key: own if (own := getattr(options, key)) is not None else getattr(filed.beside, key)
            for key in BESIDE
        },
        **{
            section: {**getattr(filed, section), **(getattr(options, section) or {})}
            for section in SECTIONS
        },
    )
    target = given if given.target_range or given.classes else filed
    return replace(
        given,
        ignore=tuple(dict.fromkeys((*filed.ignore, *given.ignore))),
        target_range=target.target_range,
        classes=target.classes,
        dialect=given.dialect or filed.dialect,
        sheet=options.sheet or given.sheet or filed.sheet,
        from_records=filed.from_records,
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
    dates: Any = None,
    words: Any = None,
    file: Any = None,
    features: Any = None,
) -> Schema:
    """A schema from plain values, each of which is checked; all that is wrong is told at once."""
    problems = Problems()

    def each(
        what: str, declared: Any, read: Callable[[str, str, Any], _Declared]
    ) -> dict[str, _Declared]:
        """What is declared of each column, as far as it is sound."""
        found = {}
        for column, value in (declared or {}).items():
            with problems.noted():
                found[column] = read(f"{where}: {what} of column {column!r}", column, value)
        return found

    if target_range is not None and classes is not None:
        problems.add(
            SilodpError(
                f"{where}: the target has both a range and classes: declare the range for "
                "regression, or the classes for classification."
            )
        )
    with_levels = set(levels or ())
    levels = each("levels", levels, lambda at, _, values: _levels(at, values))
    unsound = with_levels - set(levels)  # of these, nothing more can be said
    bounds = each("bounds", bounds, lambda at, _, values: _range(at, values))
    dates = each("dates", dates, lambda at, _, form: _date_form(at, form))
    words = each("words", words, lambda at, _, own: _numbers_of_words(at, own))
    for column in (*dates, *words):
        if column in levels or (column in dates and column in words):
            problems.add(
                SilodpError(
                    f"{where}: column {column!r} is declared twice, by levels, dates or words: "
                    "declare one of them."
                )
            )
    for column in features or ():
        for section, own in {
            "levels": levels,
            "bounds": bounds,
            "dates": dates,
            "words": words,
        }.items():
            if column in own:
                problems.add(
                    SilodpError(
                        f"{where}: column {column!r} has both an encoder (features) and {section}: "
                        "declare one of them."
                    )
                )
    other, missing = (
        {column: rule for column, rule in (rules or {}).items() if column not in unsound}
        for rules in (other, missing)
    )
    other = each("other", other, lambda at, own, value: _level(at, value, levels.get(own, ())))
    missing = {
        column: _dropped(f"{where}: missing of column {column!r}", rule)
        if column in (features or ())
        else rule
        for column, rule in missing.items()
    }
    missing = each(
        "missing", missing, lambda _, own, rule: _counts_as(where, own, rule, levels, bounds)
    )
    file, sheet = dict(file or {}), None
    with problems.noted():
        sheet = file.pop("sheet", None)
        if sheet is not None and not isinstance(sheet, str):
            raise SilodpError(f"{where}: sheet is {sheet!r}: give the name of a sheet.")
    ignored, own_range, own_classes, dialect, own_beside = (), None, None, None, Beside()
    with problems.noted():
        ignored = _names(where, ignore)
    with problems.noted():
        own_range = None if target_range is None else _range(f"{where}: target range", target_range)
    with problems.noted():
        own_classes = None if classes is None else _levels(f"{where}: target classes", classes)
    with problems.noted():
        dialect = dialect_of(f"{where}, section [file]", file) if file else None
    with problems.noted():
        own_beside = checked_beside(where, _with_level_text(beside or {}))
    problems.check()
    return Schema(
        dates=dates,
        words=words,
        dialect=dialect,
        sheet=sheet,
        ignore=ignored,
        levels=levels,
        bounds=bounds,
        other=other,
        missing=missing,
        target_range=own_range,
        classes=own_classes,
        beside=own_beside,
        features=dict(features or {}),
    )


def _from_folder(features: Any, folder: Path) -> dict[str, Any]:
    """Encoders by column; files of ONNX are looked for from the folder of the schema."""
    found = {}
    for column, name in (features or {}).items():
        if not isinstance(name, str):
            raise SilodpError(
                f"[features]: {column!r} is {name!r}: give the name of an encoder, or a file."
            )
        if name != NO_ENCODER:
            is_file = name.lower().endswith(".onnx")
            found[column] = str(folder / Path(name).expanduser()) if is_file else name
    return found


def _dropped(where: str, rule: Any) -> Any:
    """The rule for missing images or texts, which have no value to count as."""
    if rule != DROP and not (isinstance(rule, MissingRule) and rule.value is None):
        raise SilodpError(f"{where} is {rule!r}, but it has an encoder: write {DROP!r}.")
    return rule


def _with_level_text(beside: Mapping[str, Any]) -> dict[str, Any]:
    event = beside.get("event_value")
    return {
        **beside,
        "event_value": level_text(event) if isinstance(event, str | int | float) else event,
    }


def _is_list(values: Any) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str | bytes)


def _names(where: str, values: Any, key: str = "ignore") -> tuple[str, ...]:
    if values is None:
        return ()
    if not _is_list(values) or not all(isinstance(name, str) for name in values):
        raise SilodpError(f"{where}: {key!r} is {values!r}: give a list of column names.")
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
    rule: Any,
    levels: Mapping[str, tuple[str, ...]],
    bounds: Mapping[str, tuple[float, float]],
) -> MissingRule:
    """What a missing value of the column counts as: one of its levels, a number, or nothing."""
    where = f"{where}: missing of column {column!r}"
    if isinstance(rule, MissingRule):  # from a schema file, and checked
        rule = rule.to_plain()
    value, indicator = rule, False
    if isinstance(rule, Mapping):
        check_keys(where, rule, ("value", "indicator"))
        value, indicator = rule.get("value"), rule.get("indicator", False)
        if not isinstance(indicator, bool):
            raise SilodpError(f"{where}: indicator is {indicator!r}: write true or false.")
    if value == DROP and DROP not in levels.get(column, ()):
        if indicator:
            raise SilodpError(
                f'{where} is "drop", so that no row shows an indicator: leave out one of them.'
            )
        return MissingRule(None)
    if column in levels:
        return MissingRule(_level(where, value, levels[column]), indicator)
    if value == NOISY_MEAN:
        if column not in bounds:
            raise SilodpError(
                f"{where} is {NOISY_MEAN!r}, whose noise is for values within public bounds: "
                f"declare those of {column!r} under [bounds]."
            )
        return MissingRule(NOISY_MEAN, indicator)
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise SilodpError(
            f"{where} is {value!r}, which is no number: give one, {DROP!r} or {NOISY_MEAN!r}, or "
            "declare the column's levels if it is a category."
        )
    low, high = bounds.get(column, (-math.inf, math.inf))
    if not low <= value <= high:
        raise SilodpError(
            f"{where} is {value!r}, beyond its bounds {[low, high]!r}: give a number within them."
        )
    return MissingRule(float(value), indicator)


def _date_form(where: str, form: Any) -> DateForm:
    if isinstance(form, DateForm):
        return form
    if not isinstance(form, Mapping):
        raise SilodpError(f'{where}: {form!r} is no rule: write {{origin = "2015-01-01"}}.')
    check_keys(where, form, ("origin", "format"))
    origin, text = form.get("origin"), form.get("format", DateForm.format)
    try:
        start = datetime.datetime.fromisoformat(origin)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        start = None
    if start is None or start.tzinfo is not None:
        raise SilodpError(f"{where}: origin is {origin!r}: give a date such as 2015-01-31.")
    if not isinstance(text, str) or "%" not in text:
        raise SilodpError(f'{where}: format is {text!r}: write one such as "%d.%m.%Y".')
    return DateForm(origin, text)  # type: ignore[arg-type]


def _numbers_of_words(where: str, words: Any) -> dict[str, float | None]:
    if not isinstance(words, Mapping):
        raise SilodpError(f'{where}: {words!r} is no table: write such as "90+" = 90.')
    numbers: dict[str, float | None] = {}
    for word, number in words.items():
        if number is None or number == MISSING_WORD:
            numbers[word.strip()] = None
            continue
        if (
            isinstance(number, bool)
            or not isinstance(number, int | float)
            or not _is_finite(number)
        ):
            raise SilodpError(
                f'{where}: {word!r} stands for {number!r}: give a number, or "missing".'
            )
        numbers[word.strip()] = float(number)
    return numbers


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
