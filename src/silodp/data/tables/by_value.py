"""Values of a table read one by one: what a value becomes hangs on that value alone.

A whole column has a type only if all its values agree, so that one odd record would change how all
others are read. Here nothing but the value counts: 42, 42.0 and "42" are one number, True and
"true" one level, wherever they are stored. Nothing is refused: a value that means nothing in its
column is missing (NaN, or a place below 0), and a rule says what that counts as.
"""

import datetime
import decimal
import math
import re
from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from silodp.data.tables.schema import DateForm, level_text

# The largest that a model can hold; what lies beyond, infinity included, is moved there.
LARGEST = float(np.finfo(np.float32).max)
# Texts that stand for no value: those that pandas takes for such in a CSV file.
NO_VALUE = frozenset(
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"),
        *("1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
    )
)
# Places of what is no level: not among those of the column, or no value at all.
UNLISTED, MISSING = -1, -2

WHOLE_ENDING = re.compile(r"(?<=\d)\.0+$")  # of a whole number that was stored as a decimal
# What databases without true and false hold instead.
_BOOLEANS = {"0": "False", "1": "True"}


def number_of(value: object) -> float:
    """The number that a value is, within what a model can hold; NaN if it is none."""
    if isinstance(value, str):
        number = _read(value)
    elif isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        return math.nan
    else:
        number = _as_float(value)
    return number if math.isnan(number) else min(max(number, -LARGEST), LARGEST)


def _read(text: str) -> float:
    """Reads numbers as files and databases write them: 1_000 and digits of any script are none."""
    if not text.isascii() or "_" in text:
        return math.nan
    try:
        return float(text)
    except ValueError:
        return math.nan


def _as_float(value: float | decimal.Decimal) -> float:
    if isinstance(value, decimal.Decimal) and value.is_nan():
        return math.nan  # of a signalling NaN, float makes an error
    try:
        return float(value)
    except OverflowError:  # a whole number beyond all decimal ones
        return math.inf if value > 0 else -math.inf


def days_of(value: object, form: DateForm) -> float:
    """The days from the form's origin to the date that a value is; NaN if it is none.

    Dates are read in the form's own format, and as ISO has them; one with an offset, in UTC.
    """
    if isinstance(value, str):
        when = _read_date(value.strip(), form.format)
    elif isinstance(value, datetime.datetime):  # of pandas, too
        when = None if value is pd.NaT else value
    elif isinstance(value, datetime.date):
        when = datetime.datetime(value.year, value.month, value.day)
    else:
        return math.nan
    if when is None:
        return math.nan
    try:
        if when.tzinfo is not None:
            when = when.astimezone(datetime.UTC).replace(tzinfo=None)
        return (when - form.start) / datetime.timedelta(days=1)
    except (OverflowError, ValueError):  # beyond the first or the last date, in UTC or of pandas
        return math.nan


def _read_date(text: str, form: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.strptime(text, form)
    except ValueError:
        pass
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        return None


def is_missing(value: object) -> bool:
    """Whether a value is none: NULL, NaN, or a text that stands for that."""
    if isinstance(value, str):
        return value.strip() in NO_VALUE
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, decimal.Decimal):
        return value.is_nan()
    return value is None or value is pd.NA or value is pd.NaT


def text_of(value: object) -> str | None:
    """One spelling of a word, number or truth value; None of anything else."""
    if not isinstance(value, str | int | float | decimal.Decimal):
        return None
    try:
        return level_text(value)
    except ValueError:  # a whole number of more digits than Python writes
        return None


def place_of(value: object, places: Mapping[str, int]) -> int:
    """The place of a value's level; UNLISTED or MISSING if it has none."""
    if isinstance(value, str) and value in places:  # most are, and levels are spelled as in text_of
        return places[value]
    text = text_of(value)
    if text is not None:
        if text in places:
            return places[text]
        plain = plain_number(text)  # a level 1 may be stored as 1.0
        if plain in places:
            return places[plain]
        if places.keys() == {"False", "True"} and plain in _BOOLEANS:
            return places[_BOOLEANS[plain]]
    return MISSING if is_missing(value) else UNLISTED


def name_of(value: object) -> str | None:
    """The name that a value is, of whomever a row is about; None if it is blank or no name.

    7 and 7.0 are one: two out of one would each be protected, but not the person.
    """
    text = None if is_missing(value) else text_of(value)
    return None if text is None else WHOLE_ENDING.sub("", text)


def numbers_of(values: Iterable[object]) -> np.ndarray:
    """`number_of` each, as float64."""
    return np.array([number_of(value) for value in values], np.float64)


def places_of(values: Iterable[object], levels: tuple[str, ...]) -> np.ndarray:
    """`place_of` each among the levels, as int64."""
    places = {level: place for place, level in enumerate(levels)}
    return np.array([place_of(value, places) for value in values], np.int64)


def plain_number(text: str) -> str:
    """A number in the one spelling that levels have; any other text as it is."""
    try:
        return level_text(float(text))
    except ValueError:
        return text
