"""How a site, or a federation's server, is: for people and for monitors, by what was noted.

Nothing is sent for it, and nothing here costs anything: it is read from files of either side.
"""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509

from silodp.base.version import own_version
from silodp.sites.connection import Connection, connection_at, connections
from silodp.sites.federation_setup import jobs_of, proposal_of_federation
from silodp.sites.last_error import last_error
from silodp.sites.membership.documents import certificate_of
from silodp.sites.membership.members import Members, read_members
from silodp.sites.membership.site import certificate_at, is_member, why_not_valid
from silodp.sites.proposal import Proposal, is_job_of

WELL, DEGRADED, DOWN = 0, 1, 2
WORDS = ("well", "degraded", "down")
_SOON = timedelta(days=30)
_CLOCK = 60.0  # seconds
_AT_WORK = 60.0  # seconds beyond the deadline after which a job is not worked on
_RECENT = 7 * 24 * 3600.0  # seconds for which a second machine is told of


class Problem(NamedTuple):
    """What is wrong, and how bad it is."""

    level: int
    words: str


def level_of(problems: list[Problem]) -> int:
    """0 if all is well, 1 if something is amiss, 2 if nothing can be answered."""
    return max((one.level for one in problems), default=0)


def site_problems(folder: Path, running: bool) -> list[Problem]:
    """What is wrong at the site in this folder; whether its process runs is known to the caller."""
    found = connection_at(folder)
    problems = []
    if is_member(folder):
        problems += _of_certificate(
            certificate_at(folder), "this site", f"renew it (silodp site renew {folder})"
        )
    if not running:
        problems.append(Problem(DOWN, f"the site does not run: silodp site start {folder}"))
    elif not found.is_alive:
        since = "" if found.heard is None else f" since {moment(found.heard)}"
        why = found.trouble or "the coordinator was not heard lately"
        problems.append(Problem(DOWN, f"not connected{since}: {why}"))
    if running:
        problems += _of_connection(found, "the coordinator")
        problems += _of_second(found, "this site", "silodp site renew, and tell the coordinator")
    if (error := last_error(folder)) is not None:
        problems.append(Problem(DEGRADED, f"refused on {moment(error.time)}: {error.words}"))
    return problems


def federation_problems(folder: Path, running: bool) -> list[Problem]:
    """What is wrong with the federation in this folder; whether its server runs is given."""
    members, proposal = read_members(folder), proposal_of_federation(folder)
    path = folder / "server" / "startup" / "server.crt"
    server = certificate_of(path.read_bytes(), path) if path.exists() else None
    renew = f"renew it (silodp federation renew {folder})"
    problems = _of_certificate(server, "the server", renew)
    if not running:
        return [
            *problems,
            Problem(DOWN, f"the server does not run: silodp federation start {folder}"),
        ]
    present = connections(folder)
    sites = [site for site in proposal.sites if site not in members.removed]
    missing = [site for site in sites if not present.get(site, Connection()).is_alive]
    if len(sites) - len(missing) < proposal.rules.quorum:
        words = f"{len(sites) - len(missing)} sites are connected, fewer than the quorum of "
        problems.append(Problem(DOWN, f"{words}{proposal.rules.quorum}"))
    for site in missing:
        heard = present.get(site, Connection()).heard
        since = "" if heard is None else f" since {moment(heard)}"
        words = f"site {site!r} is not connected{since}"
        if site not in members.sites:
            words += f": approve its request (silodp federation approve {folder} FILE)"
        problems.append(Problem(DEGRADED, words))
    for site in sites:
        problems += _of_member(site, members, present.get(site, Connection()))
    return problems + _of_jobs(folder, proposal, members)


