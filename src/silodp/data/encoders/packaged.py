"""Weights that come inside a package: found without running it, and known by their hash."""

import hashlib
import importlib.util
from pathlib import Path

from silodp.base.errors import SilodpError
from silodp.data.formats.bounded import read_bounded

_MOST_BYTES = 1 << 28


def packaged_file(encoder: str, package: str, file: str, sha256: str, install: str) -> bytes:
    """The content of a file of an installed package; refuses where it is missing, or another.

    Args:
      encoder: the encoder's name, for errors.
      package: as Python imports it. It is not imported: nothing of it is run.
      file: path within the package.
      sha256: the hash of the file that silodp knows.
      install: the command that installs it.
    """
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        found = None
    folders = [] if found is None else list(found.submodule_search_locations or ())
    path = next((own for folder in folders if (own := Path(folder) / file).is_file()), None)
    if path is None:
        raise SilodpError(
            f"Features {encoder!r} need the package {package.replace('_', '-')}, whose weights "
            f"they are: install it with `{install}`."
        )
    content = read_bounded(path, _MOST_BYTES, "install the package again")
    if hashlib.sha256(content).hexdigest() != sha256:
        raise SilodpError(
            f"Features {encoder!r}: {path} holds other weights than this silodp knows: install "
            f"the package again, with `{install}`."
        )
    return content
