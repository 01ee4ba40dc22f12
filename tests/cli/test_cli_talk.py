"""How commands talk and end: --quiet, --json, --debug, Ctrl-C, closed pipes, bugs, hostile names.

Hostile names in ledgers are in test_ledger.py; a run interrupted for real is in test_cli_run.py.
"""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from interruptible import interruptible

from silodp.base.errors import SilodpError
from silodp.cli import app
from silodp.cli.terminal import answers, if_interrupted, notes, print_json, safe, settings

pytestmark = pytest.mark.usefixtures("kept_programs")

SMALL = ("--silos", "2", "--rounds", "2", "--epsilon", "3")
HOSTILE = (
    "<script>alert(1)</script>",
    "[red]red[/red] [link=http://x]x[/link]",
    "escape \x1b[31m\x1b]0;title\x07 bell",
    "two\nlines\r\ttab",
    "right \u202eotl\u2066 left",
    "quotes ' \" ` $(id) \\ %s {0} :warning:",
)


@pytest.fixture
def failing(monkeypatch):
    """Makes `silodp methods` raise an error."""

    def fail(error):
        def raises():
            raise error

        monkeypatch.setattr("silodp.methods.announced", raises)

    return fail


# --- --quiet and --json


@pytest.mark.parametrize(
    "args",
    [
        ("methods",),
        ("data", "list"),
        ("data", "check", "synthetic"),
        ("figure", "list"),
        ("theory", "--trials", "0"),
        ("plan", *SMALL),
        ("advise", "--records", "50,60", "--sigma", "1", "--tau", "1", *SMALL[4:]),
        ("run", *SMALL, "--config", "lam.toml", "--method", "local"),
    ],
    ids=lambda args: " ".join(args[:2]),
)
def test_quiet_and_json(cli, args, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("lam.toml").write_text("lam = 2\n", encoding="utf-8")
    quiet = cli(*args, "--quiet")
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (0, "", "")
    told = cli(*args, "--json")
    assert told.exit_code == 0
    both = cli("--quiet", *args, "--json")
    assert both.stderr == ""
    assert json.loads(told.stdout).__class__ is json.loads(both.stdout).__class__


def test_quiet_may_stand_anywhere(cli):
    for args in (("--quiet", "data", "list"), ("data", "--quiet", "list")):
        assert cli(*args).stdout == ""
    assert cli("data", "list").stdout != ""  # it does not last


def test_quiet_ends_with_its_command(cli):
    assert cli("methods", "--quiet").stdout == ""
    assert not settings().quiet
    assert cli("methods").stdout != ""


def test_quiet_still_tells_errors(cli, sentence):
    assert "unknown" in sentence(cli("data", "get", "scool", "--quiet"))


def test_quiet_still_writes_files(cli, tmp_path):
    done = cli("theory", "--trials", "0", "--out", tmp_path, "--quiet")
    assert (done.exit_code, done.stdout) == (0, "")
    assert sorted(os.listdir(tmp_path)) == ["theory.json", "theory.png"]


def test_notes_are_not_among_the_answers(cli, tmp_path):
    config = tmp_path / "lam.toml"
    config.write_text("lam = 2\n", encoding="utf-8")
    done = cli("plan", *SMALL, "--method", "local", "--config", config, "--json")
    json.loads(done.stdout)
    assert "Note: Ignored in the --config file: --lam: method 'local'" in done.stderr


def test_json_has_no_number_that_json_does_not_know(capsys):
    print_json({"a": np.float32(np.inf), "b": [float("nan")]})
    assert json.loads(capsys.readouterr().out) == {"a": "inf", "b": [None]}


def test_figures_as_json(cli):
    rows = json.loads(cli("figure", "list", "--json").stdout)
    assert {"2", "7"} <= {row["figure"] for row in rows}
    assert all(row["title"] for row in rows)


def test_methods_as_json(cli):
    told = json.loads(cli("methods", "--json").stdout)
    by_name = {row["name"]: row for row in told["methods"]}
    assert "--lam" in by_name["mrmtl"]["options"]
    assert by_name["ifca"]["aliases"] == ["hypcluster"]
    assert "ifca+mrmtl" in told["warm_starts"]


# --- errors


def test_a_bug_is_one_sentence(cli, failing):
    failing(ZeroDivisionError("division\nby [red]zero"))
    done = cli("methods")
    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr == (
        "This is a bug in silodp: ZeroDivisionError: division by [red]zero. Run again with --debug "
        "and send what it prints.\n"
    )


@pytest.mark.parametrize("where", ["before", "after", "environment"])
def test_debug_shows_where(cli, failing, monkeypatch, capfd, where):
    failing(ZeroDivisionError("division"))
    if where == "environment":
        monkeypatch.setenv("SILODP_DEBUG", "1")
    args = {"before": ("--debug", "methods"), "after": ("methods", "--debug")}
    done = cli(*args.get(where, ("methods",)))
    assert done.exit_code == 1
    assert "Traceback" in done.stderr
    assert "in raises" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last == (
        "This is a bug in silodp: ZeroDivisionError: division. Send what is printed above."
    )


def test_debug_shows_where_of_errors_that_users_can_mend(cli, failing):
    failing(SilodpError("Too much: give less."))
    plain, debugged = cli("methods"), cli("methods", "--debug")
    assert plain.exit_code == debugged.exit_code == 2
    assert plain.stderr == "Error: Too much: give less.\n"
    assert "Traceback" in debugged.stderr
    assert debugged.stderr.endswith(plain.stderr)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), "not enough memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: out of memory allocating 9 bytes"), "enough memory"),
        (OSError(errno.ENOSPC, "No space left on device", "result.json"), "full (result.json)"),
    ],
)
def test_what_is_no_bug(cli, failing, sentence, error, told):
    failing(error)
    assert told in sentence(cli("methods"))


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--epsilom",), "no option --epsilom"),
        (("rnu",), "Did you mean 'run'? See "),
        (("run", "--rounds", "ten"), "--rounds is 'ten': give a whole number"),
        (("run", "--epsilom", "3"), "did you mean '--epsilon'? See "),
        (("ledger", "show"), "DIR"),
        (("ledger", "shwo"), "'show'"),
        (("run", "--\x1b[31m\nred"), r"\x1b"),
    ],
)
def test_what_cannot_be_parsed_is_one_sentence(cli, sentence, args, told):
    text = sentence(cli(*args))
    assert told in text
    assert "See " in text
    assert "--help." in text


