"""Files that options name (policies, silos' own lambdas), sent to a machine that lacks them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from silodp.base.errors import SilodpError
from silodp.config.options import RunRequest, tagged
from silodp.sweeps.chunks import Chunk
from silodp.sweeps.named_files import paths_of
from silodp.sweeps.table import Row

# The content of a file, of each file of a folder by name, or None if there is nothing.
Content = bytes | dict[str, bytes] | None


def files_of(chunk: Chunk) -> dict[Path, Content]:
    """The content of each file that the options of a chunk name."""
    paths = {path for point in chunk.points for path in _paths(point.options).values()}
    return {path: _content(path) for path in sorted(paths)}


class Unpacked(NamedTuple):
    """A chunk whose options name copies of the files, and the originals of the copies."""

    chunk: Chunk
    copies: dict[Path, Path]

    def original(self, sentence: str) -> str:
        """The sentence with the files' original names."""
        for path, copy in self.copies.items():
            sentence = sentence.replace(str(copy), str(path))
        return sentence

    def original_rows(self, rows: Iterable[Row]) -> list[Row]:
        """The rows with the files' original names."""
        paths = {copy: path for path, copy in self.copies.items()}
        return [
            row._replace(
                options={
                    name: paths.get(value, value) if isinstance(value, Path) else value
                    for name, value in row.options.items()
                }
            )
            for row in rows
        ]


@contextmanager
def unpacked(chunk: Chunk, files: dict[Path, Content]) -> Iterator[Unpacked]:
    """Unpacks the files into a temporary folder while the block runs."""
    with TemporaryDirectory(prefix="silodp-") as folder:
        copies: dict[Path, Path] = {}
        for number, (path, content) in enumerate(files.items()):
            copies[path] = Path(folder) / str(number) / path.name
            _write(copies[path], content)
        points = []
        for point in chunk.points:
            own = {name: copies[path] for name, path in _paths(point.options).items()}
            points.append(point._replace(options=replace(point.options, **own)))
        yield Unpacked(chunk._replace(points=tuple(points)), copies)


def _paths(options: RunRequest) -> dict[str, Path]:
    """The files that are read when a run is prepared; others (a schema) are read with records."""
    paths = paths_of(options)
    return {name: paths[name] for name in tagged("sent_file") if name in paths}


def _content(path: Path) -> Content:
    try:
        if path.is_dir():
            return {file.name: file.read_bytes() for file in path.glob("*.toml")}
        return path.read_bytes() if path.exists() else None
    except OSError as error:
        raise SilodpError(
            f"{path} cannot be read ({error.strerror}): check its permissions."
        ) from None


def _write(copy: Path, content: Content) -> None:
    copy.parent.mkdir()
    if isinstance(content, dict):
        copy.mkdir()
        for name, text in content.items():
            (copy / name).write_bytes(text)
    elif content is not None:
        copy.write_bytes(content)
