"""Definitions of figures: what is trained for each panel, and which picture is made of it.

Each is a TOML file in `definitions/`. A panel holds a sweep at the paper's scale, and what of it is
replaced at smaller scales; what all panels share stands above them:

    [sweep]                    # options of runs: a value, or a list of values to try
    data = "school"
    [[sweep.grid]]             # a part with options of its own, beside those above
    method = ["mrmtl", "ditto"]
    lam = [0.1, 1]
    [quick]                    # replaces options wherever the sweep sets them
    lam = [1]
    method = ["mrmtl"]         # keeps these methods alone
    [[panels]]
    name = "train-50"
    title = "50 % for training"
    [panels.sweep]             # of this panel: beside the shared options, or in their place
    test_fraction = 0.5
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Any

from silodp.base.documents import check_keys, toml_of
from silodp.base.errors import SilodpError, meant, one_of
from silodp.config.options import OPTIONS

SCALES = ("paper", "hour", "quick")
PICTURES = ("bumps", "mask_levels", "overhead", "rounds", "tradeoffs")
_FOLDER = files("silodp.figures") / "definitions"
# Keeps every evaluated round, not only the last: a key of the sweep, not an option of runs.
_HISTORY = "history"
_GRID = "grid"

Sweep = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """A panel of a figure, with a sweep of its own.

    Attributes:
      name: name of its table, and in the figure's numbers.
      title: title above the drawing.
      sweep: options at the paper's scale; under "grid" are the parts.
      hour: what two cores can do in an hour, as replaced options; None: all of the sweep.
      quick: replaced options for a first look, in a minute or two.
    """

    name: str
    title: str
    sweep: Mapping[str, Any]
    hour: Mapping[str, Any] | None = None
    quick: Mapping[str, Any] | None = None

    def at(self, scale: str) -> Sweep:
        """The content of a sweep file at a scale: "paper", "hour" or "quick"."""
        if scale not in SCALES:
            raise SilodpError(f"Scale {scale!r} is unknown: use {one_of(scale, SCALES)}.")
        replaced = {"paper": None, "hour": self.hour, "quick": self.quick}[scale]
        return replace_options(self.sweep, replaced or {})


@dataclass(frozen=True)
class Definition:
    """A figure.

    Attributes:
      name: name of the definition's file.
      title: title above the figure.
      paper: which figure of the paper it follows; "" for one of ours.
      caption: what to look at.
      picture: the module of this package that draws it.
      panels: one sweep each.
      rows: for "tradeoffs", the methods of each row of drawings; empty for one row of all.
      ends: for "rounds", whether local training and FedAvg have a drawing to themselves.
    """

    name: str
    title: str
    paper: str
    caption: str
    picture: str
    panels: tuple[Panel, ...]
    rows: tuple[tuple[str, ...], ...] = ()
    ends: bool = False


def names() -> list[str]:
    """Names of all figures with a definition."""
    file_names = (entry.name for entry in _FOLDER.iterdir())
    return sorted(name.removesuffix(".toml") for name in file_names if name.endswith(".toml"))


def load(name: str) -> Definition:
    """Reads the definition of this name."""
    if name not in names():
        raise SilodpError(f"Figure {name!r} is unknown: use {one_of(name, names())}.")
    return parse(name, (_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Definition:
    """Reads a definition from the text of its file."""
    where = f"Figure {name!r}"
    content = toml_of(text, where)
    shared = {part: content.pop(part, {}) for part in ("sweep", "hour", "quick")}
    _check_fields(where, content, Definition, given={"name"})
    if content["picture"] not in PICTURES:
        choices = one_of(str(content["picture"]), PICTURES)
        raise SilodpError(f"{where}: picture is {content['picture']!r}: use {choices}.")
    panels = tuple(_panel(where, _join(shared, panel)) for panel in content["panels"])
    panel_names = [panel.name for panel in panels]
    if not panels or len(set(panel_names)) < len(panels):
        raise SilodpError(
            f"{where}: panels are {panel_names}: give one or more, each its own name."
        )
    rows = tuple(tuple(row) for row in content.get("rows", ()))
    return Definition(**{**content, "name": name, "panels": panels, "rows": rows})


def replace_options(sweep: Mapping[str, Any], replaced: Mapping[str, Any]) -> Sweep:
    """Replaces options wherever the sweep sets them, and adds the others to the common ones.

    Methods are not replaced, but left out if not named; a part without methods is dropped.
    """
    kept = replaced.get("method")
    parts = [dict(sweep), *(dict(part) for part in sweep.get(_GRID, ()))]
    for option, value in replaced.items():
        if option == "method":
            continue
        setting = [part for part in parts if option in part] or parts[:1]
        for part in setting:
            part[option] = value
    if kept is not None:
        for part in parts:
            if "method" in part:
                part["method"] = [one for one in _listed(part["method"]) if one in _listed(kept)]
    common, *grid = parts
    if _GRID in common:
        common[_GRID] = [part for part in grid if part.get("method") != []]
    return common


def _join(shared: Mapping[str, Sweep], panel: Mapping[str, Any]) -> dict[str, Any]:
    """Joins what a panel sets with what all panels share."""
    parts = {part: shared[part] | panel.get(part, {}) for part in shared}
    return dict(panel) | {part: options for part, options in parts.items() if options}


def _panel(where: str, content: Mapping[str, Any]) -> Panel:
    where = f"{where}, panel {content.get('name', '?')!r}"
    _check_fields(where, content, Panel)
    _check_sweep(where, content["sweep"])
    for scale in ("hour", "quick"):
        _check_replaced(f"{where}, {scale}", content["sweep"], content.get(scale, {}))
    return Panel(**content)


def _check_fields(
    where: str, content: Mapping[str, Any], kind: type, given: Iterable[str] = ()
) -> None:
    known = {field.name: field for field in fields(kind) if field.name not in given}
    check_keys(where, content, known)
    needed = [name for name in known if name not in _optional(kind)]
    missing = [name for name in needed if name not in content]
    if missing:
        raise SilodpError(f"{where}: {', '.join(missing)} is missing: add it.")


def _optional(kind: type) -> set[str]:
    return {field.name for field in fields(kind) if hasattr(kind, field.name)}


def _check_sweep(where: str, sweep: Mapping[str, Any]) -> None:
    """Checks that options are known, that parts have methods and set no common option again."""
    grid = sweep.get(_GRID, [])
    common = {name: value for name, value in sweep.items() if name != _GRID}
    _check_options(where, common, (_HISTORY,))
    if "data" not in common:
        raise SilodpError(f"{where}: data is missing: name a data set.")
    for part in grid:
        _check_options(where, part)
        twice = sorted(set(part) & set(common))
        if twice:
            raise SilodpError(
                f"{where}: {twice[0]!r} stands in the sweep and in a part of it: keep one."
            )
    if any("method" not in part for part in grid or [common]) and "method" not in common:
        raise SilodpError(f"{where}: method is missing in a part of the sweep: add it.")


def _check_replaced(where: str, sweep: Mapping[str, Any], replaced: Mapping[str, Any]) -> None:
    _check_options(where, replaced)
    known = [
        method
        for part in (sweep, *sweep.get(_GRID, ()))
        for method in _listed(part.get("method", []))
    ]
    for method in _listed(replaced.get("method", [])):
        if method not in known:
            raise SilodpError(
                f"{where}: the sweep has no method {method!r}: keep some of {', '.join(known)}."
            )


def _check_options(where: str, options: Mapping[str, Any], more: tuple[str, ...] = ()) -> None:
    for name, value in options.items():
        if name not in OPTIONS and name not in more:
            known = sorted((*OPTIONS, *more))
            raise SilodpError(f"{where}: {name!r} is no option of a run: {meant(name, known)}")
        if value == []:
            raise SilodpError(f"{where}: {name} is an empty list: give a value.")


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]
