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

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from silodp.base.documents import check_keys, read_toml
from silodp.base.errors import SilodpError
from silodp.privacy.policy import FIELDS, REQUIRED, Policy, checked

_DEFAULT = "default"
_HINT = 'a silo\'s name is written in quotes, as in [silos."North clinic"]'


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


def read_policy(path: str | PathLike[str], silo: str) -> Policy:
    """The policy of one silo, where the file or the folder may hold those of others as well."""
    read = _read_folder if Path(path).is_dir() else _read_file
    everyone, own = read(Path(path), None)
    return _filled(path, silo, {**everyone, **own.get(silo, {})})


_Tables = tuple[dict[str, Any], dict[str, dict[str, Any]]]


def _read_file(path: Path, silos: Sequence[str] | None) -> _Tables:
    """[default], and the table of each silo that has one; None: there may be any silos."""
    file = read_toml(path, hint=_HINT)
    for field in FIELDS:
        if field in file:
            raise SilodpError(
                f"{path}: {field} stands outside all tables: write it below [default], or give the "
                "folder that holds the silos' own files."
            )
    check_keys(str(path), file, (_DEFAULT, "silos"), "table")
    everyone = _table(f"{path}: [default]", file.get(_DEFAULT, {}))
    tables = file.get("silos", {})
    if not isinstance(tables, Mapping):
        raise SilodpError(
            f"{path}: silos must be tables, one for each silo: write "
            '[silos."name"] and below it epsilon = 3.'
        )
    if silos is not None:
        check_keys(f"{path}: [silos]", tables, silos, "silo")
    return everyone, {
        name: _table(f'{path}: [silos."{name}"]', table) for name, table in tables.items()
    }


def _read_folder(path: Path, silos: Sequence[str] | None) -> _Tables:
    """default.toml, and the file of each silo that has one; None: there may be any silos."""
    files = {file.stem: file for file in sorted(path.glob("*.toml"))}
    if not files:
        raise SilodpError(
            f"{path}: the folder holds no policy: give it default.toml, or a file for each silo."
        )
    if silos is not None:
        check_keys(str(path), (name for name in files if name != _DEFAULT), silos, "silo")
    tables = {name: _table(f"{file}:", read_toml(file, hint=_HINT)) for name, file in files.items()}
    return tables.pop(_DEFAULT, {}), tables


def _filled(path: str | PathLike[str], silo: str, table: Mapping[str, Any]) -> Policy:
    for field in REQUIRED:
        if field not in table:
            raise SilodpError(
                f'{path}: silo {silo!r} has no {field}: give it in [silos."{silo}"], in [default] '
                f"or on the command line (--{field})."
            )
    return Policy(**table, silo=silo)


def _table(where: str, table: object) -> dict[str, Any]:
    """A table of policy fields, each checked where the file's line can still be named."""
    if not isinstance(table, Mapping):
        raise SilodpError(f"{where} must be a table, not {table!r}: write epsilon = 3 below it.")
    check_keys(where.rstrip(":"), table, FIELDS, "field")
    return {field: checked(field, value, where) for field, value in table.items()}
