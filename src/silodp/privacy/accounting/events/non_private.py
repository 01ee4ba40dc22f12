"""A release without any privacy: a Gaussian mechanism without noise, which has no finite price."""

from dp_accounting.dp_event import NonPrivateDpEvent

from silodp.privacy.accounting.events.kind import Kind
from silodp.privacy.accounting.events.sampled_gaussian import Steps

KIND = Kind(NonPrivateDpEvent, {}, step=lambda event, values, steps_of: Steps(1.0, 0.0, 1))
