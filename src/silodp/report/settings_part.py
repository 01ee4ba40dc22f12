"""The part of a report about how to repeat a run: the command, all settings, versions."""

import shlex
from collections.abc import Mapping
from typing import Any

from silodp.base.errors import SilodpError
from silodp.config.choices import MODEL_NAMES
from silodp.config.options import OPTIONS, RunRequest
from silodp.report import tables
from silodp.report.html import Html, joined, tag
from silodp.report.numbers import (
    duration,
)
from silodp.report.tables import folded
from silodp.results.result import AT_SITES, FROM_PYTHON, Result
from silodp.runs.requests import without_effect
from silodp.tuning.tune import USES


def settings_part(result: Result) -> Html:
    """Shows the command, all settings, versions and seconds."""
    rows = [(name, _plain(value)) for name, value in sorted(result.options.items())]
    versions = [(name, str(value)) for name, value in result.versions.items()]
    seconds = [
        (name, duration(float(value)))
        for name, value in result.seconds.items()
        if isinstance(value, int | float)
    ]
    parts = [
        *_repeat(result),
        folded("All settings", tables.pairs(rows)),
        folded("Versions", tables.pairs(versions)),
        folded("What took how long", tables.pairs(seconds)),
    ]
    if result.tuning is not None:
        tuned = [(name, _plain(value)) for name, value in result.tuning.items()]
        parts.append(folded("What was tuned", tables.pairs(tuned)))
    return joined(parts)


def _repeat(result: Result) -> list[Html]:
    """Says how to repeat the run; with secret noise, results differ each time."""
    if result.options.get("engine") == AT_SITES:
        words = (
            "Trained across sites: the coordinator asks for it again with silodp federation submit."
        )
        return [tag("p", words)]
    own_model = result.options.get("model") not in (None, *MODEL_NAMES)
    if result.options.get("data") == FROM_PYTHON or own_model:
        words = "Run from Python, with records or a model given there: no command repeats it."
        return [tag("p", words)]
    words = "The command that gives this result again, from where its files are:"
    if result.options.get("entropy") == "os":
        words = (
            "The command that repeats this run. Its noise is drawn again, so that numbers "
            "will differ, and it costs its epsilon again:"
        )
    parts = [tag("p", words), _command(command_of(result))]
    if isinstance(result.options.get("silo_lam"), Mapping):
        parts.append(
            tag("p", "FILE holds the silos' own lambdas, listed in the settings as silo_lam.")
        )
    return parts


def _command(command: str) -> Html:
    copy = tag("button", "Copy", type="button", class_="copy")
    return tag("div", tag("pre", tag("code", command), tabindex=0), copy, class_="command")


def command_of(result: Result) -> str:
    """The command of a run, with the options that are not at their defaults.

    It holds known options alone: a result from elsewhere puts no other words into a command.
    """
    words = ["silodp", "run" if result.tuning is None else "tune"]
    words += ["--data", result.options.get("data") or result.data, "--method", result.method]
    for name, value in _effective(result).items():
        option = OPTIONS[name]
        words.append(option.flag)
        if name == "silo_lam":
            words.append("FILE")
        elif isinstance(value, Mapping):
            words.append(_pairs(value))
        elif value is not True:
            words.append(str(value))
    return " ".join(shlex.quote(str(word)) for word in (*words, *_tuned(result.tuning or {})))


def _effective(result: Result) -> dict[str, Any]:
    """Options that are not at their defaults and have an effect beside the others."""
    options = {
        name: value
        for name, option in OPTIONS.items()
        if (value := result.options.get(name)) is not None and value != option.default
    }
    options["method"] = result.method
    try:
        RunRequest(**options)
        useless = without_effect(
            options, options.keys() - set(USES if result.tuning is not None else ())
        )
    except SilodpError:  # of another version: the command will say what it does not know
        useless = {}
    return {n: v for n, v in options.items() if n not in useless and n not in ("data", "method")}


def _tuned(tuning: Mapping[str, Any]) -> list[str]:
    """The further options of `silodp tune`."""
    words = []
    for name, values in tuning.get("grid", {}).items():
        words += ["--try", f"{name}={','.join(map(str, values))}"]
    for name in ("trials", "eta", "score", "score_fraction", "pivot_noise"):
        if tuning.get(name) is not None:
            words += [f"--{name.replace('_', '-')}", str(tuning[name])]
    return words


def _pairs(values: Mapping[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items())


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else str(value)
