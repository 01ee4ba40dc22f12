"""Makes names from others (silos, classes, files) safe to show."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

_LONGEST = 40
MOST_NAMED = 6
_LONGEST_FILE = 80
# Names that Windows keeps to itself, whatever their ending.
_RESERVED = frozenset(
    ("con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10)))
)
_PLAIN_NUMBER = re.compile(r"[-+]?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?")


def shown(name: str, longest: int | None = _LONGEST) -> str:
    """The name with control characters escaped (a terminal would obey them), cut if too long.

    It is cut in the middle: names that begin alike often end differently.
    """
    name = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in name
    )
    if longest is None or len(name) <= longest:
        return name
    half = (longest - 1) // 2
    return f"{name[: longest - 1 - half].rstrip()}…{name[len(name) - half :].lstrip()}"


def in_picture(name: str, longest: int = _LONGEST) -> str:
    """The name for a picture: as `shown`, with dollar signs that mark no formula in matplotlib."""
    return shown(name, longest).replace("$", r"\$")


def as_file_name(name: str) -> str:
    """A file name for any system, made of the name."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._-")[:_LONGEST_FILE] or "data"


def own_file_name(name: str) -> str:
    """A file name for any system that differs for different names.

    Names may be any text, and file systems may ignore case: a hash tells them apart.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", _ascii(name).lower())[:40].strip("-")
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{slug or 'silo'}-{digest}"


def folder_names(names: Sequence[str]) -> list[str]:
    """Names of folders for things of these names, as like them as every file system allows.

    A hash tells those apart that would be one: file systems may ignore case, and keep some names
    to themselves.
    """
    plain = [re.sub(r"[^\w.-]+", "_", _ascii(name)).strip("._-")[:_LONGEST] for name in names]
    alike = Counter(folder.casefold() for folder in plain)
    return [
        folder
        if folder and alike[folder.casefold()] == 1 and not _is_reserved(folder)
        else own_file_name(name)
        for name, folder in zip(names, plain, strict=True)
    ]


def _ascii(name: str) -> str:
    return unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()


def _is_reserved(folder: str) -> bool:
    return folder.split(".")[0].casefold() in _RESERVED


def in_cell(text: str) -> str:
    """The text for a cell of a CSV file: a spreadsheet would run a silo called "=1+1"."""
    text = shown(text, None)
    risky = text[:1] in tuple("=+-@") and not _PLAIN_NUMBER.fullmatch(text)
    return f"'{text}" if risky else text


def amount(value: float) -> str:
    """A number with three digits that count, as people write it: 3.17 or 48,000."""
    if not 1000 <= abs(value) < 1e12:
        return f"{value:.3g}"
    return f"{float(f'{value:.3g}'):,.0f}"


def percent(share: float) -> str:
    """The share in percent: whole, or with one decimal below ten."""
    value = 100 * share
    return f"{value:.0f} %" if abs(value) >= 9.95 or value == 0 else f"{value:.1f} %"


def count(number: int, one: str, many: str | None = None) -> str:
    """A number of things, such as 1 silo, 1,000 silos."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def few_of(names: Sequence[str], most: int = MOST_NAMED) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - most
    text = ", ".join(names[:most])
    return f"{text} and {more:,} more" if more > 0 else text


def silo_names(silos: Sequence[str]) -> str:
    """The first few silos for a sentence; names that are numbers are no counts, and are quoted."""
    return few_of([f"'{s}'" if _PLAIN_NUMBER.fullmatch(s) else shown(s) for s in silos])


def numbered(kind: str, number: int, count: int, least: int = 2) -> str:
    """A numbered name, with `number` from 0: silo-01, silo-02, ..., silo-`count`."""
    return f"{kind}-{number + 1:0{max(least, len(str(count)))}d}"
