"""Declarations of options: type, bounds, help, group and tags, in one place.

An option is a field of a frozen dataclass. The command line, files of options, Python signatures,
the sites' proposal, sweeps and results use its declaration; none of them lists options.
"""

import dataclasses
import math
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from silodp.base.errors import SilodpError

LARGEST = 1e30
"""The largest number for models, which are in single precision."""

Group = Literal["Data", "Your own data", "Method", "Privacy", "Shares of epsilon", "Training"]
GROUPS: tuple[Group, ...] = get_args(Group)
"""The panels of help texts, in this order."""

Tag = Literal[
    "agreed",  # part of the sites' proposal
    "agreed_if_given",  # left out of a proposal where it is not given
    "site_own",  # each site's own: never part of a proposal
    "policy",  # part of the policy of a silo without a policy file
    "advised",  # used by advice, besides the options of data
    "checked",  # used by `data check`, besides the options of data
    "records",  # it decides which records a silo has, and for what
    "of_method",  # only some methods use it
    "of_training",  # methods of few messages do not use it
    "of_selections",  # only methods with private selections use it
    "swept",  # it may differ between the runs of one compiled program
    "tuned",  # a hyperparameter: settings that differ in such options alone are compared
    "single",  # a sweep has one value of it, which its table does not show
    "outside",  # seeds, or where things are kept: not part of a run's identity
    "named_file",  # it may name a file whose content changes the results
    "sent_file",  # such a file is read when a run is prepared, on any machine
]


@dataclass(frozen=True)
class Bounds:
    """The numbers that an option takes.

    Attributes:
      above: greater than this.
      least: at least this.
      below: less than this.
      most: at most this.
      why: the reason for `most`.
      single_precision: at most `LARGEST`.
      infinite: with `single_precision`, infinity is allowed too; a method may still refuse it.
    """

    above: float = -math.inf
    least: float = -math.inf
    below: float = math.inf
    most: float = math.inf
    why: str = ""
    single_precision: bool = False
    infinite: bool = False

    @property
    def any(self) -> bool:
        """Whether there are no bounds, as where the data set checks the number."""
        return self == Bounds()

    def hold(self, value: Any) -> bool:
        """Whether the number is within the bounds, single precision aside; NaN never is."""
        low = value > self.above and value >= self.least
        return bool(low and (value < self.below or self.below == math.inf) and value <= self.most)

    def remedy(self, value: Any) -> str:
        """The remedy for a number that is not within the bounds."""
        if self.most < math.inf and self.why:
            if value > self.most:
                return f"at most {self.most:g}; {self.why}"
        elif self.most < math.inf:
            return f"a number from {self.least:g} to {self.most:g}"
        elif self.below < math.inf:
            low = (
                f"above {self.above:g} and" if self.above > -math.inf else f"from {self.least:g} to"
            )
            return f"a number {low} below {self.below:g}"
        if self.least > -math.inf and value > self.above:
            return f"a number of at least {self.least:g}"
        low = f"above {self.above:g}" if self.above > -math.inf else f"of at least {self.least:g}"
        return f"a number {low}"


