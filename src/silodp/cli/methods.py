"""`silodp methods`: the methods that silos can learn together with."""

from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from silodp.base.errors import SilodpError
from silodp.cli.options import AsJson
from silodp.cli.terminal import answers, print_json, safe

if TYPE_CHECKING:
    from silodp.methods.entry import MethodEntry


def methods(as_json: AsJson = False) -> None:
    """Lists the methods, each with its cost in queries."""
    from silodp.methods import METHODS, announced, load, warm_starts

    entries = dict(METHODS)
    broken = {}
    for name, point in announced().items():
        try:
            entries[name] = load(point)
        except SilodpError as error:  # an extension's error must not hide the other methods
            broken[name] = str(error)
    rows = [_about(name, entry) for name, entry in entries.items()]
    if as_json:
        print_json({"methods": rows, "warm_starts": warm_starts(entries), "broken": broken})
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("method", no_wrap=True)
    table.add_column("what it does, what it asks of each silo, and its options")
    for row in rows:
        about = [safe(row["summary"]), f"[dim]{safe(row['cost'])}[/]"]
        if options := _shortened(row["options"]):  # words, which are wrapped and never cut
            about.append(f"[dim]{safe('  '.join(options))}[/]")
        table.add_row("\n".join(map(safe, [row["name"], *row["aliases"]])), "\n".join(about))
    for name, error in broken.items():
        table.add_row(safe(name), f"[red]{safe(error)}[/]")
    answers().print(table)
    answers(soft_wrap=True).print(
        f"Warm starts (IFCA first): {safe(', '.join(warm_starts(entries)))}"
    )


def _about(name: str, entry: "MethodEntry") -> dict[str, Any]:
    from silodp.methods import ALIASES

    options = ["--" + option.replace("_", "-") for option in entry.option_names]
    options += ["--silo-lam"] if "lam" in entry.of_silo else []
    options += [f"--method-options {option}={value}" for option, value in entry.own.items()]
    return {
        "name": name,
        "aliases": [other for other, one in ALIASES.items() if one == name],
        "summary": entry.summary,
        "cost": entry.cost,
        "options": options,
    }


def _shortened(options: list[str]) -> list[str]:
    """Joins the options of the server optimiser into one entry."""
    own = [option for option in options if not option.startswith("--server")]
    return own + (["--server-..."] if len(own) < len(options) else [])
