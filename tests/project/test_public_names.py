"""What `import silodp` offers, with its examples, and what it loads only when asked for."""

import doctest
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import silodp
from silodp.results.result import versions
from silodp.sites.protocol import Request

pytestmark = pytest.mark.usefixtures("kept_programs")

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def test_every_name_is_there():
    for name in silodp.__all__:
        assert getattr(silodp, name) is not None
    assert set(silodp.__all__) <= set(dir(silodp))
    assert callable(silodp.run)
    with pytest.raises(AttributeError, match="no attribute 'train'"):
        _ = silodp.train  # pyright: ignore[reportAttributeAccessIssue]


def test_no_public_name_is_that_of_a_module():
    """Importing the module would put it in the place of what users call."""
    modules = {module.name for module in pkgutil.iter_modules(silodp.__path__)}
    assert not modules & set(silodp.__all__)


def test_nothing_heavy_is_loaded_before_it_is_asked_for():
    code = (
        "import sys, silodp, silodp.sites.flare.guard, silodp.sites.flare.launchers; "
        "silodp.__version__; "
        "heavy = ('jax', 'pandas', 'scipy', 'sklearn', 'torch'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_name_that_leaves_warns_and_still_works():
    with pytest.warns(DeprecationWarning, match="import get_model from silodp.models.model"):
        leaving = silodp.get_model  # pyright: ignore[reportAttributeAccessIssue]
    assert leaving("linear", "regression", (3,)).name == "linear"
    with pytest.warns(DeprecationWarning, match="import ServerOptimiser from silodp"):
        former = silodp.Merging  # pyright: ignore[reportAttributeAccessIssue]
    assert former is silodp.ServerOptimiser
    assert not {"get_model", "Merging"} & set(silodp.__all__)


def test_the_version_is_written_in_one_place(cli):
    assert silodp.__version__ == VERSION
    assert cli("--version").stdout == f"silodp {VERSION}\n"
    assert versions()["silodp"] == VERSION
    assert Request("join", "job", "{}").version == VERSION
    looked_up = re.compile(r"""version\(["']silodp["']\)""")
    sources = (ROOT / "src" / "silodp").rglob("*.py")
    places = [path.name for path in sources if looked_up.search(path.read_text(encoding="utf-8"))]
    assert places == ["version.py"]


@pytest.mark.parametrize("name", silodp.__all__)
def test_the_example_of_a_public_name_runs(name, tmp_path, monkeypatch):
    """Each gives what it says, in a folder of its own; `import silodp` goes without saying."""
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(getattr(silodp, name)) or ""
    example = doctest.DocTestParser().get_doctest(text, {"silodp": silodp}, name, None, None)
    assert example.examples, f"the docstring of silodp.{name} has no example"
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(example, out=said.append)
    assert runner.failures == 0, "".join(said)
