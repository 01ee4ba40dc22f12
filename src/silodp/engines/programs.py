"""Compiled programs, kept for what follows: parts of a sweep differ in numbers alone."""

from collections.abc import Callable, Hashable
from typing import Any

# A sweep goes on to the next program when it is done with one; more would only take memory.
MOST = 16


class Programs:
    """The latest programs of one session.

    It is handed on, and not kept in the module: whoever changes what a program is made of (a test
    that plants a fault, say) must not be given one of before.
    """

    def __init__(self):
        self._kept: dict[Hashable, Any] = {}

    def get(self, key: Hashable, build: Callable[[], Any]) -> Any:
        """The program of that key, built unless it is kept."""
        if key not in self._kept:
            if len(self._kept) >= MOST:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = build()
        return self._kept[key]
