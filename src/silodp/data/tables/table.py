"""A user's own data: one table with a silo column, or a folder with one table a silo.

What is declared in a schema (levels, bounds, classes, target range) is public knowledge. What is
not declared is taken from the records, and `Federation.uncovered` then says so.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from silodp.base.errors import SilodpError
from silodp.config.choices import TaskName
from silodp.data import coins
from silodp.data.federation import Federation, PublicKnowledge, Records, Silo
from silodp.data.preparation import Preparation, Scaling, by_bounds, fitted_to, prepared_silo
from silodp.data.scaling import STANDARDISED
from silodp.data.silo_choice import chosen_silos
from silodp.data.source import DataOptions, DataSource, Defaults
from silodp.data.split import PAPER_SPLIT, TIME_SPLIT, Parts, coin_split, split_silo
from silodp.data.tables.by_value import name_of
from silodp.data.tables.columns import Encoder, make_encoder, owner_texts
from silodp.data.tables.files import Frames, check_column, read_silos, silos_of_frame, values_of
from silodp.data.tables.schema import Schema, level_text, schema_of
from silodp.data.tables.target import Target, make_target
from silodp.data.tables.times import at_or_after, places_in_time
from silodp.data.tasks import get_task

DEFAULT_TEST_FRACTION = 0.2

TAKES = frozenset(
    {
        *("silo_column", "subject_column", "time_column", "group_column", "target", "task"),
        *("drop_missing", "schema", "ignore", "levels", "bounds", "target_range", "classes"),
        *("other", "missing", "test_fraction", "split", "id_column", "test_from"),
    }
)
FRAME = "frame"  # what a table in memory is called in results
# What can be declared in Python, but by no option of a run.
_DECLARED = ("levels", "bounds", "other", "missing", "target_range", "classes")
# Columns that say something of a record, and so are no features.
NO_FEATURES = ("subject_column", "time_column", "group_column", "id_column")


@dataclass(frozen=True)
class Table:
    """All silos' rows as numbers, before they are split and scaled.

    By the name of each silo: `identities` are what the coins of its records (of its subjects, where
    these are known) are tossed with; `times` and `groups` are there where the split goes by them,
    and so is `late`: which records are of a declared time or later. `counted` is how many records
    (or subjects) a silo has, those included that were left out, where no records may be refused
    (see `table_of_frames`), however few or alike they are. `left_out` are the names of silos that
    options left out.
    """

    name: str
    records: dict[str, Records]
    encoder: Encoder
    target: Target
    schema: Schema
    notes: tuple[str, ...]
    identities: dict[str, list[bytes]]
    times: dict[str, np.ndarray] = field(default_factory=dict)
    groups: dict[str, list[bytes]] = field(default_factory=dict)
    late: dict[str, np.ndarray] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def preprocess(self) -> str:
        """The default: whoever declares bounds wants them used."""
        return "bounds" if self.schema.bounds else "paper"


def defaults_of(task: TaskName, preprocess: str = "none") -> Defaults:
    """Training settings to begin with for data of which nothing is known but the task."""
    return Defaults(
        model=get_task(task).model,
        rounds=100,
        batch_size=32,
        clip=1.0,
        lr=get_task(task).lr,
        delta=1e-5,
        preprocess=preprocess,
        small_silos="full-batch",  # small silos are the reason to federate
    )


def source(path: Path, options: DataOptions) -> DataSource:
    """The source bound to a file or a folder. It is read now, since the task may follow from it."""
    return _bound(str(path), options, lambda given: read_table_of_silos(path, given))


def source_of_frame(frame: Any, options: DataOptions) -> DataSource:
    """The source bound to a table in memory, whose `options.silo_column` names each row's silo.

    What is declared in `options`, and in no option of a run, holds for every loading.
    """
    assert options.silo_column is not None
    declared = {name: getattr(options, name) for name in _DECLARED}
    frames = silos_of_frame(frame, options.silo_column)
    bound = _bound(FRAME, options, lambda given: _chosen_table(FRAME, frames, given))
    return replace(bound, read=lambda seed, given: bound.read(seed, replace(given, **declared)))


def _bound(
    name: str, options: DataOptions, read_table: Callable[[DataOptions], Table]
) -> DataSource:
    table = read_table(options)

    def read(seed: int, given: DataOptions) -> Federation:
        # What concerns split and preprocessing does not change what is read: rows are encoded once.
        same = replace(
            given,
            preprocess=options.preprocess,
            test_fraction=options.test_fraction,
            density=options.density,
        )
        rows = table if same == options else read_table(given)
        return split_and_scale(rows, seed, given)

    task = table.target.task
    bound = DataSource(
        name=name,
        summary=f"your own table: {len(table.records)} silos, {task}, target {table.target.name!r}",
        citation="your own",
        licence="your own",
        files=(),
        defaults=defaults_of(task, table.preprocess),
        preprocessings=("paper", "bounds", "none"),
        takes=TAKES,
        read=read,
        chooses_silos=True,
    )
    bound.check_options(options)
    return bound


def read_table_of_silos(path: Path, options: DataOptions) -> Table:
    """Reads, checks and encodes the rows of every silo."""
    _check_roles(path, options)
    frames = read_silos(path, options.silo_column, text_columns(options))
    return _chosen_table(path.resolve().stem, frames, options, where=path)


def _chosen_table(name: str, frames: Frames, options: DataOptions, where: object = None) -> Table:
    """The table of the silos that options choose."""
    # Before any of their records are looked at: what is wrong with others is no matter.
    chosen = chosen_silos({name: _units(frame, options) for name, frame in frames.items()}, options)
    table = table_of_frames(name, {one: frames[one] for one in chosen}, options, where=where)
    return replace(table, left_out=tuple(one for one in frames if one not in chosen))


def _units(frame: pd.DataFrame, options: DataOptions) -> int:
    """How many records a silo has; subjects, where the table says whom a record is about."""
    column = options.subject_column
    if column is None or column not in frame.columns:
        return len(frame)
    return len({name_of(value) for value in values_of(frame, column)} - {None})


def text_columns(options: DataOptions) -> set[str]:
    """The columns that are to be read as they are written, so that "007" is not 7."""
    schema = schema_of(options)
    # Where values are read one by one, pandas' guess at the type of all must not come before.
    as_text = {*schema.levels, *schema.missing}
    if schema.classes is not None and options.target is not None:
        as_text.add(options.target)
    # The number of a subject, group or record is a name: "007" is not "7".
    names = (options.subject_column, options.group_column, options.id_column)
    as_text.update(column for column in names if column is not None)
    return as_text


def table_of_frames(
    name: str,
    frames: Frames,
    options: DataOptions,
    *,
    where: object = None,
    total: bool = False,
) -> Table:
    """Checks and encodes the rows of every silo, wherever they came from.

    Args:
      name: what the data are called in results.
      frames: the frame of each silo, all with the same columns.
      options: what the columns are for.
      where: what errors name as the place of a table; by default its name.
      total: whether no row may be refused: each one by itself is encoded or left out, since a
        refusal would tell of it. Everything must be declared then; see `usable_rows`.
    """
    where = name if where is None else where
    schema = schema_of(options)
    _check_roles(where, options)
    features = _feature_columns(where, frames, options, schema)
    assert options.target is not None  # _feature_columns has refused that
    used = [*features, options.target, *_no_features(options)]
    frames = {silo: frame.loc[:, used] for silo, frame in frames.items()}
    drop = bool(options.drop_missing)
    if not total:
        frames = _without_missing(frames, schema, drop)
    encoder, undeclared = make_encoder(frames, features, schema, total=total, drop=drop)
    _check_bounds(encoder, schema)
    target = make_target(frames, options.target, options.task, schema)
    if total:
        found = {
            silo: _records_by_value(silo, frame, encoder, target, options)
            for silo, frame in frames.items()
        }
        return Table(
            name,
            {silo: own.records for silo, own in found.items()},
            encoder,
            target,
            schema,
            (),
            {silo: own.identities for silo, own in found.items()},
            counted={silo: own.counted for silo, own in found.items()},
        )
    as_text = text_columns(options)
    records, identities, times, groups, late = {}, {}, {}, {}, {}
    for silo, frame in frames.items():
        subject = None
        if (column := options.subject_column) is not None:
            names = owner_texts(silo, column, values_of(frame, column), "subject")
            subject = np.unique(names, return_inverse=True)[1]
            identities[silo] = coins.of_texts(names)
        elif (column := options.id_column) is not None:
            identities[silo] = coins.of_texts(map(level_text, values_of(frame, column)))
        else:
            identities[silo] = coins.of_rows(frame, as_text)
        if (column := options.time_column) is not None:
            when = values_of(frame, column)
            if options.test_from is None:
                times[silo] = places_in_time(silo, column, when)
            else:
                late[silo] = at_or_after(silo, column, when, options.test_from)
        if (column := options.group_column) is not None:
            groups[silo] = coins.of_texts(
                owner_texts(silo, column, values_of(frame, column), "group")
            )
        y = target.encode(silo, values_of(frame, target.name))
        records[silo] = Records(encoder.encode(silo, frame), y, subject)
    notes = []
    if undeclared:
        notes.append(
            f"The levels of {', '.join(map(repr, undeclared))} were taken from the records of all "
            "silos, not declared; epsilon does not cover them."
        )
    if get_task(target.task).of_classes and not target.declared:
        notes.append(
            f"The classes of {target.name!r} were taken from the records of all silos, not "
            "declared; epsilon does not cover them."
        )
    return Table(
        name, records, encoder, target, schema, tuple(notes), identities, times, groups, late
    )


def usable_rows(
    frame: pd.DataFrame, encoder: Encoder, target: Target, subject_column: str | None
) -> np.ndarray:
    """[rows]: which rows can be learned from, each looked at by itself.

    Left out is a row without a target that is one, without a name of whom it is about where that is
    asked for, or with a missing value that no rule is for.
    """
    usable = target.usable(values_of(frame, target.name)) & ~encoder.lacks(frame).any(axis=1)
    if subject_column is not None:
        named = [name_of(value) is not None for value in values_of(frame, subject_column)]
        usable &= np.array(named, bool)
    return usable


class _ByValue(NamedTuple):
    """A silo's rows, none of which was refused; see `Table` for the last two."""

    records: Records
    identities: list[bytes]
    counted: int


