"""What a consortium agrees on about its tables, before anyone looks at a record.

Every feature is declared, and so is what the target may hold: nothing is left to be learned from
records before training, so that epsilon covers everything. And there is a rule for every value that
a record may hold, so that no record can make a site refuse, which would reveal it: what the schema
has no rule for counts as the middle of the bounds or as no level, and a row without a target (or
subject) is left out.

    target = "outcome"
    task = "binary"                     # or another; each has its own declarations of the target
    classes = ["no", "yes"]             # of a regression, or of counts: range = [0, 100]
    bounds = {age = [0, 120]}           # numbers: lowest and highest
    levels = {ward = ["a", "b"]}        # categories: all that may occur
    other = {ward = "b"}                # the level that takes what is not listed; else none does
    missing = {age = 50, ward = "b"}    # what a missing value counts as; {value = 50, indicator =
                                        # true} adds a feature; "drop" leaves the row out
    dates = {admitted = {origin = "2015-01-01", format = "%d.%m.%Y"}}   # days since then
    words = {age = {"90+" = 90}}        # what words among numbers stand for
    subject_column = "patient"          # protect people, not single records
    drop_missing = false                # whether rows with other missing values are left out
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from silodp.base.documents import check_keys
from silodp.base.errors import SilodpError, one_of
from silodp.config.choices import TaskName
from silodp.data.federation import Federation
from silodp.data.source import DataOptions
from silodp.data.tables.beside import KEYS as BESIDE
from silodp.data.tables.beside import Beside
from silodp.data.tables.by_value import LARGEST
from silodp.data.tables.schema import (
    MISSING_WORD,
    DateForm,
    MissingRule,
    Schema,
    checked_schema,
)
from silodp.data.tables.table import DEFAULT_TEST_FRACTION, split_and_scale, table_of_frames
from silodp.data.tables.target import Target, check_target
from silodp.data.tasks import TASKS, get_task

KEYS = (
    *("target", "task", "bounds", "levels", "range", "classes"),
    *("other", "missing", "subject_column", "drop_missing", "dates", "words"),
    *BESIDE,
)
# Enough rows for both classes to be left for training beside a test part.
_FEWEST_ROWS = 8


@dataclass(frozen=True)
class AgreedSchema:
    """The columns that every site's table has; make it with `agreed_schema`, which checks.

    Features are the columns of `bounds`, then those of `levels`, each in the order of their names:
    an order that no way of writing it down can change.

    Attributes:
      target: the column to predict.
      task: what is learned.
      bounds: lowest and highest value of each number column; values beyond are moved there.
      levels: all that each category column may hold.
      other: of category columns, the level that takes what is not among the levels; without it,
        such a value counts as no level.
      missing: of columns, the number or level that a missing value counts as; without it, the
        middle of the bounds, or no level.
      dates: of columns of dates, how they become the numbers that `bounds` is about.
      words: of number columns, what words stand for; None for a missing value.
      target_range: lowest and highest target of a regression, or of counts.
      classes: of a classification; of two classes the second is +1.
      subject_column: names whom a record is about, if people are protected.
      drop_missing: leave out rows with missing values that `missing` has no rule for.
      beside: what counts and times need beside the target's own column.
    """

    target: str
    task: TaskName
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    target_range: tuple[float, float] | None = None
    classes: tuple[str, ...] | None = None
    subject_column: str | None = None
    drop_missing: bool = False
    other: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, MissingRule] = field(default_factory=dict)
    dates: Mapping[str, DateForm] = field(default_factory=dict)
    words: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    beside: Beside = field(default_factory=Beside)

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that a model sees, in order."""
        return (*self.bounds, *self.levels)

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that a site's table needs; it may have others, which are not looked at."""
        subject = () if self.subject_column is None else (self.subject_column,)
        return (*self.features, self.target, *self.beside.columns, *subject)

    def to_plain(self) -> dict[str, Any]:
        """The table that `agreed_schema` reads, as JSON or TOML can hold it: nothing is None."""
        plain: dict[str, Any] = {
            "target": self.target,
            "task": self.task,
            "bounds": {column: list(ends) for column, ends in self.bounds.items()},
            "levels": {column: list(levels) for column, levels in self.levels.items()},
            "drop_missing": self.drop_missing,
        }
        # Left out where empty: schemas from before there were these keep their digest.
        if self.other:
            plain["other"] = dict(self.other)
        if self.missing:
            plain["missing"] = {column: rule.to_plain() for column, rule in self.missing.items()}
        if self.dates:
            plain["dates"] = {column: form.to_plain() for column, form in self.dates.items()}
        if self.words:
            plain["words"] = {
                column: {
                    word: MISSING_WORD if number is None else number for word, number in own.items()
                }
                for column, own in self.words.items()
            }
        if self.target_range is not None:
            plain["range"] = list(self.target_range)
        if self.classes is not None:
            plain["classes"] = list(self.classes)
        if self.subject_column is not None:
            plain["subject_column"] = self.subject_column
        return {**plain, **self.beside.to_plain()}


