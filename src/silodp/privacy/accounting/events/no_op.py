"""No query at all: it costs nothing."""

from dp_accounting.dp_event import NoOpDpEvent

from silodp.privacy.accounting.events.kind import Kind

KIND = Kind(NoOpDpEvent, {}, parts=lambda event, values: ())
