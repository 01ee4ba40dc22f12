"""Events of this project beside dp_accounting's, and every event that has a price as plain JSON.

An event says what was asked of a silo's records, and carries no maths: the accountants do.
"""

import math
import operator
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, SupportsFloat

import attr
from dp_accounting.dp_event import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
    TruncatedSubsampledGaussianDpEvent,
    ZCDpEvent,
)

from silodp.base.errors import SilodpError, one_of


@attr.s(frozen=True, slots=True, auto_attribs=True)
class BoundedRangeDpEvent(DpEvent):
    """One selection by the exponential mechanism, or any other epsilon-bounded-range mechanism.

    Between neighbours, the log ratios of the probabilities of all outcomes lie in one interval of
    length epsilon (Durfee and Rogers 2019). That is more than epsilon-DP says, and so costs less.

    Attributes:
      epsilon: length of the interval, for the silo's own neighbouring relation.
    """

    epsilon: float

    def __attrs_post_init__(self):
        parameters_of(self)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PureDpEvent(DpEvent):
    """Any epsilon-DP mechanism, such as permute-and-flip, which is not epsilon-bounded-range.

    Attributes:
      epsilon: largest log ratio, for the silo's own neighbouring relation.
    """

    epsilon: float

    def __attrs_post_init__(self):
        parameters_of(self)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class EitherDpEvent(DpEvent):
    """Mechanisms on parts of the records: whatever a record is, it takes part in one of them only.

    Which part a record falls into must not depend on any record. Costs as much as the dearest.

    Attributes:
      events: what is asked of each part.
    """

    events: list[DpEvent]

    def __attrs_post_init__(self):
        parameters_of(self)


@dataclass(frozen=True)
class _Number:
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


_EVENT, _EVENTS = "an event", "a list of events"
_NOISE = _Number(0, math.inf)
_AMOUNT = _Number(0)
_CHANCE = _Number(0, 1)
_SHAPE = _Number(-0.999, math.inf)  # of a truncated negative binomial: above -1
_COUNT = _Number(0, math.inf, whole=True)
_SIZE = _Number(1, math.inf, whole=True)

_PARAMETERS: Mapping[type[DpEvent], Mapping[str, _Number | str]] = {
    NoOpDpEvent: {},
    NonPrivateDpEvent: {},
    GaussianDpEvent: {"noise_multiplier": _NOISE},
    PoissonSampledDpEvent: {"sampling_probability": _CHANCE, "event": _EVENT},
    TruncatedSubsampledGaussianDpEvent: {
        "dataset_size": _SIZE,
        "sampling_probability": _CHANCE,
        "truncated_batch_size": _COUNT,
        "noise_multiplier": _NOISE,
    },
    BoundedRangeDpEvent: {"epsilon": _AMOUNT},
    PureDpEvent: {"epsilon": _AMOUNT},
    ZCDpEvent: {"rho": _AMOUNT, "xi": _AMOUNT},
    RepeatAndSelectDpEvent: {"event": _EVENT, "mean": _Number(1), "shape": _SHAPE},
    SelfComposedDpEvent: {"event": _EVENT, "count": _COUNT},
    ComposedDpEvent: {"events": _EVENTS},
    EitherDpEvent: {"events": _EVENTS},
}
_TYPES = {known.__name__: known for known in _PARAMETERS}


def parameters_of(event: DpEvent) -> dict[str, Any]:
    """The parameters of one event by name, each checked; refuses an event that has no price."""
    # Exact types: what a subclass means is not known here.
    rules = _PARAMETERS.get(type(event))
    if rules is None:
        raise no_price(event)
    values = {}
    for name, rule in rules.items():
        given = getattr(event, name)
        if isinstance(rule, _Number):
            values[name] = rule.checked(given)
            right = values[name] is not None
        else:
            values[name] = given
            right = (
                isinstance(given, DpEvent)
                if rule == _EVENT
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


def to_json(event: DpEvent) -> dict[str, Any]:
    """The event as plain JSON values: its type, and its parameters by name.

    Numbers are exact; infinity, for which JSON has no number, is "inf".
    """
    return {"type": type(event).__name__} | {
        name: _plain(value) for name, value in parameters_of(event).items()
    }


def from_json(data: object) -> DpEvent:
    """The event that `to_json` wrote; anything else is refused."""
    try:
        return _event_from(data)
    except RecursionError:
        raise SilodpError("The event is nested too deeply: give a flat composition.") from None


def _plain(value: Any) -> Any:
    if isinstance(value, DpEvent):
        return to_json(value)
    if isinstance(value, list | tuple):
        return [to_json(event) for event in value]
    return "inf" if value == math.inf else value


def _event_from(data: object) -> DpEvent:
    if not isinstance(data, dict):
        raise SilodpError(
            f'The event {data!r} is no JSON object: give one such as {{"type": "NoOpDpEvent"}}.'
        )
    name = data.get("type")
    known = _TYPES.get(name) if isinstance(name, str) else None
    if known is None:
        raise SilodpError(f"The event type {name!r} is unknown: give {one_of(str(name), _TYPES)}.")
    rules = _PARAMETERS[known]
    for field in data.keys() - rules.keys() - {"type"}:
        raise SilodpError(f"The event {name} has no field {field!r}: leave it out.")
    for field, rule in rules.items():
        if field not in data:
            raise SilodpError(f"The event {name} lacks its field {field!r}: give {rule}.")
    event = known(**{field: _value_from(data[field], rule) for field, rule in rules.items()})
    parameters_of(event)
    return event


def _value_from(value: object, rule: _Number | str) -> object:
    """The value as the event has it. What is ill-typed stays as it is, for the check to refuse."""
    if rule == _EVENT:
        return _event_from(value)
    if rule == _EVENTS:
        return [_event_from(event) for event in value] if isinstance(value, list) else value
    return math.inf if value == "inf" else value
