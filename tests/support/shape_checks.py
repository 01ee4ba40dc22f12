"""Shapes in types, checked in every call while tests run.

`tests/conftest.py` names the packages whose types say shapes.
"""

from collections.abc import Callable
from typing import Any, get_args

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, PyTree

# A whole number will do where a type says float, as everywhere in Python.
_checked = beartype(conf=BeartypeConf(is_pep484_tower=True))


def checker(function: Callable) -> Callable:
    """The function with the types that say shapes checked in each call.

    The others are pyright's: tests and audits put objects of their own in the place of ours.
    """
    said = function.__annotations__
    if not any(map(_says_shapes, said.values())):
        return function
    function.__annotations__ = {
        name: kind if _says_shapes(kind) else Any for name, kind in said.items()
    }
    return _checked(function)


def _says_shapes(kind: Any) -> bool:
    if isinstance(kind, type) and issubclass(kind, AbstractArray):
        return True
    # Pytrees of arrays have a class each; their arrays are no arguments of a generic type.
    if isinstance(kind, type(PyTree)) and kind is not PyTree:
        return True
    return any(map(_says_shapes, get_args(kind)))
