"""The error that a user can cause and correct, and words for its message."""

from collections.abc import Iterable
from difflib import SequenceMatcher

_ALIKE, _AS_ALIKE, _MOST_MEANT = 0.6, 0.15, 3
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


def _likeness(name: str, other: str) -> float:
    one, two = (text.lower().lstrip("-") for text in (name, other))  # all options begin alike
    return SequenceMatcher(None, one, two).ratio()


def by_closeness(name: str, names: Iterable[str]) -> list[str]:
    """The names, the one most like `name` first."""
    return sorted(names, key=lambda other: -_likeness(name, other))


def alike(name: str, known: Iterable[str]) -> list[str]:
    """The few known names that may be a misspelled one's, the likeliest first."""
    likeness = {other: _likeness(name, other) for other in by_closeness(name, known)}
    least = max(_ALIKE, max(likeness.values(), default=0) - _AS_ALIKE)
    return [other for other, how_much in likeness.items() if how_much >= least][:_MOST_MEANT]


def meant(name: object, known: Iterable[str], most: int = 5) -> str:
    """The end of an error about an unknown name: what was meant, or else `most` that are known."""
    known = list(known)
    if close := alike(str(name), known):
        return f"did you mean {' or '.join(map(repr, close))}?"
    some = ", ".join(map(repr, known[:most]))
    return f"known are {some}{f' and {len(known) - most:,} more' if len(known) > most else ''}."


def one_of(name: str, names: Iterable[str]) -> str:
    """The names for an error message, the one most like `name` first: "'a', 'b' or 'c'"."""
    quoted = [repr(other) for other in by_closeness(name, names)]
    if len(quoted) > _MOST:
        return f"{', '.join(quoted[:_SHOWN])} or one of {len(quoted) - _SHOWN} more"
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"
