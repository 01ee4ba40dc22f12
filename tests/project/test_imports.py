"""Modules can be imported in any order: no two wait for each other."""

import ast
import graphlib
from pathlib import Path

import silodp

ROOT = Path(silodp.__file__).parent


def name_of(path):
    parts = ("silodp", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}


def at_import(node):
    """The import statements that run when the module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from at_import(child)


def imported(tree):
    for statement in at_import(tree):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        else:
            for alias in statement.names:
                inner = f"{statement.module}.{alias.name}"
                yield inner if inner in MODULES else statement.module


def test_no_module_waits_for_one_that_waits_for_it():
    needs = {
        module: {name for name in imported(tree) if name in MODULES} - {module}
        for module, tree in MODULES.items()
    }
    assert sum(map(len, needs.values())) > 1000
    graphlib.TopologicalSorter(needs).prepare()  # raises CycleError, which names them
