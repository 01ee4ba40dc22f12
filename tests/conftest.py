"""What every test needs, and how tests of the command line call it."""

import contextlib
import gc
import itertools
import os
import subprocess
import sys

import pytest
from jaxtyping import install_import_hook
from typer.main import get_command
from typer.testing import CliRunner

# Shapes in types are checked in every call. Before anything of these packages is imported, by
# whichever test that is: what is imported already is not checked.
install_import_hook(["silodp.methods", "silodp.privacy.mechanisms"], "shape_checks.checker")

from silodp.cli import app  # noqa: E402


def pytest_configure(config):
    """JAX as in a user's process, whichever test comes first and what it imports.

    Programs are shared by all processes of the tests, and by the next time they are run: the small
    ones too, of which each process would compile hundreds. Before any test is imported: JAX looks
    only once.
    """
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(config.cache.mkdir("programs"))
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.02"
    # Nobody reads in a program where each of its operations was written: it takes time to note.
    os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"
    from silodp.engines.devices import prepare_jax

    prepare_jax()
    # Tracing makes many small objects that stay: looking through them took a tenth of the time.
    gc.set_threshold(50_000, 20, 100)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """`make test` looks for tests marked as_shipped in files that name the mark alone."""
    files = {item.path for item in items if item.get_closest_marker("as_shipped")}
    for path in files:
        if "as_shipped" not in path.read_text(encoding="utf-8"):
            raise pytest.UsageError(
                f"{path}: has a test marked as_shipped, and must name the mark."
            )


def pytest_collection_finish():
    """What is imported by now stays: no collection of garbage looks through it again."""
    gc.freeze()


def pytest_runtest_setup(item):
    """Tests that hold what XLA makes for users are not to pass on something else."""
    fast = "optimization_level=0" in os.environ.get("XLA_FLAGS", "")
    if fast and item.get_closest_marker("as_shipped"):
        pytest.fail("Tests marked as_shipped run without XLA_FLAGS: see the Makefile.", False)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """No test sees or fills the developer's own cache, or opens a window."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SILODP_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("SILODP_LEDGERS", str(tmp_path_factory.mktemp("ledgers")))
        patch.setenv("MPLBACKEND", "Agg")
        yield


@pytest.fixture(scope="session")
def ledger_places(tmp_path_factory):
    """Folders that nobody has made yet: pytest would look through all its own for each."""
    folder = tmp_path_factory.mktemp("ledgers")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def own_ledgers(ledger_places, monkeypatch):
    """No test charges a ledger of the developer's own, or of another test."""
    monkeypatch.setenv("SILODP_LEDGERS", str(next(ledger_places)))


@pytest.fixture(scope="module")
def kept_programs():
    """Runs of a module take each other's compiled programs, as the parts of a sweep do.

    For modules that look at what is around training: there, tracing the same again took most of
    the time. Never for one that plants a fault in what a program is made of, or has several models
    or methods of one name: of another task or range of targets, too.
    """
    from silodp.engines.programs import Programs

    kept = Programs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("silodp.engines.programs.MOST", 1000)
        # Not those of an audit: what its adversary knows is part of them, and not of their names.
        for place in ("engines.execution", "engines.one_silo", "sweeps.sweeping"):
            patch.setattr(f"silodp.{place}.Programs", lambda: kept)
        yield


@pytest.fixture
def debug_in_pieces(monkeypatch):
    """The debug engine as it is, but that JAX compiles a scan or a hash as a piece.

    Else each operation in them is compiled by itself, for each shape: most of the time of a test.
    """
    monkeypatch.setattr("jax.disable_jit", contextlib.nullcontext)


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
    built = {}

    def command_of(app):
        """Its commands, put together once as in any process, and again if a test adds one."""
        known = tuple(map(id, app.registered_commands))
        if known not in built:
            built[known] = get_command(app), [*app.registered_commands]
        return built[known][0]

    def call(*args, answers=None):
        return CliRunner().invoke(app, [str(arg) for arg in args], input=answers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", command_of)
        yield call


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
