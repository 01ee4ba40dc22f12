"""Proposes a schema for a table, as a TOML file to be read and edited by a person.

What is proposed is taken from the records, which no epsilon covers: the file says so in each line,
and lists the columns under `from_records`, which results repeat until a person takes a name out.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from silodp.base.errors import SilodpError
from silodp.base.text import count
from silodp.config.data_options import DataOptions
from silodp.data.problems import Fault
from silodp.data.tables.beside import Beside
from silodp.data.tables.by_value import days_of, is_missing, number_of, plain_number, text_of
from silodp.data.tables.columns import MAX_LEVELS
from silodp.data.tables.dialect import PLAIN, Dialect, thousands_of
from silodp.data.tables.files import (
    EVERY_COLUMN,
    NO_NAME,
    FileForm,
    Reading,
    check_column,
    read_silos,
    read_table,
    values_of,
)
from silodp.data.tables.schema import DROP, MISSING_WORD, DateForm, level_text, schema_of
from silodp.data.tasks import Task, get_task, inferred_task

_FORMATS = (
    *("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d.%m.%y"),
    *("%m/%d/%y", "%d/%m/%y", "%d-%b-%Y", "%d %b %Y", "%b %d, %Y", "%d%b%Y", "%b %d %Y"),
    *("%d %B %Y", "%B %d, %Y", "%B %d %Y"),
)
_TIMES = ("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S", "T%H:%M:%SZ")
_TWO_MARKS = re.compile(
    r"\d+([-./ ])\w+\1\d+.*|\d{1,2}[A-Za-z]{3}\d{4}.*|[A-Z][a-z]+ \d+,? \d{4}.*"
)
_ABOUT_A_NUMBER = re.compile(r"[<>≤≥~=]{0,2}\s*([-+]?\d+(?:\.\d+)?)\s*(\+|%|[a-zA-Zµ/]{1,6})?")
_BETWEEN = re.compile(
    r"[\[(]?(\d+(?:\.\d+)?)\s*(?:-|\u2013|to|,)\s*(\d+(?:\.\d+)?)\s*([a-zA-Zµ/%]{1,6})?[\])]?"
)
_CODE = re.compile(r"0\d+")  # 007 is no number
_NAMES_PERSONS = re.compile(
    r"(^|[_ .-])(subject|patient|person|participant|respondent|pupil|student|customer|client"
    r"|member)s?$",
    re.I,
)
_NAMES_RECORDS = re.compile(r"(^|[_ .-])(id|nr|no|num|number|key|index|uuid|row)$|Id$|ID$", re.I)
_IS_EVENT = re.compile(r"status|event|died|dead|death|relapse|failed", re.I)
_FEW_CODES = 10  # different whole numbers that may be codes
_MANY_WORDS = 30  # words among numbers, and levels beside "other"
_LARGEST_COUNT = 10_000  # of events, or days: a larger target is an amount
_RARE = 5  # rows of a level of its own
_MANY_NAMES = 20  # values from which a column that is called a number of something names persons
_WIDE = 20  # times as wide as nearly all values are: bounds that leave them next to nothing
_MARK = "# from the records"
# Words for what is not known, as people write them among numbers.
_UNKNOWN = frozenset(
    (
        *("?", "-", "--", ".", "*", "unknown", "n/k", "not known", "not recorded", "n.a.", "nd"),
        *("unbekannt", "k.a.", "keine angabe", "missing", "not available", "none", "inconnu"),
    )
)


@dataclass
class _Proposal:
    """Lines of the file, by section; `taken` are the columns whose lines come from records."""

    ignore: list[tuple[str, str]] = field(default_factory=list)
    lines: dict[str, list[str]] = field(default_factory=dict)
    words: dict[str, list[str]] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)

    def add(self, section: str, name: str, value: Any, why: str) -> None:
        """Adds a line that was taken from records."""
        self.lines.setdefault(section, []).append(
            f"{_key(name)} = {_toml(value)}  {_MARK}{': ' if why else ''}{why}"
        )
        if name not in self.taken:
            self.taken.append(name)

    def remark(self, section: str, text: str) -> None:
        """Adds a line that says something, or could stand in the place of another."""
        self.lines.setdefault(section, []).append(f"# {text}")


def proposed_schema(path: Path, options: DataOptions) -> str:
    """The text of a schema for a table (or a folder of tables), which a run can use as it is."""
    frame, reading, form = _everything(path, options)
    target = options.target
    if target is None:
        raise SilodpError(
            f"{path}: the target is not given (--target): choose the column to predict, one of "
            f"{', '.join(map(repr, frame.columns))}."
        )
    roles = ("subject_column", "time_column", "group_column", "id_column")
    beside = schema_of(options).beside
    of_roles = {column: role for role in roles if (column := getattr(options, role)) is not None}
    of_roles |= dict.fromkeys(beside.columns, "the schema")
    for column, role in {target: "target", **of_roles}.items():
        check_column(path, frame, column, role)
    proposal = _Proposal()
    others = [
        str(name)
        for name in frame
        if name not in (target, options.silo_column, *of_roles, *schema_of(options).ignore)
    ]
    for column, encoder in schema_of(options).features.items():
        check_column(path, frame, column, "features")
        others = [name for name in others if name != column]
        if isinstance(encoder, str):  # a function has no name in a file
            lines = proposal.lines.setdefault("features", [])
            lines.append(f"{_key(column)} = {_toml(encoder)}")
        if values_of(frame, column).map(is_missing).any():
            proposal.add("missing", column, DROP, "rows without it are left out")
    task = None if options.task is None else get_task(options.task)
    if task is not None and "event_column" in task.needs and beside.event_column is None:
        beside = replace(beside, event_column=_event_column(frame, others))
        others = [name for name in others if name != beside.event_column]
    for name in others:
        _column(proposal, name, values_of(frame, name))
    for column in (options.silo_column, options.subject_column):
        if column is None or column not in frame:
            continue
        if values_of(frame, column).map(is_missing).any():
            proposal.add("missing", column, DROP, "rows that name none are left out")
    _target(proposal, target, values_of(frame, target), task, beside)
    if (column := beside.exposure_column) is not None:
        lines = _exposure_lines(column, values_of(frame, column), beside)
        proposal.lines["target"] += lines
        proposal.taken += [] if beside.exposure_range else [column]
    return _text(path, options, proposal, reading, form)


def _everything(path: Path, options: DataOptions) -> tuple[pd.DataFrame, Reading, Dialect | None]:
    """All rows, of text tables as they are written; and the form that is proposed for the file."""
    declared = schema_of(options)
    form = FileForm(declared.dialect, declared.sheet)

    def read(form: FileForm) -> tuple[pd.DataFrame, Reading]:
        if path.is_dir():
            frames, reading = read_silos(path, options.silo_column, EVERY_COLUMN, form)
            return pd.concat(list(frames.values()), ignore_index=True), reading
        reading = Reading()
        frame = read_table(path, EVERY_COLUMN, form=form, reading=reading)
        if options.silo_column is not None:
            check_column(path, frame, options.silo_column, "silo_column")
        return frame, reading

    frame, reading = read(form)
    dialect = reading.dialect
    if dialect is not None and reading.unsure and form.dialect is None:
        dialect = _with_thousands(dialect, reading.unsure.values())
        frame, _ = read(replace(form, dialect=dialect))
    return frame, reading, dialect


def _with_thousands(dialect: Dialect, examples: Iterable[str]) -> Dialect:
    """The dialect with the mark that examples such as 1,234 seem to have."""
    marks = Counter(mark for value in examples if (mark := thousands_of(value, dialect.decimal)))
    if not marks:
        return dialect
    mark = marks.most_common(1)[0][0]
    if mark == "," and dialect.delimiter != "," and dialect.decimal == ".":
        return replace(dialect, decimal=",")
    return replace(dialect, thousands=mark)


def _column(proposal: _Proposal, name: str, values: pd.Series) -> None:
    rows = len(values)
    present = [value for value in values if not is_missing(value)]
    texts = [text for value in present if (text := text_of(value)) is not None]
    lacking = rows - len(present)
    is_code = any(map(_CODE.fullmatch, texts))
    distinct = Counter(texts if is_code else map(plain_number, texts))
    if not present:
        proposal.ignore.append((name, "it has no values"))
        return
    if name.endswith(NO_NAME):
        proposal.ignore.append((name, "such as numbers of rows"))
        return
    if len(distinct) == 1 and len(texts) == len(present):
        proposal.ignore.append((name, "it is the same in all rows"))
        return
    if (form := _date_form(present)) is not None:
        _dates(proposal, name, present, lacking, form)
        return
    if len(texts) < len(present):
        proposal.ignore.append((name, "its values are no words and no numbers"))
        return
    numbers = {text: number_of(text) for text in distinct}
    of_number = {text: n for text, n in numbers.items() if not math.isnan(n)}
    if _names_persons(name, of_number, distinct, len(present)):
        proposal.ignore.append(
            (
                name,
                f"it names {len(distinct):,} of something; if these are persons with several rows "
                "each, protect them: --subject-column",
            )
        )
    elif len(distinct) == rows >= 20 and _names_records(name, of_number, rows, is_code):
        proposal.ignore.append(
            (name, "it is different in all rows, such as a number of the record")
        )
    elif len(of_number) == len(distinct) and not is_code:
        _numbers(proposal, name, of_number, distinct, lacking)
    elif _mostly_numbers(of_number, distinct) and not is_code:
        _numbers_with_words(proposal, name, of_number, distinct, lacking)
    else:
        _category(proposal, name, distinct, rows, lacking)


def _names_records(name: str, of_number: dict[str, float], rows: int, is_code: bool) -> bool:
    if len(of_number) < rows or is_code:
        return not of_number or is_code
    numbers = np.array(list(of_number.values()))
    whole = bool((numbers == np.round(numbers)).all())
    return whole and bool(np.ptp(numbers) == rows - 1 or _NAMES_RECORDS.search(name))


def _names_persons(
    name: str, of_number: dict[str, float], distinct: Counter[str], present: int
) -> bool:
    """Whether a column names whom rows are about, some of them more than once."""
    whole = all(number == round(number) for number in of_number.values() if math.isfinite(number))
    named = _NAMES_RECORDS.search(name) or _NAMES_PERSONS.search(name)
    return bool(named and whole and _MANY_NAMES <= len(distinct) < present)


def _mostly_numbers(of_number: dict[str, float], distinct: Counter[str]) -> bool:
    words = [text for text in distinct if text not in of_number]
    about = [text for text in words if _meant(text) is not None]
    if not of_number and len({unit for text in about if (unit := _unit(text))}) > 1:
        return False  # such as 1Fam and 2Story, which are names
    rows = sum(distinct[text] for text in (*of_number, *about))
    others = sum(distinct[text] for text in words if text.lower() not in _UNKNOWN) - sum(
        distinct[text] for text in about
    )
    return (
        bool(of_number or about)
        and rows >= others
        and (len(words) <= _MANY_WORDS or len(about) == len(words) < 1000)
        and len(of_number) + len(about) > 1
    )


def _meant(word: str) -> float | None:
    """The number that a word such as 3+ or <5 may mean; None if it means none."""
    if found := _ABOUT_A_NUMBER.fullmatch(word):
        return float(found[1])
    if found := _BETWEEN.fullmatch(word):
        return (float(found[1]) + float(found[2])) / 2
    return None


def _unit(word: str) -> str:
    """What stands behind the number that a word may mean; nothing for 3+ and 20 %."""
    found = _ABOUT_A_NUMBER.fullmatch(word)
    unit = found[2] if found else None
    if found is None and (found := _BETWEEN.fullmatch(word)):
        unit = found[3]
    return "" if unit in (None, "+", "%") else str(unit).lower()


def _numbers(
    proposal: _Proposal,
    name: str,
    of_number: dict[str, float],
    distinct: Counter[str],
    lacking: int,
) -> None:
    numbers = np.array(sorted(of_number.values()))
    codes = len(numbers) <= _FEW_CODES and bool((numbers == np.round(numbers)).all())
    if codes and len(numbers) == 2:
        levels = [level_text(float(n)) for n in numbers]
        if lacking:
            levels.append(MISSING_WORD)
            proposal.add("missing", name, MISSING_WORD, count(lacking, "row"))
        proposal.add("levels", name, levels, "two codes, taken as yes or no")
        return
    why = ""
    if codes:
        listed = [level_text(float(n)) for n in numbers]
        proposal.remark(
            "levels", f"{_key(name)} = {_toml(listed)}  if these are codes, not amounts"
        )
        why = "few whole numbers: amounts, or codes? See under [levels]"
    proposal.add("bounds", name, _outwards(numbers), why or _far_out(of_number, distinct))
    if lacking:
        _fill(proposal, name, _median(of_number, distinct), lacking)


def _far_out(of_number: dict[str, float], distinct: Counter[str]) -> str:
    """A remark on bounds that a few values pull so far out that nearly all others look alike."""
    numbers = np.repeat(list(of_number.values()), [distinct[text] for text in of_number])
    low, high = np.quantile(numbers, [0.01, 0.99], method="nearest")
    if not 0 < _WIDE * (high - low) < np.ptp(numbers) < math.inf:
        return ""
    return f"98 % of values are from {low:g} to {high:g}, and narrower bounds would tell more"


def _numbers_with_words(
    proposal: _Proposal,
    name: str,
    of_number: dict[str, float],
    distinct: Counter[str],
    lacking: int,
) -> None:
    meant = dict(of_number)
    for word in sorted(text for text in distinct if text not in of_number):
        number = _meant(word)
        value = MISSING_WORD if number is None else number
        lines = proposal.words.setdefault(name, [])
        lines.append(
            f"{_key(word)} = {_toml(value)}  {_MARK}: a guess, {count(distinct[word], 'row')}"
        )
        if number is None:
            lacking += distinct[word]
        else:
            meant[word] = number
    proposal.add("bounds", name, _outwards(np.array(list(meant.values()))), "numbers with words")
    if lacking:
        _fill(proposal, name, _median(meant, distinct), lacking)


def _fill(proposal: _Proposal, name: str, value: float, lacking: int) -> None:
    why = f'{count(lacking, "row")}; the median: give a public value, "noisy mean" or "drop"'
    proposal.add("missing", name, {"value": value, "indicator": True}, why)


def _median(of_number: dict[str, float], distinct: Counter[str]) -> float:
    numbers = np.repeat(list(of_number.values()), [distinct[text] for text in of_number])
    return float(np.quantile(numbers, 0.5, method="nearest"))


def _category(
    proposal: _Proposal, name: str, distinct: Counter[str], rows: int, lacking: int
) -> None:
    if len(distinct) > MAX_LEVELS and 2 * len(distinct) > rows:
        proposal.ignore.append((name, "nearly all rows differ in it"))
        return
    levels = [text for text, rows_of in distinct.most_common(_MANY_WORDS) if rows_of >= _RARE]
    if len(levels) < 2:
        levels = [text for text, _ in distinct.most_common(_MANY_WORDS)]
    levels = sorted(levels)
    rare = len(distinct) - len(levels)
    why = f"{rare} rare ones count as other" if rare else ""
    if len(distinct) == 2 and not rare:
        if lacking:
            levels.append(_new_level(MISSING_WORD, levels))
            proposal.add("missing", name, levels[-1], count(lacking, "row"))
        proposal.add("levels", name, levels, "two words")
        return
    other = next((text for text in levels if text.lower() == "other"), None)
    if other is None:
        other = _new_level("other", levels)
        levels.append(other)
    if lacking:
        counts_as = other
        if lacking >= _RARE:
            counts_as = _new_level(MISSING_WORD, levels)
            levels.append(counts_as)
        proposal.add("missing", name, counts_as, count(lacking, "row"))
    proposal.add("levels", name, levels, why)
    proposal.add("other", name, other, "")


def _new_level(name: str, levels: list[str]) -> str:
    while name in levels:
        name += "'"
    return name


def _date_form(present: list[Any]) -> str | None:
    """How the values are written, if nearly all are dates; "" for the dates of programs."""
    if not any(isinstance(value, str) for value in present):
        return "" if all(isinstance(value, date) for value in present) else None
    texts = list(dict.fromkeys(value.strip() for value in present if isinstance(value, str)))
    texts = [text for text in texts if _TWO_MARKS.fullmatch(text)]
    if 10 * len(texts) < 9 * len({str(value).strip() for value in present}) or not texts:
        return None
    counts = {
        form: sum(_reads(text, form) for text in texts)
        for form in (day + time for day in _FORMATS for time in _TIMES)
    }
    best = max(counts, key=lambda form: counts[form])
    return best if 10 * counts[best] >= 9 * len(texts) else None


def _reads(text: str, form: str) -> bool:
    try:
        datetime.strptime(text, form)
    except ValueError:
        return False
    return True


def _dates(proposal: _Proposal, name: str, present: list[Any], lacking: int, written: str) -> None:
    form = DateForm("1970-01-01", written or DateForm.format)
    days = np.array([days_of(value, form) for value in present])
    known = days[~np.isnan(days)]
    epoch = form.start
    try:
        first, last = (epoch + timedelta(days=float(d)) for d in (known.min(), known.max()))
    except OverflowError:
        proposal.ignore.append((name, "its dates are too far apart"))
        return
    origin = datetime(first.year, 1, 1)
    shift = (origin - epoch).days
    span = float(math.ceil(((datetime(last.year, 12, 31) - origin).days + 1) / 10) * 10)
    why = "days since origin; is that how dates are written?" if written else "days since origin"
    if {"%m/%d", "%d/%m"} & {written[:5]}:
        why += " Month and day may be the other way round"
    rule = {"origin": origin.date().isoformat(), "format": form.format}
    proposal.add("dates", name, rule, why)
    proposal.add("bounds", name, [0.0, span], "in days")
    lacking += int(np.isnan(days).sum())
    if lacking:
        middle = float(np.quantile(known - shift, 0.5, method="nearest"))
        _fill(proposal, name, float(round(middle)), lacking)


def _outwards(numbers: np.ndarray) -> list[float]:
    """Bounds of the numbers, rounded outwards; not below 0 if none of them is."""
    low, high = float(numbers.min()), float(numbers.max())
    span = high - low
    if not 0 < span < math.inf:
        span = abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(span)) / 2
    first, last = math.floor(low / step) * step, math.ceil(high / step) * step
    if low >= 0 and low < span / 2:
        first = 0.0
    if last <= first:
        last = first + step
    return [_short(first), _short(last)]


def _short(number: float) -> float:
    return float(f"{number:.6g}")


def _target(
    proposal: _Proposal, name: str, values: pd.Series, chosen: Task | None, beside: Beside
) -> None:
    """The target's section; `chosen` is the task, where an option says it."""
    present = [value for value in values if not is_missing(value)]
    if len(present) < len(values):
        lacking = count(len(values) - len(present), "row")
        proposal.add("missing", name, DROP, f"{lacking} without a target")
    texts = [text for value in present if (text := text_of(value)) is not None]
    distinct = Counter(texts if any(map(_CODE.fullmatch, texts)) else map(plain_number, texts))
    numbers = np.array([number_of(text) for text in distinct])
    if len(texts) < len(present) or len(distinct) < 2:
        raise Fault(
            f"The target {name!r}",
            f"has {len(distinct)} different words or numbers",
            "choose another target",
            column=name,
        )
    all_numbers = not np.isnan(numbers).any()
    words = np.array(list(distinct), object)
    task = chosen or inferred_task(np.unique(numbers) if all_numbers else words)
    lines = proposal.lines.setdefault("target", [])
    if task.of_classes:
        classes = sorted(distinct, key=(lambda text: float(text)) if all_numbers else str)
        if len(classes) > MAX_LEVELS:
            odd = [text for text in distinct if math.isnan(number_of(text))]
            raise Fault(
                f"The target {name!r}",
                f"has {len(classes)} different values, such as {(odd or classes)[0]!r}",
                "mend those that are no numbers, or choose another target or --task",
                column=name,
                rows=sum(distinct[text] for text in odd) or len(texts),
            )
        why = ", the last is +1" if len(classes) == 2 else ""
        if task.in_order:
            why = ": put them in order, the lowest first"
        lines.append(f"classes = {_toml([level_text(c) for c in classes])}  {_MARK}{why}")
        if chosen is None and len(classes) > 2:
            proposal.remark("target", "in an order? Then the lowest first, and --task ordinal")
    elif "cut_points" in task.needs:
        lines += _event_lines(beside, numbers)
    elif np.isfinite(numbers).any():
        known = numbers[np.isfinite(numbers)]
        lines.append(f"range = {_toml(_outwards(known))}  {_MARK}")
        may_count = (known >= 0).all() and (known == np.round(known)).all()
        if chosen is None and may_count and known.max() <= _LARGEST_COUNT:
            proposal.remark("target", "counts, such as of events? Then --task count")
            proposal.remark("target", "a time to an event that not all have? Then --task hazard")
    proposal.taken.append(name) if name not in proposal.taken else None


