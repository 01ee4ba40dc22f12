"""Several events, one after the other, each chosen with what came before in view."""

from dp_accounting.dp_event import ComposedDpEvent

from silodp.privacy.accounting.events.kind import EVENTS, Kind

KIND = Kind(
    ComposedDpEvent, {"events": EVENTS}, parts=lambda event, values: ((e, 1) for e in event.events)
)
