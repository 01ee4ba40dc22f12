"""Who has no business here: sites of other authorities, other names, other code, other hosts."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress

import pytest
from site_processes import allow_all, running, wait_until

from silodp.base.errors import SilodpError
from silodp.sites.flare import jobs, processes
from silodp.sites.flare.kits import make_kits, unpack_kit
from silodp.sites.flare.processes import SITE_LOG, SITE_PID, start_site, stop

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
    port = json.loads((federation.fed / "server" / "startup" / "fed_server.json").read_text())
    port = int(port["servers"][0]["service"]["target"].split(":")[1])
    kit, *_ = make_kits(tmp_path / "other", "processes", "localhost", port, ["south"], "{}")
    unpack_kit(kit, tmp_path / "south" / "kit")
    gets_nowhere(tmp_path / "south", federation)


def test_anothers_certificate_gives_no_other_name(federation, tmp_path):
    """North's key and certificate under the name of south."""
    shutil.copytree(federation.sites["south"] / "kit" / "startup", tmp_path / "kit" / "startup")
    for name in ("client.crt", "client.key"):
        source = federation.sites["north"] / "kit" / "startup" / name
        shutil.copyfile(source, tmp_path / "kit" / "startup" / name)
    gets_nowhere(tmp_path, federation)


def test_a_class_that_is_not_silodps_is_refused_by_the_sites(federation, monkeypatch):
    """By a server that lets anything pass."""
    monkeypatch.setattr(processes, "harden_server", allow_all)
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
