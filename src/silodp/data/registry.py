"""Data sources by name: `resolve("school", options).load(seed, options)` gives a federation.

One file a data set, with a module-level `SOURCE`; a user's own tables or images are given by their
path.
"""

from pathlib import Path

from silodp.base.errors import SilodpError, alike, meant
from silodp.data import coins
from silodp.data.files import DataFile, find_file
from silodp.data.images import folders as image_folders
from silodp.data.problems import Problems
from silodp.data.source import DataOptions, DataSource, Defaults
from silodp.data.sources import (
    adni,
    beijing_air,
    cifar10,
    cifar10_clip,
    diabetes130,
    digits,
    gleam,
    heart,
    landmine,
    mnist,
    parkinsons,
    pg15,
    school,
    synthetic,
    tcga_brca,
    vehicle,
    wisdm,
)
from silodp.data.tables import table as tables
from silodp.data.tables.dialect import inner_suffix
from silodp.data.tables.files import is_table
from silodp.data.tables.table import defaults_of
from silodp.data.tasks import USUAL_OF_IMAGES, USUAL_TASK

__all__ = [
    "SOURCES",
    "DataFile",
    "DataOptions",
    "DataSource",
    "Defaults",
    "coins",
    "defaults_of",
    "defaults_without_reading",
    "find_file",
    "resolve",
]

SOURCES: dict[str, DataSource] = {
    source.name: source
    for source in (
        school.SOURCE,
        vehicle.SOURCE,
        gleam.SOURCE,
        cifar10.SOURCE,
        mnist.SOURCE,
        adni.SOURCE,
        digits.SOURCE,
        heart.SOURCE,
        tcga_brca.SOURCE,
        diabetes130.SOURCE,
        parkinsons.SOURCE,
        pg15.SOURCE,
        beijing_air.SOURCE,
        wisdm.SOURCE,
        landmine.SOURCE,
        cifar10_clip.SOURCE,
        synthetic.SOURCE,
    )
}


def defaults_without_reading(name_or_path: str, options: DataOptions) -> Defaults:
    """The training settings that fit, as far as they can be known before any record is read.

    Of a user's own data the task may be unknown, and so model and learning rate.
    """
    if name_or_path in SOURCES:
        return SOURCES[name_or_path].with_options(options).defaults
    if _holds_images(Path(name_or_path).expanduser()):
        return image_folders.defaults_of(USUAL_OF_IMAGES, options)
    return defaults_of(options.task or USUAL_TASK)


def resolve(
    name_or_path: str | Path,
    options: DataOptions | None = None,
    problems: Problems | None = None,
) -> DataSource:
    """The source of a registered name, or of the user's own data at a path.

    A file is a table; a folder holds one table a silo, or one folder of images a silo.

    A registered name goes before a folder of that name: write `./school` for the folder. `problems`
    gets all that is wrong with a table, while it is resolved and loaded; else the first is raised.
    """
    options = options or DataOptions()
    name = str(name_or_path)
    if name in SOURCES:
        SOURCES[name].check_options(options)
        return SOURCES[name].with_options(options)
    path = Path(name_or_path).expanduser()
    if path.exists():
        if _holds_images(path):
            return image_folders.source(path, options)
        return tables.source(path, options, problems)
    if is_table(path) or len(path.parts) > 1:
        beside = alike(path.name, _tables_in(path.parent))
        remedy = meant(path.name, beside) if beside else "check the path of the table or folder."
        raise SilodpError(f"{path} does not exist: {remedy}")
    known = (*SOURCES, *_tables_in(path.parent))
    raise SilodpError(
        f"There is no data set, table or folder {name!r}: {meant(name, known, most=len(SOURCES))}"
    )


def _tables_in(folder: Path) -> list[str]:
    try:
        return [one.name for one in folder.iterdir() if is_table(one)]
    except OSError:  # no folder, or none that may be read
        return []


def _holds_images(path: Path) -> bool:
    """Whether it is a folder with folders in it; one with tables as well is refused."""
    if not path.is_dir():
        return False
    try:
        entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise SilodpError(f"{path} cannot be read ({error}): check its permissions.") from error
    folders = [entry.name for entry in entries if entry.is_dir()]
    files = [
        entry.name
        for entry in entries
        if is_table(entry) and inner_suffix(entry) != ".txt" and entry.is_file()
    ]
    if folders and files:
        raise SilodpError(
            f"{path} holds the table {files[0]!r} and the folder {folders[0]!r}, so that tables or "
            "images may be meant: give a folder with one table a silo, or with one folder of "
            "images a silo."
        )
    return bool(folders)
