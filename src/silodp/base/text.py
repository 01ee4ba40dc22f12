"""Names that others gave (silos, classes, files), made fit to be shown."""

import hashlib
import re
import unicodedata

_LONGEST = 40
_LONGEST_FILE = 80
_PLAIN_NUMBER = re.compile(r"[-+]?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?")


def shown(name: str, longest: int | None = _LONGEST) -> str:
    """With the codes of characters that could command a terminal; cut where it is too long."""
    name = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in name
    )
    return name if longest is None or len(name) <= longest else f"{name[: longest - 1]}…"


def in_picture(name: str, longest: int = _LONGEST) -> str:
    """As `shown`, with dollar signs that matplotlib does not take for the marks of a formula."""
    return shown(name, longest).replace("$", r"\$")


def as_file_name(name: str) -> str:
    """A name that is one part of a path on any system."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._-")[:_LONGEST_FILE] or "data"


def own_file_name(name: str) -> str:
    """A name of one part of a path on any system, which no other name shares.

    Names may be anything, and file systems may take capital letters for small ones: what tells
    names apart is their hash.
    """
    ascii_ = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "-", ascii_.lower())[:40].strip("-")
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{slug or 'silo'}-{digest}"


def in_cell(text: str) -> str:
    """For a CSV file to read: a spreadsheet would take a silo called "=1+1" for a formula."""
    text = shown(text, None)
    risky = text[:1] in tuple("=+-@") and not _PLAIN_NUMBER.fullmatch(text)
    return f"'{text}" if risky else text


def percent(share: float) -> str:
    """Whole percents, or a digit more below ten."""
    value = 100 * share
    return f"{value:.0f} %" if abs(value) >= 9.95 or value == 0 else f"{value:.1f} %"


def numbered(kind: str, number: int, count: int, least: int = 2) -> str:
    """A name for the one that comes after `number` others, of `count`: silo-01, silo-02, ..."""
    return f"{kind}-{number + 1:0{max(least, len(str(count)))}d}"
