"""The target of a table: what is to be predicted, and which task that makes."""

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from silodp.base.errors import SilodpError, one_of
from silodp.config.choices import TaskName
from silodp.data.problems import Fault, Problems
from silodp.data.scaling import bounds_to_unit
from silodp.data.tables.beside import Beside
from silodp.data.tables.by_value import MISSING, numbers_of, places_of
from silodp.data.tables.columns import (
    Kind,
    category_numbers,
    column_type,
    kind_of,
    not_numbers,
    numbers,
    united_levels,
)
from silodp.data.tables.files import Frames, values_of
from silodp.data.tables.schema import Schema
from silodp.data.tasks import TASKS, get_task, inferred_task

# What an event column may hold where no value is declared to be the event.
_HAPPENED, _CENSORED = ("1", "True", "yes", "Yes", "YES"), ("0", "False", "no", "No", "NO")


@dataclass(frozen=True)
class Target:
    """The column to predict. `declared` says whether the classes or the range were.

    `spread` is the smallest and the largest number of all silos' training records, where a number
    is scaled by these instead of by a declared range.
    """

    name: str
    task: TaskName
    classes: tuple[str, ...] = ()
    range: tuple[float, float] | None = None
    declared: bool = False
    spread: tuple[float, float] | None = None
    beside: Beside = field(default_factory=Beside)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that labels are made of."""
        return (self.name, *self.beside.columns)

    @property
    def num_classes(self) -> int:
        """A federation's `num_classes`: of classes, or of intervals of time."""
        return len(self.beside.cut_points) or get_task(self.task).num_classes_of(len(self.classes))

    @property
    def is_bounded(self) -> bool:
        """Whether it is declared what labels may be."""
        task = get_task(self.task)
        return not task.of_classes and task.is_bounded(self)

    def encode(self, silo: str, frame: pd.DataFrame) -> np.ndarray:
        """Labels, as the task has them."""
        task, values = get_task(self.task), values_of(frame, self.name)
        if task.of_classes:
            return task.labels_of(category_numbers(silo, self.name, values, self.classes))
        found, y, beside = Problems(), np.empty(0), None
        with found.noted():
            y = self.scaled(self._own_numbers(silo, values))
        with found.noted():
            beside = self.numbers_beside(silo, frame)
        found.check()
        return task.composed(y, beside, self)

    def _own_numbers(self, silo: str, values: pd.Series) -> np.ndarray:
        """The numbers of the target's own column; refuses those that the task knows nothing of."""
        task, y = get_task(self.task), numbers(silo, self.name, values)
        # Larger ones than the range count as its end, but a count below 0 is none.
        odd = task.odd(y if self.range is None else np.minimum(y, self.range[1]))
        if odd.any():
            raise _odd_values(
                silo,
                values.loc[odd],
                f"but a {task.name} task takes {task.target_numbers}",
                "mend the values, or leave those rows out",
            )
        return y

    def numbers_beside(self, silo: str, frame: pd.DataFrame) -> np.ndarray | None:
        """The numbers of the column beside the target's, if there is one."""
        if (column := self.beside.event_column) is not None:
            values = values_of(frame, column)
            happened = self._happened(values)
            if (odd := np.isnan(happened)).any():
                raise _odd_values(
                    silo,
                    values.loc[odd],
                    "but it says whether the event was seen",
                    "write 1 or 0, or declare what stands for it (in a schema: event_value = "
                    '"dead" under [target])',
                )
            return happened
        if (column := self.beside.exposure_column) is not None:
            values = values_of(frame, column)
            exposures = numbers(silo, column, values)
            if (odd := ~(exposures > 0)).any():
                raise _odd_values(
                    silo,
                    values.loc[odd],
                    "but exposures are above 0",
                    "mend the values, or leave those rows out",
                )
            return exposures
        return None

    def usable(self, frame: pd.DataFrame) -> np.ndarray:
        """[rows]: which rows have a target, each looked at by itself."""
        task, values = get_task(self.task), values_of(frame, self.name)
        if task.of_classes:
            return places_of(values, self.classes) >= 0
        usable, beside = ~np.isnan(numbers_of(values)), self._beside_by_value(frame)
        return usable if beside is None else usable & task.has_beside(beside)

    def encode_by_value(self, frame: pd.DataFrame) -> np.ndarray:
        """Labels of usable rows; all that numbers may be was declared."""
        task, values = get_task(self.task), values_of(frame, self.name)
        if task.of_classes:
            return task.labels_of(places_of(values, self.classes))
        y = task.whole(self.scaled(numbers_of(values)))
        return task.composed(y, self._beside_by_value(frame), self)

    def _beside_by_value(self, frame: pd.DataFrame) -> np.ndarray | None:
        if (column := self.beside.event_column) is not None:
            return self._happened(values_of(frame, column))
        if (column := self.beside.exposure_column) is not None:
            return numbers_of(values_of(frame, column))
        return None

    def _happened(self, values: pd.Series) -> np.ndarray:
        """[rows]: 1 where values say that the event was seen, 0 where not, NaN where neither."""
        if self.beside.event_value is not None:
            places = places_of(values, (self.beside.event_value,))
            return np.where(places == MISSING, np.nan, places == 0)
        places = places_of(values, (*_HAPPENED, *_CENSORED))
        return np.where(places < 0, np.nan, places < len(_HAPPENED))

    def scaled(self, y: np.ndarray) -> np.ndarray:
        """Numbers in the target's own units as a model learns them."""
        if not get_task(self.task).is_scaled:
            return y if self.range is None else np.clip(y, *self.range)
        if self.range is not None:
            return bounds_to_unit(y, *self.range)
        low, high = self._ends
        # Those of test records may lie outside; clipping them would flatter the model.
        return (y - low) / (high - low)

    @property
    def _ends(self) -> tuple[float, float]:
        """What a model's 0 and 1 are, in the target's own units."""
        known = self.range or self.spread
        return known if known and get_task(self.task).is_scaled else (0.0, 1.0)

    @property
    def lowest(self) -> float:
        """What a model's 0 is, in the target's own units."""
        return self._ends[0]

    @property
    def unit(self) -> float:
        """How much of the target's own units a model's 1 is."""
        low, high = self._ends
        return high - low

    def in_own_units(self, outputs: np.ndarray) -> np.ndarray:
        """What a model says, in the target's own units."""
        return self.lowest + self.unit * outputs.astype(np.float64)


