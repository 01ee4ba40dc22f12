"""Data sources by name: `resolve("school", options).load(seed, options)` gives a federation.

One file a data set, with a module-level `SOURCE`; a user's own table is given by its path.
"""

from pathlib import Path

from silodp.datasets import school, synthetic, tables
from silodp.datasets.files import DataFile, find_file
from silodp.datasets.source import DataOptions, DataSource, Defaults
from silodp.datasets.table_files import ENDINGS
from silodp.datasets.tables import defaults_of
from silodp.errors import SilodpError, one_of

__all__ = [
    "SOURCES",
    "DataFile",
    "DataOptions",
    "DataSource",
    "Defaults",
    "defaults_of",
    "defaults_without_reading",
    "find_file",
    "resolve",
]

SOURCES: dict[str, DataSource] = {
    source.name: source for source in (school.SOURCE, synthetic.SOURCE)
}


def defaults_without_reading(name_or_path: str, options: DataOptions) -> Defaults:
    """The training settings that fit, as far as they can be known before any record is read.

    Of a user's table the task may be unknown, and so model and learning rate.
    """
    if name_or_path in SOURCES:
        return SOURCES[name_or_path].with_options(options).defaults
    return defaults_of(options.task or "regression")


def resolve(name_or_path: str | Path, options: DataOptions | None = None) -> DataSource:
    """The source of a registered name, or of the user's table or folder at a path.

    A registered name goes before a folder of that name: write `./school` for the folder.
    """
    options = options or DataOptions()
    name = str(name_or_path)
    if name in SOURCES:
        SOURCES[name].check_options(options)
        return SOURCES[name].with_options(options)
    path = Path(name_or_path).expanduser()
    if path.exists():
        return tables.source(path, options)
    if path.suffix.lower() in ENDINGS or len(path.parts) > 1:
        raise SilodpError(f"{path} does not exist: check the path of the table or folder.")
    raise SilodpError(
        f"Data set {name!r} is unknown: use {one_of(name, SOURCES)}, or the path of a table."
    )
