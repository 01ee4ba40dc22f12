"""Reading images that strangers made: small squares of pixels, one byte a value.

What a file claims about itself is checked before room is made for it. An image is brought to a
square (its sides are not kept in proportion, and a camera's note on how to turn it is not obeyed)
by Pillow's bilinear filter, which averages over all pixels that become one.
"""

import contextlib
import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import PIL
from PIL import Image

from silodp.base.errors import SilodpError
from silodp.data.images.decoded import decoded

FORMATS = ("PNG", "JPEG", "BMP", "TIFF")
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")
MAX_PIXELS = 64_000_000  # of one image as it lies in its file
MAX_SIZE = 1024  # pixels to a side of what is made of it
MAX_BYTES = 16 * 2**30  # of all images together
DEFAULT_SIZE = 32

DEFAULT_PREPROCESS = "paper"

# Older versions of Pillow say "I" of a PNG of 16 bits; of a TIFF it means 32.
_SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N", "I")


class Folder(NamedTuple):
    """What counts in a folder: its folders and its files, by name, without what systems leave."""

    folders: list[Path]
    files: list[Path]


def checked_size(size: int | None) -> int:
    """The pixels to a side, by default 32."""
    size = DEFAULT_SIZE if size is None else size
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_SIZE:
        raise SilodpError(
            f"image_size is {size!r}: give the pixels to a side that images are brought to, a "
            f"whole number from 1 to {MAX_SIZE}."
        )
    return size


def list_folder(folder: Path, root: Path) -> Folder:
    """The folders and files in a folder of images; `root` is the folder that the user gave.

    Hidden files, and those that file managers leave, are passed over. A link that leads out of
    `root` is refused: nobody may slip in files that the user did not mean to give.
    """
    inside = os.path.realpath(root)
    folders, files = [], []
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise SilodpError(
            f"{_shown(folder)} cannot be read ({error.strerror}): check it."
        ) from error
    for entry in entries:
        if entry.name.startswith(".") or entry.name in ("Thumbs.db", "desktop.ini", "__MACOSX"):
            continue
        if entry.is_symlink() and not Path(os.path.realpath(entry)).is_relative_to(inside):
            raise SilodpError(
                f"{_shown(entry)} is a link that leads out of the folder {_shown(root)}: put the "
                "files themselves there."
            )
        if entry.is_dir():
            folders.append(entry)
        elif entry.is_file():
            files.append(entry)
        else:
            raise SilodpError(f"{_shown(entry)} is no file that can be read: remove it.")
    return Folder(folders, files)


def is_image_name(path: Path) -> bool:
    """Whether the name ends as that of an image that can be read."""
    return path.suffix.lower() in ENDINGS


def checked_name(path: Path, what: str) -> str:
    """The name of a folder, which is to name a silo or a class: text that can be shown as it is."""
    if not path.name.isprintable():
        raise SilodpError(
            f"The {what} folder {path.name!r} has a name with characters that cannot be shown: "
            "rename it."
        )
    return path.name


def read_images(
    name: str, root: Path, files: Sequence[Path], size: int, *, grey: bool, no_cache: bool
) -> np.ndarray:
    """All images [images, size, size, 1 or 3], dtype uint8, from the cache where they are there.

    Args:
      name: begins the name of the cache entry.
      root: the folder that the files lie in.
      files: at least one.
      size: pixels to a side.
      grey: one channel; else there are three, which are alike where an image is grey.
      no_cache: always decode, and leave nothing in the cache.
    """
    if len(files) * size**2 * 3 > MAX_BYTES:
        raise SilodpError(
            f"{len(files)} images of {size} x {size} pixels take more than {MAX_BYTES >> 30} GiB: "
            "choose a smaller image_size, or give fewer."
        )
    names = [path.relative_to(root).as_posix() for path in files]
    how = ascii(("images 1", PIL.__version__, size, grey, names))  # names may be no UTF-8
    return decoded(name, files, how, lambda: {"x": _decode(files, size, grey)}, no_cache)["x"]


def read_image(path: Path, size: int, grey: bool) -> np.ndarray:
    """One image as [size, size, 1 or 3], dtype uint8.

    Of 16 bits the upper 8 are kept; transparency is left out.
    """
    try:
        with Image.open(path, formats=FORMATS) as image:
            _check_claims(path, image)
            # A large JPEG is read at a fraction of its size, still twice of what is needed.
            image.draft(image.mode, (2 * size, 2 * size))
            small = _plain(path, image, grey).resize(
                (size, size), Image.Resampling.BILINEAR, reducing_gap=2.0
            )
    except SilodpError:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise _too_large(path) from error
    except Exception as error:  # Pillow's readers fail in many ways on a file that is not whole
        reason = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, PIL.UnidentifiedImageError):
            reason = f"it is none of {', '.join(FORMATS)}"
        raise SilodpError(
            f"{_shown(path)} cannot be read as an image ({reason}): copy it again, or remove it."
        ) from error
    return np.asarray(small).reshape(size, size, -1)


def _check_claims(path: Path, image: Image.Image) -> None:
    """Before any pixel is decoded."""
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise _too_large(path, f"{width} x {height}")
    if image.mode == "F" or (image.mode == "I" and image.format != "PNG"):
        raise SilodpError(
            f"{_shown(path)} has pixels of 32 bits, of which black and white are not known: save "
            "it with 8 or 16 bits."
        )
    # Some cameras add a second view of the same (MPO): the first is the picture.
    if image.format != "MPO" and getattr(image, "n_frames", 1) > 1:
        raise SilodpError(f"{_shown(path)} holds more than one image: save each in its own file.")


def _plain(path: Path, image: Image.Image, grey: bool) -> Image.Image:
    """The image in mode L or RGB."""
    if image.mode in _SIXTEEN_BITS:
        # Pillow itself would cut off all above 255.
        values = np.asarray(image)
        if 0 < values.max() < 256:
            raise SilodpError(
                f"{_shown(path)} has pixels of 16 bits, but uses the lower 8 alone, so that it "
                "would be black: save it with 8 bits."
            )
        image = Image.fromarray((values >> 8).astype(np.uint8))
    if image.mode == "P":
        image = image.convert("RGBA")  # the way for palettes with transparent colours
    return image.convert("L" if grey else "RGB")


def _decode(files: Sequence[Path], size: int, grey: bool) -> np.ndarray:
    x = np.empty((len(files), size, size, 1 if grey else 3), np.uint8)

    def decode_one(place: int) -> None:
        x[place] = read_image(files[place], size, grey)

    # Pillow lets other threads run while it decodes.
    with reading_quietly(), ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        list(pool.map(decode_one, range(len(files))))
    return x


@contextlib.contextmanager
def reading_quietly() -> Iterator[None]:
    """While images are read: remarks on odd notes in a file are of no use.

    That it would fill the memory is.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _too_large(path: Path, size: str = "too many") -> SilodpError:
    return SilodpError(
        f"{_shown(path)} claims {size} pixels, but at most {MAX_PIXELS // 10**6} million are read: "
        "save it smaller, or remove it."
    )


def _shown(path: Path) -> str:
    """A path for an error message: in one line, whatever its name holds."""
    text = str(path)
    return text if text.isprintable() else repr(text)
