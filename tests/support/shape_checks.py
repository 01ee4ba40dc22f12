"""Shapes in types, checked in every call while tests run.

`tests/conftest.py` names the packages whose types say shapes.
"""

from collections.abc import Callable

from beartype import BeartypeConf, beartype

# A whole number will do where a type says float, as everywhere in Python.
_checked = beartype(conf=BeartypeConf(is_pep484_tower=True))


def checker(function: Callable) -> Callable:
    """The function with its types checked in each call.

    Dataclasses check their own fields, with sentences that tests ask for: theirs comes first.
    """
    return function if function.__name__ == "__init__" else _checked(function)
