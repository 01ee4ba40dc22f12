"""Options in files: checks names and types, and resolves paths."""

from pathlib import Path
from typing import Any

from silodp.base.errors import SilodpError, meant
from silodp.config.choices import DATA_SETS
from silodp.config.options import OPTIONS


def option_name(written: str, where: str) -> str:
    """The option's name, which may be written with - or _; `where` names the file in errors."""
    name = written.replace("-", "_")
    if name not in OPTIONS:
        raise SilodpError(f"{where}: option {written!r} is unknown: {meant(name, OPTIONS)}")
    return name


def option_value(name: str, value: Any, where: str, folder: Path) -> Any:
    """The value in the option's type; paths are relative to `folder`."""
    kind = OPTIONS[name].kind
    fits = {
        float: isinstance(value, int | float) and not isinstance(value, bool),
        int: isinstance(value, int) and not isinstance(value, bool),
        bool: isinstance(value, bool),
        str: isinstance(value, str),
        Path: isinstance(value, str),
    }[kind]
    if not fits:
        raise SilodpError(f"{where}: {name} is {value!r}, not of type {kind.__name__}: correct it.")
    if name == "data" and value not in DATA_SETS and (folder / str(value)).exists():
        return str(folder / str(value))
    return folder / str(value) if kind is Path else kind(value)
