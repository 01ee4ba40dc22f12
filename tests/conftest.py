"""What every test needs, and how tests of the command line call it."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from silodp.cli import app


def pytest_configure(config):
    """JAX as in a user's process, whichever test comes first and what it imports.

    Programs are shared by all processes of the tests, and by the next time they are run: the small
    ones too, of which each process would compile hundreds. Before any test is imported: JAX looks
    only once.
    """
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(config.cache.mkdir("programs"))
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.02"
    from silodp.engines.devices import prepare_jax

    prepare_jax()


def pytest_collection_modifyitems(items):
    """Tests of what users' processes compile come first, so that the compiler is set up once."""
    items.sort(key=lambda item: item.get_closest_marker("as_shipped") is None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Most tests are done before optimised code would pay: theirs is compiled as it stands.

    That saves a fifth of their time. Those that hold arithmetic to the last bit are marked
    `as_shipped`: they must see what XLA makes of it for users. What was compiled in the one way is
    never used in the other. Processes that a test starts do as the test does.
    """
    import jax

    plain = item.get_closest_marker("as_shipped") is None
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(plain))
    if jax.config.values["jax_disable_most_optimizations"] != plain:
        jax.config.update("jax_disable_most_optimizations", plain)
        jax.clear_caches()


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