def _event_column(frame: pd.DataFrame, names: list[str]) -> str | None:
    """The column of two values that is called like one which says whether an event was seen."""
    for name in names:
        known = {plain_number(t) for v in values_of(frame, name) if (t := text_of(v)) is not None}
        if len(known) == 2 and _IS_EVENT.search(name):
            return name
    return None


def _exposure_lines(column: str, values: pd.Series, beside: Beside) -> list[str]:
    """How long, or of how many, counts are."""
    lines = [f"exposure_column = {_toml(column)}"]
    if beside.exposure_range is not None:
        return [*lines, f"exposure_range = {_toml(list(beside.exposure_range))}"]
    numbers = np.array([number_of(text) for value in values if (text := text_of(value))])
    known = numbers[numbers > 0]
    if not len(known):
        return lines
    ends = [_short(known.min()), max(_outwards(known)[1], _short(known.max()))]
    return [*lines, f"exposure_range = {_toml(ends)}  {_MARK}, above 0"]


def _event_lines(beside: Beside, times: np.ndarray) -> list[str]:
    """What a time to an event needs: who had it, and where time is cut."""
    lines = [f"# event_column: the column that says who had the event  {_MARK}: none looks like it"]
    if beside.event_column is not None:
        lines = [f"event_column = {_toml(beside.event_column)}  # 1, yes or true; else event_value"]
    if beside.cut_points:
        return [*lines, f"cut_points = {_toml(list(beside.cut_points))}"]
    known = times[(times > 0) & np.isfinite(times)]
    quarters = np.quantile(known, [0.25, 0.5, 0.75]) if len(known) else ()
    cuts = sorted({float(f"{cut:.2g}") for cut in quarters})
    return [*lines, f"cut_points = {_toml(cuts)}  {_MARK}: quarters; take round public ones"]


