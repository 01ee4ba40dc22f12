"""The FLARE server and a site's FLARE client as processes: started, watched and stopped.

The scripts in a kit are not run: whoever made the kit could have written anything there. What
they would start is started from here.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import psutil

from silodp.base.documents import json_of
from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.sites.connection import BEAT, CONNECTIONS, SITE_UP, connection_at
from silodp.sites.flare.hardening import ORG, harden_site, rotate
from silodp.sites.flare.kits import admin_port_of, configure_server, configure_site
from silodp.sites.membership.documents import certificate_of
from silodp.sites.membership.members import read_members
from silodp.sites.membership.site import check_certificate_at, read_membership, why_not_valid
from silodp.sites.proposal import ANYWHERE, LOOPBACK

SERVER_PID, SERVER_LOG = "server.pid", "server.log"
SITE_PID, SITE_LOG = "site.pid", "site.log"
_REMEDY = "get it again from the coordinator"
_GRACE = 10.0  # seconds from asking a process to end to ending it

# After a job's last round FLARE would wait a quarter of an hour for sites that are gone.
_PATIENCE = ("client_outcome_wait_timeout=20",)

# Kept so that Python does not complain of children that outlive their Popen.
_started: list[subprocess.Popen[bytes]] = []


def start_server(folder: Path, wait: float = 60.0) -> None:
    """Starts the server of the federation in `folder` and waits until it takes calls.

    It is looked for on this machine: its public name may be known to others only.
    """
    command = _server_command(folder)
    host, port = read_members(folder).bind
    here = LOOPBACK if host == ANYWHERE else host
    process = _launch(folder, command, SERVER_PID, SERVER_LOG)
    end = time.monotonic() + wait
    while not (accepts(here, port) and accepts(LOOPBACK, admin_port_of(folder))):
        if process.poll() is not None:
            raise SilodpError(f"The server ended as it began: {folder / SERVER_LOG} says why.")
        if time.monotonic() > end:
            stop(folder / SERVER_PID)
            raise SilodpError(
                f"The server did not open port {port} of {host} in {wait:g} s: "
                f"{folder / SERVER_LOG} says why."
            )
        time.sleep(0.1)


def become_server(folder: Path) -> NoReturn:
    """Becomes the server's process, for whoever looks after it: systemd, or a container."""
    _become(folder, _server_command(folder), SERVER_PID)


def _server_command(folder: Path) -> "Command":
    """Makes ready to start the server; refuses where it could not."""
    members = read_members(folder)
    host, port = members.bind
    _not_running(folder / SERVER_PID, "The server")
    check_server_certificate(folder)
    # Written again: the folder may have moved, and its settings may have been changed.
    configure_server(folder, members, admin_port=_free_port())
    # What the server before it noted of sites says nothing of this one.
    (folder / CONNECTIONS).unlink(missing_ok=True)
    if accepts(LOOPBACK if host == ANYWHERE else host, port):
        raise SilodpError(f"Port {port} of {host} is in use: stop what uses it, or choose another.")
    module = "silodp.sites.flare.server_process"
    return Command(folder / "server", module, "fed_server.json", _PATIENCE)


def check_server_certificate(folder: Path) -> None:
    """Refuses to start with a certificate that no site would take."""
    path = folder / "server" / "startup" / "server.crt"
    try:
        why = why_not_valid(certificate_of(path.read_bytes(), path))
    except OSError as error:
        raise SilodpError(
            f"{path} cannot be read ({error.strerror}): renew it (silodp federation renew "
            f"{folder})."
        ) from None
    if why is not None:
        raise SilodpError(
            f"The certificate of the server {why}: correct the clock, or renew it (silodp "
            f"federation renew {folder})."
        )


def start_site(folder: Path, wait: float = 45.0) -> bool:
    """Starts the site in `folder`; returns whether the coordinator let it in.

    It waits `wait` seconds for that; after them the process goes on trying.
    """
    process = _launch(folder, _site_command(folder), SITE_PID, SITE_LOG)
    end = time.monotonic() + wait
    while not site_is_up(folder):
        if process.poll() is not None:
            raise SilodpError(f"The site's process ended: {folder / SITE_LOG} says why.")
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def become_site(folder: Path) -> NoReturn:
    """Becomes the site's process, for whoever looks after it: systemd, or a container."""
    _become(folder, _site_command(folder), SITE_PID)


def _site_command(folder: Path) -> "Command":
    """Makes ready to start the site; refuses where it could not be let in."""
    kit = folder / "kit"
    _not_running(folder / SITE_PID, "The site")
    own = read_membership(folder)
    check_certificate_at(folder)
    # Written again: whatever came into these folders since, these settings are the site's.
    configure_site(kit, own)
    harden_site(kit)
    (folder / SITE_UP).unlink(missing_ok=True)
    options = (f"uid={own.site}", f"heart_beat_interval={BEAT}")
    return Command(kit, "silodp.sites.flare.site_process", "fed_client.json", options)


