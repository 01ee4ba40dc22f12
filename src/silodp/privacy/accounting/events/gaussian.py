"""A Gaussian mechanism on every record: one on a Poisson sample that takes them all.

Many of them are, exactly, one of less noise (see `merge_unsampled`), which has a closed form.
"""

from dp_accounting.dp_event import GaussianDpEvent

from silodp.privacy.accounting.events.kind import GAUSSIAN, Kind, charged_noise
from silodp.privacy.accounting.events.sampled_gaussian import Steps

KIND = Kind(
    GaussianDpEvent,
    GAUSSIAN,
    step=lambda event, values, steps_of: Steps(1.0, charged_noise(values), 1),
)
