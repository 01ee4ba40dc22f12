"""What a coordinator asks of a site, and what the site makes of it."""

from contextlib import closing
from dataclasses import replace

import numpy as np
from site_folders import make_coordinator, proposal

from silodp.privacy.ledger.storage import read_ledger
from silodp.sites.coordinator import Coordinator
from silodp.sites.worker import SiteWorker

AGREED = proposal(method="mrmtl", rounds=3)


def first_request(tmp_path, agreed=AGREED, kind="train", number=0):
    coordinator = Coordinator(make_coordinator(tmp_path / "fed", agreed), agreed.job())
    coordinator._phase = "train"
    request = coordinator.next_request()
    assert request is not None
    return replace(request, kind=kind, round=number)


def asked(folder, *requests):
    with closing(SiteWorker(folder)) as worker:
        return [worker.answer(request) for request in requests]


def kinds(folder):
    return [entry.kind for entry in read_ledger(folder / "ledger", "north").entries]


def same(one, other):
    return len(one.arrays) == len(other.arrays) and all(
        np.array_equal(a, b) for a, b in zip(one.arrays, other.arrays, strict=True)
    )
