"""Which panels of a figure are drawn, and their letters."""

from collections.abc import Container, Sequence

from silodp.base.errors import SilodpError
from silodp.figures.definition import Definition, Panel


def shown_panels(definition: Definition, available: Container[str]) -> list[Panel]:
    """Panels with results; those without data, or whose runs all diverged, are left out."""
    panels = [panel for panel in definition.panels if panel.name in available]
    if not panels:
        expected = ", ".join(panel.name for panel in definition.panels)
        raise SilodpError(
            f"Figure {definition.name!r}: no panel has results: train one of {expected}."
        )
    return panels


def letter(number: int, count: int) -> str:
    """The letter before a drawing's title, as in the paper: "(a) "; "" if it is the only one."""
    return f"({chr(ord('a') + number)}) " if count > 1 else ""


def heading(definition: Definition, panels: Sequence[Panel]) -> str:
    """The heading: the figure's title, and the panel's title if there is only one."""
    if len(panels) > 1:
        return definition.title
    about = " ".join(panels[0].title.split())
    return f"{definition.title}\n{about}"