def site_is_up(folder: Path) -> bool:
    """Whether the site's process runs, and has heard of the coordinator lately."""
    running, found = _process(folder / SITE_PID), connection_at(folder)
    return running is not None and running.pid == found.pid and found.is_alive


def is_running(pidfile: Path) -> bool:
    """Whether the process of this file runs: that one, not a later one with its number."""
    return _process(pidfile) is not None


def stop(pidfile: Path) -> bool:
    """Stops the process and the jobs that it started; returns whether there was any."""
    try:
        workspace = str(_note(pidfile)["workspace"])
    except (KeyError, TypeError):
        return False
    process = _process(pidfile)
    family = _family(process) if process is not None else []
    # A job's process leads a session of its own; it may outlive its parent for some time.
    family += [one for one in _jobs_of(workspace) if one not in family]
    _end(family)
    for popen in _started:
        popen.poll()
    pidfile.unlink(missing_ok=True)
    return bool(family)


class Command(NamedTuple):
    """How one of FLARE's processes is started.

    Attributes:
      workspace: FLARE's, in the folder of the federation or the site.
      module: that runs.
      configuration: the file in the workspace that it reads.
      options: as FLARE takes them.
    """

    workspace: Path
    module: str
    configuration: str
    options: Sequence[str]

    @property
    def words(self) -> list[str]:
        """The command line."""
        place = str(self.workspace.resolve())
        command = [sys.executable, "-u", "-m", self.module, "-m", place, "-s", self.configuration]
        options = ["secure_train=true", *self.options, f"org={ORG}", "config_folder=config"]
        return [*command, "--set", *options]


def _launch(folder: Path, command: Command, pidfile: str, log: str) -> subprocess.Popen[bytes]:
    rotate(folder / log)
    descriptor = os.open(folder / log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = subprocess.Popen(
            command.words,
            cwd=command.workspace.resolve(),
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            umask=0o077,
        )
    finally:
        os.close(descriptor)
    _started.append(process)
    _write_note(folder / pidfile, process.pid, command)
    return process


def _become(folder: Path, command: Command, pidfile: str) -> NoReturn:
    _write_note(folder / pidfile, os.getpid(), command)
    os.umask(0o077)
    os.chdir(command.workspace.resolve())
    os.execve(sys.executable, command.words, _environment())


def _write_note(pidfile: Path, pid: int, command: Command) -> None:
    note = {
        "pid": pid,
        "started": psutil.Process(pid).create_time(),
        "workspace": str(command.workspace.resolve()),
    }
    write_file(pidfile, json.dumps(note))


def _environment() -> dict[str, str]:
    """This process's environment, with JAX on the CPU unless it says otherwise.

    Names are looked up as the rest of the machine does it (hosts file, split name services): gRPC's
    own way knows name servers only, and without one cannot even listen at all addresses.
    """
    environment = {"JAX_PLATFORMS": "cpu", "GRPC_DNS_RESOLVER": "native"} | os.environ
    # Python would else look for modules in the working directory first.
    return environment | {"PYTHONSAFEPATH": "1"}


def _not_running(pidfile: Path, what: str) -> None:
    if is_running(pidfile):
        raise SilodpError(f"{what} runs already ({pidfile}): stop it first.")


def _process(pidfile: Path) -> psutil.Process | None:
    """The process of this file, if it is still the one that was started."""
    try:
        note = _note(pidfile)
        process = psutil.Process(int(note["pid"]))
        if abs(process.create_time() - float(note["started"])) > 0.01:
            return None
        return None if process.status() == psutil.STATUS_ZOMBIE else process
    except (ValueError, KeyError, TypeError, psutil.Error):
        return None


def _note(pidfile: Path) -> Any:
    """The content of the file; empty if there is none, or not one that was written here."""
    try:
        return json_of(pidfile.read_bytes(), str(pidfile), _REMEDY)
    except (FileNotFoundError, SilodpError):
        return {}


def _family(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return [process, *process.children(recursive=True)]
    return [process]


def _jobs_of(workspace: str) -> list[psutil.Process]:
    """The processes that FLARE runs on this workspace, by their command lines."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            ours = any(word.startswith(("nvflare.", "silodp.sites.flare.")) for word in words)
            if ours and workspace in words and process.pid != os.getpid():
                found.append(process)
    return found


def _end(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _, left = psutil.wait_procs(processes, timeout=_GRACE)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=_GRACE)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return one.getsockname()[1]


def accepts(host: str, port: int) -> bool:
    """Whether anything listens there."""
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False
