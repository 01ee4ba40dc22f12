"""When records were made: a column of numbers, dates or points in time, put in order."""

import datetime
import re

import numpy as np
import pandas as pd

from silodp.data.coins import NUMBER
from silodp.data.problems import Fault
from silodp.data.tables.columns import column_type, numbers

# Year first, so that no day can pass for a month.
ISO = re.compile(
    r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(?P<zone>Z|[+-]\d{2}:?\d{2})?)?"
)
REMEDY = "write numbers, or dates as 2024-12-31 or 2024-12-31T23:59:59"


def places_in_time(silo: str, name: str, values: pd.Series) -> np.ndarray:
    """The place of each row in the order of time within the silo, from 0; equal times share one.

    Times with an offset from UTC are compared as points in time, whatever their offsets; a date
    alone is its beginning.
    """
    return pd.factorize(_comparable(silo, name, values), sort=True)[0]


def at_or_after(silo: str, name: str, values: pd.Series, start: str) -> np.ndarray:
    """Which rows are of this time or later: of each row, from that row and `start` alone.

    `start` is a number or an ISO date, as the column has them; without an offset it is in UTC where
    the column has offsets.
    """
    values = _comparable(silo, name, values)
    where = f"Silo {silo!r}: test_from is {start!r}"
    if pd.api.types.is_timedelta64_dtype(values.dtype):
        raise Fault(
            f"{where}, but the time column {name!r}",
            "holds spans of time",
            REMEDY,
            silo=silo,
            column=name,
        )
    if column_type(values) == "number":
        if not NUMBER.fullmatch(start.strip()):
            raise Fault(
                f"{where}, but the time column {name!r}",
                "holds numbers",
                "give a number",
                silo=silo,
                column=name,
            )
        return (values >= float(start)).to_numpy(dtype=bool)
    parsed = pd.to_datetime(start, utc=True, errors="coerce", format="ISO8601")
    if not ISO.fullmatch(start.strip()) or pd.isna(parsed) or column_type(values) != "date":
        raise Fault(
            f"{where}, but the time column {name!r}",
            "holds dates",
            "give one, such as 2024-12-31",
            silo=silo,
            column=name,
        )
    return (pd.to_datetime(values, utc=True) >= parsed).to_numpy(dtype=bool)


def _comparable(silo: str, name: str, values: pd.Series) -> pd.Series:
    """The times as numbers or dates; what is neither is refused."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.cat.categories.dtype)
    kind = column_type(values)
    if kind == "number":
        numbers(silo, name, values)  # refuses what is infinite
    elif kind == "text":
        values = _parsed(silo, name, values)
    elif kind != "date" or not _in_order(values):
        raise Fault(
            f"Silo {silo!r}: the time column {name!r}",
            f"holds {str(values.iloc[0])!r}, which is no number or date",
            REMEDY,
            silo=silo,
            column=name,
        )
    return values


def _parsed(silo: str, name: str, values: pd.Series) -> pd.Series:
    where = f"Silo {silo!r}: the time column {name!r}"
    texts = [str(value).strip() for value in values]
    matches = [ISO.fullmatch(text) for text in texts]
    times = pd.to_datetime(pd.Series(texts), format="ISO8601", utc=True, errors="coerce")
    for text, match, missing in zip(texts, matches, times.isna(), strict=True):
        if match is None or missing:
            raise Fault(
                where,
                f"holds {text!r}, which is no number or ISO date",
                REMEDY,
                silo=silo,
                column=name,
            )
    zones = {
        bool(match and match["zone"]): text for text, match in zip(texts, matches, strict=True)
    }
    if len(zones) > 1:
        raise Fault(
            where,
            f"holds {zones[True]!r} with a time zone and {zones[False]!r} without",
            "write all with one, or none",
            silo=silo,
            column=name,
        )
    return times


def _in_order(values: pd.Series) -> bool:
    """Whether dates can be ordered; a time of day alone cannot."""
    return not pd.api.types.is_object_dtype(values.dtype) or {type(v) for v in values} == {
        datetime.date
    }
