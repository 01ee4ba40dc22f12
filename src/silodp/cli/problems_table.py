"""All that is wrong with a table, as one table with a remedy for each."""

from typing import TYPE_CHECKING

from rich.table import Table

from silodp.cli.terminal import answers, safe

if TYPE_CHECKING:
    from silodp.data.problems import Problems


def show_problems(problems: "Problems", said: tuple[str, ...] = ()) -> None:
    """Prints the problems, after what was `said` of how the table was read.

    A single one that is about no silo and no column is raised: it is a sentence, and no table.
    """
    rows = problems.rows()
    if len(rows) == 1 and not rows[0]["silo"] and not rows[0]["column"]:
        raise problems.faults[0]
    for sentence in said:
        answers(soft_wrap=True).print(f"Read: {safe(sentence)}")
    table = Table("silo", "column", "problem", "rows", "remedy", show_lines=True)
    for row in rows:
        count = "" if row["rows"] is None else str(row["rows"])
        cells = (row["silo"], row["column"], row["what"], count, row["remedy"])
        table.add_row(*(safe(cell) for cell in cells))
    answers().print(table)
    silos = {row["silo"] for row in rows} - {""}
    of = f" in {len(silos)} silo{'s' * (len(silos) != 1)}" if silos else ""
    answers(soft_wrap=True).print(
        f"{len(rows)} problem{'s' * (len(rows) != 1)}{of}. The table shows values of records: it "
        "is for those who may see them."
    )
