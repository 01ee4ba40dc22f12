"""All commands speak with one voice: walks the whole tree of them, those to come included."""

import subprocess
import sys
from collections import defaultdict
from typing import get_args

import pytest
import typer.main

from silodp.cli import app
from silodp.config import choices
from silodp.data.registry import SOURCES
from silodp.methods import ALIASES, METHODS, warm_starts
from silodp.methods.server import SERVER_OPTIMISERS
from silodp.models.model import MODELS
from silodp.models.optimisers import OPTIMISERS

# What these do is no answer that a script would read.
WITHOUT_JSON = {
    *("data get", "export", "ledger allow"),
    *("federation init", "federation start", "federation stop", "federation watch"),
    *("federation approve", "federation add-site", "federation remove-site", "federation propose"),
    *("federation renew", "federation service"),
    *("site init", "site consent", "site start", "site stop", "site join", "site renew"),
    "site service",
    *("exchange init", "exchange join"),
}
# Numbers that `theory` takes as lists; words that are paths at a site; counts that are means.
OF_SEVERAL_TYPES = {
    *("--epsilon", "--delta", "--clip", "--silos", "--records", "--sigma", "--tau"),
    *("--data", "--relation", "--trials", "--proposal"),
}
SHARED = {
    *("--json", "--quiet", "--debug", "--help", "--resume", "--overwrite", "--save-models"),
    *("--config", "--ray", "--reuse", "--yes", "--test-fraction", "--subject-column"),
}
HEAVY = {
    "jax",
    "numpy",
    "scipy",
    "pandas",
    "matplotlib",
    "dp_accounting",
    "optax",
    "nvflare",
    "ray",
}


def commands(command, path=()):
    """Every command below this one, by its words."""
    if not hasattr(command, "commands"):
        return {" ".join(path): command}
    below = [commands(one, (*path, name)) for name, one in command.commands.items()]
    return {name: one for some in below for name, one in some.items()}


TOP = typer.main.get_command(app)
ALL = commands(TOP)
every_command = pytest.mark.parametrize("name", ALL)


def options(command):
    return {text: one for one in command.params for text in one.opts}


def test_groups_say_what_they_do():
    for name, group in TOP.commands.items():
        if hasattr(group, "commands"):
            first = group.help.split()[0]
            assert first.endswith("s"), f"{name}: {first}"
            assert group.help.endswith("."), name


@every_command
def test_help_is_a_sentence_about_what_it_does(name):
    text = ALL[name].help
    first = text.split("\n")[0]
    assert first.split()[0].rstrip(",").endswith("s"), first  # "Trains", "Shows"
    assert first.endswith("."), first
    assert text.rstrip().endswith("."), text


@every_command
def test_every_parameter_is_explained(name):
    for text, option in options(ALL[name]).items():
        assert option.help, text
        assert option.help.rstrip().endswith((".", ")")), option.help


@every_command
def test_each_has_what_all_have_once(name):
    given = [text for one in ALL[name].params for text in one.opts]
    for text in ("--quiet", "--debug", "--help", "-h"):
        assert given.count(text) == 1, text
    assert len(given) == len(set(given))


@every_command
def test_those_with_an_answer_have_json(name):
    assert ("--json" in options(ALL[name])) == (name not in WITHOUT_JSON)


@every_command
def test_flags_show_no_type(cli, name):
    shown = cli(*name.split(), "--help")
    assert shown.exit_code == 0
    assert "<bool>" not in shown.stdout


def test_the_same_name_is_the_same_option():
    kinds, helps = defaultdict(set), defaultdict(set)
    for command in ALL.values():
        for text, option in options(command).items():
            if text.startswith("--"):
                kinds[text].add(str(option.type_descriptor.annotation))
                helps[text].add(option.help)
    assert {text for text, found in kinds.items() if len(found) > 1} <= OF_SEVERAL_TYPES
    for text in SHARED:
        assert len(helps[text]) == 1, text
    of_runs = {text for text in options(ALL["run"]) if text in options(ALL["plan"])} - {"--out"}
    for name in ("tune", "plan", "audit"):
        for text in of_runs:
            assert options(ALL[name])[text].help == options(ALL["run"])[text].help, text


def test_no_option_has_two_names():
    """Neither of --dir, --output, --folder beside --out, nor of -q beside --quiet, and so on."""
    known = {text for command in ALL.values() for text in options(command)}
    short = {text for text in known if text.startswith("-") and not text.startswith("--")}
    assert short == {"-h"}
    assert not known & {"--dir", "--output", "--folder", "--subject", "--verbose", "--silent"}


def test_names_that_are_offered_are_those_there_are():
    assert tuple(MODELS) == choices.MODEL_NAMES
    assert tuple(SOURCES) == choices.DATA_SETS
    assert (*METHODS, *ALIASES) == choices.METHOD_NAMES
    assert tuple(warm_starts()) == choices.WARM_STARTS
    assert tuple(OPTIMISERS) == get_args(choices.Optimiser)
    assert tuple(SERVER_OPTIMISERS) == get_args(choices.ServerOptimiserName)


def test_the_command_line_does_not_wait_for_jax():
    """Help, completions and usage errors need none of it: they take 0.3 s, with it 3 s."""
    code = "import sys, silodp.cli; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())
