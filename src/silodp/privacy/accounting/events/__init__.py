"""Every event that has a price: one module each, with its check, its prices and its words.

An event says what was asked of a silo's records. Its module says what its parameters must be and
what one such mechanism costs: its losses and its Rényi divergences under both relations, the
Gaussian mechanism that bounds it, and how errors call it. What is not listed here has no price.
Events are dp_accounting's, or our own: BoundedRangeDpEvent, PureDpEvent and EitherDpEvent.
"""

import math
from collections import Counter
from typing import Any

from dp_accounting.dp_event import DpEvent

from silodp.base.errors import SilodpError, one_of
from silodp.privacy.accounting.events import (
    bounded_range,
    composed,
    either,
    gaussian,
    no_op,
    non_private,
    pure,
    repeat_and_select,
    sampled_gaussian,
    self_composed,
    truncated,
    zcdp,
)
from silodp.privacy.accounting.events.bounded_range import BoundedRangeDpEvent
from silodp.privacy.accounting.events.either import EitherDpEvent
from silodp.privacy.accounting.events.kind import (
    AN_EVENT,
    EVENTS,
    Kind,
    Number,
    checked,
    no_price,
)
from silodp.privacy.accounting.events.pure import PureDpEvent
from silodp.privacy.accounting.steps import Step, sort_key

__all__ = [
    "KINDS",
    "BoundedRangeDpEvent",
    "EitherDpEvent",
    "PureDpEvent",
    "from_json",
    "parameters_of",
    "steps_of",
    "to_json",
]

# By exact types: what a subclass means is not known here.
KINDS: dict[type[DpEvent], Kind] = {
    module.KIND.event: module.KIND
    for module in (
        *(no_op, non_private, gaussian, sampled_gaussian, truncated, bounded_range, pure, zcdp),
        *(repeat_and_select, self_composed, composed, either),
    )
}
_TYPES = {kind.__name__: kind for kind in KINDS}


def parameters_of(event: DpEvent) -> dict[str, Any]:
    """The parameters of one event by name, each checked; refuses an event that has no price."""
    kind = _kind_of(event)
    return checked(event, kind.event, kind.parameters)


def steps_of(event: DpEvent) -> tuple[Step, ...]:
    """The event as a sorted list of steps: equal for events that ask the same in another order.

    Steps that cost nothing are left out; an event without privacy is a step without noise.
    """
    counts: Counter[Step] = Counter()

    def walk(part: DpEvent, times: int) -> None:
        kind, values = _kind_of(part), parameters_of(part)
        if times == 0:
            return
        if kind.parts is not None:
            for inner, often in kind.parts(part, values):
                walk(inner, times * often)
        elif kind.step is not None:
            counts[kind.step(part, values, steps_of)] += times
        else:
            raise no_price(part)

    walk(event, 1)
    steps = [step.repeated(times) for step, times in counts.items() if not step.is_free]
    return tuple(sorted(steps, key=sort_key))


def _kind_of(event: DpEvent) -> Kind:
    kind = KINDS.get(type(event))
    if kind is None:
        raise no_price(event)
    return kind


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
    kind = _TYPES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise SilodpError(f"The event type {name!r} is unknown: give {one_of(str(name), _TYPES)}.")
    rules = KINDS[kind].parameters
    for field in data.keys() - rules.keys() - {"type"}:
        raise SilodpError(f"The event {name} has no field {field!r}: leave it out.")
    for field, rule in rules.items():
        if field not in data:
            raise SilodpError(f"The event {name} lacks its field {field!r}: give {rule}.")
    event = kind(**{field: _value_from(data[field], rule) for field, rule in rules.items()})
    parameters_of(event)
    return event


def _value_from(value: object, rule: Number | str) -> object:
    """The value as the event has it. What is ill-typed stays as it is, for the check to refuse."""
    if rule == AN_EVENT:
        return _event_from(value)
    if rule == EVENTS:
        return [_event_from(event) for event in value] if isinstance(value, list) else value
    return math.inf if value == "inf" else value
