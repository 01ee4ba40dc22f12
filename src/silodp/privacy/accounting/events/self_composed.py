"""One event several times.

Counts are multiplied in `steps_of` and nowhere else: dp_accounting loses some of them.
"""

from dp_accounting.dp_event import SelfComposedDpEvent

from silodp.privacy.accounting.events.kind import AN_EVENT, COUNT, Kind

KIND = Kind(
    SelfComposedDpEvent,
    {"event": AN_EVENT, "count": COUNT},
    parts=lambda event, values: ((event.event, values["count"]),),
)