def states_of_sites(folder: Path, running: bool) -> dict[str, dict[str, Any]]:
    """How each site of the federation is, as its server noted it."""
    members, found = read_members(folder), connections(folder) if running else {}
    states = {}
    for site in dict.fromkeys((*proposal_of_federation(folder).sites, *members.sites)):
        own = found.get(site, Connection())
        path = Path(f"the certificate of {site}")
        newest = members.newest_certificate(site) if site in members.sites else None
        states[site] = {
            "state": _state(site, members, own, running),
            "heard": own.heard,
            "clock": own.clock,
            "version": own.version,
            "second": own.second,
            "certificate_until": newest and valid_until(certificate_of(newest, path)),
        }
    return states


def _state(site: str, members: Members, found: Connection, running: bool) -> str:
    if site in members.removed:
        return f"removed on {members.removed[site]}"
    if site not in members.sites:
        return "invited"
    if found.is_alive:
        return "connected"
    if found.heard is None:
        return "not connected yet" if running else "unknown: the server does not run"
    return f"cut off since {moment(found.heard)}"


def without_model(progress: dict[str, Any]) -> list[str]:
    """The sites of a job that have no model yet."""
    return [site for site in progress["sites"] if site not in progress["finished"]]


def moment(seconds: float) -> str:
    """A time as people write it."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def valid_until(certificate: x509.Certificate | None) -> str | None:
    """The day until which a certificate is valid."""
    return None if certificate is None else f"{certificate.not_valid_after_utc:%Y-%m-%d}"


def _of_jobs(folder: Path, proposal: Proposal, members: Members) -> list[Problem]:
    """Jobs of the newest proposal that nobody works on, and that are not over."""
    problems = []
    for job in jobs_of(folder):
        left = [site for site in without_model(job) if site not in members.removed]
        still = time.time() - job["time"] < proposal.rules.deadline + _AT_WORK
        if not left or still or not is_job_of(job["job"], proposal):
            continue
        words = f"job {job['job']} stands at round {job['round']} of {job['rounds']} since "
        words += f"{moment(job['time'])}; without a model: {', '.join(left)}: submit it again"
        problems.append(Problem(DEGRADED, words))
    return problems


def _of_member(site: str, members: Members, found: Connection) -> list[Problem]:
    problems = []
    if site in members.sites:
        path = Path(f"the certificate of {site}")
        certificate = certificate_of(members.newest_certificate(site), path)
        problems += _of_certificate(
            certificate, f"site {site!r}", "have it renew (silodp site renew)"
        )
    if found.is_alive:
        problems += _of_connection(found, f"site {site!r}")
    return problems + _of_second(found, f"site {site!r}", "ask it by phone, and have it renew")


def _of_certificate(certificate: x509.Certificate | None, whose: str, remedy: str) -> list[Problem]:
    if certificate is None:
        return [Problem(DOWN, f"{whose} has no certificate yet")]
    why = why_not_valid(certificate)
    if why is not None:
        return [Problem(DOWN, f"the certificate of {whose} {why}: correct the clock, or {remedy}")]
    if certificate.not_valid_after_utc - datetime.now(UTC) < _SOON:
        day = valid_until(certificate)
        return [Problem(DEGRADED, f"the certificate of {whose} is valid until {day}: {remedy}")]
    return []


def _of_connection(found: Connection, other: str) -> list[Problem]:
    problems = []
    if found.clock is not None and abs(found.clock) > _CLOCK:
        words = f"the clocks here and of {other} are {abs(found.clock):.0f} s apart: correct them"
        problems.append(Problem(DEGRADED, words))
    if found.is_alive and found.version not in (None, own_version()):
        words = f"{other} has silodp {found.version}, here is {own_version()}"
        problems.append(Problem(DEGRADED, f"{words}: have the same version at all sites"))
    return problems


def _of_second(found: Connection, who: str, remedy: str) -> list[Problem]:
    if not found.second or time.time() - found.second[0] > _RECENT:
        return []
    when, address = moment(found.second[0]), found.second[1]
    words = f"another machine ({address}) tried to be {who} on {when}, and was not let in"
    return [Problem(DEGRADED, f"{words}: {remedy}")]
