"""Submits, follows and aborts jobs of a federation, as its administrator."""

import contextlib
import io
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.sites.connection import connections
from silodp.sites.flare import require_flare, wire
from silodp.sites.flare.failures import noted_failure
from silodp.sites.flare.hardening import ADMIN, CONTROLLER, EXECUTOR
from silodp.sites.flare.kits import admin_port_of
from silodp.sites.flare.processes import SERVER_PID, accepts, is_running
from silodp.sites.membership.members import read_members
from silodp.sites.proposal import LOOPBACK

if TYPE_CHECKING:
    from nvflare.fuel.flare_api.flare_api import Session

# FLARE's own pauses of 2 and 0.5 seconds would take longer than a round.
TASK_REQUEST_INTERVAL = 0.02
TASK_FETCH_INTERVAL = 0.02
# Seconds that a job can run without a process: it ends in about 10.
_LOST = 60.0
COMPLETED = "FINISHED:COMPLETED"


def job_folder(folder: Path, job: str, sites: Sequence[str]) -> Path:
    """Writes a job into a new folder below `folder`: JSON only, which names installed classes."""
    place = folder / "job"
    config = place / "app" / "config"
    config.mkdir(parents=True)
    _write(
        place / "meta.json",
        {
            "name": "silodp",
            "resource_spec": {},
            # The sites that are there begin; the coordinator knows how many it needs.
            "min_clients": 1,
            "deploy_map": {"app": ["server", *sites]},
        },
    )
    _write(
        config / "config_fed_server.json",
        {
            "format_version": 2,
            "server": {"task_request_interval": TASK_REQUEST_INTERVAL},
            "workflows": [{"id": "controller", "path": CONTROLLER, "args": {"job": job}}],
            "components": [],
        },
    )
    _write(
        config / "config_fed_client.json",
        {
            "format_version": 2,
            "default_task_fetch_interval": TASK_FETCH_INTERVAL,
            "executors": [
                {"tasks": [wire.TASK], "executor": {"path": EXECUTOR, "args": {}}},
            ],
            "components": [],
        },
    )
    return place


def submit(folder: Path, job: str, sites: Sequence[str]) -> str:
    """Gives the job to the server of the federation in `folder`; returns FLARE's name of it."""
    aside = Path(tempfile.mkdtemp(prefix="silodp-job-"))
    try:
        place = job_folder(aside, job, sites)
        with _session(folder) as session:
            return session.submit_job(str(place.resolve()))
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def follow(
    folder: Path,
    job: str,
    flare_job: str,
    poll: float = 1.0,
    timeout: float | None = None,
    on_status: Callable[[str], None] | None = None,
    look: Callable[[], None] | None = None,
) -> None:
    """Waits until the job is complete; refuses with the reason if it ended in another way.

    Args:
      folder: the federation's.
      job: its name.
      flare_job: what `submit` returned.
      poll: seconds between two looks.
      timeout: seconds to wait at most.
      on_status: called with FLARE's status whenever that changes.
      look: called at every look; what it raises ends the waiting.
    """
    end = None if timeout is None else time.monotonic() + timeout
    before, last_seen = "", time.monotonic()
    with _session(folder) as session:
        while True:
            status = _status(session, flare_job)
            if on_status is not None and status != before:
                on_status(status)
            before = status
            if look is not None:
                look()
            if status == COMPLETED:
                return
            if status.startswith("FINISHED"):
                raise SilodpError(_ended(folder, job, status))
            # A server that was killed lists its job as running for ever after.
            if status != "RUNNING" or _listed(session, flare_job):
                last_seen = time.monotonic()
            if time.monotonic() - last_seen > _LOST:
                raise SilodpError(
                    f"The job {job!r} is gone, though the server lists it as running: "
                    "start it again, and it goes on from its last round."
                )
            if end is not None and time.monotonic() > end:
                raise SilodpError(f"The job {job!r} did not end in {timeout:g} s: it still runs.")
            time.sleep(poll)


def status(folder: Path, flare_job: str) -> str:
    """FLARE's word for the state of a job."""
    with _session(folder) as session:
        return _status(session, flare_job)


def abort(folder: Path, flare_job: str) -> None:
    """Aborts a job, unless it has ended already."""
    with _session(folder) as session:
        if not _status(session, flare_job).startswith("FINISHED"):
            session.abort_job(flare_job)


def registered(folder: Path) -> list[str]:
    """The sites that the server heard of lately, and that were not removed."""
    if not is_running(folder / SERVER_PID):
        raise SilodpError(f"The server of {folder} does not run: start the server first.")
    removed = read_members(folder).removed
    found = connections(folder).items()
    return sorted(site for site, own in found if own.is_alive and site not in removed)


def _status(session: "Session", flare_job: str) -> str:
    return str(session.get_job_meta(flare_job).get("status", ""))


def _listed(session: "Session", flare_job: str) -> bool:
    return any(one.job_id == flare_job for one in session.get_system_info().job_info)


def _ended(folder: Path, job: str, status: str) -> str:
    if status == "FINISHED:ABORTED" and noted_failure(folder, job) is None:
        return f"The job {job!r} was aborted: start it again to go on from its last round."
    reason = noted_failure(folder, job)
    if reason is not None:
        return f"The job {job!r} stopped: {reason}"
    return (
        f"The job {job!r} ended as {status}: {folder / 'server.log'} and the logs of the sites "
        "say why."
    )


@contextlib.contextmanager
def _session(folder: Path) -> Iterator["Session"]:
    """A session with the server, closed whatever happens; FLARE's errors become one sentence."""
    require_flare()
    from nvflare.fuel.flare_api.api_spec import (
        JobNotFound,
        NoClientsAvailable,
        NoConnection,
    )
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    admin = folder / "admin"
    if not (admin / "startup" / "fed_admin.json").exists():
        raise SilodpError(f"{folder} was never started: start the server first.")
    # FLARE would try for a quarter of a minute.
    if not accepts(LOOPBACK, admin_port_of(folder)):
        raise SilodpError(f"The server of {folder} does not answer: start the server first.")
    try:
        # FLARE prints while it connects.
        with contextlib.redirect_stdout(io.StringIO()):
            session = new_secure_session(ADMIN, str(admin.resolve()), timeout=10.0)
    except Exception as error:
        raise SilodpError(f"The server of {folder} cannot be reached: start it first.") from error
    try:
        yield session
    except JobNotFound as error:
        raise SilodpError("The server knows no such job: start it again.") from error
    except NoClientsAvailable as error:
        raise SilodpError("No site is there: have the sites started first.") from error
    except NoConnection as error:
        raise SilodpError(f"The server of {folder} went away: start it again.") from error
    except SilodpError:
        raise
    except Exception as error:
        raise SilodpError(f"The server of {folder} refused: {error}.") from error
    finally:
        with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
            session.close()


def _write(path: Path, value: dict[str, Any]) -> None:
    write_file(path, json.dumps(value, indent=1) + "\n")