@dataclass(frozen=True)
class Option:
    """The declaration of one option.

    Attributes:
      name: in Python and in files; the command line has its flag.
      default: its default; None where the value depends on the data, or where there is none.
      hint: its annotated type.
      help: one sentence.
      group: the panel of help texts that it is in.
      basic: whether it is on the first screen of help.
      tags: what it takes part in.
      bounds: the numbers that it takes.
      needs: an option without which (at its default) this one does nothing.
      remedy: the remedy for a value that is not text; None where any value is allowed.
      word: its name in a short table.
      unsaid: the value that such a table leaves out.
    """

    name: str
    default: Any
    hint: Any
    help: str
    group: Group
    basic: bool
    tags: frozenset[Tag]
    bounds: Bounds
    needs: str | None
    remedy: str | None
    word: str | None
    unsaid: Any

    @property
    def flag(self) -> str:
        """Its flag on the command line."""
        return flag(self.name)

    @cached_property
    def kind(self) -> type:
        """The main type: float of `float | None`, str of a Literal, Path of `Path | Mapping`."""
        hint = _without_none(self.hint)[0]
        return str if get_origin(hint) is Literal else hint

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """The words that it takes; empty if it is not limited to some."""
        hint = _without_none(self.hint)[0]
        return get_args(hint) if get_origin(hint) is Literal else ()

    @cached_property
    def _takes_paths(self) -> bool:
        takes = _without_none(self.hint)
        return Path in takes and str not in takes

    def converted(self, value: Any) -> Any:
        """The value in the option's own type, such as a Path for text."""
        if isinstance(value, str) and self._takes_paths:
            return Path(value)
        if isinstance(value, Mapping):  # of any kind
            return dict(value)
        return value

    def parted(self, value: Any) -> Any:
        """The value, as a list where it is text that stands for one, separated by commas."""
        if isinstance(value, str) and Sequence in _without_none(self.hint):
            return [part.strip() for part in value.split(",")]
        return value

    def check(self, value: Any) -> None:
        """Refuses a value that the declaration does not allow."""
        if value is None:
            return
        if self.choices and value not in self.choices:
            raise self._refusal(repr(value), f"choose one of {', '.join(self.choices)}")
        if self.remedy is not None and not isinstance(value, str):
            raise self._refusal(repr(value), self.remedy)
        if self.kind not in (int, float) or self.bounds.any:
            return
        if not _is_number(value, whole=self.kind is int):
            kind = "a whole number" if self.kind is int else "a number"
            raise self._refusal(repr(value), f"give {kind}")
        number: Any = value  # or one of NumPy
        if not self.bounds.hold(number):
            raise self._refusal(number, f"give {self.bounds.remedy(number)}")
        infinite = self.bounds.infinite and number == math.inf
        if self.bounds.single_precision and number > LARGEST and not infinite:
            raise self._refusal(value, f"give a number below {LARGEST:g}")

    def _refusal(self, shown: Any, remedy: str) -> SilodpError:
        return SilodpError(f"{self.flag} is {shown}: {remedy}.")


def option(
    default: Any,
    help: str,
    *,
    group: Group,
    basic: bool = False,
    tags: set[Tag] | frozenset[Tag] = frozenset(),
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
    why: str = "",
    single_precision: bool = False,
    infinite: bool = False,
    needs: str | None = None,
    remedy: str | None = None,
    word: str | None = None,
    unsaid: Any = None,
) -> Any:
    """Declares an option, as the default of a dataclass field; see `Option` and `Bounds`."""
    about = {
        "help": help,
        "group": group,
        "basic": basic,
        "tags": frozenset(tags),
        "bounds": Bounds(above, least, below, most, why, single_precision, infinite),
        "needs": needs,
        "remedy": remedy,
        "word": word,
        "unsaid": unsaid,
    }
    return dataclasses.field(default=default, metadata={"option": about})


@cache
def options_of(declaring: type) -> dict[str, Option]:
    """The options that a dataclass declares, by name."""
    hints = get_type_hints(declaring)
    return {
        field.name: Option(name=field.name, default=field.default, hint=hints[field.name], **about)
        for field, about in _declared(declaring)
    }


def _declared(declaring: type) -> Iterator[tuple[dataclasses.Field, dict[str, Any]]]:
    for field in dataclasses.fields(declaring):
        if (about := field.metadata.get("option")) is not None:
            yield field, about


def listed(choices: Any) -> str:
    """The words of a Literal, for a help text."""
    return ", ".join(get_args(choices))


def flag(name: str) -> str:
    """An option's flag on the command line."""
    return "--" + name.replace("_", "-")


def _without_none(hint: Any) -> tuple[Any, ...]:
    """The types of a union without None; generic types (but Literal) without parameters."""
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return tuple(
        part if get_origin(part) in (None, Literal) else get_origin(part)
        for part in parts
        if part is not type(None)
    )


def _is_number(value: Any, whole: bool) -> bool:
    kinds: tuple[type, ...] = (int,) if whole else (int, float)
    if not isinstance(value, kinds):
        import numpy as np  # imported late: the command line's help must be fast

        kinds = (np.integer,) if whole else (np.integer, np.floating)
    return isinstance(value, kinds) and not isinstance(value, bool)
