"""Whether a name that a page gives, such as silodp.Policy.epsilon, is one of the package."""

import importlib
from typing import Any


def is_in_package(name: str) -> bool:
    """A module, or what can be reached from one by attributes and fields."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        return all((found := _member(found, part)) is not None for part in parts[length:])
    return False


def _member(owner: Any, name: str) -> Any:
    """An attribute, or a field of a dataclass or named tuple."""
    if name in getattr(owner, "__dataclass_fields__", {}) or name in getattr(owner, "_fields", ()):
        return name
    return getattr(owner, name, None)
