"""Columns of a table as numbers: number columns as they are, category columns one-hot.

An encoder is made once from the declarations and the tables of all silos; after that it is a pure
function of rows, so that new rows can be encoded in the same way. Columns with a rule for odd
values, and all columns of a site, are read value by value (see `by_value`); else a value that does
not fit is refused.
"""

import datetime
import decimal
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from pandas.api import types

from silodp.data.encoders.encoder import EncoderInfo
from silodp.data.problems import Fault, Problems, as_one
from silodp.data.tables.by_value import (
    LARGEST,
    MISSING,
    UNLISTED,
    WHOLE_ENDING,
    days_of,
    is_missing,
    number_of,
    places_of,
    plain_number,
)
from silodp.data.tables.encoded import encoded_values
from silodp.data.tables.files import Frames, in_order, values_of
from silodp.data.tables.schema import DateForm, Schema, level_text

# More levels than this look like names or numbers of persons, which should not be features.
MAX_LEVELS = 100
# The place of a value that counts as none of the levels: all its features are 0.
NO_LEVEL = -1
DATE_LIKE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([ T].*)?|\d{1,2}([/.])\d{1,2}\2\d{2,4}( .*)?")
# Also as people write them: 1,5 and 1 234 and 20%.
NUMBER_LIKE = re.compile(r"[-+]?[\d.,' ]*\d[\d.,' ]*(e[-+]?\d+)?\s*%?", re.IGNORECASE)

Kind = Literal["number", "category"]

_DATES_REMEDY = (
    "turn them into numbers, such as years or days since an event, declare how they become days "
    "(in a schema: under [dates]), or leave the column out (--ignore)"
)


