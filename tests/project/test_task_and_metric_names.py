"""Tasks and metrics are named where they are declared, and asked everywhere else.

A name in any other file would be a branch that the next task or metric has to find.
"""

import ast
from pathlib import Path
from typing import get_args

import silodp
from silodp.config.choices import MetricName, TaskName

ROOT = Path(silodp.__file__).parent
NAMES = {*get_args(TaskName), *get_args(MetricName)}
# Tasks and metrics themselves; which losses and linear models are for which task; and what data
# sets are for.
DECLARED = (
    *("config/choices.py", "data/tasks/", "models/metrics/", "models/losses.py"),
    *("data/sources/", "data/images/rotated_masked.py"),
    # The field of an event, which has the name of a task by chance.
    "privacy/accounting/events/self_composed.py",
)


def named_in(text):
    """The lines of a module with a name, be it compared with, a key, an argument or a value."""
    return sorted(
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in NAMES
    )


def test_no_other_module_names_a_task_or_a_metric():
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        if not place.startswith(DECLARED) and (lines := named_in(path.read_text("utf-8"))):
            found[place] = lines
    assert found == {}


def test_the_count_would_see_them():
    text = 'if task == "regression":\n    key = {"mse": 1}\nf("accuracy")'
    assert named_in(text) == [1, 2, 3]
    assert named_in('"""Of a regression."""\nx = "regressions"') == []


def test_what_is_declared_is_there():
    for place in DECLARED:
        assert (ROOT / place).exists()
