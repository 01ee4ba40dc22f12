"""A federation of sites in folders, for tests: tables, site.toml, consent; a run in one process."""

from contextlib import ExitStack, closing, contextmanager

import numpy as np
import pandas as pd

from silodp.sites.consents import consent
from silodp.sites.coordinator import Coordinator
from silodp.sites.membership.coordinator import PROPOSAL_FILE
from silodp.sites.proposal import proposal_of
from silodp.sites.worker import SiteWorker

SITES = ("north", "south", "east")


def table(place, rows=60):
    """Records of a site: a line with a slope of its own, and a category."""
    rng = np.random.default_rng(place)
    x = rng.uniform(0, 10, (rows, 2))
    ward = rng.choice(["a", "b", "c"], rows)
    y = (1 + place) * x[:, 0] - x[:, 1] + 3 * (ward == "b") + rng.normal(0, 0.5, rows)
    frame = pd.DataFrame({"first": x[:, 0], "second": x[:, 1], "ward": ward, "unused": "?"})
    return frame.assign(y=np.clip(y, -20, 50), sick=np.where(y > np.median(y), "yes", "no"))


def schema(task="regression"):
    common = {
        "task": task,
        "bounds": {"first": [0, 10], "second": [0, 10]},
        "levels": {"ward": ["a", "b", "c"]},
    }
    if task == "regression":
        return common | {"target": "y", "range": [-20, 50]}
    return common | {"target": "sick", "classes": ["no", "yes"]}


def proposal(sites=SITES, task="regression", rules=None, seed=0, **training):
    training = {"rounds": 4, "batch_size": 16, "lr": 0.1, "weights": "uniform"} | training
    document = {
        "name": "test",
        "sites": list(sites),
        "training": training,
        "schema": schema(task),
        "rules": {"deadline": 30} | (rules or {}),
        "seed": seed,
    }
    return proposal_of("fed.toml", document)


def site_text(site, keys="os", policy="epsilon = 4\ndelta = 1e-3", data='path = "records.csv"'):
    return f'site = "{site}"\nkeys = "{keys}"\n\n[data]\n{data}\n\n[policy]\n{policy}\n'


def make_sites(folder, agreed, keys="os", **given):
    """A folder for each site, all of which consent; their workers by name."""
    folders = {}
    for place, site in enumerate(agreed.sites):
        own = folders[site] = folder / site
        own.mkdir(parents=True)
        table(place).to_csv(own / "records.csv", index=False)
        (own / "site.toml").write_text(site_text(site, keys, **given))
        consent(own, agreed)
    return folders


def make_coordinator(folder, agreed):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PROPOSAL_FILE).write_text(agreed.text)
    return folder


@contextmanager
def at_work(folders):
    """The sites' workers by name, closed afterwards."""
    with ExitStack() as stack:
        yield {
            site: stack.enter_context(closing(SiteWorker(folder)))
            for site, folder in folders.items()
        }


def run_in_one_process(fed, folders, agreed, until=None, change=lambda site, request, reply: reply):
    """All rounds (or the first so many), without an engine between."""
    coordinator = Coordinator(fed, agreed.job())
    with at_work(folders) as workers:
        for _ in range(1000):
            request = coordinator.next_request()
            if request is None or (until is not None and request.round >= until):
                return coordinator
            replies = {site: workers[site].answer(request) for site in coordinator.targets}
            changed = {site: change(site, request, reply) for site, reply in replies.items()}
            coordinator.receive({site: r for site, r in changed.items() if r is not None})
    raise AssertionError("the job does not end")