@dataclass(frozen=True)
class Column:
    """A feature column: numbers, one of a list of categories (if it has levels), images or texts.

    Attributes:
      name: name of the column.
      levels: levels of a category.
      declared: whether the levels were, or were taken from the records.
      by_value: each value is read by itself, whatever the others and the type of the column are;
        what is no number where numbers belong counts as missing.
      unlisted: by value: the place of the level that takes what is not listed, or NO_LEVEL; if it
        is None, such a value is refused.
      missing: by value: the number (or place of the level, or NO_LEVEL) that a missing value counts
        as; None where rows with one are left out or refused.
      indicator: by value: a feature of its own says where a value was missing.
      drops: rows without a value are left out.
      words: by value: what words among numbers stand for; None for a missing value.
      date: by value: how dates become numbers.
      noisy_mean: by value: `missing` is the mean of the silo's records, with noise that a run paid
        for; before that, the middle of the bounds.
    """

    name: str
    levels: tuple[str, ...] = ()
    declared: bool = False
    by_value: bool = False
    unlisted: int | None = None
    missing: float | None = None
    indicator: bool = False
    drops: bool = False
    words: tuple[tuple[str, float | None], ...] = ()
    date: DateForm | None = None
    noisy_mean: bool = False
    encoder: EncoderInfo | None = None

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the numbers that it becomes."""
        if self.encoder is not None:
            return tuple(f"{self.name}[{place}]" for place in range(self.encoder.width))
        own = tuple(f"{self.name}={level}" for level in self.levels) or (self.name,)
        return (*own, f"{self.name} is missing") if self.indicator else own

    @property
    def is_number(self) -> tuple[bool, ...]:
        """Of each feature: whether it is a number to be scaled, not a 0 or 1, nor an encoder's."""
        if self.encoder is not None:
            return (False,) * self.encoder.width
        return (not self.levels, *[False] * (len(self.feature_names) - 1))

    def encode(self, silo: str, values: pd.Series) -> np.ndarray:
        """[rows, 1] for numbers, [rows, levels] of 0 and 1 for categories; and the indicator.

        [rows, width] where an encoder makes features of them.
        """
        if self.encoder is not None:
            return encoded_values(silo, self.name, values, self.encoder)
        if not self.levels:
            found = self._numbers(silo, values)[:, None]
        else:
            # Below the levels, a row for NO_LEVEL.
            found = np.eye(len(self.levels) + 1, len(self.levels))[self._places(silo, values)]
        if not self.indicator:
            return found
        return np.concatenate([found, self._is_missing(values)[:, None].astype(float)], axis=1)

    def numbers_of(self, values: pd.Series) -> np.ndarray:
        """By value: the number that each value is, in float64; NaN if it is none."""
        words = dict(self.words)

        def one(value: object) -> float:
            if isinstance(value, str) and (text := value.strip()) in words:
                number = words[text]
                return math.nan if number is None else number
            return number_of(value) if self.date is None else days_of(value, self.date)

        return np.array([one(value) for value in values], np.float64)

    def lacks(self, values: pd.Series) -> np.ndarray:
        """[rows]: whether a value is missing and no rule says what it counts as."""
        if self.encoder is not None:
            return np.array([is_missing(value) for value in values], bool)
        if not self.by_value:
            return values.isna().to_numpy(bool)
        if self.missing is not None:
            return np.zeros(len(values), bool)
        return self._is_missing(values)

    def strange(self, values: pd.Series) -> np.ndarray:
        """[rows], by value: which values are there, but are no number (or date) of the column."""
        if self.levels or self.encoder is not None:
            return np.zeros(len(values), bool)
        known = {word for word, number in self.words if number is None}
        odd = np.isnan(self.numbers_of(values))
        return odd & np.array(
            [
                not is_missing(value) and not (isinstance(value, str) and value.strip() in known)
                for value in values
            ],
            bool,
        )

    def _is_missing(self, values: pd.Series) -> np.ndarray:
        if not self.levels:
            return np.isnan(self.numbers_of(values))
        return places_of(values, self.levels) == MISSING

    def _numbers(self, silo: str, values: pd.Series) -> np.ndarray:
        if not self.by_value:
            return numbers(silo, self.name, values)
        array = self.numbers_of(values)
        return array if self.missing is None else np.where(np.isnan(array), self.missing, array)

    def _places(self, silo: str, values: pd.Series) -> np.ndarray:
        if not self.by_value:
            return category_numbers(silo, self.name, values, self.levels)
        places = places_of(values, self.levels)
        if self.unlisted is None and (unlisted := places == UNLISTED).any():
            odd = values.to_numpy()[unlisted]
            raise not_among(silo, self.name, list(odd), self.levels)
        for odd, counts_as in ((UNLISTED, self.unlisted), (MISSING, self.missing)):
            if counts_as is not None:
                places[places == odd] = counts_as
        assert (places >= NO_LEVEL).all()  # rows that lack a value were left out
        return places


@dataclass(frozen=True)
class Encoder:
    """All feature columns of a table, in order."""

    columns: tuple[Column, ...]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the encoded features."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def is_number(self) -> np.ndarray:
        """Which encoded features come from number columns, and so may be scaled."""
        return np.array([number for column in self.columns for number in column.is_number])

    def lacks(self, frame: pd.DataFrame) -> np.ndarray:
        """[rows, columns]: which values are missing, and no rule says what they count as."""
        return np.stack([c.lacks(values_of(frame, c.name)) for c in self.columns], axis=1)

    @property
    def waits(self) -> np.ndarray:
        """[features]: where missing values count as a noisy mean."""
        return np.array(
            [
                column.noisy_mean and number
                for column in self.columns
                for number in column.is_number
            ],
            bool,
        )

    def absent(self, frame: pd.DataFrame) -> np.ndarray | None:
        """[rows, features]: which values wait for a noisy mean; None where no column has that rule.

        By the rules alone: whether it is None tells nothing of the records.
        """
        if not self.waits.any():
            return None
        parts = []
        for column in self.columns:
            parts.append(np.zeros((len(frame), len(column.feature_names)), bool))
            if column.noisy_mean:
                parts[-1][:, 0] = np.isnan(column.numbers_of(values_of(frame, column.name)))
        return np.concatenate(parts, axis=1)

    @property
    def column_of_feature(self) -> np.ndarray:
        """Of each encoded feature, the number of its column."""
        return np.repeat(np.arange(len(self.columns)), [len(c.feature_names) for c in self.columns])

    def encode_present(self, silo: str, frame: pd.DataFrame, lacking: np.ndarray) -> np.ndarray:
        """[rows, features], 0 where a value is lacking [rows, columns]."""
        parts, problems = [], Problems()
        for column, missing in zip(self.columns, lacking.T, strict=True):
            part = np.zeros((len(frame), len(column.feature_names)))
            with problems.noted():
                if not missing.all():
                    present = values_of(frame, column.name).loc[~missing]
                    part[~missing] = column.encode(silo, present)
            parts.append(part)
        problems.check()
        return np.concatenate(parts, axis=1)

    def encode(self, silo: str, frame: pd.DataFrame) -> np.ndarray:
        """[rows, features] of a table that has these columns and lacks no value."""
        parts = [column.encode(silo, values_of(frame, column.name)) for column in self.columns]
        return np.concatenate(parts, axis=1)


