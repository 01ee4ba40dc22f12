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
from silodp.base.text import count, few_of, silo_names
from silodp.config.choices import TaskName
from silodp.data import coins
from silodp.data.federation import Federation, PublicKnowledge, Records, Silo
from silodp.data.preparation import Preparation, Scaling, by_bounds, fitted_to, prepared_silo
from silodp.data.problems import Fault, Problems, reported
from silodp.data.scaling import STANDARDISED
from silodp.data.silo_choice import chosen_silos
from silodp.data.source import DataOptions, DataSource, Defaults
from silodp.data.split import PAPER_SPLIT, TIME_SPLIT, Parts, coin_split, split_silo
from silodp.data.tables.by_value import is_missing, name_of
from silodp.data.tables.columns import (
    Column,
    Encoder,
    declared_column,
    make_encoder,
    owner_texts,
)
from silodp.data.tables.encoded import column_encoders, with_image_paths
from silodp.data.tables.files import (
    FRAME,
    NO_NAME,
    FileForm,
    Frames,
    Reading,
    check_column,
    read_silos,
    silos_of_frame,
    table_stem,
    values_of,
)
from silodp.data.tables.schema import Schema, level_text, schema_of
from silodp.data.tables.target import Target, check_numbers, make_target
from silodp.data.tables.times import at_or_after, places_in_time
from silodp.data.tasks import get_task

DEFAULT_TEST_FRACTION = 0.2

TAKES = frozenset(
    {
        *("silo_column", "subject_column", "time_column", "group_column", "target", "task"),
        *("drop_missing", "schema", "ignore", "levels", "bounds", "target_range", "classes"),
        *("other", "missing", "test_fraction", "split", "id_column", "test_from"),
        *("exposure_column", "exposure_range", "event_column", "event_value", "cut_points"),
        *("dates", "words", "file", "sheet"),
        *("features", "encoders", "image_size", "no_cache"),
    }
)
IN_MEMORY = "frame"  # what a table in memory is called in results
# What can be declared in Python, but by no option of a run.
_DECLARED = (
    *("levels", "bounds", "other", "missing", "target_range", "classes"),
    *("exposure_range", "dates", "words", "encoders"),
)
# Columns that say something of a record, and so are no features.
NO_FEATURES = (
    *("subject_column", "time_column", "group_column", "id_column"),
    *("exposure_column", "event_column"),
)


