"""A finding about an installation."""

from typing import Literal, NamedTuple

State = Literal["fine", "absent", "problem"]
"""fine; absent but optional; or a problem with something that silodp needs."""


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
      part: what it belongs to: packages, machine, data, ...
      name: what was looked at.
      found: what was found, in words.
      state: whether that is a problem.
      remedy: what to do about it, if anything.
    """

    part: str
    name: str
    found: str
    state: State = "fine"
    remedy: str | None = None
