"""What every test needs, and how tests of the command line call it."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from silodp.cli import app


def pytest_configure(config):
    """JAX as in a user's process, whichever test comes first and what it imports.

    Programs are shared by all processes of the tests, and by the next time they are run. Before
    any test is imported: JAX looks only once.
    """
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(config.cache.mkdir("programs"))
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
    from silodp.engines.devices import prepare_jax

    prepare_jax()


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """No test sees or fills the developer's own cache, or opens a window."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SILODP_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("SILODP_LEDGERS", str(tmp_path_factory.mktemp("ledgers")))
        patch.setenv("MPLBACKEND", "Agg")
        yield


@pytest.fixture(autouse=True)
def own_ledgers(tmp_path_factory, monkeypatch):
    """No test charges a ledger of the developer's own, or of another test."""
    monkeypatch.setenv("SILODP_LEDGERS", str(tmp_path_factory.mktemp("ledgers") / "ledgers"))


@pytest.fixture(scope="session")
def command():
    """Runs `silodp` in a process of its own."""

    def call(*args, **more):
        return subprocess.run(
            [sys.executable, "-m", "silodp", *map(str, args)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            **more,
        )

    return call


@pytest.fixture(scope="session")
def cli():
    """Calls `silodp` in this process, which saves the seconds that JAX takes to start."""

    def call(*args, answers=None):
        return CliRunner().invoke(app, [str(arg) for arg in args], input=answers)

    return call


@pytest.fixture(scope="session")
def sentence():
    """The one sentence with which a call was refused; fails if it ended in any other way."""

    def only(done):
        code = done.returncode if isinstance(done, subprocess.CompletedProcess) else done.exit_code
        assert code == 2, f"exit code {code}: {done.stderr}{getattr(done, 'exception', '')!r}"
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        assert len(lines) == 1, done.stderr
        assert lines[0].startswith("Error: ")
        assert lines[0].endswith((".", "?"))
        assert done.stdout == ""
        return lines[0]

    return only
