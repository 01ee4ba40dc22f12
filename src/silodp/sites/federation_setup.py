"""The coordinator's folder: made from fed.toml, and where its jobs stand.

FEDERATION/
  fed.toml, proposal.json   what is agreed on
  kits/NAME.zip             for each site; it holds a key, so hand it over by a safe way
  server/, admin/           FLARE's workspaces of the coordinator
  state/                    where each job stands
"""

import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from silodp.base.documents import read_json
from silodp.base.errors import SilodpError
from silodp.base.progress_file import PROGRESS_FILE
from silodp.sites.coordinator import STATE
from silodp.sites.flare.hardening import harden_server
from silodp.sites.flare.kits import PROPOSAL_FILE, make_kits
from silodp.sites.proposal import Proposal, read_federation, read_proposal

FED_FILE = "fed.toml"


class SetUp(NamedTuple):
    """A new federation: its folder, its proposal, and the kit of each site."""

    folder: Path
    proposal: Proposal
    kits: list[Path]


def set_up_federation(path: Path, folder: Path | None = None) -> SetUp:
    """Makes the coordinator's folder and a kit for each site, whole or not at all."""
    proposal, host, port = read_federation(path)
    folder = folder or path.parent / path.stem
    if folder.exists() and any(folder.iterdir()):
        raise SilodpError(f"{folder} is there already: choose another --out.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.parent / f".{folder.name}.making"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        project = re.sub(r"[^A-Za-z0-9]+", "-", proposal.name).strip("-")[:40] or "silodp"
        kits = make_kits(aside, project, host, port, proposal.sites, proposal.text)
        (aside / PROPOSAL_FILE).write_text(proposal.text, encoding="utf-8")
        shutil.copyfile(path, aside / FED_FILE)
        if folder.exists():
            folder.rmdir()
        aside.chmod(0o700)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    # The server's settings name the folder, which is now in its final place.
    harden_server(folder / "server", (folder / "server-store").resolve())
    return SetUp(folder, proposal, [folder / kit.relative_to(aside) for kit in kits])


def proposal_of_federation(folder: Path) -> Proposal:
    """What the federation in this folder has agreed on."""
    path = folder / PROPOSAL_FILE
    try:
        return read_proposal(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise SilodpError(
            f"{folder} is no federation ({error.strerror}): give the folder that `silodp "
            "federation init` made."
        ) from None


def progress_of(folder: Path, job: str) -> dict[str, Any] | None:
    """The progress of a job; None before its first replies."""
    path = folder / STATE / job / PROGRESS_FILE
    return read_json(path, remedy="look again") if path.exists() else None


def jobs_of(folder: Path) -> list[dict[str, Any]]:
    """The progress of all jobs that were begun, by name in alphabetical order."""
    names = sorted(path.parent.name for path in (folder / STATE).glob(f"*/{PROGRESS_FILE}"))
    jobs = [progress_of(folder, name) for name in names]
    return [progress for progress in jobs if progress is not None]


def is_finished(progress: dict[str, Any] | None, sites: int) -> bool:
    """Whether every site has its model."""
    return progress is not None and len(progress["finished"]) == sites
