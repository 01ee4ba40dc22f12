"""Findings about a site's records that a person should know before consenting to a proposal.

Once consent is given, no record is refused any more: a coordinator would see that. So whatever
is odd about the records is reported here, to the site's own people. Nothing of it leaves the site.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from silodp.base.errors import SilodpError
from silodp.data.federation import Federation
from silodp.data.tables.by_value import (
    MISSING,
    UNLISTED,
    is_missing,
    name_of,
    numbers_of,
    places_of,
)
from silodp.data.tables.columns import NO_LEVEL, Column
from silodp.data.tables.files import values_of
from silodp.data.tables.table import Table, table_of_frames, usable_rows
from silodp.data.tasks import get_task
from silodp.sites.agreed_schema import AgreedSchema, table_options
from silodp.sites.site_data import DataAtSite, check_dialect, read_records

_LEFT_OUT = "the row is left out"
_EXAMPLES = 3
_LONGEST = 20  # letters of an example


class Finding(NamedTuple):
    """Rows with something odd in a column.

    Attributes:
      column: its name.
      what: the oddity, with examples.
      rows: the number of such rows.
      counts_as: the value that they count as.
      remedy: what can be done about them.
    """

    column: str
    what: str
    rows: int
    counts_as: str
    remedy: str


class Looked(NamedTuple):
    """The number of rows, the number of usable ones, and the findings."""

    rows: int
    usable: int
    findings: list[Finding]


def look_at(site: str, source: DataAtSite, schema: AgreedSchema) -> Looked:
    """Looks through the site's records; refuses a table that must be the wrong one.

    That is one without rows, without a usable row, or with a column in which no row fits, though
    nothing was agreed on for such values.
    """
    check_dialect(site, source)
    stored = read_records(site, source, schema)
    where, frame = f"Site {site!r}: {stored.place}", stored.frame
    if frame.empty:
        raise SilodpError(f"{where} has no rows: give it records, or check the query's conditions.")
    table = table_of_frames(site, {site: frame}, table_options(schema), total=True)
    findings = [
        finding
        for column in table.encoder.columns
        for finding in _of_feature(where, column, values_of(frame, column.name), schema)
    ]
    findings += _of_target(where, table, frame)
    if schema.subject_column is not None:
        findings += _of_subject(where, schema.subject_column, frame)
    if stored.torn:
        remedy = "write values with commas in quotation marks"
        words = "more values than the header has names"
        findings.append(Finding("", words, stored.torn, _LEFT_OUT, remedy))
    usable = usable_rows(frame, table.encoder, table.target, schema.subject_column)
    if not usable.any():
        raise SilodpError(
            f"{where} has no usable row: in each one something is missing; fill some."
        )
    return Looked(len(frame), int(usable.sum()), findings)


def findings_of_parts(federation: Federation) -> list[Finding]:
    """What is odd about a site's training and test records; refuses a site with none to train on.

    One that has none for testing, or of one class only, gets a model nevertheless: with the help of
    the others, which is what it takes part for.
    """
    (silo,) = federation.silos
    if not len(silo.train):
        raise SilodpError(
            f"Site {silo.name!r} has no records left for training: give it more, or change "
            "test_fraction in its site.toml."
        )
    findings = []
    if not len(silo.test):
        remedy = "give it more, or a larger test_fraction in its site.toml"
        findings.append(Finding("", "no records for testing", 0, "a model, not measured", remedy))
    task = get_task(federation.task)
    if task.is_one_sided(silo.train.y):
        only = federation.class_names[task.class_numbers(silo.train.y)[0]]
        what = f"for training, one class only ({only})"
        remedy = "give it records of another, if it has them"
        findings.append(Finding("", what, len(silo.train), "what it is", remedy))
    return findings


def _of_feature(
    where: str, column: Column, values: pd.Series, schema: AgreedSchema
) -> list[Finding]:
    if column.levels:
        return _of_category(where, column, values, schema)
    array = column.numbers_of(values)
    no_number = np.isnan(array)
    low, high = schema.bounds[column.name]
    if column.name not in schema.missing:
        wanted = "numbers such as 1234.5" if column.date is None else "dates"
        _check_some(where, column.name, no_number, values, wanted)
    fills = _LEFT_OUT if column.missing is None else f"{column.missing:g}"
    if column.noisy_mean:
        fills = "the noisy mean of the others"
    missing = no_number & ~column.strange(values)
    fill_remedy = "fill them, or agree on what they count as (missing)"
    found = (
        ("missing", missing, fills, fill_remedy),
        ("no number", no_number & ~missing, fills, "store plain numbers such as 1234.5"),
        (f"below {low:g}", array < low, f"{low:g}", "check them, or agree on wider bounds"),
        (f"above {high:g}", array > high, f"{high:g}", "check them, or agree on wider bounds"),
    )
    return [
        Finding(column.name, what + _examples(values, odd), int(odd.sum()), counts_as, remedy)
        for what, odd, counts_as, remedy in found
        if odd.any()
    ]


def _of_category(
    where: str, column: Column, values: pd.Series, schema: AgreedSchema
) -> list[Finding]:
    places = places_of(values, column.levels)
    listed = ", ".join(map(repr, column.levels))
    if column.name not in (*schema.missing, *schema.other):
        _check_some(where, column.name, places < 0, values, f"one of {listed}")
    found = (
        (
            *("missing", places == MISSING, column.missing),
            "fill them, or agree on what they count as (missing)",
        ),
        (
            *("not among the levels", places == UNLISTED, column.unlisted),
            "correct them, or agree on more levels or on one for all others (other)",
        ),
    )
    return [
        Finding(
            column.name,
            what + _examples(values, odd),
            int(odd.sum()),
            _level(column, counts_as),
            remedy,
        )
        for what, odd, counts_as, remedy in found
        if odd.any()
    ]


def _level(column: Column, place: float | None) -> str:
    if place is None:
        return _LEFT_OUT
    return "none of the levels" if place == NO_LEVEL else column.levels[int(place)]


def _of_target(where: str, table: Table, frame: pd.DataFrame) -> list[Finding]:
    target, values = table.target, values_of(frame, table.target.name)
    unusable = ~target.usable(frame)
    classes = ", ".join(map(repr, target.classes))
    wanted = f"one of {classes}" if target.classes else "numbers such as 1234.5"
    if target.beside.columns:
        wanted += f", and what belongs to them in {', '.join(map(repr, target.beside.columns))}"
    _check_some(where, target.name, unusable, values, wanted)
    found = []
    if unusable.any():
        what = f"no target ({wanted}){_examples(values, unusable)}"
        remedy = "give each row its target"
        found.append(Finding(target.name, what, int(unusable.sum()), _LEFT_OUT, remedy))
    if target.range is not None:
        low, high = target.range
        array = numbers_of(values)
        beyond = (array < low) | (array > high)
        if beyond.any():
            what = f"beyond {low:g} to {high:g}{_examples(values, beyond)}"
            remedy = "check them, or agree on a wider range"
            found.append(Finding(target.name, what, int(beyond.sum()), "the nearer end", remedy))
    return found


def _of_subject(where: str, column: str, frame: pd.DataFrame) -> list[Finding]:
    values = values_of(frame, column)
    unnamed = np.array([name_of(value) is None for value in values])
    _check_some(where, column, unnamed, values, "words or numbers that name someone")
    if not unnamed.any():
        return []
    remedy = "name whom each row is about"
    return [Finding(column, "blank, or no name", int(unnamed.sum()), _LEFT_OUT, remedy)]


def _check_some(where: str, column: str, odd: np.ndarray, values: pd.Series, wanted: str) -> None:
    """Refuses a column of which no row fits: it is another one than was agreed on."""
    if odd.all():
        raise SilodpError(
            f"{where}: column {column!r} has no row that fits{_examples(values, odd)}: store "
            f"{wanted} there, as was agreed on."
        )


def _examples(values: pd.Series, odd: np.ndarray) -> str:
    """Some of the odd values, in words; only the site sees them."""
    shown = dict.fromkeys(_shown(value) for value in values[odd] if not is_missing(value))
    return f" ({', '.join(list(shown)[:_EXAMPLES])})" if shown else ""


def _shown(value: object) -> str:
    if not isinstance(value, str | int | float):
        return f"a {type(value).__name__}"
    try:
        text = repr(value)
    except ValueError:  # a whole number of more digits than Python writes
        return "a huge number"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
