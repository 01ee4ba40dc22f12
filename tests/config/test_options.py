"""Options are declared once: what follows from that, and that nothing else lists them."""

import ast
import inspect
import math
import re
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from typing import Literal, get_type_hints

import pytest
from typer.testing import CliRunner

import silodp
from silodp.cli import app
from silodp.config.data_options import DataOptions, DataRequest
from silodp.config.declared import option, options_of
from silodp.config.options import DATA_OPTIONS, OPTIONS, RunRequest, tagged
from silodp.config.run_arguments import RunArguments, SweepArguments
from silodp.config.write_arguments import PLACE, written
from silodp.methods import METHOD_OPTIONS

SOURCES = Path(silodp.__file__).parent

# Where three or more options are named all the same, and why that is no list of options.
ALLOWED = {
    "base/progress_file.py": "fields of a promise, as a result has them",
    "data/": "what a source takes, and which columns are no features: a source's own declaration",
    "privacy/": "fields of a policy, a plan or a ledger, which are named alike",
    "report/sweep_section.py": "columns of a table for people",
    "results/": "fields of a result that may be infinite",
    "engines/job.py": "fields of a job",
    "runs/acceptance.py": "fields of a question, some of which are named alike",
    "runs/asking.py": "how records may be parted otherwise than by coins",
    "cli/figure.py": "columns of a table of results",
}


def test_nothing_outside_config_lists_options():
    found, needed = {}, set()
    for path in sorted(SOURCES.rglob("*.py")):
        place = path.relative_to(SOURCES).as_posix()
        if place.startswith("config/"):
            continue
        reason = next((start for start in ALLOWED if place.startswith(start)), None)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Tuple | ast.List | ast.Set):
                words = [one.value for one in node.elts if isinstance(one, ast.Constant)]
                named = [word for word in words if isinstance(word, str) and word in OPTIONS]
                if len(named) >= 3 and reason is not None:
                    needed.add(reason)
                elif len(named) >= 3:
                    found[f"{place}:{node.lineno}"] = named
    assert found == {}
    assert needed == ALLOWED.keys()


def test_what_is_written_follows_from_the_declarations():
    assert PLACE.read_text(encoding="utf-8") == written(), (
        "write it again: python -m silodp.config.write_arguments"
    )


def test_signatures_name_every_option():
    for arguments in (RunArguments, SweepArguments):
        assert get_type_hints(arguments).keys() == OPTIONS.keys()
    for name in ("run", "plan", "sweep", "tune", "advise"):
        taken = inspect.signature(getattr(silodp, name)).parameters["options"]
        assert "Arguments" in str(taken.annotation), name


def test_a_new_option_follows_from_its_declaration():
    """What the command line, its help and completion, files and checks know of it."""
    declared = option(None, "How new.", group="Training", above=0, below=1, tags={"agreed"})
    changed = make_dataclass(
        "Changed", [("new", float | None, declared)], bases=(RunRequest,), frozen=True
    )
    one = options_of(changed)["new"]
    assert (one.flag, one.kind, one.choices) == ("--new", float, ())
    assert "agreed" in one.tags
    with pytest.raises(silodp.SilodpError, match="--new is 2: give a number above 0 and below 1"):
        one.check(2)


def test_data_options_are_declared_in_one_place():
    extra = {field.name for field in fields(DataOptions)} - set(DATA_OPTIONS)
    assert extra.isdisjoint(OPTIONS)
    assert tuple(options_of(DataRequest)) == DATA_OPTIONS
    assert set(DATA_OPTIONS) <= set(OPTIONS)


def test_options_of_methods_are_tagged():
    assert set(METHOD_OPTIONS) | {"silo_lam", "method_options"} == set(tagged("of_method"))


@dataclass(frozen=True)
class _Kinds:
    word: Literal["one", "two"] | None = option(None, "A word.", group="Data")
    count: int = option(1, "A count.", group="Data", least=1, most=3, why="more is too much")
    part: float = option(0.5, "A part.", group="Data", least=0, most=1)
    share: float = option(0.5, "A share.", group="Data", least=0, below=1)
    chance: float | None = option(None, "A chance.", group="Data", above=0, below=1)
    rate: float = option(1.0, "A rate.", group="Data", above=0, single_precision=True)
    pull: float = option(1, "A pull.", group="Data", least=0, single_precision=True, infinite=True)
    name: str = option("a", "A name.", group="Data", remedy="give one name")
    free: float = option(1.0, "Any number: another checks it.", group="Data")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("word", "three", "is 'three': choose one of one, two."),
        ("count", 1.5, "is 1.5: give a whole number."),
        ("count", True, "is True: give a whole number."),
        ("count", 0, "is 0: give a number of at least 1."),
        ("count", 4, "is 4: give at most 3; more is too much."),
        ("part", 1.1, "is 1.1: give a number from 0 to 1."),
        ("part", math.nan, "is nan: give a number from 0 to 1."),
        ("share", 1, "is 1: give a number from 0 to below 1."),
        ("chance", 0, "is 0: give a number above 0 and below 1."),
        ("chance", "0.1", "is '0.1': give a number."),
        ("rate", 0, "is 0: give a number above 0."),
        ("rate", math.inf, "is inf: give a number below 1e+30."),
        ("pull", -1, "is -1: give a number of at least 0."),
        ("pull", 1e31, "is 1e+31: give a number below 1e+30."),
        ("name", ["a", "b"], "is ['a', 'b']: give one name."),
    ],
)
def test_what_is_not_within_a_declaration_is_refused(name, value, said):
    with pytest.raises(silodp.SilodpError, match=re.escape(f"--{name} {said}")):
        options_of(_Kinds)[name].check(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("word", None), ("word", "two"), ("count", 3), ("part", 1), ("share", 0)),
        *(("pull", math.inf), ("rate", 1e30), ("chance", None), ("free", "whatever")),
    ],
)
def test_what_is_within_a_declaration_is_taken(name, value):
    options_of(_Kinds)[name].check(value)


def test_the_first_screen_of_help_fits_a_screen():
    for command, most in {"run": 44, "plan": 44, "advise": 46, "audit": 48, "tune": 52}.items():
        done = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "100"})
        lines = done.stdout.splitlines()
        assert len(lines) <= most, command
        whole = CliRunner().invoke(app, [command, "--help-all"], env={"COLUMNS": "100"}).stdout
        basic = {name for name, one in OPTIONS.items() if one.basic}
        for name in OPTIONS.keys() if command != "advise" else basic & set(DATA_OPTIONS):
            flag = f"│ {OPTIONS[name].flag} "
            assert flag in whole, (command, name)
            assert (flag in done.stdout) == (name in basic), (command, name)
    run = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "100"}).stdout
    rows = [line for line in run.splitlines() if line.startswith("│")]
    assert all(row.startswith("│ --") for row in rows), "an option takes two lines"


def test_every_option_is_offered_after_tab():
    """Those that the first screen of help leaves out as well."""
    for command in ("run", "plan", "tune"):
        env = {"_SILODP_COMPLETE": "complete_bash", "COMP_WORDS": f"silodp {command} --"}
        done = CliRunner().invoke(app, [], env=env | {"COMP_CWORD": "2"}, prog_name="silodp")
        offered = set(done.stdout.split())
        assert {one.flag for one in OPTIONS.values()} <= offered, command
        assert {"--out", "--help-all"} <= offered
