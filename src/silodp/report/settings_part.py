"""How to get a result again: the command, all settings, versions."""

import shlex
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from silodp.options import RunOptions
from silodp.report import tables
from silodp.report.html import Html, joined, tag
from silodp.report.numbers import (
    duration,
)
from silodp.report.tables import folded
from silodp.result import AT_SITES, Result


def settings_part(result: Result) -> Html:
    """The command, all settings, versions and seconds."""
    rows = [(name, _plain(value)) for name, value in sorted(result.options.items())]
    versions = [(name, str(value)) for name, value in result.versions.items()]
    seconds = [
        (name, duration(float(value)))
        for name, value in result.seconds.items()
        if isinstance(value, int | float)
    ]
    parts = [
        *_again(result),
        folded("All settings", tables.pairs(rows)),
        folded("Versions", tables.pairs(versions)),
        folded("What took how long", tables.pairs(seconds)),
    ]
    if result.tuning is not None:
        tuned = [(name, _plain(value)) for name, value in result.tuning.items()]
        parts.append(folded("What was tuned", tables.pairs(tuned)))
    return joined(parts)


def _again(result: Result) -> list[Html]:
    """How to ask for it again; what has secret noise comes out otherwise each time."""
    if result.options.get("engine") == AT_SITES:
        said = (
            "Trained across sites: the coordinator asks for it again with silodp federation submit."
        )
        return [tag("p", said)]
    said = "The command that gives this result again:"
    if result.options.get("entropy") == "os":
        said = (
            "The command that asks for the same again. Its noise is drawn anew, so that numbers "
            "will differ, and it costs its epsilon again:"
        )
    return [tag("p", said), _command(command_of(result))]


def _command(command: str) -> Html:
    copy = tag("button", "Copy", type="button", class_="copy")
    return tag("div", tag("pre", tag("code", command), tabindex=0), copy, class_="command")


def command_of(result: Result) -> str:
    """The run as one would ask for it: what is not a default."""
    defaults = {
        option.name: option.default
        for option in fields(RunOptions)
        if option.default is not MISSING
    }
    given = []
    for name, value in result.options.items():
        if name in ("data", "method") or value is None or value == defaults.get(name):
            continue
        if isinstance(value, Mapping):  # of silos or of a method: a file, or name=number
            said = ",".join(f"{key}={number}" for key, number in value.items())
            given.append(("silo-lam", "FILE") if name == "silo_lam" else (name, said))
        elif value is True:
            given.append((name, None))
        else:
            given.append((name, str(value)))
    command = "tune" if result.tuning is not None else "run"
    words = ["silodp", command, "--data", result.options.get("data") or result.data]
    words += ["--method", result.method]
    for name, value in given:
        words += [f"--{name.replace('_', '-')}", *([] if value is None else [value])]
    return " ".join(shlex.quote(str(word)) for word in words)


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else str(value)
