"""How a text table is written: encoding, delimiter, decimal mark, and mark of thousands.

A dialect is found (`sniffed`) while a person looks on: by `silodp data check`, by a run on one
machine, before a site consents. It is never found while a site answers: there it is what its
site.toml says, or the plain one (UTF-8, commas, decimal points), so that no record can change how
others are read. For the same reason nothing but a value decides what becomes of it (`plain`).

What the sniffer goes by: the encoding by the mark at the beginning, else by whether all bytes are
UTF-8; the delimiter by the header, and by rows only if the header has several that may be it; the
decimal comma by rows. `Sniffed.by_records` says when rows had a part in it.
"""

import csv
import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from silodp.base.documents import check_keys
from silodp.base.errors import SilodpError
from silodp.data.formats.bounded import read_bounded

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
ENCODINGS = ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "cp1252", "latin-1")
DECIMALS = (".", ",")
THOUSANDS = ("", ".", ",", " ", "'")
PACKED = (".gz", ".xz", ".zip")
MOST_BYTES = 1 << 34  # of a table, unpacked
_LOOKED_AT = 1000  # rows that a decimal comma is looked for in
_SPACES = "[ \u00a0\u202f]"  # those that are written between thousands


@dataclass(frozen=True)
class Dialect:
    """How a text table is written; the plain one is what most programs write.

    Examples:
      >>> Dialect(delimiter=";", decimal=",").plain("1,5")
      '1.5'
    """

    delimiter: str = ","
    decimal: str = "."
    thousands: str = ""
    encoding: str = "utf-8"

    def plain(self, text: str) -> str:
        """A value with its number in plain spelling (1234.5); whatever is no number stays.

        With a decimal comma, a point is no decimal point: 1.500 may be meant as 1500. It changes
        places with the comma, so that nobody takes the text for a number.
        """
        if self.decimal == "." and not self.thousands:
            return text
        bare = text.strip()
        if not bare or bare[-1] not in "0123456789.,%":
            return text
        if self.thousands and _grouped(self.thousands, self.decimal).fullmatch(bare):
            mark = _SPACES if self.thousands == " " else re.escape(self.thousands)
            return re.sub(mark, "", bare).replace(self.decimal, ".")
        if self.decimal == "," and _POINTS_AND_COMMAS.fullmatch(bare):
            return bare.translate(_SWAPPED)
        return text

    def as_toml(self) -> dict[str, str]:
        """What differs from the plain dialect."""
        return {name: value for name, value in asdict(self).items() if value != asdict(PLAIN)[name]}

    @property
    def words(self) -> str:
        """The dialect in words."""
        marks = "a decimal comma (shown here as a point)" if self.decimal == "," else ""
        thousands = f"{self.thousands!r} between thousands" if self.thousands else ""
        parts = (self.encoding, f"{DELIMITERS[self.delimiter]} between values", marks, thousands)
        return ", ".join(part for part in parts if part)


PLAIN = Dialect()
_SWAPPED = str.maketrans(",.", ".,")
# Numbers with one mark of decimals, and thousands in groups of three; no dates, which have two
# points or three.
_POINTS_AND_COMMAS = re.compile(
    r"[-+]?(\d*,\d*|\d+\.\d+|\d{1,3}(\.\d{3})+(,\d*)?)([eE][-+]?\d+)?\s*%?"
)


def _grouped(thousands: str, decimal: str) -> re.Pattern[str]:
    mark = _SPACES if thousands == " " else re.escape(thousands)
    return re.compile(rf"[-+]?\d{{1,3}}({mark}\d{{3}})+({re.escape(decimal)}\d*)?")


def dialect_of(where: str, table: Mapping[str, Any]) -> Dialect:
    """The dialect that a table of TOML states; `where` names it in errors."""
    allowed = {
        "delimiter": tuple(DELIMITERS),
        "decimal": DECIMALS,
        "thousands": THOUSANDS,
        "encoding": ENCODINGS,
    }
    check_keys(where, table, allowed)
    for name, value in table.items():
        if value not in allowed[name]:
            raise SilodpError(
                f"{where}: {name} is {value!r}: choose from {', '.join(map(repr, allowed[name]))}."
            )
    dialect = Dialect(**table)
    if dialect.thousands == dialect.decimal:
        raise SilodpError(
            f"{where}: decimal and thousands are both {dialect.decimal!r}: give another for one."
        )
    return dialect