def agreed_schema(where: str, table: Mapping[str, Any]) -> AgreedSchema:
    """The schema that a table of TOML or JSON states; `where` names it in errors."""
    if "features" in table:
        raise SilodpError(
            f"{where}: features of images or texts are not made at sites yet: leave them out, and "
            "have each site's table hold them as numbers, with bounds from -1 to 1."
        )
    check_keys(where, table, KEYS)
    target = _column(where, "target", table.get("target"))
    task = _task(where, table.get("task"))
    for key in ("bounds", "levels", "other", "missing", "dates", "words"):
        _check_section(where, key, table.get(key, {}))
    subject = table.get("subject_column")
    if subject is not None:
        subject = _column(where, "subject_column", subject)
    drop_missing = table.get("drop_missing", False)
    if not isinstance(drop_missing, bool):
        raise SilodpError(f"{where}: drop_missing is {drop_missing!r}: write true or false.")
    declared = checked_schema(
        where,
        ignore=None,
        levels=table.get("levels"),
        bounds=table.get("bounds"),
        other=table.get("other"),
        missing=table.get("missing"),
        dates=table.get("dates"),
        words=table.get("words"),
        target_range=table.get("range"),
        classes=table.get("classes"),
        beside={key: table.get(key) for key in BESIDE},
    )
    _check_features(where, declared, target, subject)
    _check_sizes(where, declared)
    _check_target(where, declared, target, task)
    return AgreedSchema(
        target=target,
        task=task,
        bounds=dict(sorted(declared.bounds.items())),
        levels=dict(sorted(declared.levels.items())),
        target_range=declared.target_range,
        classes=declared.classes,
        subject_column=subject,
        drop_missing=drop_missing,
        other=dict(sorted(declared.other.items())),
        missing=dict(sorted(declared.missing.items())),
        dates=dict(sorted(declared.dates.items())),
        words=dict(sorted(declared.words.items())),
        beside=declared.beside,
    )


def table_options(
    schema: AgreedSchema,
    test_fraction: float = DEFAULT_TEST_FRACTION,
    id_column: str | None = None,
) -> DataOptions:
    """Options of a table with which nothing is learned from its records."""
    return DataOptions(
        preprocess="bounds",
        test_fraction=test_fraction,
        task=schema.task,
        subject_column=schema.subject_column,
        id_column=id_column,
        target=schema.target,
        drop_missing=schema.drop_missing,
        levels=schema.levels,
        bounds=schema.bounds,
        other=schema.other,
        missing=schema.missing,
        dates=schema.dates,
        words=schema.words,
        target_range=schema.target_range,
        classes=schema.classes,
        **{key: getattr(schema.beside, key) or None for key in BESIDE},
    )


def example(schema: AgreedSchema) -> Federation:
    """A federation of one made-up silo, with the shapes and names that every site's has.

    Its rows follow from the schema alone, and are about nobody.
    """
    most = max(map(len, (*schema.levels.values(), schema.classes or ())), default=0)
    rows = range(max(_FEWEST_ROWS, most))

    def in_turn(values: tuple) -> list:
        return [values[row % len(values)] for row in rows]

    columns = {
        column: [_in_own_form(schema, column, end) for end in in_turn(schema.bounds[column])]
        for column in schema.bounds
    }
    columns |= {column: in_turn(schema.levels[column]) for column in schema.levels}
    beside = schema.beside
    columns[schema.target] = in_turn(schema.classes or schema.target_range or beside.cut_points)
    for column in beside.columns:  # one event, so that nothing else stands for one
        columns[column] = in_turn(beside.exposure_range or (beside.event_value or "1",))
    if schema.subject_column is not None:
        columns[schema.subject_column] = [f"subject {row}" for row in rows]
    # Coins might leave a part of so few rows empty; they are about nobody, so any split will do.
    options = replace(table_options(schema), split="paper")
    table = table_of_frames("example", {"example": pd.DataFrame(columns)}, options)
    return replace(split_and_scale(table, 0, options), uncovered=())


