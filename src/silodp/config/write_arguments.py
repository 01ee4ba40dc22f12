"""Writes `run_arguments.py`: the options of a run as keyword arguments, for editors.

python -m silodp.config.write_arguments

A type checker reads signatures without running anything, so they must stand in a file. A test
compares it with the declarations.
"""

import textwrap
import types
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from silodp.config import choices
from silodp.config.declared import Option
from silodp.config.options import OPTIONS, tagged

PLACE = Path(__file__).with_name("run_arguments.py")
_HEAD = '''"""The options of a run as keyword arguments, for completion and type checkers.

Generated from the declarations in `options.py` and `data_options.py`; write it again with
python -m silodp.config.write_arguments
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from silodp.config.choices import (
'''
_CLASSES = (
    (
        "_Arguments(TypedDict, total=False)",
        "Arguments of runs and sweeps alike.",
    ),
    (
        "RunArguments(_Arguments, total=False)",
        "Arguments of `silodp.run`; options that are left out fit the data set.",
    ),
    (
        "SweepArguments(_Arguments, total=False)",
        "Arguments of `silodp.sweep`, where some options take lists of values.",
    ),
)


def written() -> str:
    """The text of `run_arguments.py`."""
    names = sorted({part for option in OPTIONS.values() for part in _choices_of(option)})
    imports = "".join(f"    {name},\n" for name in names) + ")\n"
    swept = [OPTIONS[name] for name in tagged("swept")]
    alike = [option for option in OPTIONS.values() if option not in swept]
    bodies = (
        "".join(map(_entry, alike)),
        "".join(map(_entry, swept)),
        "".join(_entry(option, lists=True) for option in swept),
    )
    classes = (
        f'\n\nclass {head}:\n    """{about}"""\n\n{body}'
        for (head, about), body in zip(_CLASSES, bodies, strict=True)
    )
    return _HEAD + imports + "".join(classes)


def _entry(option: Option, lists: bool = False) -> str:
    about = textwrap.fill(f'"""{option.help}"""', 96, break_on_hyphens=False)
    return f"    {option.name}: {_type_of(option, lists)}\n{textwrap.indent(about, '    ')}\n"


def _type_of(option: Option, lists: bool) -> str:
    parts = [_name_of(part) for part in _parts(option.hint)]
    if "Path" in parts and "str" not in parts:
        parts.insert(parts.index("Path") + 1, "str")
    if lists:
        values = " | ".join(part for part in parts if part != "None")
        parts.insert(len(parts) - parts.count("None"), f"Sequence[{values}]")
    return " | ".join(parts)


def _choices_of(option: Option) -> list[str]:
    return [name for part in _parts(option.hint) if (name := _choice(part)) is not None]


def _parts(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _choice(hint: Any) -> str | None:
    """The name of a Literal in `choices.py`."""
    return next((n for n, v in vars(choices).items() if v == hint and get_args(v)), None)


def _name_of(hint: Any) -> str:
    if hint is type(None):
        return "None"
    if (name := _choice(hint)) is not None:
        return name
    inside = ", ".join(map(_name_of, get_args(hint)))
    return f"{hint.__name__}[{inside}]" if inside else hint.__name__


if __name__ == "__main__":
    PLACE.write_text(written(), encoding="utf-8")