KEYS = tuple(field.name for field in fields(Dialect))


@dataclass(frozen=True)
class Sniffed:
    """What was found of a table's form.

    Attributes:
      dialect: the dialect.
      by_records: what of it hangs on records, and not on the header alone.
      unsure: columns whose numbers may have marks of thousands, with an example: never guessed.
    """

    dialect: Dialect
    by_records: tuple[str, ...] = ()
    unsure: Mapping[str, str] = field(default_factory=dict)


def inner_suffix(path: Path) -> str:
    """The ending that says what a file holds, without that of a packing."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def content_of(path: Path) -> bytes:
    """The bytes of a text table, unpacked."""
    if path.suffix.lower() != ".zip":
        return read_bounded(path, MOST_BYTES, "copy it again, or give a smaller table")
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if not m.is_dir()]
            members = [m for m in members if not m.filename.startswith(("__MACOSX/", "."))]
            if len(members) != 1:
                raise SilodpError(
                    f"{path} holds {len(members)} files: unpack it, or give an archive with one "
                    "table."
                )
            if members[0].file_size > MOST_BYTES:
                raise SilodpError(f"{path} holds more than {MOST_BYTES} bytes: unpack a part.")
            with archive.open(members[0]) as file:
                return file.read(MOST_BYTES)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise SilodpError(f"{path} cannot be unpacked ({error}): copy it again.") from error
    except OSError as error:
        raise SilodpError(f"{path} cannot be read ({error}): check its permissions.") from error


def opened(path: Path, dialect: Dialect, errors: str = "strict") -> TextIO:
    """The text of a table."""
    encoding = "utf-8-sig" if dialect.encoding == "utf-8" else dialect.encoding
    if path.suffix.lower() in PACKED:
        file: Any = io.BytesIO(content_of(path))
        return io.TextIOWrapper(file, encoding=encoding, errors=errors, newline="")
    return path.open(encoding=encoding, errors=errors, newline="")


def plain_rows(path: Path, dialect: Dialect, errors: str = "strict") -> Iterator[list[str]]:
    """The rows of a text table, header first, each value in plain spelling; no empty lines.

    What a row becomes hangs on that row alone. (A quotation mark that is never closed makes one
    value of all that follows: whatever writes the file has to write CSV.)
    """
    with opened(path, dialect, errors) as file:
        rows = csv.reader(file, delimiter=dialect.delimiter, skipinitialspace=True)
        first = True
        for row in rows:
            if not row:
                continue
            if first:
                first = False
                row[0] = row[0].removeprefix("\ufeff")
                if len(row) <= 2 and row[0].lower().startswith("sep="):
                    first = True  # Excel's own line on the delimiter
                    continue
                yield row
                continue
            yield [dialect.plain(value) for value in row]


def sniffed(path: Path) -> Sniffed:
    """The dialect of a text table that a person looks at; see the module for what it goes by."""
    content = content_of(path)
    encoding, by_bytes = _encoding(content)
    try:
        text = content.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        raise SilodpError(f"{path} is not {encoding} text ({error}): save it as UTF-8.") from error
    if by_bytes and "\0" in text:
        raise SilodpError(f"{path} is not text: save the table as CSV in UTF-8.")
    text = text.removeprefix("\ufeff")
    by_records = [f"the encoding {encoding}"] if by_bytes else []
    delimiter, by_rows = _delimiter(text, inner_suffix(path))
    if by_rows:
        by_records.append(f"the delimiter {delimiter!r}")
    decimal, unsure = _decimal(text, delimiter)
    if decimal != ".":
        by_records.append("the decimal comma")
    return Sniffed(Dialect(delimiter, decimal, "", encoding), tuple(by_records), unsure)


def _encoding(content: bytes) -> tuple[str, bool]:
    """The encoding, and whether it hangs on more than how the file begins."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16", False
    if content.startswith(b"\xef\xbb\xbf"):
        return "utf-8", False
    start = content[:4]
    if len(start) == 4 and not start[1] and not start[3] and start[0]:
        return "utf-16-le", False
    if len(start) == 4 and not start[0] and not start[2] and start[1]:
        return "utf-16-be", False
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        pass
    else:
        return "utf-8", False
    try:
        content.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1", True
    return "cp1252", True