def _records_by_value(
    silo: str, frame: pd.DataFrame, encoder: Encoder, target: Target, options: DataOptions
) -> _ByValue:
    """The rows that are usable: what becomes of each does not hang on any other.

    So two tables that differ in a row give records that differ in one at most, which is what
    epsilon is about. (Numbers of subjects are names without meaning: nothing goes by them.) Rows
    that are left out are counted: replacing one by another changes no count.
    """
    column, counted = options.subject_column, len(frame)
    kept = frame.iloc[np.flatnonzero(usable_rows(frame, encoder, target, column))]
    x = encoder.encode(silo, kept)
    y = target.encode_by_value(values_of(kept, target.name))
    if column is not None:
        counted = len({name_of(value) for value in values_of(frame, column)} - {None})
        names = [str(name_of(value)) for value in values_of(kept, column)]
        subject = np.unique(np.array(names, dtype=object), return_inverse=True)[1]
        return _ByValue(Records(x, y, subject), coins.of_texts(names), counted)
    # Of what the row becomes: the same wherever and in whatever type it is stored.
    identities = coins.of_arrays(x, y)
    if options.id_column is not None:
        own = [name_of(value) for value in values_of(kept, options.id_column)]
        # A row without a name goes by what it holds.
        identities = [
            content if name is None else coins.of_texts([name])[0]
            for name, content in zip(own, identities, strict=True)
        ]
    return _ByValue(Records(x, y), identities, counted)


