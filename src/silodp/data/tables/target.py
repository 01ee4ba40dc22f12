"""The target of a table: what is to be predicted, and which task that makes."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from silodp.base.errors import SilodpError, one_of
from silodp.config.choices import Task
from silodp.data.scaling import bounds_to_unit
from silodp.data.tables.by_value import numbers_of, places_of
from silodp.data.tables.columns import Kind, category_numbers, kind_of, numbers, united_levels
from silodp.data.tables.files import Frames, values_of
from silodp.data.tables.schema import Schema

# A target of whole numbers with no more values than this is taken for a class number.
FEW_VALUES = 10


@dataclass(frozen=True)
class Target:
    """The column to predict. `declared` says whether the classes or the range were.

    `spread` is the smallest and the largest number of all silos' training records, where a number
    is scaled by these instead of by a declared range.
    """

    name: str
    task: Task
    classes: tuple[str, ...] = ()
    range: tuple[float, float] | None = None
    declared: bool = False
    spread: tuple[float, float] | None = None

    def encode(self, silo: str, values: pd.Series) -> np.ndarray:
        """Numbers (regression), -1 and +1 (binary) or class numbers from 0 (multiclass)."""
        if self.task == "regression":
            return self.scaled(numbers(silo, self.name, values))
        return self._labels(category_numbers(silo, self.name, values, self.classes))

    def usable(self, values: pd.Series) -> np.ndarray:
        """[rows]: which values are a target, each looked at by itself."""
        if self.task == "regression":
            return ~np.isnan(numbers_of(values))
        return places_of(values, self.classes) >= 0

    def encode_by_value(self, values: pd.Series) -> np.ndarray:
        """Labels of usable values; the range of a regression was declared."""
        if self.task == "regression":
            return self.scaled(numbers_of(values))
        return self._labels(places_of(values, self.classes))

    def _labels(self, places: np.ndarray) -> np.ndarray:
        return 2.0 * places - 1.0 if self.task == "binary" else places

    def scaled(self, y: np.ndarray) -> np.ndarray:
        """Numbers in the target's own units as a model learns them."""
        if self.range is not None:
            return bounds_to_unit(y, *self.range)
        low, high = self.spread or (0.0, 1.0)
        # Those of test records may lie outside; clipping them would flatter the model.
        return (y - low) / (high - low)

    @property
    def lowest(self) -> float:
        """What a model's 0 is, in the target's own units."""
        return (self.range or self.spread or (0.0, 1.0))[0]

    @property
    def unit(self) -> float:
        """How much of the target's own units a model's 1 is."""
        low, high = self.range or self.spread or (0.0, 1.0)
        return high - low

    def in_own_units(self, outputs: np.ndarray) -> np.ndarray:
        """What a model says, in the target's own units."""
        return self.lowest + self.unit * outputs.astype(np.float64)


def make_target(frames: Frames, name: str, task: Task | None, schema: Schema) -> Target:
    """The target with its task, which is inferred where it is not given."""
    declared = schema.classes is not None or schema.target_range is not None
    if schema.classes is not None:
        fitting: tuple[Task, ...] = (
            ("binary", "multiclass") if len(schema.classes) == 2 else ("multiclass",)
        )
    elif schema.target_range is not None:
        fitting = ("regression",)
    else:
        fitting = ("regression", "binary", "multiclass")
    if task is not None and task not in fitting:
        told = f", because of what is declared for the target {name!r}" if declared else ""
        raise SilodpError(f"Task {task!r} does not fit{told}: choose {one_of(task, fitting)}.")
    if declared:
        return Target(name, task or fitting[0], schema.classes or (), schema.target_range, True)

    kind = kind_of(frames, name, "the target's classes")
    if task is None:
        task = _inferred_task(frames, name, kind)
    if task == "regression":
        if kind != "number":
            raise SilodpError(
                f"The target {name!r} holds words, but the task is regression: choose binary or "
                "multiclass."
            )
        return Target(name, task)
    classes = united_levels(frames, name, "the target's classes")
    if len(classes) < 2 or (task == "binary" and len(classes) > 2):
        raise SilodpError(
            f"The target {name!r} has {len(classes)} different values, which does not fit a {task} "
            "task: choose another task or target."
        )
    return Target(name, task, classes)


def _inferred_task(frames: Frames, name: str, kind: Kind) -> Task:
    """By how many different values there are: two, a few whole numbers or words, or many."""
    if kind == "category":
        classes = united_levels(frames, name, "the target's classes")
        return "binary" if len(classes) == 2 else "multiclass"
    values = np.concatenate(
        [numbers(silo, name, values_of(frame, name)) for silo, frame in frames.items()]
    )
    distinct = np.unique(values)
    if len(distinct) == 2:
        return "binary"
    whole = bool((distinct % 1 == 0).all())
    return "multiclass" if whole and len(distinct) <= FEW_VALUES else "regression"
