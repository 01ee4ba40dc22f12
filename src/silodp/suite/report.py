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
    wanted, table = {case.name for case in cases}, page.parent / RESULTS / TABLE
    lines = lines_of(cell for cell in cells_in(out) if cell.federation in wanted)
    before = read_lines(table) if table.exists() else []
    if not lines:
        # The page of a table whose cells are elsewhere, as after its words have changed.
        lines = [line for line in before if line.row != NOT_RUN]
    there = {line.federation for line in lines}
    reasons = {line.federation: line.refused for line in before if line.row == NOT_RUN}
    reasons |= {case.name: case.waits_for for case in cases if case.waits_for} | dict(missing)
    lines += [
        Line(case.name, math.nan, NOT_RUN, case.metric, refused=reasons.get(case.name, NOT_YET))
        for case in cases
        if case.name not in there
    ]
    lines = read_lines(write_lines(table, lines))  # the page rests on what is in the file
    draw(lines, cases, page.parent / RESULTS / PICTURE)
    write_file(page, page_of(lines, cases), mode=SHARED)
    return lines