@dataclass(frozen=True)
class Table:
    """All silos' rows as numbers, before they are split and scaled.

    By the name of each silo: `identities` are what the coins of its records (of its subjects, where
    these are known) are tossed with; `times` and `groups` are there where the split goes by them,
    and so is `late`: which records are of a declared time or later. `counted` is how many records
    (or subjects) a silo has, those included that were left out, where no records may be refused
    (see `table_of_frames`), however few or alike they are. `left_out` are the names of silos that
    options left out. `said` is what a person should know of how the rows were read.
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
    said: tuple[str, ...] = ()

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


def source(path: Path, options: DataOptions, problems: Problems | None = None) -> DataSource:
    """The source bound to a file or a folder. It is read now, since the task may follow from it.

    `problems` gets all that is wrong with the table, which is then read as far as it can be; else
    the first is raised.
    """
    rows = _Rows(lambda given, own: read_table_of_silos(path, given, own), problems)
    return _bound(str(path), rows, options)


def source_of_frame(frame: Any, options: DataOptions) -> DataSource:
    """The source bound to a table in memory, whose `options.silo_column` names each row's silo.

    What is declared in `options`, and in no option of a run, holds for every loading.
    """
    declared = {name: getattr(options, name) for name in _DECLARED}
    rows = _Rows(lambda given, own: _table_of_frame(frame, given, own), None)
    bound = _bound(IN_MEMORY, rows, options)
    return replace(bound, read=lambda seed, given: rows.load(seed, replace(given, **declared)))


def _bound(name: str, rows: "_Rows", options: DataOptions) -> DataSource:
    table = rows.read(options)
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
        read=rows.load,
        chooses_silos=True,
        encodes=True,
        said=table.said,
    )
    bound.check_options(options)
    return bound


class _Rows:
    """The rows of a table, read and encoded once for all seeds."""

    def __init__(self, read: Callable[[DataOptions, Problems], Table], problems: Problems | None):
        self._read_table, self._problems = read, problems
        self._read: tuple[DataOptions, Table] | None = None

    def read(self, options: DataOptions) -> Table:
        """The table; what concerns split and preprocessing does not change it."""
        of_rows = replace(options, preprocess=None, test_fraction=None, density=None)
        if self._read is None or self._read[0] != of_rows:
            with reported(self._problems) as problems:
                self._read = of_rows, self._read_table(options, problems)
        return self._read[1]

    def load(self, seed: int, options: DataOptions) -> Federation:
        """The federation of one seed."""
        with reported(self._problems) as problems:
            return split_and_scale(self.read(options), seed, options, problems)


def read_table_of_silos(path: Path, options: DataOptions, problems: Problems) -> Table:
    """Reads, checks and encodes the rows of every silo."""
    options = _with_columns_beside(options)
    with problems.noted():
        _check_roles(path, options)
    schema = schema_of(options)
    frames, reading = read_silos(
        path,
        options.silo_column,
        text_columns(options),
        FileForm(schema.dialect, schema.sheet),
        without_silo=_without_silo(schema, options),
        problems=problems,
    )
    found = ()
    if reading.by_records:
        found = (
            f"How the file is written was found from its records ({', '.join(reading.by_records)}"
            "), not declared; epsilon does not cover it: declare it (in a schema: under [file]).",
        )
    encoders = column_encoders(schema, options)
    frames = with_image_paths(frames, encoders, path if path.is_dir() else path.parent)
    table = _table_of_chosen(path_name(path), frames, options, problems, where=path)
    return replace(
        table,
        notes=(*found, *table.notes),
        said=(*reading.said, *_unsure(reading), *table.said),
    )


def _table_of_frame(frame: Any, options: DataOptions, problems: Problems) -> Table:
    """Checks and encodes the rows of a table in memory."""
    options = _with_columns_beside(options)
    with problems.noted():
        _check_roles(FRAME, options)
    assert options.silo_column is not None
    without_silo = _without_silo(schema_of(options), options)
    frames = silos_of_frame(frame, options.silo_column, without_silo, problems)
    return _table_of_chosen(IN_MEMORY, frames, options, problems, where=FRAME)


def _without_silo(schema: Schema, options: DataOptions) -> bool:
    """Whether rows that name no silo are left out by rule."""
    return options.silo_column is not None and schema.drops(options.silo_column)


def _table_of_chosen(
    name: str, frames: Frames, options: DataOptions, problems: Problems, *, where: object
) -> Table:
    """The table of the silos that options choose."""
    # Before any of their records are looked at: what is wrong with others is no matter.
    chosen = chosen_silos({one: _units(frame, options) for one, frame in frames.items()}, options)
    own = {one: frames[one] for one in chosen}
    table = table_of_frames(name, own, options, where=where, problems=problems)
    return replace(table, left_out=tuple(one for one in frames if one not in chosen))


def _units(frame: pd.DataFrame, options: DataOptions) -> int:
    """How many records a silo has; subjects, where the table says whom a record is about."""
    column = options.subject_column
    if column is None or column not in frame.columns:
        return len(frame)
    return len({name_of(value) for value in values_of(frame, column)} - {None})


def path_name(path: Path) -> str:
    """What the data of a file or folder are called in results."""
    path = path.resolve()
    return path.stem if path.is_dir() else table_stem(path)


def _unsure(reading: Reading) -> list[str]:
    return [
        f"Column {column!r} holds numbers such as {value!r}, with a mark that may be one of "
        "thousands: declare what it is (in a schema: thousands or decimal under [file])."
        for column, value in reading.unsure.items()
    ]


def text_columns(options: DataOptions) -> set[str]:
    """The columns that are to be read as they are written, so that "007" is not 7."""
    schema = schema_of(options)
    # Where values are read one by one, pandas' guess at the type of all must not come before.
    as_text = schema.by_value
    if schema.classes is not None and options.target is not None:
        as_text.add(options.target)
    # A target of numbers is what it is, whatever the rule for a missing one.
    elif options.target is not None:
        as_text.discard(options.target)
    # The number of a subject, group or record is a name: "007" is not "7".
    names = (options.subject_column, options.group_column, options.id_column)
    # A status is a word, even where it is written as a number.
    names = (*names, schema.beside.event_column)
    as_text.update(column for column in names if column is not None)
    as_text.update(schema.features)
    return as_text


def _with_columns_beside(options: DataOptions) -> DataOptions:
    """The options with the columns that a schema file names beside the target."""
    beside = schema_of(options).beside
    return replace(
        options, exposure_column=beside.exposure_column, event_column=beside.event_column
    )


def table_of_frames(
    name: str,
    frames: Frames,
    options: DataOptions,
    *,
    where: object = None,
    total: bool = False,
    problems: Problems | None = None,
) -> Table:
    """Checks and encodes the rows of every silo, wherever they came from.

    Args:
      name: what the data are called in results.
      frames: the frame of each silo, all with the same columns.
      options: what the columns are for.
      where: what errors name as the place of a table; by default its name.
      total: whether no row may be refused: each one by itself is encoded or left out, since a
        refusal would tell of it. Everything must be declared then; see `usable_rows`.
      problems: gets what is wrong, while the rest is checked; else the first is raised.
    """
    with reported(problems) as own:
        return _table_of_frames(name, frames, options, name if where is None else where, total, own)


def _table_of_frames(
    name: str, frames: Frames, options: DataOptions, where: object, total: bool, problems: Problems
) -> Table:
    schema, options = schema_of(options), _with_columns_beside(options)
    with problems.noted():
        _check_roles(where, options)
    features = _feature_columns(where, frames, options, schema, problems)
    assert options.target is not None  # _feature_columns has refused that
    used = [*features, options.target, *_no_features(options)]
    frames = {silo: frame.loc[:, list(dict.fromkeys(used))] for silo, frame in frames.items()}
    drop, said = bool(options.drop_missing), []
    encoders = column_encoders(schema, options)
    if total:
        assert not encoders  # refused where sites agree on columns
        encoder, _ = make_encoder(frames, features, schema, total=True, drop=drop)
        target = make_target(where, frames, options.target, options.task, schema)
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
    frames = _without_missing(frames, features, schema, drop, problems, said)
    encoder, undeclared = make_encoder(
        frames, features, schema, drop=drop, encoders=encoders, problems=problems
    )
    if not encoder.columns:
        problems.check()
    for column in encoder.columns:
        with problems.noted():
            _check_bounds(column, schema)
    target = make_target(where, frames, options.target, options.task, schema)
    notes = []
    if schema.from_records:
        columns = few_of([*map(repr, schema.from_records)])
        notes.append(
            f"What the schema declares of {columns} was taken from the records (from_records in "
            "the schema); epsilon does not cover it: replace it by what is public."
        )
    if undeclared:
        notes.append(
            f"The levels of {few_of([*map(repr, undeclared)])} were taken from the records of all "
            "silos, not declared; epsilon does not cover them."
        )
    if get_task(target.task).of_classes and not target.declared:
        notes.append(
            f"The classes of {target.name!r} were taken from the records of all silos, not "
            "declared; epsilon does not cover them."
        )
    elif options.task is None and not target.declared and not schema.beside.given:
        notes.append(
            f"The task {target.task} was inferred from the values of {target.name!r} in all silos, "
            "not declared; epsilon does not cover it: give --task."
        )
    if waiting := [repr(column.name) for column in encoder.columns if column.noisy_mean]:
        said.append(
            f"Missing values of {few_of(waiting)} count as each silo's noisy mean, which has a "
            "price: give a run --statistics-share."
        )
    table = Table(name, {}, encoder, target, schema, tuple(notes), {}, said=tuple(said))
    as_text = text_columns(options)
    are_numbers = check_numbers(frames, target, problems)
    for silo, frame in frames.items():
        with problems.noted():
            _add_silo(table, silo, frame, options, as_text, problems, are_numbers)
    if not table.records:
        problems.check()
    return table


def _add_silo(
    table: Table,
    silo: str,
    frame: pd.DataFrame,
    options: DataOptions,
    as_text: set[str],
    problems: Problems,
    has_labels: bool,
) -> None:
    """Encodes the rows of a silo; columns with a problem become zeros, and nothing is trained.

    Without labels, or with some that are none, the silo is left out: that was told.
    """
    subject = None
    if (column := options.subject_column) is not None:
        names = owner_texts(silo, column, values_of(frame, column), "subject")
        subject = np.unique(names, return_inverse=True)[1]
        identities = coins.of_texts(names)
    elif (column := options.id_column) is not None:
        identities = coins.of_texts(map(level_text, values_of(frame, column)))
    else:
        identities = coins.of_rows(frame, as_text)
    if (column := options.time_column) is not None:
        when = values_of(frame, column)
        if options.test_from is None:
            table.times[silo] = places_in_time(silo, column, when)
        else:
            table.late[silo] = at_or_after(silo, column, when, options.test_from)
    if (column := options.group_column) is not None:
        table.groups[silo] = coins.of_texts(
            owner_texts(silo, column, values_of(frame, column), "group")
        )
    y, parts = None, []
    if has_labels:
        with problems.noted():
            y = table.target.encode(silo, frame)
    for one in table.encoder.columns:
        parts.append(np.zeros((len(frame), len(one.feature_names))))
        with problems.noted():
            parts[-1] = one.encode(silo, values_of(frame, one.name))
    if y is None:
        return
    absent = table.encoder.absent(frame)
    table.records[silo] = Records(np.concatenate(parts, axis=1), y, subject, absent)
    table.identities[silo] = identities


def usable_rows(
    frame: pd.DataFrame, encoder: Encoder, target: Target, subject_column: str | None
) -> np.ndarray:
    """[rows]: which rows can be learned from, each looked at by itself.

    Left out is a row without a target that is one, without a name of whom it is about where that is
    asked for, or with a missing value that no rule is for.
    """
    usable = target.usable(frame) & ~encoder.lacks(frame).any(axis=1)
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
    y, absent = target.encode_by_value(kept), encoder.absent(kept)
    if column is not None:
        counted = len({name_of(value) for value in values_of(frame, column)} - {None})
        names = [str(name_of(value)) for value in values_of(kept, column)]
        subject = np.unique(np.array(names, dtype=object), return_inverse=True)[1]
        return _ByValue(Records(x, y, subject, absent), coins.of_texts(names), counted)
    # Of what the row becomes: the same wherever and in whatever type it is stored.
    identities = coins.of_arrays(x, y)
    if options.id_column is not None:
        own = [name_of(value) for value in values_of(kept, options.id_column)]
        # A row without a name goes by what it holds.
        identities = [
            content if name is None else coins.of_texts([name])[0]
            for name, content in zip(own, identities, strict=True)
        ]
    return _ByValue(Records(x, y, absent=absent), identities, counted)


def split_and_scale(
    table: Table,
    seed: int,
    options: DataOptions,
    problems: Problems | None = None,
    *,
    whole: bool = False,
) -> Federation:
    """Splits each silo, then scales features and target.

    If it is to stay `whole`, all records are for training and none for testing: there is no split
    that a record could change, and no coin.
    """
    with reported(problems) as own:
        return _split_and_scale(table, seed, options, own, whole)


def _split_and_scale(
    table: Table, seed: int, options: DataOptions, problems: Problems, whole: bool
) -> Federation:
    preprocess = options.preprocess or table.preprocess
    test_fraction = options.test_fraction or DEFAULT_TEST_FRACTION
    notes = list(table.notes)
    if table.times:
        notes.append(TIME_SPLIT)
    elif options.split == "paper":
        notes.append(PAPER_SPLIT)
    silos = []
    for name in table.records:
        with problems.noted():
            if whole:
                train, test, expected = Parts(all_ := table.records[name], all_.take(np.arange(0)))
            else:
                train, test, expected = _parts(table, name, test_fraction, seed, options)
            preparation = Preparation(
                table.encoder,
                _scaling(table, train.x, preprocess, problems),
                table.target,
                drop_missing=bool(options.drop_missing),
            )
            silo = prepared_silo(name, train, test, preparation)
            silos.append(replace(silo, expected=expected))
    if not silos:
        problems.check()
    if preprocess == "paper" and table.encoder.is_number.any():
        notes.append(STANDARDISED)
    target = table.target
    if get_task(target.task).is_scaled and target.range is None:
        if preprocess == "bounds":
            problems.add(
                Fault(
                    f"The target {target.name!r}",
                    "has no declared range, which the preprocessing 'bounds' needs",
                    "declare target_range (in a schema: [target] range = [low, high])",
                    column=target.name,
                )
            )
        if preprocess == "paper":
            silos = _scale_target(silos, target)
            notes.append(
                f"The target {target.name!r} is scaled by the smallest and the largest value of "
                "all silos' training records; epsilon does not cover these two."
            )

    def federation_of(silos: list[Silo]) -> Federation:
        return Federation(
            name=table.name,
            silos=tuple(silos),
            task=target.task,
            num_classes=target.num_classes,
            uncovered=tuple(notes),
            declared=_declared(table, preprocess),
            # With problems, features may be other numbers; nothing is trained then.
            feature_bound=1.0 if _is_bounded(table, preprocess) and not len(problems) else None,
            class_names=target.classes,
            feature_names=table.encoder.feature_names,
            left_out=table.left_out,
        )

    try:
        return federation_of(silos)
    except SilodpError as error:
        fit = []
        for silo in silos:  # each by itself, to find all that do not fit
            with problems.noted():
                federation_of([silo])
                fit.append(silo)
        if not fit or len(fit) == len(silos):
            problems.add(error)
            problems.check()
        return federation_of(fit)


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
        "feature bounds": scaled
        or any(column.name in schema.levels or column.encoder is not None for column in columns),
        "label range": table.target.is_bounded,
        "class list": schema.classes is not None,
    }
    return tuple(kind for kind, is_used in used.items() if is_used)


def _check_roles(where: object, options: DataOptions) -> None:
    """Refuses a column that options use for two things, and a split by two things."""
    for one, other in combinations(("silo_column", "target", *NO_FEATURES), 2):
        column = getattr(options, one)
        if column is not None and column == getattr(options, other):
            raise Fault(
                f"{where}: the column {column!r}",
                f"is both {other} and {one}",
                f"choose another {other}",
                column=column,
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
    where: object, frames: Frames, options: DataOptions, schema: Schema, problems: Problems
) -> list[str]:
    """Every column but those with a role and those to be ignored; all that is named must exist."""
    target = options.target
    role_of = {getattr(options, role): role for role in NO_FEATURES}
    frame = next(iter(frames.values()))
    if target is None:
        problems.add(
            SilodpError(
                f"{where}: the target is not given (--target): choose the column to predict, one "
                f"of {', '.join(map(repr, frame.columns))}."
            )
        )
        problems.check()
    assert target is not None
    before = len(problems)
    for column, option in {target: "target", **role_of}.items():
        if column is not None:
            with problems.noted():
                check_column(where, frame, column, option)
    lacking = len(problems) > before
    for option in ("ignore", "levels", "bounds", "missing", "dates", "words", "features"):
        for column in getattr(schema, option):
            if option == "missing" and schema.drops(column) and column == options.silo_column:
                continue
            with problems.noted():
                if column == options.silo_column:
                    raise Fault(
                        f"{where}:",
                        f"{option} names the column {column!r}, which is the silo_column and so no "
                        "feature",
                        "leave it out there",
                        column=column,
                    )
                _check_declared(where, frame, option, column, target, role_of, schema)
    if lacking:
        problems.check()  # without columns for these roles nothing more can be checked
    for column in schema.levels:
        if column in schema.bounds:
            problems.add(
                Fault(
                    f"{where}: column {column!r}",
                    "has both levels and bounds",
                    "declare levels for a category, or bounds for a number",
                    column=column,
                )
            )
    left_out = {target, *role_of, *schema.ignore}
    features = [name for name in frame.columns if name not in left_out]
    for name in features:
        if name.endswith(NO_NAME):
            problems.add(
                Fault(
                    f"{where}: {name.removesuffix(NO_NAME)}",
                    "has no name",
                    "name it, or leave it out (pandas writes such a column unless told "
                    f"index=False): --ignore {name!r}",
                    column=name,
                )
            )
    if not features:
        problems.add(
            SilodpError(
                f"{where} has no feature column beside the target {target!r}: give at least one."
            )
        )
        problems.check()
    return features


def _check_declared(
    where: object,
    frame: pd.DataFrame,
    option: str,
    column: str,
    target: str,
    role_of: dict[str, str],
    schema: Schema,
) -> None:
    """Refuses a declaration of a column that is not there, or for which it means nothing."""
    check_column(where, frame, column, option)
    if option == "missing" and schema.drops(column):
        return  # of any column
    if column == target:
        raise Fault(
            f"{where}:",
            f"{option} names the column {column!r}, which is the target",
            "declare its range or classes instead",
            column=column,
        )
    if column in role_of and option != "ignore":
        raise Fault(
            f"{where}:",
            f"{option} names the column {column!r}, which is the {role_of[column]} and so no "
            "feature",
            "leave it out there",
            column=column,
        )


def _without_missing(
    frames: Frames,
    features: list[str],
    schema: Schema,
    drop: bool,
    problems: Problems,
    said: list[str],
) -> Frames:
    """The rows that lack no value, but for columns in which the schema says what it counts as."""
    whole: Frames = {}
    by_rule = _ByRule()
    lacking: list[Fault] = []
    for silo, frame in frames.items():
        lacks = np.zeros(len(frame), bool)
        for name in frame:
            encoded = name in schema.features
            ruled = name in schema.by_value and not encoded
            column = declared_column(name, schema) if ruled else None
            values = values_of(frame, name)
            by_value = column is not None and column.by_value and name in features
            odd = column.lacks(values) if column is not None and by_value else _blank(values)
            if encoded:
                odd = np.array([is_missing(value) for value in values], bool)
            if column is not None and by_value and (strange := column.strange(values)).any():
                where = by_rule if name in schema.missing else None
                _tell_strange(silo, column, values, strange, problems, where)
            if odd.any():
                if schema.drops(name):
                    by_rule.add(f"Left out by the schema, for want of {name!r}", silo, odd.sum())
                elif not drop:
                    lacking.append(_missing(silo, name, int(odd.sum())))
                lacks |= odd
        whole[silo] = frame.loc[~lacks] if lacks.any() else frame
        if lacks.all() and (drop or any(schema.drops(name) for name in frame)):
            problems.add(
                Fault(
                    f"Silo {silo!r}",
                    "has no row without missing values",
                    "fill some, or leave it out (--exclude-silos)",
                    silo=silo,
                    rows=len(frame),
                )
            )
    said += by_rule.sentences()
    for fault in lacking:
        problems.add(fault)
    whole = {silo: frame for silo, frame in whole.items() if len(frame)}
    if not whole:
        problems.check()
    return whole


class _ByRule:
    """What becomes of rows by the rules of a schema: one sentence for each, over all silos."""

    def __init__(self):
        self._rows: dict[str, dict[str, int]] = {}
        self._examples: dict[str, str] = {}

    def add(self, what: str, silo: str, rows: int, examples: str = "") -> None:
        """Counts rows of a silo; the examples are those of the first."""
        self._rows.setdefault(what, {})[silo] = int(rows)
        self._examples.setdefault(what, f" ({examples})" if examples else "")

    def sentences(self) -> list[str]:
        """All of it in words."""
        return [
            f"{what}{self._examples[what]}: {count(sum(of.values()), 'row')} of "
            f"{count(len(of), 'silo')} ({silo_names(list(of))})."
            for what, of in self._rows.items()
        ]


def _blank(values: pd.Series) -> np.ndarray:
    return values.isna().to_numpy(bool)


def _missing(silo: str, column: str, rows: int) -> Fault:
    return Fault(
        "",
        f"Values are missing: {rows} in column {column!r} of silo {silo!r}",
        "fill them, drop such rows (drop_missing, --drop-missing), or declare what they count as "
        "(in a schema: under [missing])",
        silo=silo,
        column=column,
        rows=rows,
    )


def _tell_strange(
    silo: str,
    column: Column,
    values: pd.Series,
    strange: np.ndarray,
    problems: Problems,
    by_rule: "_ByRule | None",
) -> None:
    """Tells of values that are no number (or date) where numbers (dates) stand."""
    examples = ", ".join(map(repr, list(dict.fromkeys(values[strange].astype(str)))[:3]))
    rows, wanted = int(strange.sum()), "numbers" if column.date is None else "dates"
    if by_rule is not None:
        what = f"Taken as missing in {column.name!r}, where {wanted} stand"
        by_rule.add(what, silo, rows, examples)
        return
    problems.add(
        Fault(
            f"Silo {silo!r}: column {column.name!r}",
            f"holds {examples} where {wanted} stand",
            "mend them, declare what they stand for (in a schema: under [words]) or what a missing "
            "value counts as (under [missing])",
            silo=silo,
            column=column.name,
            rows=rows,
        )
    )


def _check_bounds(column: Column, schema: Schema) -> None:
    if column.levels and column.name in schema.bounds and column.name not in schema.levels:
        raise Fault(
            f"Column {column.name!r}",
            "has bounds, but it holds words",
            "declare its levels",
            column=column.name,
        )


def _scaling(table: Table, train: np.ndarray, preprocess: str, problems: Problems) -> Scaling:
    """How features of number columns are scaled; the 0 and 1 of categories stay."""
    which = table.encoder.is_number
    if preprocess == "none" or not which.any():
        return Scaling()
    if preprocess == "paper":
        return fitted_to(train[:, which])
    limits = []
    for column in table.encoder.columns:
        if column.levels or column.encoder is not None:
            continue
        if column.name not in table.schema.bounds:
            problems.add(
                Fault(
                    f"Column {column.name!r}",
                    "has no declared bounds, which the preprocessing 'bounds' needs",
                    "declare its lowest and highest value (in a schema: under [bounds])",
                    column=column.name,
                )
            )
        limits.append(table.schema.bounds.get(column.name, (0.0, 1.0)))
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
