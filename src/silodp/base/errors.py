"""The error that a user can cause and correct, and words for its message."""

from collections.abc import Iterable
from difflib import SequenceMatcher

_MOST, _SHOWN = 40, 10  # names that are all told; of more, so many


class SilodpError(ValueError):
    """An error in the user's input: one sentence that names place, field and remedy.

    The command line prints it without a traceback and ends with exit code 2.

    Examples:
      >>> try:
      ...     silodp.run(data="synthetic", epsilon=3, lr="fast")
      ... except silodp.SilodpError as error:
      ...     print(error)
      --lr is 'fast': give a number.
    """


class DataMissingError(SilodpError):
    """An error where a data set's files are missing; it says how to get them."""


def by_closeness(name: str, names: Iterable[str]) -> list[str]:
    """The names, the one most like `name` first."""

    def unlikeness(other: str) -> float:
        return -SequenceMatcher(None, name.lower(), other.lower()).ratio()

    return sorted(names, key=unlikeness)


def one_of(name: str, names: Iterable[str]) -> str:
    """The names for an error message, the one most like `name` first: "'a', 'b' or 'c'"."""
    quoted = [repr(other) for other in by_closeness(name, names)]
    if len(quoted) > _MOST:
        return f"{', '.join(quoted[:_SHOWN])} or one of {len(quoted) - _SHOWN} more"
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"