def make_encoder(
    frames: Frames,
    names: list[str],
    schema: Schema,
    *,
    total: bool = False,
    drop: bool = False,
    encoders: Mapping[str, EncoderInfo] | None = None,
    problems: Problems | None = None,
) -> tuple[Encoder, tuple[str, ...]]:
    """The encoder, and the category columns whose levels had to be taken from the records.

    Args:
      frames: the frame of each silo.
      names: names of the feature columns.
      schema: what is declared about them.
      total: whether every value has to be encoded, so that none can be refused: what no rule of the
        schema is for then counts as the middle of the bounds, or as no level.
      drop: whether rows that lack a value are left out, unless a rule of the schema is for it.
      encoders: what makes features of columns with images or texts.
      problems: gets what is wrong with columns, which are then left out; else the first is raised.
    """
    own = Problems() if problems is None else problems
    columns, undeclared = [], []
    for name in names:
        with own.noted():
            if encoders and name in encoders:
                drops = schema.drops(name)
                columns.append(Column(name, declared=True, drops=drops, encoder=encoders[name]))
            elif total or name in schema.by_value:
                columns.append(declared_column(name, schema, total, drop))
            elif kind_of(frames, name, "its levels") == "number":
                columns.append(Column(name))
            else:
                columns.append(Column(name, united_levels(frames, name, "its levels")))
                undeclared.append(name)
    if problems is None:
        own.check()
    return Encoder(tuple(columns)), tuple(undeclared)


def declared_column(name: str, schema: Schema, total: bool = False, drop: bool = False) -> Column:
    """The column that the schema declares; see `make_encoder`."""
    levels, other = schema.levels.get(name, ()), schema.other.get(name)
    rule, unlisted = schema.missing.get(name), None
    missing = None if rule is None else rule.value
    if noisy_mean := name in schema.noisy_means():
        missing = _middle(*schema.bounds[name])
    elif isinstance(missing, str):
        missing = levels.index(missing)
    if other is not None:
        unlisted = levels.index(other)
    elif total and levels:
        unlisted = NO_LEVEL
    words, date = tuple(schema.words.get(name, {}).items()), schema.dates.get(name)
    by_value = bool(total or rule is not None or unlisted is not None or words or date)
    if rule is None and total and not drop:
        missing = NO_LEVEL if levels else _middle(*schema.bounds[name])
    return Column(
        name,
        levels,
        bool(levels),
        by_value,
        unlisted,
        missing,
        indicator=rule is not None and rule.indicator,
        drops=schema.drops(name),
        words=words,
        date=date,
        noisy_mean=noisy_mean,
    )


def _middle(low: float, high: float) -> float:
    return low / 2 + high / 2  # the sum of the two might be beyond all numbers


def numbers(silo: str, name: str, values: pd.Series) -> np.ndarray:
    """A number column as float64, finite and no larger than what a model can hold."""
    if column_type(values) != "number":
        others = not_numbers(values) or list(values)
        raise Fault(
            f"Silo {silo!r}: column {name!r}",
            f"holds {others[0]!r}, which is not a number",
            "give numbers only",
            silo=silo,
            column=name,
            rows=len(others),
        )
    array = _as_floats(values)
    bad = ~(np.abs(array) <= LARGEST)
    if count := int(bad.sum()):
        raise Fault(
            f"Silo {silo!r}: column {name!r}",
            f"holds {count} infinite or too large number{'s' * (count > 1)} (the first is "
            f"{array[bad][0]:g})",
            "mend or drop those rows",
            silo=silo,
            column=name,
            rows=count,
        )
    return array


