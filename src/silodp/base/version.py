"""The version of silodp, which pyproject.toml defines."""

import functools
from importlib import metadata


@functools.cache
def own_version() -> str:
    """The installed version; cached, because looking it up takes milliseconds."""
    return metadata.version("silodp")
