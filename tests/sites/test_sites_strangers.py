"""Who has no business here: sites of other authorities, other names, other code, other hosts."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress

import pytest
from site_processes import PASSPHRASE, allow_all, running, wait_until

from silodp.base.errors import SilodpError
from silodp.sites.connection import connection_at
from silodp.sites.flare import jobs, kits, processes
from silodp.sites.flare.processes import SITE_LOG, SITE_PID, start_site, stop
from silodp.sites.health import federation_problems, site_problems
from silodp.sites.membership.authority import make_authority, open_authority
from silodp.sites.membership.coordinator import approve, read_request
from silodp.sites.membership.documents import Invitation
from silodp.sites.membership.members import read_members
from silodp.sites.membership.site import STARTUP, _read_key, join_with, renew, take_certificate

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with running(tmp_path_factory.mktemp("federation")) as found:
        yield found


def gets_nowhere(folder, federation):
    """A site that is not let in, while those that belong stay."""
    try:
        with suppress(SilodpError):  # its process may end
            assert not start_site(folder, wait=12)
    finally:
        stop(folder / SITE_PID)
    assert jobs.registered(federation.fed) == ["east", "north", "south"]


def test_a_certificate_of_another_authority_gets_nowhere(federation, tmp_path):
    """The same name, the same server, everything but the authority."""
    other = make_authority(tmp_path / "other", "processes", PASSPHRASE)
    at = read_members(federation.fed).server
    join_with(Invitation(other.federation, "south", other.root_pem, at, "", 1), tmp_path / "south")
    startup = tmp_path / "south" / STARTUP
    key = _read_key(startup / "client.key").public_key()
    (startup / "client.crt").write_text(other.certificate("south", key))
    gets_nowhere(tmp_path / "south", federation)


def test_anothers_certificate_gives_no_other_name(federation, tmp_path):
    """North's key and certificate under the name of south."""
    shutil.copytree(federation.sites["south"] / "kit" / "startup", tmp_path / "kit" / "startup")
    for name in ("client.crt", "client.key"):
        source = federation.sites["north"] / "kit" / "startup" / name
        shutil.copyfile(source, tmp_path / "kit" / "startup" / name)
    shutil.copyfile(federation.sites["south"] / "membership.json", tmp_path / "membership.json")
    gets_nowhere(tmp_path, federation)


def test_a_second_machine_with_the_same_key_gets_nowhere(federation, tmp_path):
    """Both sides name it; the site that was there goes on."""
    own = federation.sites["south"]
    shutil.copytree(own / "kit" / "startup", tmp_path / "kit" / "startup")
    shutil.copyfile(own / "membership.json", tmp_path / "membership.json")
    gets_nowhere(tmp_path, federation)
    assert "somebody is connected" in connection_at(tmp_path).trouble
    wait_until(lambda: connection_at(own).second is not None)
    assert any("another machine" in one.words for one in site_problems(own, running=True))
    problems = federation_problems(federation.fed, running=True)
    assert any("another machine" in one.words for one in problems)


def test_a_replaced_key_and_a_removed_site_are_shut_out(federation, tmp_path):
    """At the next sign of life, and for good; nobody else is touched."""
    own = federation.sites["east"]
    shutil.copytree(own / "kit" / "startup", tmp_path / "kit" / "startup")
    shutil.copyfile(own / "membership.json", tmp_path / "membership.json")
    authority = open_authority(federation.fed, PASSPHRASE)
    request = read_request(federation.fed, renew(own), replace=True)
    take_certificate(own, approve(federation.fed, authority, request, replace=True))
    wait_until(lambda: jobs.registered(federation.fed) == ["north", "south"])
    stop(own / SITE_PID)
    assert start_site(own)
    stop(own / SITE_PID)
    with suppress(SilodpError):
        assert not start_site(tmp_path, wait=12)
    stop(tmp_path / SITE_PID)
    assert "not let in with this key" in connection_at(tmp_path).trouble
    assert start_site(own)
    wait_until(lambda: jobs.registered(federation.fed) == ["east", "north", "south"])


def test_a_class_that_is_not_silodps_is_refused_by_the_sites(federation, monkeypatch):
    """By a server that lets anything pass."""
    monkeypatch.setattr(kits, "harden_server", allow_all)
    stop(federation.fed / processes.SERVER_PID)
    processes.start_server(federation.fed)
    wait_until(lambda: len(jobs.registered(federation.fed)) == 3)
    written = jobs._write

    def other_class(path, value):
        if path.name == "config_fed_client.json":
            executor = "nvflare.app_common.executors.client_api_launcher_executor"
            executor += ".ClientAPILauncherExecutor"
            value["executors"][0]["executor"] = {"path": executor, "args": {"pipe_id": "pipe"}}
        written(path, value)

    monkeypatch.setattr(jobs, "_write", other_class)
    flare_job = jobs.submit(federation.fed, federation.proposal.job(7), ["north"])
    wait_until(lambda: "FINISHED" in jobs.status(federation.fed, flare_job), 120)
    assert jobs.status(federation.fed, flare_job) != jobs.COMPLETED
    log = (federation.sites["north"] / SITE_LOG).read_text()
    assert re.search("not (authorized|allowed)|NotAuthorized", log), log[-2000:]
    assert not (federation.sites["north"] / "ledger").exists()


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_nothing_connects_to_another_machine(tmp_path):
    """All processes of a whole run, from the first to the last."""
    trace = tmp_path / "trace"
    command = [sys.executable, "-c", "from silodp.cli import main; main()"]
    asked = ["federation", "demo", "--sites", "2", "--rounds", "3", "--out", str(tmp_path / "out")]
    subprocess.run(
        ["strace", "-f", "-qq", "-e", "trace=connect,sendto", "-o", trace, *command, *asked],
        check=True,
        capture_output=True,
        env=os.environ | {"COLUMNS": "200"},
    )
    addresses = set(
        re.findall(r'inet_addr\("([^"]+)"\)|inet_pton\(AF_INET6, "([^"]+)"', trace.read_text())
    )
    found = {v4 or v6 for v4, v6 in addresses}
    assert "127.0.0.1" in found or "::1" in found
    # FLARE asks a datagram socket which address it would have; that sends nothing.
    assert found <= {"127.0.0.1", "::1", "::ffff:127.0.0.1", "10.255.255.255"}, found
