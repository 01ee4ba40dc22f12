"""A small table in HTML, for notebooks; text from elsewhere cannot break it."""

import html
from collections.abc import Sequence

from silodp.base.text import shown

MOST_ROWS = 30


def html_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[str] = ()
) -> str:
    """The table below a title, with notes under it; of many rows, the first."""
    more = len(rows) - MOST_ROWS
    under = [*([f"and {more} more rows"] if more > 0 else []), *notes]
    body = "".join(_row("td", row) for row in rows[:MOST_ROWS])
    below = "".join(f"<p>{_escaped(note)}</p>" for note in under)
    return (
        f"<div><p>{_escaped(title)}</p><table><thead>{_row('th', header)}</thead>"
        f"<tbody>{body}</tbody></table>{below}</div>"
    )


def _row(cell: str, values: Sequence[object]) -> str:
    return f"<tr>{''.join(f'<{cell}>{_escaped(value)}</{cell}>' for value in values)}</tr>"


def _escaped(value: object) -> str:
    return "" if value is None else html.escape(shown(str(value), None))