def split_and_scale(
    table: Table, seed: int, options: DataOptions, *, whole: bool = False
) -> Federation:
    """Splits each silo, then scales features and target.

    If it is to stay `whole`, all records are for training and none for testing: there is no split
    that a record could change, and no coin.
    """
    preprocess = options.preprocess or table.preprocess
    test_fraction = options.test_fraction or DEFAULT_TEST_FRACTION
    notes = list(table.notes)
    if table.times:
        notes.append(TIME_SPLIT)
    elif options.split == "paper":
        notes.append(PAPER_SPLIT)
    silos = []
    for name in table.records:
        if whole:
            train, test, expected = Parts(own := table.records[name], own.take(np.arange(0)))
        else:
            train, test, expected = _parts(table, name, test_fraction, seed, options)
        preparation = Preparation(
            table.encoder,
            _scaling(table, train.x, preprocess),
            table.target,
            drop_missing=bool(options.drop_missing),
        )
        silos.append(replace(prepared_silo(name, train, test, preparation), expected=expected))
    if preprocess == "paper" and table.encoder.is_number.any():
        notes.append(STANDARDISED)
    target = table.target
    if get_task(target.task).is_scaled and target.range is None:
        if preprocess == "bounds":
            raise SilodpError(
                f"The preprocessing 'bounds' needs the range of the target {target.name!r}: "
                "declare target_range (in a schema: [target] range = [low, high])."
            )
        if preprocess == "paper":
            silos = _scale_target(silos, target)
            notes.append(
                f"The target {target.name!r} is scaled by the smallest and the largest value of "
                "all silos' training records; epsilon does not cover these two."
            )
    return Federation(
        name=table.name,
        silos=tuple(silos),
        task=target.task,
        num_classes=get_task(target.task).num_classes_of(len(target.classes)),
        uncovered=tuple(notes),
        declared=_declared(table, preprocess),
        feature_bound=1.0 if _is_bounded(table, preprocess) else None,
        class_names=target.classes,
        feature_names=table.encoder.feature_names,
        left_out=table.left_out,
    )


