"""What tasks say of labels and outputs; that they are taken by name."""

import numpy as np
import pytest

from silodp import SilodpError
from silodp.data.tables.target import Target
from silodp.data.tasks import TASKS, get_task, inferred_task, task_of_classes


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_in_the_file_of_its_name(name):
    task = get_task(name)
    assert task.name == name
    assert type(task).__module__ == f"silodp.data.tasks.{name}"


def test_another_name_is_refused():
    with pytest.raises(SilodpError, match="Task 'ranking' is unknown: known are 'regression', "):
        get_task("ranking")


@pytest.mark.parametrize(
    ("distinct", "task"),
    [
        (np.array([0.0, 1.0]), "binary"),
        (np.array([0.5, 0.7]), "binary"),
        (np.array(["no", "yes"], object), "binary"),
        (np.array(["a", "b", "c"], object), "multiclass"),
        (np.arange(10.0), "multiclass"),
        (np.arange(11.0), "regression"),
        (np.array([0.5, 1.0, 2.0]), "regression"),
    ],
)
def test_a_task_is_inferred_from_the_different_values(distinct, task):
    assert inferred_task(distinct).name == task


def test_a_list_of_classes_has_a_task():
    assert [task_of_classes(count).name for count in (2, 3)] == ["binary", "multiclass"]


@pytest.mark.parametrize("task", [t for t in TASKS.values() if t.of_classes], ids=lambda t: t.name)
def test_classes_and_labels_are_the_same_told_twice(task):
    count = 2
    places = np.arange(count)
    labels = task.own_labels("here", task.labels_of(places))
    assert labels.dtype == task.label_dtype
    assert task.class_numbers(labels).tolist() == places.tolist()
    assert task.strange_labels(labels, count) == []
    assert task.strange_labels(labels + 7, count)
    assert task.count_classes(task.num_classes_of(count)) == count
    assert task.is_one_sided(labels[:1])
    assert not task.is_one_sided(labels)
    assert len(task.class_names(task.num_classes_of(count))) == count


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_labels_fit_their_instruments(task):
    labels = task.own_labels("here", np.array(task.extreme_labels(4)))
    assert task.strange_labels(labels, 4) == []
    if task.label_means:
        assert (np.linalg.norm(task.in_unit_ball(labels, 4), axis=1) <= 1).all()
    assert len(task.targets(labels, 4)) == len(labels)


def test_a_target_is_scaled_where_its_task_says_so(monkeypatch):
    target = Target("days", "regression", range=(0.0, 30.0), declared=True)
    days = np.array([-3.0, 0.0, 15.0, 40.0])
    assert target.scaled(days).tolist() == [0.0, 0.0, 0.5, 1.0]
    assert (target.lowest, target.unit) == (0.0, 30.0)
    # Counts, say, are learned as they are; a public range holds all the same.
    monkeypatch.setattr(type(get_task("regression")), "is_scaled", False)
    assert target.scaled(days).tolist() == [0.0, 0.0, 15.0, 30.0]
    assert (target.lowest, target.unit) == (0.0, 1.0)
