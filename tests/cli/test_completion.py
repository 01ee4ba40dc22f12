"""What the shell offers after Tab, asked as bash asks."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from silodp.cli import app
from silodp.config.choices import DATA_SETS, WARM_STARTS


@pytest.fixture
def offered(monkeypatch):
    """The words offered for the last of these, in this process."""

    def ask(*words):
        given = {
            "_SILODP_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(("silodp", *words)),
            "COMP_CWORD": str(len(words)),
        }
        done = CliRunner().invoke(app, [], prog_name="silodp", env=given)
        return done.stdout.split()

    return ask


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        (("do",), ["doctor"]),
        (("ledger", "re"), ["remaining"]),
        (("run", "--method", "mr"), ["mrmtl"]),
        (("run", "--method", "ifca"), ["ifca", *WARM_STARTS]),
        (("run", "--data", ""), [*DATA_SETS]),
        (("run", "--model", "soft"), ["softmax"]),
        (("run", "--accountant", ""), ["best", "pld", "rdp"]),
        (("run", "--relation", "rep"), ["replace-one"]),
        (("tune", "--server-optimiser", "fedad"), ["fedadam"]),
        (("plan", "--lifetime-e"), ["--lifetime-epsilon"]),
        (("data", "get", "sch"), ["school"]),
        (("data", "show", "v"), ["vehicle"]),
        (("figure", "li"), ["list"]),
        (("figure", "2", "--scale", ""), ["paper", "hour", "quick"]),
        (("ledger", "export", "--format", ""), ["jsonl", "csv"]),
        (("run", "--quie"), ["--quiet"]),
        (("run", "--policies", "x"), []),  # then bash offers files
        (("run", "--data", "./x"), []),
    ],
    ids=lambda value: " ".join(value),
)
def test_offers(offered, words, offers):
    assert offered(*words) == offers


def test_figures(offered):
    assert {"2", "7", "school", "all", "list"} <= set(offered("figure", ""))


def test_as_bash_does_it(tmp_path):
    """By the script that `silodp --show-completion bash` prints, in a shell of its own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "silodp"
    quoted = f'exec "{sys.executable}" -c "import sys; sys.argv[0] = \'silodp\'; '
    command.write_text(f'#!/bin/sh\n{quoted}from silodp.cli import main; main()" "$@"\n')
    command.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    shown = """
        eval "$(silodp --show-completion)"
        COMP_WORDS=(silodp run --method me) COMP_CWORD=3
        _silodp_completion silodp
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", shown],
        env=os.environ | {"PATH": path, "SHELL": "/bin/bash"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["meanpull"], done.stderr