def _parts(table: Table, name: str, test_fraction: float, seed: int, options: DataOptions) -> Parts:
    """The silo's parts: by coins, unless the paper's way or a cut by time is an option."""
    records, time = table.records[name], table.times.get(name)
    if options.split == "paper" or time is not None:
        return split_silo(name, records, test_fraction, seed, options.density, time=time)
    return coin_split(
        name,
        records,
        table.identities[name],
        test_fraction,
        seed,
        options.density,
        groups=table.groups.get(name),
        late=table.late.get(name),
        counted=table.counted.get(name),
    )


def _is_bounded(table: Table, preprocess: str) -> bool:
    """Whether every feature lies within -1 and 1: scaled by its bounds, or 0/1 of a category."""
    return preprocess == "bounds" or not table.encoder.is_number.any()


def _declared(table: Table, preprocess: str) -> tuple[PublicKnowledge, ...]:
    """The declarations that were made use of; bounds are not by every preprocessing."""
    schema, columns = table.schema, table.encoder.columns
    scaled = preprocess == "bounds" and bool(table.encoder.is_number.any())
    used: dict[PublicKnowledge, bool] = {
        "feature bounds": scaled or any(column.name in schema.levels for column in columns),
        "label range": table.target.range is not None,
        "class list": schema.classes is not None,
    }
    return tuple(kind for kind, is_used in used.items() if is_used)


def _check_roles(where: object, options: DataOptions) -> None:
    """Refuses a column that options use for two things, and a split by two things."""
    for one, other in combinations(("silo_column", "target", *NO_FEATURES), 2):
        column = getattr(options, one)
        if column is not None and column == getattr(options, other):
            raise SilodpError(
                f"{where}: the column {column!r} is both {other} and {one}: choose another {other}."
            )
    if options.time_column is not None and options.group_column is not None:
        raise SilodpError(
            f"{where}: time_column is {options.time_column!r} and group_column is "
            f"{options.group_column!r}, but a split by time may part a group: leave one of them "
            "out."
        )
    if options.subject_column is not None and options.id_column is not None:
        raise SilodpError(
            f"{where}: subject_column is {options.subject_column!r} and id_column is "
            f"{options.id_column!r}, but where subjects are protected coins are tossed for them: "
            "leave id_column out."
        )
    if options.test_from is not None and options.time_column is None:
        raise SilodpError(
            f"{where}: test_from is {options.test_from!r}, but no time_column is given: name the "
            "column that says when a record was made."
        )
    by_coin = ("id_column", "group_column", "test_from")
    given = [option for option in by_coin if getattr(options, option) is not None]
    if options.split == "paper" and given:
        raise SilodpError(
            f"{where}: split is 'paper', which knows nothing of {given[0]}: leave out one of them."
        )


def _no_features(options: DataOptions) -> list[str]:
    return [column for role in NO_FEATURES if (column := getattr(options, role)) is not None]


