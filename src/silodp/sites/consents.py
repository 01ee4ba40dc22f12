"""The proposals that a site has consented to, each a file in the site's folder."""

from pathlib import Path

from silodp.base.files import write_file
from silodp.sites.proposal import Proposal, read_proposal

CONSENTED = "consented"


def consented(folder: Path) -> list[Proposal]:
    """The proposals that the site has consented to."""
    return [
        read_proposal(path.read_text(encoding="utf-8"), str(path))
        for path in sorted((folder / CONSENTED).glob("*.json"))
    ]


def consent(folder: Path, proposal: Proposal) -> None:
    """Records that the site consents to the proposal."""
    write_file(folder / CONSENTED / f"{proposal.digest}.json", proposal.text)
