"""docs/suite.md says what its table says: it is written by the command, and never by hand."""

from pathlib import Path

from silodp.suite.cases import load, names
from silodp.suite.comparing import read_lines
from silodp.suite.page import page_of

REMEDY = "run `silodp bench suite --as-is --page docs/suite.md`, which needs the table alone"
DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_the_one_that_its_table_makes():
    lines = read_lines(DOCS / "results" / "suite.csv")
    page = page_of(lines, [load(name) for name in names()])
    assert page == (DOCS / "suite.md").read_text(encoding="utf-8"), REMEDY