def not_numbers(values: pd.Series) -> list[object]:
    """The values that are not numbers, not even as text."""

    def like_number(value: object) -> bool:
        if isinstance(value, str):
            return _is_number(value)
        return column_type(pd.Series([value], dtype=object)) == "number"

    return [value for value in values if not like_number(value)]


def _as_floats(values: pd.Series) -> np.ndarray:
    """The values as float64; whole numbers beyond all of these are infinite."""
    try:
        return values.to_numpy(dtype=np.float64)
    except OverflowError:
        return np.array([value if abs(value) <= LARGEST else math.inf for value in values], float)


def category_numbers(
    silo: str, name: str, values: pd.Series, levels: tuple[str, ...]
) -> np.ndarray:
    """The place of each value in the list of levels."""
    place = {level: index for index, level in enumerate(levels)}
    codes, texts = _factorised(values)
    # A CSV file may spell a declared 1 as 1.0.
    places = [place.get(text, place.get(plain_number(text), NO_LEVEL)) for text in texts]
    found = np.array(places, dtype=np.int64)[codes]
    if (unlisted := found == NO_LEVEL).any():
        raise not_among(silo, name, [texts[code] for code in codes[unlisted]], levels)
    return found


def not_among(silo: str, name: str, values: list[object], levels: tuple[str, ...]) -> Fault:
    """What to say of values that are none of the levels, where no rule takes them."""
    others = [value for value in dict.fromkeys(map(str, values)) if value != str(values[0])][:3]
    more = f" (and {', '.join(map(repr, others))})" if others else ""
    return Fault(
        f"Silo {silo!r}: column {name!r}",
        f"holds {values[0]!r}{more}, which is not among its levels ({', '.join(levels)})",
        "mend the value, declare it, or declare a level for all others (in a schema: under "
        "[other])",
        silo=silo,
        column=name,
        rows=len(values),
    )


def owner_texts(
    silo: str, name: str, values: pd.Series, owner: Literal["subject", "group"]
) -> list[str]:
    """The subject (or group) that each row belongs to, in one spelling."""
    where = f"Silo {silo!r}: the {owner} column {name!r}"
    kind = column_type(values)
    if kind not in ("number", "text", "category"):
        raise Fault(
            where,
            f"holds values of type {kind}",
            f"name {owner}s by words or numbers",
            silo=silo,
            column=name,
        )
    # 7 and 7.0 are one subject: two out of one would each be protected, but not the person.
    texts = [WHOLE_ENDING.sub("", level_text(value)) for value in values]
    blank = texts.count("")
    if blank:
        raise Fault(
            where,
            f"is blank in {blank} rows",
            f"name each row's {owner}",
            silo=silo,
            column=name,
            rows=blank,
        )
    return texts


def kind_of(frames: Frames, name: str, declare: str) -> Kind:
    """Whether a column holds numbers or categories, the same in all silos.

    What might be a slip (numbers in one silo and words in another, dates) is refused, not guessed.
    `declare` is what to declare where it is none.
    """
    kinds = {silo: column_type(values_of(frame, name)) for silo, frame in frames.items()}
    for silo, kind in kinds.items():
        where = f"Silo {silo!r}: column {name!r}"
        if kind == "date":
            raise Fault(where, "holds dates", _DATES_REMEDY, silo=silo, column=name)
        if kind not in ("number", "text", "category"):
            raise Fault(
                where,
                f"holds values of type {kind}",
                "give numbers, words or true/false, or leave the column out",
                silo=silo,
                column=name,
            )
    if set(kinds.values()) == {"number"}:
        return "number"
    _check_words(frames, name, declare)
    of_numbers = [silo for silo, kind in kinds.items() if kind == "number"]
    if of_numbers:
        raise as_one(
            [
                Fault(
                    f"Silo {silo!r}: column {name!r}",
                    f"holds {values_of(frames[silo], name).iloc[0]!r}, but silo "
                    f"{of_numbers[0]!r} has numbers there",
                    f"store it alike, or declare {declare}",
                    silo=silo,
                    column=name,
                )
                for silo, kind in kinds.items()
                if kind != "number"
            ]
        )
    return "category"


