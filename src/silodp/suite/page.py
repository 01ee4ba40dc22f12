"""The page of the suite, written from its table alone."""

import math
from collections.abc import Mapping, Sequence
from importlib.resources import files

from silodp.data.registry import SOURCES
from silodp.models.metrics import get_metric
from silodp.suite.cases import Case
from silodp.suite.cells import BEST, CONSTANT, SIMPLE
from silodp.suite.comparing import CLEAR, HARM, NOT_RUN, Line

PICTURE = "suite.png"
_TEMPLATE = files("silodp.suite") / "page_template.md"
_MARKS = {"worse": " ▼", "better": " ▲", "level": "", "": ""}


def page_of(lines: Sequence[Line], cases: Sequence[Case]) -> str:
    """The page as Markdown.

    Args:
      lines: the table.
      cases: the federations that were asked for, in the order of the page.
    """
    absent = {line.federation: line.refused for line in lines if line.row == NOT_RUN}
    lines = [line for line in lines if line.row != NOT_RUN]
    shown = [case for case in cases if case.name not in absent]
    rows = _rows(lines)
    written = {
        "summary": _summary(lines, rows),
        "table": _table(lines, shown, rows),
        "not run": _not_run(lines, absent),
        "federations": _federations(cases),
        "published": _published(cases),
        "tried": _tried(lines),
        "clear": f"{CLEAR:g}",
        "harm": f"{100 * HARM:g} %",
    }
    page = _TEMPLATE.read_text(encoding="utf-8")
    for place, text in written.items():
        page = page.replace(f"<!-- {place} -->", text)
    return page


def _rows(lines: Sequence[Line]) -> list[str]:
    """The rows of the suite as columns of the page: simple choices first."""
    found = dict.fromkeys(line.row for line in lines)
    # Methods by name, those at their best settings last.
    others = sorted(set(found).difference(SIMPLE), key=lambda row: (row.startswith(BEST), row))
    return [row for row in SIMPLE if row in found] + others


def _summary(lines: Sequence[Line], rows: Sequence[str]) -> str:
    heads = ("method, as it is by default", "better", "level", "worse")
    table = [_line([*heads, "excess: median", "excess: worst", "silos harmed"]), "|" + "---|" * 7]
    for row in rows:
        own = [line for line in lines if line.row == row and line.verdict]
        if not own:
            continue
        count = {verdict: sum(line.verdict == verdict for line in own) for verdict in _MARKS}
        excesses = sorted(line.excess for line in own)
        worst = max(own, key=lambda line: line.excess)
        harmed, silos = sum(line.harmed for line in own), sum(line.silos for line in own)
        where = f"({worst.federation}, epsilon {worst.epsilon:g})"
        table.append(
            _line(
                [
                    *(_name(row), count["better"], count["level"], count["worse"]),
                    _percent(excesses[len(excesses) // 2]),
                    f"{_percent(worst.excess)} {where}",
                    f"{harmed} of {silos}",
                ]
            )
        )
    return "\n".join(table)


def _table(lines: Sequence[Line], cases: Sequence[Case], rows: Sequence[str]) -> str:
    heads = ["federation", "epsilon", *map(_name, rows)]
    table = [_line(heads), "|" + "---|" * len(heads)]
    for case in cases:
        own = [line for line in lines if line.federation == case.name]
        title = f"**{case.title}**, {get_metric(case.metric).short}"
        for epsilon in sorted({line.epsilon for line in own}):
            here = {line.row: line for line in own if line.epsilon == epsilon}
            cells = [_text(here[row]) if row in here else "" for row in rows]
            budget = "none" if math.isinf(epsilon) else f"{epsilon:g}"
            table.append(_line([title, budget, *cells]))
            title = ""
    return "\n".join(table)


def _text(line: Line) -> str:
    if line.refused:
        return "diverged" if line.refused == "diverged" else "not for it"
    digits = _digits(line)
    error = "" if math.isnan(line.standard_error) else f" ± {line.standard_error:.{digits}f}"
    return f"{line.mean:.{digits}f}{error}{'*' * line.at_edge}{_MARKS[line.verdict]}"


def _digits(line: Line) -> int:
    """Decimals that show three digits of the mean."""
    return max(3, 2 - math.floor(math.log10(max(abs(line.mean), 1e-9))))


def _not_run(lines: Sequence[Line], absent: Mapping[str, str]) -> str:
    notes = [f"- `{name}`: {why.rstrip('.')}." for name, why in sorted(absent.items())]
    refused: dict[tuple[str, str], set[str]] = {}
    for line in lines:
        if line.refused and line.refused != "diverged":
            refused.setdefault((line.row, line.refused), set()).add(line.federation)
    notes += [
        f"- {_name(row)} on {', '.join(f'`{one}`' for one in sorted(names))}: {why}"
        for (row, why), names in sorted(refused.items())
    ]
    return "\n".join(notes) or "Everything was run."


def _federations(cases: Sequence[Case]) -> str:
    table = ["| name | what it stands for | data | licence |", "|---|---|---|---|"]
    for case in cases:
        source = SOURCES.get(str(case.run.get("data")))
        data = f"`{source.name}`" if source else "made up" if case.made_up else ""
        licence = source.licence if source else "free of any claim" if case.made_up else ""
        table.append(f"| `{case.name}` | {case.title}: {case.what} | {data} | {licence} |")
    cited = dict.fromkeys(str(case.run["data"]) for case in cases if "data" in case.run)
    citations = [f"- `{name}`: {SOURCES[name].citation}." for name in cited if name in SOURCES]
    return "\n".join(table) + "\n\n" + "\n".join(citations)


def _published(cases: Sequence[Case]) -> str:
    known = [case for case in cases if case.published]
    return "\n".join(f"- **{case.title}.** {case.published}." for case in known)


def _tried(lines: Sequence[Line]) -> str:
    """How many settings the simple choices are the best of."""
    tried = sorted({line.tried for line in lines if line.row in SIMPLE and line.tried > 1})
    return " to ".join(map(str, dict.fromkeys([tried[0], tried[-1]]))) if tried else "several"


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _name(row: str) -> str:
    return row if row == CONSTANT or row.startswith(BEST) else f"`{row}`"


def _percent(part: float) -> str:
    return f"{100 * part:+.1f} %"
