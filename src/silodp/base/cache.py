"""The cache folder, for files that can be made again: downloaded data, calibrated noise."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """The user's cache folder, which need not exist yet: a writer makes it.

    It is `$SILODP_CACHE`, else `$XDG_CACHE_HOME/silodp`, else `~/.cache/silodp`.
    """
    if own := os.environ.get("SILODP_CACHE"):
        return Path(own).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser() / "silodp"
    return Path("~/.cache/silodp").expanduser()
