"""The proposals that a site has consented to, each a file in the site's folder.

SITE/consented/   the newest, or where files are exchanged, all
SITE/superseded/  those that a newer one took the place of: jobs that were begun are gone on with,
                  and no other
"""

import os
from pathlib import Path

from silodp.base.files import sync_folder, write_file
from silodp.sites.proposal import Proposal, read_proposal

CONSENTED, SUPERSEDED = "consented", "superseded"


def consented(folder: Path) -> list[Proposal]:
    """The proposals that the site has consented to."""
    return _in(folder / CONSENTED)


def has_consented(folder: Path, proposal: Proposal) -> bool:
    """Whether there is consent to the proposal, be it superseded since."""
    own = f"{proposal.digest}.json"
    return any((folder / place / own).exists() for place in (CONSENTED, SUPERSEDED))


def superseded(folder: Path) -> list[Proposal]:
    """The proposals that the site consented to before it did to a newer one."""
    return _in(folder / SUPERSEDED)


def consent(folder: Path, proposal: Proposal, *, supersede: bool = False) -> None:
    """Records that the site consents to the proposal; with `supersede`, in place of all others."""
    own = f"{proposal.digest}.json"
    write_file(folder / CONSENTED / own, proposal.text, sync="folder")
    others = [path for path in (folder / CONSENTED).glob("*.json") if path.name != own]
    if supersede and others:
        (folder / SUPERSEDED).mkdir(mode=0o700, exist_ok=True)
        for path in others:
            os.replace(path, folder / SUPERSEDED / path.name)
        sync_folder(folder / CONSENTED)
    (folder / SUPERSEDED / own).unlink(missing_ok=True)


def _in(folder: Path) -> list[Proposal]:
    return [
        read_proposal(path.read_text(encoding="utf-8"), str(path))
        for path in sorted(folder.glob("*.json"))
    ]
