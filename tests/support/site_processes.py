"""A federation of real processes on this machine, for tests: kits, mutual TLS, server and sites."""

import json
import socket
import time
from contextlib import contextmanager

import psutil
from site_folders import SITES, schema, site_text, table

from silodp.privacy.policy import Policy
from silodp.sites.demo import let_in
from silodp.sites.federation_setup import progress_of, set_up_federation
from silodp.sites.flare.processes import SERVER_PID, SITE_PID, start_server, start_site, stop
from silodp.sites.membership.authority import open_authority
from silodp.sites.site_data import DataAtSite
from silodp.sites.site_files import _toml
from silodp.sites.site_setup import SiteSettings, consent_to, offered_proposal, set_up

PASSPHRASE = "four words drawn by lot"


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def fed_text(port, rounds, deadline, quorum, method, host="localhost"):
    lines = [
        'name = "processes"',
        f"sites = {_toml(list(SITES))}",
        f'[server]\nhost = "{host}"\nport = {port}',
        f'[training]\nmethod = "{method}"\nrounds = {rounds}\nbatch_size = 16\nlr = 0.1',
        'weights = "uniform"',
        f"[rules]\ndeadline = {deadline}\nquorum = {quorum}",
        "[schema]",
    ]
    for key, value in schema().items():
        if isinstance(value, dict):
            value = ", ".join(f"{name} = {_toml(own)}" for name, own in value.items())
            lines.append(f"{key} = {{{value}}}")
        else:
            lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines) + "\n"


class Processes:
    """The folders of a federation whose processes run."""

    def __init__(self, folder, rounds=10, deadline=6, quorum=2, method="ebmtl", host="localhost"):
        text = fed_text(free_port(), rounds, deadline, quorum, method, host)
        (folder / "fed.toml").write_text(text)
        made = set_up_federation(folder / "fed.toml", folder / "coordinator", PASSPHRASE)
        self.fed, self.proposal = made.folder, made.proposal
        authority = open_authority(self.fed, PASSPHRASE)
        self.sites = {}
        for place, (site, invitation) in enumerate(zip(SITES, made.invitations, strict=True)):
            own = folder / f"at-{site}"
            own.mkdir()
            table(place).to_csv(own / "records.csv", index=False)
            data = DataAtSite(path=own / "records.csv")
            settings = SiteSettings(data, Policy(4.0, 1e-3, 1000.0, 1e-2))
            self.sites[site] = set_up(invitation, own / site, settings)
            consent_to(self.sites[site], offered_proposal(self.sites[site], None))
            let_in(self.fed, authority, self.sites[site])

    def use_keys(self, keys):
        """Of the operating system, or for testing."""
        for site, folder in self.sites.items():
            path = folder.parent / "records.csv"
            policy = "epsilon = 4\ndelta = 1e-3\nlifetime_epsilon = 1000\nlifetime_delta = 1e-2"
            text = site_text(site, keys, data=f"path = {_toml(str(path))}", policy=policy)
            (folder / "site.toml").write_text(text)

    def start(self):
        start_server(self.fed)
        for folder in self.sites.values():
            assert start_site(folder)

    def stop(self):
        for folder in self.sites.values():
            stop(folder / SITE_PID)
        stop(self.fed / SERVER_PID)


@contextmanager
def running(folder, **options):
    federation = Processes(folder, **options)
    try:
        federation.start()
        yield federation
    finally:
        federation.stop()


def processes_of(folder, jobs):
    """Those of a site (or of the server): its job processes, or its parent."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        ours = any(word.startswith(("nvflare.", "silodp.sites.flare.")) for word in words)
        if ours and any(str(folder.resolve()) in word for word in words):
            is_job = any(word.endswith(("site_job", "runner_process")) for word in words)
            if is_job == jobs:
                found.append(process)
    return found


def wait_for_round(fed, job, number, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        told = progress_of(fed, job)
        if told is not None and told["round"] >= number:
            return
        time.sleep(0.02)
    raise AssertionError(f"round {number} is not reached")


def allow_all(server, store, removed=()):
    rights = {"format_version": "1.0", "permissions": {"project_admin": "any"}}
    (server / "local" / "authorization.json").write_text(json.dumps(rights))


def wait_until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.5)
