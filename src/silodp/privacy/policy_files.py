"""The files in which silos state their policies.

One file for all, in which a silo takes from [default] what it leaves out:

    [default]
    epsilon = 3                     # for one run
    delta = 1e-4
    lifetime_epsilon = 8            # for all runs together, with a ledger
    lifetime_delta = 1e-4

    [silos."North clinic"]
    epsilon = 1
    relation = "replace-one"        # or "add-remove"
    subject = "patient"             # protect people (this column), not single records
    public = ["record count", "feature bounds", "label range", "class list"]

Or a folder with a file for each silo, named after it ("North clinic.toml"), and perhaps a
default.toml, with the same lines and no tables: then each file stays with its silo.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from silodp.base.errors import SilodpError
from silodp.privacy.policy import FIELDS, REQUIRED, Policy, checked

_DEFAULT = "default"


def read_policies(
    path: str | PathLike[str], silos: Sequence[str], given: Mapping[str, Any] | None = None
) -> tuple[Policy, ...]:
    """The policy of each silo, in the order of `silos`.

    What a silo leaves out comes from the default, and then from `given` (what the command line says
    for all).

    Examples:
      >>> from pathlib import Path
      >>> lines = ["[default]", "epsilon = 3", "delta = 1e-4", "[silos.north]", "epsilon = 1"]
      >>> characters = Path("policies.toml").write_text(chr(10).join(lines))
      >>> [policy.epsilon for policy in silodp.read_policies("policies.toml", ["north", "south"])]
      [1.0, 3.0]
    """
    read = _read_folder if Path(path).is_dir() else _read_file
    everyone, own = read(Path(path), silos)
    given = given or {}
    return tuple(_filled(path, name, {**given, **everyone, **own.get(name, {})}) for name in silos)


_Tables = tuple[dict[str, Any], dict[str, dict[str, Any]]]


def _read_file(path: Path, silos: Sequence[str]) -> _Tables:
    """[default], and the table of each silo that has one."""
    file = _read_toml(path)
    for field in FIELDS:
        if field in file:
            raise SilodpError(
                f"{path}: {field} stands outside all tables: write it below [default], or give the "
                "folder that holds the silos' own files."
            )
    _refuse_unknown(f"{path}:", file, (_DEFAULT, "silos"), "table")
    everyone = _table(f"{path}: [default]", file.get(_DEFAULT, {}))
    tables = file.get("silos", {})
    if not isinstance(tables, Mapping):
        raise SilodpError(
            f"{path}: silos must be tables, one for each silo: write "
            '[silos."name"] and below it epsilon = 3.'
        )
    _refuse_unknown(f"{path}: [silos]", tables, silos, "silo")
    return everyone, {
        name: _table(f'{path}: [silos."{name}"]', table) for name, table in tables.items()
    }


def _read_folder(path: Path, silos: Sequence[str]) -> _Tables:
    """default.toml, and the file of each silo that has one."""
    files = {file.stem: file for file in sorted(path.glob("*.toml"))}
    if not files:
        raise SilodpError(
            f"{path}: the folder holds no policy: give it default.toml, or a file for each silo."
        )
    _refuse_unknown(f"{path}:", (name for name in files if name != _DEFAULT), silos, "silo")
    tables = {name: _table(f"{file}:", _read_toml(file)) for name, file in files.items()}
    return tables.pop(_DEFAULT, {}), tables


def _filled(path: str | PathLike[str], silo: str, table: Mapping[str, Any]) -> Policy:
    for field in REQUIRED:
        if field not in table:
            raise SilodpError(
                f'{path}: silo {silo!r} has no {field}: give it in [silos."{silo}"], in [default] '
                f"or on the command line (--{field})."
            )
    return Policy(**table, silo=silo)


def _read_toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SilodpError(f"{path}: there is no such policy file: check the path.") from None
    except OSError as error:
        raise SilodpError(
            f"{path}: the policy file cannot be read ({error.strerror}): check the path and its "
            "permissions."
        ) from None
    except UnicodeDecodeError:
        raise SilodpError(f"{path}: the policy file is not text: save it as UTF-8.") from None
    except ValueError as error:
        raise SilodpError(
            f"{path}: the policy file is not valid TOML ({error}): mend that line; a silo's name "
            'is written in quotes, as in [silos."North clinic"].'
        ) from None


def _table(where: str, table: object) -> dict[str, Any]:
    """A table of policy fields, each checked where the file's line can still be named."""
    if not isinstance(table, Mapping):
        raise SilodpError(f"{where} must be a table, not {table!r}: write epsilon = 3 below it.")
    _refuse_unknown(where, table, FIELDS, "field")
    return {field: checked(field, value, where) for field, value in table.items()}


def _refuse_unknown(where: str, given: Iterable[str], known: Sequence[str], kind: str) -> None:
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
            if close:
                remedy = "did you mean " + " or ".join(repr(other) for other in close) + "?"
            else:
                some = ", ".join(repr(other) for other in known[:5])
                remedy = f"known are {some}{', ...' if len(known) > 5 else ''}."
            raise SilodpError(f"{where} the {kind} {name!r} is unknown: {remedy}")
