"""What something releases, as it is written in a ledger, and what it takes of a lifetime."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dp_accounting import DpEvent

from silodp.base.errors import SilodpError
from silodp.privacy.accounting import events
from silodp.privacy.ledger import lifetime
from silodp.privacy.ledger.chain import canonical
from silodp.privacy.ledger.lifetime import Lifetime

# What sums of shares may be off by.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Cost:
    """What something releases, as it is written in a ledger.

    Attributes:
      event: the event as canonical JSON.
      overflow: the chance that any of its draws does not fit its slots.
    """

    event: str
    overflow: float

    def taken(self, of: Lifetime) -> float:
        """What it takes of the filter's budget."""
        return _taken(self.event, of)


def cost_of(body: Mapping[str, Any]) -> Cost:
    """What a body says, once its event is known to mean the same when read back."""
    text, overflow = canonical(body["event"]), body["overflow"]
    if type(overflow) is not float or not 0 <= overflow <= 1:
        raise SilodpError(f"overflow is {overflow!r}, which is no chance.")
    if not _means_what_it_says(text):
        raise SilodpError(f"the event {text} does not mean what it says.")
    return Cost(text, overflow)


def event_text(event: DpEvent) -> str:
    """The event as it is written in a ledger."""
    return canonical(events.to_json(event))


@functools.lru_cache(maxsize=2**16)
def _means_what_it_says(text: str) -> bool:
    """Ledgers are read several times in a run, and silos often share their events."""
    return event_text(read_event(text)) == text


@functools.lru_cache(maxsize=2**12)
def read_event(text: str) -> DpEvent:
    """The event that `event_text` wrote; silos often share theirs."""
    return events.from_json(json.loads(text))


@functools.lru_cache(maxsize=2**16)
def _taken(text: str, of: Lifetime) -> float:
    return lifetime.cost(read_event(text), of)
