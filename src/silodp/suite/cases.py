"""The federations of the suite: a TOML file for each, in `federations/`.

title = "Heart disease"
what = "4 hospitals that differ in whom they see"    # what it stands for in the suite
part = true             # in the part that takes minutes (--part)
metric = "log_loss"     # what methods are compared by
waits_for = ""          # why it cannot be run yet, if so
published = ""          # what others have reached, and by which protocol
lr = [3, 10, 30]        # where others are tried than usual: these alone, with full batches
[run]                   # options of every run, beside those of the suite
data = "heart"
[made_up]               # instead of data: see `made_up`
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from silodp.base.documents import check_keys, toml_of
from silodp.base.errors import SilodpError, one_of
from silodp.config.options import OPTIONS
from silodp.data.federation import Federation
from silodp.data.sources.made_up import Recipe, draw
from silodp.models.metrics import get_metric

_FOLDER = files("silodp.suite") / "federations"
_KEYS = ("title", "what", "part", "metric", "waits_for", "published", "lr", "run", "made_up")

# Where the best settings are looked for: 50 full batches, or rounds and batches as usual.
GRIDS: tuple[Mapping[str, Any], ...] = (
    {
        "lr": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
        "rounds": 50,
        "batch_size": 1_000_000,
        "small_silos": "full-batch",
    },
    {"lr": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)},
)


@dataclass(frozen=True)
class Case:
    """A federation of the suite; see the module for what each says."""

    name: str
    title: str
    what: str
    metric: str
    run: Mapping[str, Any] = field(default_factory=dict)
    made_up: Recipe | None = None
    part: bool = False
    waits_for: str = ""
    published: str = ""
    lr: tuple[float, ...] = ()

    @property
    def grids(self) -> list[dict[str, Any]]:
        """Where the best settings are looked for: each a grid, with a list of learning rates."""
        if self.lr:
            return [{**GRIDS[0], "lr": list(self.lr)}]
        return [{**grid, "lr": list(grid["lr"])} for grid in GRIDS]

    @property
    def source(self) -> dict[str, Any]:
        """Where a run's records come from, as arguments of `silodp.sweep`."""
        own = {"metric": self.metric, **self.run}
        return own if self.made_up is None else own | {"federation": self.federation}

    @property
    def federation(self) -> Callable[[int], Federation] | None:
        """Draws the federation of a seed, where it is made up."""
        return None if self.made_up is None else partial(draw, self.name, self.made_up)


def names() -> list[str]:
    """Names of all federations of the suite, by the name of their file."""
    found = (entry.name for entry in _FOLDER.iterdir())
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))


def load(name: str) -> Case:
    """The federation of this name."""
    if name not in names():
        raise SilodpError(f"The suite has no federation {name!r}: use {one_of(name, names())}.")
    with as_file(_FOLDER) as folder:
        text = (folder / f"{name}.toml").read_text(encoding="utf-8")
        return parse(name, text, folder)


def parse(name: str, text: str, folder: Path) -> Case:
    """The federation of a file's text; paths in it are from `folder`."""
    where = f"Federation {name!r} of the suite"
    content = toml_of(text, where)
    check_keys(where, content, _KEYS)
    run = dict(content.pop("run", {}))
    check_keys(where, run, OPTIONS)
    if "policies" in run:
        run["policies"] = folder / run["policies"]
    recipe = content.pop("made_up", None)
    if (recipe is None) == ("data" not in run) and not content.get("waits_for"):
        raise SilodpError(f"{where}: give data under [run], or [made_up], and not both.")
    get_metric(content["metric"])
    content["lr"] = tuple(map(float, content.get("lr", ())))
    return Case(
        name=name,
        run=run,
        made_up=None if recipe is None else Recipe.of(f"{where}, [made_up]", recipe),
        **content,
    )
