"""Records that trials are scored with: a part of each silo's own, never trained on."""

from dataclasses import replace

import numpy as np

from silodp.base.errors import SilodpError
from silodp.data import coins
from silodp.data.federation import ExpectedCounts, Federation, Silo


def set_apart(federation: Federation, fraction: float) -> Federation:
    """Some of each silo's training records, in the place of its test records.

    By a coin for each record, of what it holds: a record that comes to the silo, or goes, leaves
    all others in their part (see `datasets.split`), and itself pays for training or for scores, and
    not for both. How many records are in a part is a secret of theirs; what is expected is not. If
    none happens to score, noise chooses.
    """

    def parted(silo: Silo) -> Silo:
        identities = coins.of_arrays(silo.train.x, silo.train.y)
        scored = coins.toss(identities, fraction, "score", silo.name, 0)
        if scored.all():
            raise SilodpError(
                f"Silo {silo.name!r} has {silo.public_count} training records, of which "
                f"--score-fraction {fraction:g} leaves none to train on: lower it, or leave the "
                "silo out."
            )
        trained = max(1, round((1 - fraction) * silo.public_count))
        return replace(
            silo,
            train=silo.train.take(np.flatnonzero(~scored)),
            test=silo.train.take(np.flatnonzero(scored)),
            expected=ExpectedCounts(trained, max(1, silo.public_count - trained), silo.max_count),
        )

    return replace(federation, silos=tuple(parted(silo) for silo in federation.silos))
