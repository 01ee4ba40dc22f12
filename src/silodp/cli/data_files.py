"""`silodp data list` and `silodp data get`: the files of data sets."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from silodp.base.errors import SilodpError, meant
from silodp.cli import completion
from silodp.cli.options import AsJson, DataDir
from silodp.cli.terminal import answers, notes, print_json, safe

if TYPE_CHECKING:
    from rich.console import Console

    from silodp.data.files import Archive, DataFile, Progress
    from silodp.data.source import DataSource


def list_sources(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Lists the data sets, and where their files lie."""
    rows = [_row(source, places) for source, places in located_sources(data_dir)]
    if as_json:
        print_json(rows)
        return
    table = Table("name", "what")
    table.add_column("files", overflow="fold")  # a path that is cut short is of no use
    for source, places in located_sources(data_dir):
        lines = "\n".join(map(safe, places_lines(source, places)))
        table.add_row(safe(source.name), safe(source.summary), lines)
    answers().print(table)


def located_sources(
    data_dir: Path | None = None,
) -> "Iterator[tuple[DataSource, dict[DataFile, Path | None]]]":
    """Each data set with the places of its files; None for a file that is not there."""
    from silodp.data.files import present
    from silodp.data.registry import SOURCES

    for source in SOURCES.values():
        yield source, {file: present(source.name, file, data_dir) for file in source.files}


def _row(source: "DataSource", places: "Mapping[DataFile, Path | None]") -> dict[str, Any]:
    return {
        "name": source.name,
        "summary": source.summary,
        "citation": source.citation,
        "licence": source.licence,
        "preprocessings": list(source.preprocessings),
        "files": {file.name: str(place) if place else None for file, place in places.items()},
        "on_request": [file.name for file in source.files if file.origin is None],
        "by_hand": source.by_hand or None,
    }


def places_lines(source: "DataSource", places: "Mapping[DataFile, Path | None]") -> list[str]:
    """Says where files are or how to get them: one line per place."""
    if not places:
        note = f"on request (silodp data show {source.name})"
        return [note] if source.by_hand else ["needs none"]
    lines: dict[str, list[str]] = {}
    for file, place in places.items():
        if place is not None:
            where = f"in {place.parent}" if len(places) > 1 else str(place)
        elif file.origin is None:
            where = f"on request (silodp data show {source.name})"
        else:
            where = f"not here yet (silodp data get {source.name})"
        lines.setdefault(where, []).append(place.name if place and len(places) > 1 else file.name)
    return [f"{_short_list(names)}: {where}" for where, names in lines.items()]


def _short_list(names: list[str]) -> str:
    return ", ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} more"


def get(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of a data set; see `silodp data list`.", autocompletion=completion.data_sets
        ),
    ],
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder to put it in; else the user's cache.")
    ] = None,
) -> None:
    """Downloads the files of a data set and checks them."""
    from silodp.data.files import download, download_path
    from silodp.data.formats.archives import download_members
    from silodp.data.registry import SOURCES

    if name not in SOURCES:
        raise SilodpError(f"Data set {name!r} is unknown: {meant(name, SOURCES, most=20)}")
    source = SOURCES[name]
    console = answers(soft_wrap=True)
    if not source.files:
        if source.by_hand:
            raise _on_request(source, "its files")
        _say(console, f"{name} needs no file.")
    missing = [file for file in source.files if not _is_there(source, file, data_dir, console)]
    destinations = {file: download_path(name, file.name, data_dir) for file in missing}
    for archive, files in _by_archive(missing).items():
        wanted = {destinations[file]: file for file in files}
        with _bars() as bar:
            download_members(archive, wanted, bar("downloading"), bar("unpacking"))
        for file in files:
            _say(console, _arrival(file, destinations[file], archive.checksum is not None))
    for file in missing:
        if isinstance(file.origin, str):
            with _bars() as bar:
                download(file, destinations[file], bar(file.name))
            _say(console, _arrival(file, destinations[file]))
    on_request = [file.name for file in missing if file.origin is None]
    if on_request:
        raise _on_request(source, ", ".join(on_request))


def _say(console: "Console", sentence: str) -> None:
    console.print(safe(sentence))


def _on_request(source: "DataSource", what: str) -> SilodpError:
    remedy = source.by_hand.rstrip(".") or f"ask its owners ({source.citation})"
    return SilodpError(
        f"Data set {source.name!r}: {what} cannot be fetched by a command: {remedy}."
    )


def _by_archive(files: "list[DataFile]") -> "dict[Archive, list[DataFile]]":
    """Files that come in archives, by archive."""
    from silodp.data.files import Archive

    grouped: dict[Archive, list[DataFile]] = {}
    for file in files:
        if isinstance(file.origin, Archive):
            grouped.setdefault(file.origin, []).append(file)
    return grouped


def _is_there(
    source: "DataSource", file: "DataFile", data_dir: Path | None, console: "Console"
) -> bool:
    """Whether the file need not be fetched, because it is in `data_dir` (or anywhere, if None) and
    its checksum, if one is known, is right; says so if it is.
    """
    from silodp.data.files import download_path, has_checksum, has_content, present, present_in

    if data_dir is None:
        place = present(source.name, file)
    else:
        place = present_in(source.name, file, data_dir.expanduser())
    if place is None:
        return False
    if file.is_other_form(place):
        _say(console, f"{file.name} is here as {place}, another form, which is not checked.")
        return True
    if file.content is None and place.name != file.name:
        _say(console, f"{file.name} is here as {place}, packed in another way, and not checked.")
        return True
    if file.checksum is None and file.content is None:
        _say(console, f"{file.name} is already at {place}. {_unchecked(place)}")
        return True
    if place.name == file.name and file.checksum and has_checksum(place, file.checksum):
        _say(console, f"{file.name} is already at {place}, and its checksum is right.")
        return True
    if file.content is not None and has_content(place, file.content):
        _say(
            console,
            f"{file.name} is here as {place}, packed in another way; the checksum of its content "
            "is right.",
        )
        return True
    if place != download_path(source.name, file.name, data_dir):
        raise SilodpError(
            f"{place} has a wrong checksum, and would be found before a new download: remove it "
            "first."
        )
    return False


def _arrival(file: "DataFile", place: Path, archive_checked: bool = False) -> str:
    if file.checksum is not None:
        return f"{file.name} is now at {place}, and its checksum is right."
    if archive_checked:
        return f"{file.name} is now at {place}, and the checksum of its archive is right."
    return f"{file.name} is now at {place}. {_unchecked(place)}"


def _unchecked(place: Path) -> str:
    from silodp.data.files import digest_of

    digest = digest_of(place, "sha256")
    return f"It could not be checked, since no checksum of it is published; its sha256 is {digest}."


@contextmanager
def _bars() -> Iterator:
    """Yields a function that makes a progress bar; a terminal shows them until the end."""
    console = notes()
    with Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=console,
        transient=True,
        disable=not console.is_interactive,
    ) as bars:

        def bar(name: str) -> "Progress":
            task = bars.add_task(name, total=None, visible=False)  # until the download begins
            return lambda done, total: bars.update(task, completed=done, total=total, visible=True)

        yield bar
