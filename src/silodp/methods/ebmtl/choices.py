"""What of ebmtl can be left out."""

from typing import NamedTuple

from silodp.base.errors import SilodpError


class Choices(NamedTuple):
    """What can be left out, to see what it is worth (docs/ebmtl.md has the numbers).

    Attributes:
      average: 0 to use the last round's model in place of the mean over the last rounds.
      precision: 0 for a mean by the given weights alone.
      sampling: 0 to take no account of the records' being a sample.
      only: 1, 2 or 3 for one estimate in place of the mixture: by coordinate, by relations, or as
        it is.
    """

    average: float = 1.0
    precision: float = 1.0
    sampling: float = 1.0
    only: float = 0.0


def checked(choices: Choices) -> Choices:
    """Refuses a value that says nothing."""
    for name, value in choices._asdict().items():
        allowed = (0, 1, 2, 3) if name == "only" else (0, 1)
        if value not in allowed:
            raise SilodpError(
                f"--method-options: {name} of method 'ebmtl' is {value:g}: give one of "
                f"{', '.join(map(str, allowed))}."
            )
    return choices
