"""Files that options name: a run's name depends on their paths, its numbers on their content."""

import hashlib
from pathlib import Path

from silodp.base.errors import SilodpError
from silodp.config.options import RunRequest, tagged
from silodp.data.registry import SOURCES
from silodp.sweeps.grid import Sweep


def paths_of(options: RunRequest) -> dict[str, Path]:
    """The paths that options name, by the name of the option."""
    values = {name: getattr(options, name) for name in tagged("named_file")}
    paths = {name: value for name, value in values.items() if isinstance(value, Path)}
    return paths if options.data in SOURCES else paths | {"data": Path(options.data)}


def digests_of(sweep: Sweep) -> dict[str, str]:
    """A digest of the content of each file or folder that the sweep names."""
    paths = {path for point in sweep.points for path in paths_of(point.options).values()}
    return {str(path): _digest(path) for path in sorted(paths) if path.exists()}


def check_unchanged(before: dict[str, str], now: dict[str, str], table: Path) -> None:
    """Refuses files whose content has changed since finished runs were trained."""
    for path, digest in now.items():
        if before.get(path, digest) != digest:
            raise SilodpError(
                f"{path} has changed since runs in {table} were trained: choose another --out, or "
                "start over with --overwrite."
            )


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    try:
        for file in files:
            digest.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
            with file.open("rb") as content:
                while block := content.read(1 << 20):
                    digest.update(block)
    except OSError as error:
        raise SilodpError(
            f"{path} cannot be read ({error.strerror}): check its permissions."
        ) from None
    return digest.hexdigest()