_HEAD = """\
# A schema for {path}, proposed by `silodp data check --write-schema`: read it, and edit it.
#
# Lines with "{mark}" were taken from the records. Epsilon does not cover what they give away, and
# results say so, until you replace them by what is public (a code book, a law, what anybody would
# call possible) and take the column out of this list:
from_records = {taken}

"""
_ABOUT = {
    "features": "public encoders of images (paths of files) and of texts",
    "levels": "what a category may hold",
    "other": "the level that takes what is not listed",
    "bounds": "lowest and highest value of numbers; what lies beyond is moved there",
    "dates": "dates become days since an origin",
    "missing": "what a missing value counts as; an indicator says where one was missing",
    "target": "the column to predict",
}


def _text(
    path: Path,
    options: DataOptions,
    proposal: _Proposal,
    reading: Reading,
    dialect: Dialect | None,
) -> str:
    taken = [*proposal.taken, *(["[file]"] if reading.by_records else [])]
    parts = [_HEAD.format(path=path.name, mark=_MARK, taken=_toml(taken))]
    if proposal.ignore:
        parts.append("# Columns to leave out.\nignore = [\n")
        parts += [f"    {_toml(name)},  {_MARK}: {why}\n" for name, why in proposal.ignore]
        parts.append("]\n\n")
    parts.append(_file_section(options, reading, dialect))
    for section, about in _ABOUT.items():
        if lines := proposal.lines.get(section):
            parts.append(f"[{section}]  # {about}\n" + "\n".join(lines) + "\n\n")
    for name, lines in proposal.words.items():
        head = f"[words.{_key(name)}]  # what words among numbers stand for\n"
        parts.append(head + "\n".join(lines) + "\n\n")
    return "".join(parts).rstrip("\n") + "\n"


def _file_section(options: DataOptions, reading: Reading, dialect: Dialect | None) -> str:
    lines = []
    if dialect is not None:  # also the plain one, so that it is not found from records again
        guessed = set(dialect.as_toml()) - set((reading.dialect or PLAIN).as_toml())
        example = next(iter(reading.unsure.items()), None)
        for key, value in asdict(dialect).items():
            if key == "thousands" and not value:
                continue
            why = ""
            if key in guessed and example is not None:
                why = f"  # a guess from column {example[0]!r}, such as {example[1]!r}: check it"
            lines.append(f"{key} = {_toml(value)}{why}")
    sheet = schema_of(options).sheet
    if sheet is not None:
        lines.append(f"sheet = {_toml(sheet)}")
    return "[file]  # how the table is written\n" + "\n".join(lines) + "\n\n" if lines else ""


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's text is TOML's too, but for one character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return repr(value)
