"""The version of silodp, from the one place where it is written: pyproject.toml."""

import functools
from importlib import metadata


@functools.cache
def own_version() -> str:
    """The version that is installed; looked up once, because that takes milliseconds."""
    return metadata.version("silodp")
