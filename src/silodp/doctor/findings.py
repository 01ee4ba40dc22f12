"""What a look at an installation comes to."""

from typing import Literal, NamedTuple

State = Literal["fine", "absent", "problem"]
"""Fine; not here, which matters to those alone who want it; or needed, and wrong."""


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
      part: what it belongs to: packages, machine, data, ...
      name: what was looked at.
      found: what was found, in words.
      state: whether that is as it should be.
      remedy: what to do, where there is something to do.
    """

    part: str
    name: str
    found: str
    state: State = "fine"
    remedy: str | None = None
