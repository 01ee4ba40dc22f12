"""A silo's own budget for one run, and the file in which silos state theirs.

What a silo leaves out is as by default:

    [default]
    epsilon = 3
    delta = 1e-4

    [silos."North clinic"]
    epsilon = 1
"""

import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, fields
from os import PathLike
from pathlib import Path

from silodp.errors import SilodpError


@dataclass(frozen=True)
class Policy:
    """At most `epsilon` may be spent, at `delta`; an infinite epsilon asks for no privacy.

    `silo` is not kept: it only names whose policy it is, should it be refused.
    """

    epsilon: float
    delta: float
    silo: InitVar[str] = ""

    def __post_init__(self, silo: str):
        where = f"Silo {silo!r}:" if silo else "The policy's"
        for field in FIELDS:
            object.__setattr__(self, field, _checked(field, getattr(self, field), where))


FIELDS = tuple(field.name for field in fields(Policy))


def read_policies(
    path: str | PathLike[str], silos: Sequence[str], given: Mapping[str, float] | None = None
) -> tuple[Policy, ...]:
    """The policy of each silo, in the order of `silos`.

    What a silo's table leaves out comes from the file's [default], and then from `given` (the
    command line's epsilon and delta, as far as it has them).
    """
    file = _read_toml(path)
    _refuse_unknown(f"{path}:", file, ("default", "silos"), "table")
    everyone = _table(f"{path}: [default]", file.get("default", {}), FIELDS)
    tables = file.get("silos", {})
    if not isinstance(tables, Mapping):
        raise SilodpError(
            f"{path}: silos must be tables, one for each silo: write "
            '[silos."name"] and below it epsilon = 3.'
        )
    _refuse_unknown(f"{path}: [silos]", tables, silos, "silo")
    own = {
        name: _table(f'{path}: [silos."{name}"]', table, FIELDS) for name, table in tables.items()
    }
    given = given or {}
    return tuple(_filled(path, name, {**given, **everyone, **own.get(name, {})}) for name in silos)


def _filled(path: str | PathLike[str], silo: str, table: Mapping[str, float]) -> Policy:
    for field in FIELDS:
        if field not in table:
            raise SilodpError(
                f'{path}: silo {silo!r} has no {field}: give it in [silos."{silo}"], in [default] '
                f"or on the command line (--{field})."
            )
    return Policy(**table, silo=silo)


def _read_toml(path: str | PathLike[str]) -> dict[str, object]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
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


def _table(where: str, table: object, known: Sequence[str]) -> dict[str, float]:
    """A table of policy fields, each checked where the file's line can still be named."""
    if not isinstance(table, Mapping):
        raise SilodpError(f"{where} must be a table, not {table!r}: write epsilon = 3 below it.")
    _refuse_unknown(where, table, known, "field")
    return {field: _checked(field, value, where) for field, value in table.items()}


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


def _checked(field: str, value: object, where: str) -> float:
    """The value as a number in its range; text is refused, but for "inf" as an epsilon."""
    if field == "epsilon" and value == "inf":
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SilodpError(
            f"{where} {field} is {value!r}, which is not a number: write it without quotes, as in "
            f"{field} = {'3' if field == 'epsilon' else '1e-5'}."
        )
    if field == "epsilon" and not value > 0:
        raise SilodpError(
            f"{where} epsilon is {value}, but must be above 0: give one such as 3, or inf for no "
            "privacy."
        )
    if field == "delta" and not 0 < value < 1:
        raise SilodpError(
            f"{where} delta is {value}, but must lie between 0 and 1: give one such as 1e-5."
        )
    return float(value)
