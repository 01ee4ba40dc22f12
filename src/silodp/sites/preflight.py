"""Whether a site could take part now: looked at before it is needed, with what to do about it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from silodp.base.errors import SilodpError
from silodp.base.version import own_version
from silodp.privacy.ledger.storage import exists, read_ledger
from silodp.sites.connection import connection_at
from silodp.sites.consents import consented
from silodp.sites.findings import look_at
from silodp.sites.flare.probe import why_unreachable
from silodp.sites.health import valid_until
from silodp.sites.membership.site import certificate_at, check_certificate_at, read_membership
from silodp.sites.site_files import SiteConfig, read_site
from silodp.sites.site_setup import offered_proposal

_LEAST_FREE = 200 << 20  # bytes
_CLOCK = 60.0


class Found(NamedTuple):
    """One thing that was looked at."""

    what: str
    well: bool
    words: str


def preflight(folder: Path) -> list[Found]:
    """Looks at all that a site needs; nothing is sent but a greeting to the server."""
    config, own = read_site(folder), read_membership(folder)
    looks: dict[str, Callable[[], str]] = {
        "certificate": lambda: _certificate(folder),
        "coordinator": lambda: _coordinator(folder, f"{own.server.host}, port {own.server.port}"),
        "clock": lambda: _clock(folder),
        "version": lambda: _version(folder),
        "disk": lambda: _disk(folder, config),
        "ledger": lambda: _ledger(config),
        "records": lambda: _records(folder, config),
        "consent": lambda: _consent(folder),
    }
    found = []
    for what, look in looks.items():
        try:
            found.append(Found(what, True, look()))
        except SilodpError as error:
            found.append(Found(what, False, str(error)))
    return found


def _certificate(folder: Path) -> str:
    check_certificate_at(folder)
    return f"valid until {valid_until(certificate_at(folder))}"


def _coordinator(folder: Path, at: str) -> str:
    why = why_unreachable(folder) if certificate_at(folder) is not None else "no certificate yet"
    if why is not None:
        raise SilodpError(f"{why}.")
    return f"{at}: answers, and is that of this federation"


def _clock(folder: Path) -> str:
    clock = connection_at(folder).clock
    if clock is None:
        return "compared once the site is connected"
    words = f"{abs(clock):.1f} s apart from the coordinator's"
    if abs(clock) > _CLOCK:
        raise SilodpError(f"{words}: correct it.")
    return words


def _version(folder: Path) -> str:
    other = connection_at(folder).version
    if other not in (None, own_version()):
        raise SilodpError(
            f"silodp {own_version()}, and {other} at the coordinator: have the same at all sites."
        )
    return f"silodp {own_version()}" + ("" if other is None else ", as at the coordinator")


def _disk(folder: Path, config: SiteConfig) -> str:
    for place in (folder, config.ledger):
        there = next(one for one in (place, *place.absolute().parents) if one.exists())
        if not os.access(there, os.W_OK | os.X_OK):
            raise SilodpError(f"{there} cannot be written to: correct its permissions.")
        free = shutil.disk_usage(there).free
        if free < _LEAST_FREE:
            raise SilodpError(
                f"{there} has {free >> 20} MB left: make room for {_LEAST_FREE >> 20}."
            )
    return f"{shutil.disk_usage(folder).free >> 30} GB are free"


def _ledger(config: SiteConfig) -> str:
    if not exists(config.ledger, config.ledger_name):
        return "none yet: nothing was spent on these records"
    entries = read_ledger(config.ledger, config.ledger_name).entries  # refuses a broken chain
    return f"intact, {len(entries)} entries"


def _records(folder: Path, config: SiteConfig) -> str:
    proposal = offered_proposal(folder, None).proposal
    looked = look_at(config.site, config.data, proposal.schema)
    return f"{looked.usable} of {looked.rows} rows are used (silodp site consent says why)"


def _consent(folder: Path) -> str:
    offered = offered_proposal(folder, None)
    if offered.proposal.digest not in {one.digest for one in consented(folder)}:
        raise SilodpError(
            f"proposal {offered.number} has no consent: look at it (silodp site consent {folder})."
        )
    return f"to proposal {offered.number}"
