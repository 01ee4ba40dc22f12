"""Writes what is finished: table, picture and page."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from silodp.base.files import SHARED, write_file
from silodp.suite.cases import Case
from silodp.suite.cells import cells_in
from silodp.suite.comparing import NOT_RUN, TABLE, Line, lines_of, read_lines, write_lines
from silodp.suite.page import PICTURE, page_of
from silodp.suite.picture import draw

RESULTS = "results"
NOT_YET = "not run yet"


def write_report(
    out: Path, page: Path, cases: Sequence[Case], missing: Mapping[str, str]
) -> list[Line]:
    """Writes the table and the picture into a folder beside the page, and the page from the table.

    Args:
      out: the folder with the cells.
      page: where the page goes.
      cases: the federations that it is about.
      missing: why a federation was not run, by name.
    """
    wanted = {case.name for case in cases}
    lines = lines_of(cell for cell in cells_in(out) if cell.federation in wanted)
    there = {line.federation for line in lines}
    lines += [
        Line(case.name, math.nan, NOT_RUN, case.metric, refused=missing.get(case.name, NOT_YET))
        for case in cases
        if case.name not in there
    ]
    table = write_lines(page.parent / RESULTS / TABLE, lines)
    lines = read_lines(table)  # the page rests on what is in the file
    draw(lines, cases, page.parent / RESULTS / PICTURE)
    write_file(page, page_of(lines, cases), mode=SHARED)
    return lines