def _odd_values(silo: str, values: pd.Series, but: str, remedy: str) -> Fault:
    """What to say of values of a column that no label can be made of."""
    first = list(dict.fromkeys(values.tolist()))[:3]
    examples = ", ".join(f"{one:g}" if isinstance(one, float) else repr(one) for one in first)
    return Fault(
        f"Silo {silo!r}: column {str(values.name)!r}",
        f"holds {examples}, {but}",
        remedy,
        silo=silo,
        column=str(values.name),
        rows=len(values),
    )


def check_numbers(frames: Frames, target: Target, problems: Problems) -> bool:
    """Whether the columns of numbers that labels are made of hold numbers; tells of all words.

    One word makes a column of text, in silos without any too: these are not told of.
    """
    of_classes, before = get_task(target.task).of_classes, len(problems)
    for column in (None if of_classes else target.name, target.beside.exposure_column):
        if column is None:
            continue
        texts = {
            silo: values
            for silo, frame in frames.items()
            if column_type(values := values_of(frame, column)) != "number"
        }
        words = {silo: odd for silo, values in texts.items() if (odd := not_numbers(values))}
        for silo, odd in (words or {silo: list(values) for silo, values in texts.items()}).items():
            stored = "where numbers stand" if words else "as text"
            examples = ", ".join(map(repr, list(dict.fromkeys(map(str, odd)))[:3]))
            problems.add(
                Fault(
                    f"Silo {silo!r}: column {column!r}",
                    f"holds {examples} {stored}",
                    "write plain numbers such as 1234.5, or leave those rows out",
                    silo=silo,
                    column=column,
                    rows=len(odd),
                )
            )
    return len(problems) == before


def make_target(
    where: object, frames: Frames, name: str, task: TaskName | None, schema: Schema
) -> Target:
    """The target with its task, which is inferred where it is not given."""
    target = replace(_target(frames, name, task, schema), beside=schema.beside)
    check_target(str(where), target)
    return target


def check_target(where: str, target: Target) -> None:
    """Refuses declarations that do not fit the target's task, or that it lacks."""
    task, given = get_task(target.task), target.beside.given
    for key in given:
        if key not in task.takes:
            fitting = [known.name for known in TASKS.values() if key in known.takes]
            raise SilodpError(
                f"{where}: {key} is declared, which is not for a {task.name} task: leave it out, "
                f"or choose the task {' or '.join(fitting)}."
            )
    for key in task.needs:
        if key not in given:
            raise SilodpError(
                f"{where}: {key} is missing, which a {task.name} task needs: give it, or declare "
                "it in a schema under [target]."
            )
    task.check_target(where, target)


def _target(frames: Frames, name: str, task: TaskName | None, schema: Schema) -> Target:
    beside = schema.beside
    declared = schema.classes is not None or schema.target_range is not None
    # Cut points say all that times are to a model; nothing is looked for in the records then.
    declared = declared or bool(beside.cut_points)
    if schema.classes is not None:
        count = len(schema.classes)
        fitting: list[TaskName] = [t.name for t in TASKS.values() if t.fits_classes(count)]
    elif beside.given:
        fitting = [known.name for known in TASKS.values() if set(beside.given) <= {*known.takes}]
        task = task or next(iter(fitting), None)
        fitting = fitting if task is None else [task]  # `check_target` says what does not fit
    elif schema.target_range is not None:
        fitting = [known.name for known in TASKS.values() if not known.of_classes]
    else:
        fitting = list(TASKS)
    if task is not None and task not in fitting:
        because = f", because of what is declared for the target {name!r}" if declared else ""
        raise SilodpError(f"Task {task!r} does not fit{because}: choose {one_of(task, fitting)}.")
    if declared:
        return Target(name, task or fitting[0], schema.classes or (), schema.target_range, True)

    kind = kind_of(frames, name, "the target's classes")
    if task is None:
        task = inferred_task(_distinct(frames, name, kind)).name
    if not get_task(task).of_classes:
        if kind != "number":
            others = [known.name for known in TASKS.values() if known.of_classes]
            raise Fault(
                f"The target {name!r}",
                f"holds words, but the task is {task}",
                f"choose {' or '.join(others)}",
                column=name,
            )
        return Target(name, task)
    classes = united_levels(frames, name, "the target's classes")
    if len(classes) < 2 or not get_task(task).fits_classes(len(classes)):
        raise Fault(
            f"The target {name!r}",
            f"has {len(classes)} different values, which does not fit a {task} task",
            "choose another task or target",
            column=name,
        )
    return Target(name, task, classes)


def _distinct(frames: Frames, name: str, kind: Kind) -> np.ndarray:
    """The different values of a column: words or numbers."""
    if kind == "category":
        return np.array(united_levels(frames, name, "the target's classes"), dtype=object)
    values = [numbers(silo, name, values_of(frame, name)) for silo, frame in frames.items()]
    return np.unique(np.concatenate(values))
