"""What is known of a kind of events: its parameters, and how it becomes steps."""

import math
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, SupportsFloat

from dp_accounting.dp_event import DpEvent

from silodp.base.errors import SilodpError
from silodp.privacy.accounting.steps import Step

# More noise is charged as this, so that its square stays a float.
_MOST_NOISE = 1e12

Values = Mapping[str, Any]
"""The parameters of an event by name, each checked."""

StepsOf = Callable[[DpEvent], tuple[Step, ...]]


@dataclass(frozen=True)
class Number:
    """What a parameter that is a number must be."""

    least: float
    most: float = sys.float_info.max  # infinity, where that has a meaning
    whole: bool = False

    def checked(self, value: object) -> float | int | None:
        """The number, or nothing where `value` is not such a number."""
        if isinstance(value, bool):
            return None
        try:
            # A string of digits is no number: only what calls itself one is taken.
            if self.whole:
                number = operator.index(value)  # type: ignore[arg-type]
            else:
                number = float(value) if isinstance(value, SupportsFloat) else math.nan
        except (TypeError, OverflowError):
            return None
        return number if self.least <= number <= self.most else None

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if self.most <= 1:
            return f"{kind} from {self.least:g} to {self.most:g}"
        return f"{kind}, {self.least:g} or more" + ("" if self.most == math.inf else " and finite")


AN_EVENT, EVENTS = "an event", "a list of events"
NOISE = Number(0, math.inf)
AMOUNT = Number(0)
CHANCE = Number(0, 1)
COUNT = Number(0, math.inf, whole=True)
GAUSSIAN = {"noise_multiplier": NOISE}

Rules = Mapping[str, Number | str]


@dataclass(frozen=True)
class Kind:
    """A kind of events; it is either one mechanism or made of other events.

    Attributes:
      event: their type, and that very type: what a subclass means is not known here.
      parameters: what must be of each parameter.
      step: the mechanism as a step, asked once.
      parts: the events that it is made of, each with how often.
    """

    event: type[DpEvent]
    parameters: Rules
    step: Callable[[Any, Values, StepsOf], Step] | None = None
    parts: Callable[[Any, Values], Iterable[tuple[DpEvent, int]]] | None = None


def checked(event: DpEvent, kind: type[DpEvent], rules: Rules) -> dict[str, Any]:
    """The parameters of an event of that very type by name, each checked; any other is refused."""
    if type(event) is not kind:
        raise no_price(event)
    values = {}
    for name, rule in rules.items():
        given = getattr(event, name)
        if isinstance(rule, Number):
            values[name] = rule.checked(given)
            right = values[name] is not None
        else:
            values[name] = given
            right = (
                isinstance(given, DpEvent)
                if rule == AN_EVENT
                else isinstance(given, list | tuple) and all(isinstance(e, DpEvent) for e in given)
            )
        if not right:
            raise SilodpError(f"The event {event} has {name} {given!r}: give {rule}.")
    return values


def no_price(event: object) -> SilodpError:
    """The refusal of an event that no accountant here understands."""
    return SilodpError(
        f"The event {event} has no price here: ask only Gaussian mechanisms (with or without "
        "Poisson sampling), selections, pure or zCDP mechanisms, repeat-and-select, and "
        "compositions of them."
    )


def charged_noise(values: Values) -> float:
    """The noise multiplier that is charged, which is never more than there is."""
    noise = values["noise_multiplier"]
    return noise if noise == math.inf else min(noise, _MOST_NOISE)
