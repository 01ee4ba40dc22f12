"""Score records: a part of each silo's training records that trials are scored with."""

from dataclasses import replace

import numpy as np

from silodp.data import coins
from silodp.data.federation import ExpectedCounts, Federation, Silo


def set_apart(federation: Federation, fraction: float) -> Federation:
    """Puts some of each silo's training records in the place of its test records.

    Each record's part goes by a coin that depends on its content: adding or removing a record
    leaves all others in their part (see `data.split`), and the record itself costs epsilon in
    training or in scores, not in both. The true counts of the parts are secret, the expected ones
    public. If no record happens to score, noise alone chooses.
    """

    def split_silo(silo: Silo) -> Silo:
        identities = coins.of_arrays(silo.train.x, silo.train.y)
        scored = coins.toss(identities, fraction, "score", silo.name, 0)
        trained = max(1, round((1 - fraction) * silo.public_count))
        return replace(
            silo,
            train=silo.train.take(np.flatnonzero(~scored)),
            test=silo.train.take(np.flatnonzero(scored)),
            expected=ExpectedCounts(trained, max(1, silo.public_count - trained), silo.max_count),
        )

    return replace(federation, silos=tuple(split_silo(silo) for silo in federation.silos))