def _delimiter(text: str, ending: str) -> tuple[str, bool]:
    lines = (line for line in text.splitlines() if line.strip())
    top = list(islice(lines, 21))
    if top and (own := re.fullmatch(r'"?sep=([,;|\t])"?.*', top[0], re.IGNORECASE)):
        return own[1], False
    header = top[0] if top else ""
    wide = {mark: len(_parsed([header], mark)[0]) for mark in DELIMITERS if header}
    found = [mark for mark, width in wide.items() if width > 1]
    if len(found) < 2:
        return (found[0] if found else "\t" if ending == ".tsv" else ","), False
    even = [m for m in found if all(len(row) == wide[m] for row in _parsed(top[1:], m))]
    if len(even) == 1:
        return even[0], True
    return max(even or found, key=lambda mark: wide[mark]), True


def _parsed(lines: list[str], delimiter: str) -> list[list[str]]:
    return [row for row in csv.reader(lines, delimiter=delimiter, skipinitialspace=True) if row]


_COMMA_NUMBER = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")
_POINT_NUMBER = re.compile(r"[-+]?\d*\.\d+([eE][-+]?\d+)?")
# Whole numbers with marks of thousands, or decimal ones with three digits: nobody can tell.
_IN_THREES = re.compile(rf"[-+]?[1-9]\d{{0,2}}(([.,'])\d{{3}}(\2\d{{3}})*|({_SPACES}\d{{3}})+)")
# Both marks: the second one is that of decimals.
_BOTH_MARKS = re.compile(rf"[-+]?[1-9]\d{{0,2}}(([.,'])\d{{3}}|{_SPACES}\d{{3}})+([.,])\d+")


def _decimal(text: str, delimiter: str) -> tuple[str, dict[str, str]]:
    """The decimal mark, and columns that may have marks of thousands, with an example.

    A comma is taken for a decimal mark only where it is not the delimiter, some column has numbers
    that cannot be read in another way, and no column has such numbers with points.
    """
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    table = list(islice((row for row in rows if row), _LOOKED_AT + 2))
    if table and table[0][0].lower().startswith("sep="):
        table = table[1:]
    commas = points = False
    grouped: dict[str, str] = {}
    for place, name in enumerate(table[0] if table else ()):
        values = [row[place].strip() for row in table[1:] if place < len(row)]
        for value in values:
            both = _BOTH_MARKS.fullmatch(value)
            if both is not None and value.count(both[3]) == 1:
                commas, points = commas or both[3] == ",", points or both[3] == "."
                grouped[name.strip()] = value
            elif _IN_THREES.fullmatch(value):
                grouped.setdefault(name.strip(), value)
            else:
                commas |= _COMMA_NUMBER.fullmatch(value) is not None
        # Dates such as 31.12 do not count: all of the column has to be numbers.
        others = [value for value in values if value and not _IN_THREES.fullmatch(value)]
        points |= any(map(_POINT_NUMBER.fullmatch, others)) and all(
            value.lstrip("+-").isdigit() or _POINT_NUMBER.fullmatch(value) for value in others
        )
    decimal = "," if commas and not points and delimiter != "," else "."
    return decimal, {
        name: value
        for name, value in grouped.items()
        if value.count(decimal) != 1 or not value.lstrip("+-").replace(decimal, "").isdigit()
    }


def thousands_of(value: str, decimal: str) -> str:
    """The mark of thousands that a number such as 1,234 has, if it has any."""
    found = re.search(r"\d([.,' \u00a0\u202f])\d{3}", value)
    mark = "" if found is None else found[1]
    mark = " " if mark in "\u00a0\u202f" and mark else mark
    return "" if mark == decimal else mark