def test_nothing_asked_shows_the_help(cli):
    for args in ((), ("data",)):
        done = cli(*args)
        assert done.exit_code == 2
        assert "Commands" in done.stdout
        assert "Error" not in done.stderr


# --- Ctrl-C


def test_interrupted(cli, failing):
    failing(KeyboardInterrupt())
    done = cli("methods")
    assert (done.exit_code, done.stderr) == (130, "Interrupted.\n")


@pytest.fixture
def command(monkeypatch):
    """Adds a command for a test."""

    def add(function):
        monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])
        app.command("added")(function)

    return add


def test_interrupted_says_how_to_go_on(cli, command):
    def added() -> None:
        """Stops."""
        if_interrupted("The same command goes on.")
        raise KeyboardInterrupt

    command(added)
    done = cli("added")
    assert (done.exit_code, done.stderr) == (130, "Interrupted. The same command goes on.\n")
    assert cli("data", "list").exit_code == 0


def test_interrupted_while_it_loads():
    program = """
import os, signal, sys
from silodp.__main__ import main
class Stops:
    def find_spec(self, name, path, target=None):
        if name == "silodp.cli.tune":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Stops())
main()
"""
    command = interruptible(sys.executable, "-c", program)
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")


def test_interrupted_at_a_question(cli, command):
    def added() -> None:
        """Asks."""
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise typer.Abort from None  # as typer's own questions do

    command(added)
    done = cli("added")
    assert (done.exit_code, done.stderr) == (130, "Interrupted.\n")


def test_interrupted_within_a_library_that_makes_an_error_of_it(cli, failing, monkeypatch):
    failing(ImportError("numpy._core failed to import"))
    monkeypatch.setattr("silodp.base.signals.requested", lambda: True)
    done = cli("methods")
    assert (done.exit_code, done.stderr) == (130, "Interrupted.\n")


