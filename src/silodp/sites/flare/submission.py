"""A job from its submission to its end, whatever happens to FLARE's jobs on the way.

FLARE ends a job when a site's job process dies, does not go on with one after its server died, and
does not let a site that comes back into a job that runs. Where silodp's job stands is on disk at
the coordinator and at each site, so it is submitted again, and goes on at its next round.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from silodp.base.errors import SilodpError
from silodp.sites.federation_setup import is_finished, progress_of
from silodp.sites.flare.jobs import abort, follow, registered, submit

# So often in a row a job may end without a step forward.
_MOST_IDLE = 3
_POLL = 0.5
_LOOK_FOR_SITES = 5.0  # seconds between two looks whether a lost site is back


def run_job(
    folder: Path,
    job: str,
    sites: Sequence[str],
    *,
    patience: float,
    report: Callable[[dict[str, Any] | None], None],
    say: Callable[[str], None],
) -> dict[str, Any] | None:
    """Trains until every site that is there has its model; returns where the job stands then.

    Args:
      folder: the federation's.
      job: its name.
      sites: all of them.
      patience: seconds to wait for sites that are not there.
      report: told where the job stands, twice a second.
      say: told in words what is done about what went wrong.
    """
    idle = 0
    while not is_finished(progress_of(folder, job), len(sites)):
        before = _stands_at(folder, job)
        there = _wait_for(folder, job, sites, patience)
        try:
            _once(folder, job, there, sites, report)
        except SilodpError as error:
            idle = 0 if _stands_at(folder, job) > before else idle + 1
            if idle >= _MOST_IDLE:
                raise
            say(f"{error} Going on after round {_stands_at(folder, job)[0]}.")
            continue
        told = progress_of(folder, job)
        report(told)
        left = [site for site in sites if told is None or site not in told["finished"]]
        if not left:
            break
        back = [site for site in left if site in registered(folder)]
        if not back or _stands_at(folder, job) == before:
            say(f"No model yet: {', '.join(left)}. Submit again when they are back.")
            break
    return progress_of(folder, job)


def _stands_at(folder: Path, job: str) -> tuple[int, int]:
    """Rounds that are done, and sites that are."""
    told = progress_of(folder, job)
    return (0, 0) if told is None else (told["round"], len(told["finished"]))


def _wait_for(folder: Path, job: str, sites: Sequence[str], patience: float) -> list[str]:
    """The sites that are there, at the latest after so many seconds."""
    end = time.monotonic() + patience
    while True:
        try:
            there = [site for site in sites if site in registered(folder)]
        except SilodpError:  # the server may be starting anew
            if time.monotonic() > end:
                raise
            there = []
        if len(there) == len(sites) or (there and time.monotonic() > end):
            return there
        if time.monotonic() > end:
            raise SilodpError(
                f"No site is connected: start them (silodp site start), then submit job {job} "
                "again."
            )
        time.sleep(_POLL)


def _once(
    folder: Path,
    job: str,
    there: Sequence[str],
    sites: Sequence[str],
    report: Callable[[dict[str, Any] | None], None],
) -> None:
    """One of FLARE's jobs, until it ends, or until a site is back that it does not have."""
    begun, looked = time.time(), time.monotonic()
    flare_job = submit(folder, job, there)

    def look() -> None:
        nonlocal looked
        told = progress_of(folder, job)
        report(told)
        # Before its first words, what is on disk is of the job before.
        if told is None or told["time"] < begun or time.monotonic() - looked < _LOOK_FOR_SITES:
            return
        looked = time.monotonic()
        lost = [site for site in sites if site not in there or site in told["silent"]]
        back = [site for site in lost if site in registered(folder)]
        if back:
            abort(folder, flare_job)
            raise SilodpError(f"{', '.join(back)} is back.")

    try:
        follow(folder, job, flare_job, poll=_POLL, look=look)
    except KeyboardInterrupt:
        abort(folder, flare_job)
        raise
