"""Tasks by name, each in the file of that name; see `task.py` for what a task says of itself."""

from importlib import import_module
from typing import get_args

import numpy as np

from silodp.base.errors import SilodpError, meant
from silodp.config.choices import TaskName
from silodp.data.tasks.task import Graph, GraphOutput, PublicKnowledge, Task

__all__ = [
    "TASKS",
    "USUAL_OF_IMAGES",
    "USUAL_TASK",
    "Graph",
    "GraphOutput",
    "PublicKnowledge",
    "Task",
    "get_task",
    "inferred_task",
    "task_of_classes",
]

TASKS: dict[TaskName, Task] = {
    name: import_module(f"{__name__}.{name}").TASK for name in get_args(TaskName)
}
USUAL_TASK: TaskName = "regression"
"""The task of data that do not say what is to be learned of them."""
USUAL_OF_IMAGES: TaskName = "multiclass"


def get_task(name: str) -> Task:
    """The task of that name."""
    for own_name, task in TASKS.items():
        if name == own_name:
            return task
    raise SilodpError(f"Task {name!r} is unknown: {meant(name, TASKS, most=20)}")


def task_of_classes(classes: int) -> Task:
    """The first task that a list of so many classes fits."""
    return next(task for task in TASKS.values() if task.fits_classes(classes))


def inferred_task(distinct: np.ndarray) -> Task:
    """The task that a target with these different values (numbers or words) is meant for."""
    return [task for task in TASKS.values() if task.suits(distinct)][-1]