def test_new_commands_take_part(cli, command):
    def added() -> None:
        """Talks."""
        answers().print("answer")
        notes().print("note")
        raise typer.Exit(3)

    command(added)
    loud, quiet = cli("added"), cli("added", "--quiet")
    assert (loud.exit_code, loud.stdout, loud.stderr) == (3, "answer\n", "note\n")
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (3, "", "")
    assert "--debug" in cli("added", "--help").stdout


# --- pipes and streams


def test_a_closed_pipe_is_no_error():
    """As `silodp figure list | head -1` does, but closed before anything is written."""
    with subprocess.Popen(
        [sys.executable, "-m", "silodp", "figure", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


def test_help_is_fast():
    """It waits for nothing that takes time to load: 0.3 s where JAX alone takes two."""
    program = """
import sys
from pathlib import Path
from silodp.__main__ import main
try:
    main()
finally:
    heavy = {"jax", "numpy", "scipy", "pandas", "matplotlib", "dp_accounting"}
    print(*sorted(heavy & sys.modules.keys()), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=True
    )
    assert "Usage" in done.stdout
    assert done.stderr.split() == []


def test_signs_that_the_terminal_does_not_know():
    done = subprocess.run(
        [sys.executable, "-m", "silodp", "data", "get", "sch\u00f6\u00f6l"],
        env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert rb"sch\xf6\xf6l" in done.stderr
    assert b"Traceback" not in done.stderr


# --- names of others


def assert_harmless(text):
    for letter in text:
        assert letter == "\n" or letter.isprintable(), repr(letter)


@pytest.mark.parametrize("name", HOSTILE)
def test_safe_text_does_nothing(capsys, name):
    answers(soft_wrap=True).print(f"Silo {safe(name)}!")
    text = capsys.readouterr().out
    assert text.count("\n") == 1
    assert_harmless(text)
    if name.isprintable():
        assert text == f"Silo {name}!\n"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A table whose silos, columns and classes have such names."""
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    rows = 40 * len(HOSTILE)
    frame = pd.DataFrame(
        {
            "si\"lo'\n[bold]": np.repeat(HOSTILE, 40),
            "a'ge\u202e\x1b[31m": rng.normal(size=rows),
            "<b>dose[/]": rng.normal(size=rows),
            "tar,\nget": np.where(rng.normal(size=rows) > 0, "[red]yes", "\x1b[5mno"),
        }
    )
    frame.to_csv(folder / "table.csv", index=False)
    return folder


@pytest.fixture
def told(cli, hostile):
    """What a command says about that table; it must do no harm."""

    def call(*args, code=0, **more):
        data = ("--silo-column", "si\"lo'\n[bold]", "--target", "tar,\nget")
        done = cli(*args, *data, **more)
        assert done.exit_code == code, done.stderr
        assert_harmless(done.stdout)
        assert_harmless(done.stderr)
        return done

    return call


def test_hostile_names_in_data(told, hostile, tmp_path):
    for args in (("check",), ("show", "--out", tmp_path)):
        shown = told("data", args[0], hostile / "table.csv", *args[1:]).stdout
        assert "<script>" in shown
        assert "[red]yes" in shown.replace("\n", "")


@pytest.mark.parametrize("what", ["plan", "run", "advise"])
def test_hostile_names_in_runs(told, hostile, tmp_path, what):
    given = ("--data", hostile / "table.csv", "--epsilon", "3")
    more = ("--rounds", "2", "--method", "mrmtl", "--out", tmp_path / "out\n[red]")
    guesses = ("--sigma", "1", "--tau", "1", "--out", tmp_path / "out\n[red]")
    done = told(what, *given, *(guesses if what == "advise" else more))
    assert "out\\n[red]" in done.stdout
    if what != "run":  # it names no silo
        assert "<script>" in done.stdout


def test_hostile_names_in_errors(told, hostile):
    text = told(
        *("run", "--data", hostile / "table.csv", "--epsilon", "3", "--batch-size", "999"),
        *("--small-silos", "refuse"),
        code=2,
    ).stderr
    assert len(text.splitlines()) == 1
