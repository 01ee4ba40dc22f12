"""Records that trials are scored with: a part of each silo's own, never trained on."""

from dataclasses import replace

import numpy as np

from silodp.errors import SilodpError
from silodp.federation import Federation, Silo
from silodp.privacy.randomness import HostRandom


def set_apart(federation: Federation, fraction: float) -> Federation:
    """Some of each silo's training records, in the place of its test records.

    Of every so many places in a silo's list of records, one: which, follows from the silo's name
    alone. So a record that comes to the list, or goes, leaves all others in their part, and itself
    pays for training or for scores, and not for both.
    """
    every = round(1 / fraction)

    def parted(silo: Silo) -> Silo:
        records = len(silo.train)
        if records < every:
            raise SilodpError(
                f"Silo {silo.name!r} has {records} training records, of which every {every}th is "
                "to score trials with: raise --score-fraction (at most 0.5), or leave it out."
            )
        random = HostRandom(0, b"", f"score records {silo.name}")
        blocks = np.arange(0, records, every)
        scored = blocks + random.integers(every, len(blocks))
        is_scored = np.isin(np.arange(records), scored)
        return replace(
            silo,
            train=silo.train.take(np.flatnonzero(~is_scored)),
            test=silo.train.take(np.flatnonzero(is_scored)),
        )

    return replace(federation, silos=tuple(parted(silo) for silo in federation.silos))
