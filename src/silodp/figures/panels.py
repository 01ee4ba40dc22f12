"""Which panels of a figure are drawn, and their letters."""

from collections.abc import Container, Sequence

from silodp.base.errors import SilodpError
from silodp.figures.definition import Definition, Panel


def shown_panels(definition: Definition, known: Container[str]) -> list[Panel]:
    """Those that are known: where data are missing, or all runs diverged, the others are drawn."""
    panels = [panel for panel in definition.panels if panel.name in known]
    if not panels:
        expected = ", ".join(panel.name for panel in definition.panels)
        raise SilodpError(
            f"Figure {definition.name!r}: no panel has results: train one of {expected}."
        )
    return panels


def letter(number: int, count: int) -> str:
    """Before a drawing's title, as in the paper: "(a) "; nothing if it is the only one."""
    return f"({chr(ord('a') + number)}) " if count > 1 else ""


def heading(definition: Definition, panels: Sequence[Panel]) -> str:
    """Above all drawings: the figure's title and, if all show one panel's data, what these are."""
    if len(panels) > 1:
        return definition.title
    about = " ".join(panels[0].title.split())
    return f"{definition.title}\n{about}"