def _feature_columns(
    where: object, frames: Frames, options: DataOptions, schema: Schema
) -> list[str]:
    """Every column but those with a role and those to be ignored; all that is named must exist."""
    target = options.target
    role_of = {getattr(options, role): role for role in NO_FEATURES}
    frame = next(iter(frames.values()))
    if target is None:
        raise SilodpError(
            f"{where}: the target is not given (--target): choose the column to predict, one of "
            f"{', '.join(map(repr, frame.columns))}."
        )
    check_column(where, frame, target, "target")
    for column in _no_features(options):
        check_column(where, frame, column, role_of[column])
    for option in ("ignore", "levels", "bounds", "missing"):
        for column in getattr(schema, option):
            check_column(where, frame, column, option)
            if column == target:
                raise SilodpError(
                    f"{where}: {option} names the column {column!r}, which is the target: declare "
                    "its range or classes instead."
                )
            if column in role_of and option != "ignore":
                raise SilodpError(
                    f"{where}: {option} names the column {column!r}, which is the "
                    f"{role_of[column]} and so no feature: leave it out there."
                )
    for column in schema.levels:
        if column in schema.bounds:
            raise SilodpError(
                f"{where}: column {column!r} has both levels and bounds: declare levels for a "
                "category, or bounds for a number."
            )
    left_out = {target, *role_of, *schema.ignore}
    features = [name for name in frame.columns if name not in left_out]
    if not features:
        raise SilodpError(
            f"{where} has no feature column beside the target {target!r}: give at least one."
        )
    return features


def _without_missing(frames: Frames, schema: Schema, drop: bool) -> Frames:
    """The rows that lack no value, but for columns in which the schema says what it counts as."""
    without_rule = [name for name in next(iter(frames.values())) if name not in schema.missing]
    missing = [
        f"{count} in column {column!r} of silo {silo!r}"
        for silo, frame in frames.items()
        for column, count in frame[without_rule].isna().sum().items()
        if count
    ]
    if not missing:
        return frames
    if not drop:
        more = f" and {len(missing) - 5} columns more" if len(missing) > 5 else ""
        raise SilodpError(
            f"Values are missing: {', '.join(missing[:5])}{more}: fill them, drop such rows "
            "(drop_missing, --drop-missing), or declare what they count as (in a schema: under "
            "[missing])."
        )
    frames = {silo: frame.dropna(subset=without_rule) for silo, frame in frames.items()}
    for silo, frame in frames.items():
        if frame.empty:
            raise SilodpError(
                f"Silo {silo!r} has no row without missing values: fill some, or leave it out."
            )
    return frames


def _check_bounds(encoder: Encoder, schema: Schema) -> None:
    for column in encoder.columns:
        if column.levels and column.name in schema.bounds:
            raise SilodpError(
                f"Column {column.name!r} has bounds, but it holds words: declare its levels."
            )


def _scaling(table: Table, train: np.ndarray, preprocess: str) -> Scaling:
    """How features of number columns are scaled; the 0 and 1 of categories stay."""
    which = table.encoder.is_number
    if preprocess == "none" or not which.any():
        return Scaling()
    if preprocess == "paper":
        return fitted_to(train[:, which])
    limits = []
    for column in table.encoder.columns:
        if column.levels:
            continue
        if column.name not in table.schema.bounds:
            raise SilodpError(
                f"The preprocessing 'bounds' needs the bounds of column {column.name!r}: declare "
                "its lowest and highest value (in a schema: under [bounds])."
            )
        limits.append(table.schema.bounds[column.name])
    return by_bounds(limits)


def _scale_target(silos: list[Silo], target: Target) -> list[Silo]:
    y = np.concatenate([silo.train.y for silo in silos])
    low, high = (float(y.min()), float(y.max())) if len(y) else (0.0, 0.0)
    if low == high:
        raise SilodpError(
            f"The target {target.name!r} is {low:g} in every training record: there is nothing to "
            "learn; choose another target."
        )
    scaled = replace(target, spread=(low, high))

    def scale(records: Records) -> Records:
        return replace(records, y=scaled.scaled(records.y))

    return [
        replace(
            silo,
            train=scale(silo.train),
            test=scale(silo.test),
            preparation=silo.preparation and replace(silo.preparation, target=scaled),
        )
        for silo in silos
    ]
