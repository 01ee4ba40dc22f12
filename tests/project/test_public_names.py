"""What `import silodp` offers, and what it does not load before it is asked for."""

import pkgutil
import subprocess
import sys

import pytest

import silodp


def test_every_name_is_there():
    for name in silodp.__all__:
        assert getattr(silodp, name) is not None
    assert set(silodp.__all__) <= set(dir(silodp))
    assert callable(silodp.run)
    with pytest.raises(AttributeError, match="no attribute 'train'"):
        _ = silodp.train  # pyright: ignore[reportAttributeAccessIssue]


def test_nothing_heavy_is_loaded_before_it_is_asked_for():
    code = (
        "import sys, silodp, silodp.sites.flare.guard, silodp.sites.flare.launchers; "
        "print([name for name in ('jax', 'pandas', 'scipy') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_no_public_name_is_that_of_a_module():
    """Importing the module would put it in the place of what users call."""
    modules = {module.name for module in pkgutil.iter_modules(silodp.__path__)}
    assert not modules & set(silodp.__all__)