def united_levels(frames: Frames, name: str, declare: str) -> tuple[str, ...]:
    """All levels that occur in any silo, in order."""
    found = set().union(*(_factorised(values_of(frame, name))[1] for frame in frames.values()))
    if len(found) > MAX_LEVELS:
        raise Fault(
            f"Column {name!r}",
            f"has {len(found)} different values, which is more than {MAX_LEVELS} categories",
            "if it identifies records, name it under `ignore` in a --schema file; else declare "
            f"{declare} there",
            column=name,
        )
    return tuple(in_order(found))


def column_type(values: pd.Series) -> str:
    """number, category (true/false included), text, date, or the name of a strange type."""
    dtype = values.dtype
    if isinstance(dtype, pd.CategoricalDtype) or types.is_bool_dtype(dtype):
        return "category"
    if types.is_complex_dtype(dtype):
        return "complex"
    if types.is_numeric_dtype(dtype):
        return "number"
    if types.is_datetime64_any_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        return "date"
    if isinstance(dtype, pd.StringDtype):
        return "text"
    if not types.is_object_dtype(dtype):
        return str(dtype)
    kinds = {type(value) for value in values}
    if kinds <= {bool}:
        return "category"
    if kinds <= {bool, str}:
        return "text"
    if kinds <= {int, float, decimal.Decimal}:
        return "number"
    for kind in kinds:
        if issubclass(kind, datetime.date | datetime.time | datetime.timedelta):
            return "date"
    return sorted(kind.__name__ for kind in kinds)[0]


def _check_words(frames: Frames, name: str, declare: str) -> None:
    """Refuses text that looks like dates, and words among what looks like numbers."""
    texts_of = {
        silo: _factorised(values_of(frame, name))[1]
        for silo, frame in frames.items()
        if column_type(values_of(frame, name)) == "text"
    }
    for silo, texts in texts_of.items():
        if all(DATE_LIKE.fullmatch(text) for text in texts):
            raise Fault(
                f"Silo {silo!r}: column {name!r}",
                f"holds dates ({texts[0]!r})",
                _DATES_REMEDY,
                silo=silo,
                column=name,
            )
    if not texts_of or not (
        any(column_type(values_of(frame, name)) == "number" for frame in frames.values())
        or any(NUMBER_LIKE.fullmatch(text) for texts in texts_of.values() for text in texts)
    ):
        return
    faults = []
    for silo, texts in texts_of.items():
        odd = [text for text in texts if not _is_number(text)]
        if odd:
            others = f" (and {', '.join(map(repr, odd[1:4]))})" if len(odd) > 1 else ""
            column = values_of(frames[silo], name)
            faults.append(
                Fault(
                    f"Silo {silo!r}: column {name!r}",
                    f"holds {odd[0]!r}{others} where numbers stand",
                    "write a plain number such as 1234.5, declare what the word stands for (in a "
                    f"schema: under [words]), or declare {declare} if it is a category",
                    silo=silo,
                    column=name,
                    rows=int(column.map(level_text).isin(odd).sum()),
                )
            )
    if faults:
        raise as_one(faults)
    silo, texts = next(iter(texts_of.items()))
    raise Fault(
        f"Silo {silo!r}: column {name!r}",
        f"holds numbers stored as text ({texts[0]!r})",
        f"store them as numbers, or declare {declare} if it is a category",
        silo=silo,
        column=name,
    )


def _factorised(values: pd.Series) -> tuple[np.ndarray, list[str]]:
    """The number of each row's text, and the texts."""
    codes, uniques = pd.factorize(values)
    return codes, [level_text(value) for value in uniques.tolist()]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
