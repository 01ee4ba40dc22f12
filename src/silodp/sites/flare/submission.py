"""Runs a job from its submission to its end, whatever happens to FLARE's jobs on the way.

FLARE ends a job when a site's job process dies, does not go on with one after its server died, and
does not let a site that comes back into a job that runs. Where silodp's job stands is on disk at
the coordinator and at each site, so it is submitted again, and goes on at its next round.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from silodp.base.errors import SilodpError
from silodp.sites.connection import BEAT, Connection, connections
from silodp.sites.federation_setup import is_finished, progress_of
from silodp.sites.flare.jobs import abort, follow, registered, submit

# The number of times in a row that a FLARE job may end without progress.
_MOST_IDLE = 3
_POLL = 0.5
_LOOK_FOR_SITES = 2.0  # seconds between checks whether a lost site is back
_PAUSE = 2.0  # seconds until a job that ended is submitted again
_FIRST_PATIENCE = (
    10.0  # seconds for which a site that was back, and is lost again, is not waited for
)


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
      sites: those that are to have a model.
      patience: seconds to wait for sites that are not there.
      report: called with the job's progress, twice a second.
      say: called with sentences about what went wrong and what is done about it.
    """
    idle = 0
    patience_with: dict[str, float] = {}
    while not is_finished(progress_of(folder, job), sites):
        before = _stands_at(folder, job)
        present = _wait_for(folder, job, sites, patience)
        try:
            _once(folder, job, present, sites, patience_with, report)
        except SilodpError as error:
            idle = 0 if _stands_at(folder, job) > before else idle + 1
            if idle >= _MOST_IDLE:
                raise
            say(f"{error} Going on after round {_stands_at(folder, job)[0]}.")
            time.sleep(_PAUSE)  # a server that is begun anew is not there at once
            continue
        progress = progress_of(folder, job)
        report(progress)
        left = [site for site in sites if progress is None or site not in progress["finished"]]
        if not left:
            break
        back = [site for site in left if site in registered(folder)]
        if not back or _stands_at(folder, job) == before:
            say(f"No model yet: {', '.join(left)}. Submit again when they are back.")
            break
    return progress_of(folder, job)


def _stands_at(folder: Path, job: str) -> tuple[int, int]:
    """The numbers of rounds and of sites that are finished."""
    progress = progress_of(folder, job)
    return (0, 0) if progress is None else (progress["round"], len(progress["finished"]))


def _wait_for(folder: Path, job: str, sites: Sequence[str], patience: float) -> list[str]:
    """Waits for all sites, at most `patience` seconds; returns those that are connected."""
    end = time.monotonic() + patience
    while True:
        try:
            present = [site for site in sites if site in registered(folder)]
        except SilodpError:  # the server may be starting again
            if time.monotonic() > end:
                raise
            present = []
        if len(present) == len(sites) or (present and time.monotonic() > end):
            return present
        if time.monotonic() > end:
            raise SilodpError(
                f"No site is connected: start them (silodp site start), then submit job {job} "
                "again."
            )
        time.sleep(_POLL)


class Lost:
    """The sites that a job goes on without, since when, and which of them are back.

    That a site did not answer does not say that it can: it is back once it gave a sign of life
    after it was lost. One that is lost again and again is waited for longer each time: the others
    pay for each time with a new start of their processes.
    """

    def __init__(self, since: dict[str, float], patience: dict[str, float]):
        self._since, self._patience = since, patience

    def back(
        self, silent: Sequence[str], present: Sequence[str], heard: Mapping[str, Connection]
    ) -> list[str]:
        """The sites that are back.

        Args:
          silent: those that did not answer a round.
          present: those that the server heard of lately.
          heard: what the server knows of each.
        """
        for site in silent:
            self._since.setdefault(site, time.time())
        found = []
        for site, since in self._since.items():
            after = since + max(BEAT, self._patience.get(site, 0.0))
            if site in present and (heard.get(site, Connection()).heard or 0.0) > after:
                found.append(site)
        for site in found:
            self._patience[site] = max(_FIRST_PATIENCE, 2 * self._patience.get(site, 0.0))
        return found


def _once(
    folder: Path,
    job: str,
    present: Sequence[str],
    sites: Sequence[str],
    patience_with: dict[str, float],
    report: Callable[[dict[str, Any] | None], None],
) -> None:
    """Runs one of FLARE's jobs until it ends, or until a site is back that it does not have."""
    start, last_look = time.time(), time.monotonic()
    flare_job = submit(folder, job, present)
    lost = Lost(
        dict.fromkeys((site for site in sites if site not in present), start), patience_with
    )

    def look() -> None:
        nonlocal last_look
        progress = progress_of(folder, job)
        report(progress)
        # Until this job writes its progress, the file is that of the job before.
        if progress is None or progress["time"] < start:
            return
        if time.monotonic() - last_look < _LOOK_FOR_SITES:
            return
        last_look = time.monotonic()
        back = lost.back(progress["silent"], registered(folder), connections(folder))
        if back:
            abort(folder, flare_job)
            raise SilodpError(f"{', '.join(back)} is back.")

    try:
        follow(folder, job, flare_job, poll=_POLL, look=look)
    except KeyboardInterrupt:
        abort(folder, flare_job)
        raise
