"""Where files that can be had again are kept: downloaded data, calibrated noise."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """The user's cache folder, which need not exist yet: whoever writes into it makes it.

    It is `$SILODP_CACHE`, else `$XDG_CACHE_HOME/silodp`, else `~/.cache/silodp`.
    """
    if own := os.environ.get("SILODP_CACHE"):
        return Path(own).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser() / "silodp"
    return Path("~/.cache/silodp").expanduser()