def _in_own_form(schema: AgreedSchema, column: str, number: float) -> object:
    """A number as its column has it: as a date where these are agreed on."""
    if column not in schema.dates:
        return number
    form = schema.dates[column]
    try:
        return form.start + datetime.timedelta(days=number)
    except OverflowError:  # bounds may reach beyond the last date
        return form.start


def _column(where: str, key: str, name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        problem = "is missing" if name is None else f"is {name!r}"
        raise SilodpError(f"{where}: {key} {problem}: give the name of a column.")
    return name


def _task(where: str, task: object) -> TaskName:
    for known in TASKS:
        if task == known:
            return known
    problem = "is missing" if task is None else f"is {task!r}"
    raise SilodpError(f"{where}: task {problem}: choose {one_of(str(task), TASKS)}.")


def _check_section(where: str, key: str, section: object) -> None:
    if not isinstance(section, Mapping):
        example_of = {
            "bounds": "bounds = {age = [0, 120]}",
            "levels": 'levels = {ward = ["a"]}',
            "other": 'other = {ward = "a"}',
            "missing": "missing = {age = 50}",
            "dates": 'dates = {admitted = {origin = "2015-01-01"}}',
            "words": 'words = {age = {"90+" = 90}}',
        }
        raise SilodpError(
            f"{where}: {key} is {section!r}: give a table of columns, such as {example_of[key]}."
        )
    for column in section:
        _column(where, f"a column of {key}", column)


def _check_features(where: str, declared: Schema, target: str, subject: str | None) -> None:
    """Refuses a column with two roles, and a schema without a feature."""
    for key, columns in (("missing", declared.missing), ("dates", declared.dates),
                         ("words", declared.words)):  # fmt: skip
        for column in columns:
            if column not in (*declared.bounds, *declared.levels):
                raise SilodpError(
                    f"{where}: {key} names the column {column!r}, which is no feature: declare its "
                    "bounds or levels, or leave it out there."
                )
    for column in declared.levels:
        if column in declared.bounds:
            raise SilodpError(
                f"{where}: column {column!r} has both levels and bounds: declare levels for a "
                "category, or bounds for a number."
            )
    features = {*declared.bounds, *declared.levels}
    if not features:
        raise SilodpError(
            f"{where}: no feature is declared: give bounds for each number column and levels for "
            "each category column that a model may see."
        )
    if target in features:
        raise SilodpError(
            f"{where}: column {target!r} is the target, and so no feature: take it out of bounds "
            "and levels, and declare its range or classes instead."
        )
    for column in declared.beside.columns:
        if column in {target, subject, *features}:
            raise SilodpError(
                f"{where}: column {column!r} belongs to the target {target!r}, and so is no "
                "feature, nor anything else: leave it out there."
            )
    if subject is not None and subject in {target, *features}:
        raise SilodpError(
            f"{where}: column {subject!r} is the subject_column, and so neither target nor "
            "feature: leave it out there."
        )


def _check_target(where: str, declared: Schema, target: str, task: TaskName) -> None:
    made = Target(
        *(target, task, declared.classes or (), declared.target_range),
        declared=True,
        beside=declared.beside,
    )
    get_task(task).check_agreed(where, made)
    check_target(where, made)


def _check_sizes(where: str, declared: Schema) -> None:
    ranges = {f"bounds of column {column!r}": ends for column, ends in declared.bounds.items()}
    if declared.target_range is not None:
        ranges["target range"] = declared.target_range
    for name, ends in ranges.items():
        if max(map(abs, ends)) > LARGEST:
            raise SilodpError(
                f"{where}: {name}: {list(ends)!r} reaches beyond {LARGEST:.2g}, the largest number "
                "that a model can hold: give a smaller range."
            )
