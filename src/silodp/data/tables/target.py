"""The target of a table: what is to be predicted, and which task that makes."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from silodp.base.errors import SilodpError, one_of
from silodp.config.choices import TaskName
from silodp.data.problems import Fault
from silodp.data.scaling import bounds_to_unit
from silodp.data.tables.by_value import numbers_of, places_of
from silodp.data.tables.columns import Kind, category_numbers, kind_of, numbers, united_levels
from silodp.data.tables.files import Frames, values_of
from silodp.data.tables.schema import Schema
from silodp.data.tasks import TASKS, get_task, inferred_task


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

    def encode(self, silo: str, values: pd.Series) -> np.ndarray:
        """Labels, as the task has them."""
        task = get_task(self.task)
        if not task.of_classes:
            return self.scaled(numbers(silo, self.name, values))
        return task.labels_of(category_numbers(silo, self.name, values, self.classes))

    def usable(self, values: pd.Series) -> np.ndarray:
        """[rows]: which values are a target, each looked at by itself."""
        if not get_task(self.task).of_classes:
            return ~np.isnan(numbers_of(values))
        return places_of(values, self.classes) >= 0

    def encode_by_value(self, values: pd.Series) -> np.ndarray:
        """Labels of usable values; the range of numbers was declared."""
        task = get_task(self.task)
        if not task.of_classes:
            return self.scaled(numbers_of(values))
        return task.labels_of(places_of(values, self.classes))

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


def make_target(frames: Frames, name: str, task: TaskName | None, schema: Schema) -> Target:
    """The target with its task, which is inferred where it is not given."""
    declared = schema.classes is not None or schema.target_range is not None
    if schema.classes is not None:
        count = len(schema.classes)
        fitting: list[TaskName] = [t.name for t in TASKS.values() if t.fits_classes(count)]
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
