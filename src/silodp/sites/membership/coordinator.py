"""What a coordinator does about its members: invite, approve, renew, remove, propose.

All of it but removing needs the passphrase of the authority's key, and none of it touches a site
that it is not about: certificates of others, their ledgers and their consent stay.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.sites.membership.authority import Authority, federation_of
from silodp.sites.membership.documents import (
    CertificateRequest,
    Content,
    Invitation,
    ProposalDocument,
    SiteCertificate,
    certificate_of,
    is_proof,
    key_fingerprint,
    key_id,
    public_key_of,
    read_signed,
    rsa_key,
)
from silodp.sites.membership.members import Members, changed_members, read_members
from silodp.sites.proposal import Proposal, read_proposal

TO_SEND, PROPOSALS, PROPOSAL_FILE = "to-send", "proposals", "proposal.json"
_AGAIN = "have the site send it again"


class Request(NamedTuple):
    """A site's request, looked at and not approved yet.

    Attributes:
      path: of the file.
      site: that it is from.
      key: the name of the key that it is for.
      fingerprint: what people compare.
      proven: whether the site's present key stands behind it: nothing is to be compared then.
      known: whether this key has its certificate already, and the request was merely sent again.
    """

    path: Path
    site: str
    key: str
    fingerprint: str
    proven: bool
    known: bool


def invite(folder: Path, authority: Authority, sites: Sequence[str]) -> list[Path]:
    """Writes an invitation for each of these sites; it holds no secret."""
    members, proposal = read_members(folder), newest_proposal(folder)
    for site in sites:
        members.check_not_removed(site)
    return [
        _send(
            folder,
            f"{site}.invitation",
            authority,
            Invitation(
                authority.federation,
                site,
                authority.root_pem,
                members.server,
                proposal.text,
                members.number,
            ),
        )
        for site in sites
    ]


def read_request(folder: Path, path: Path, replace: bool = False) -> Request:
    """Looks at a site's request; refuses one that must not be approved.

    Args:
      folder: the federation's.
      path: of the request.
      replace: whether a person says that the key which the site has is lost, or stolen.
    """
    members, proposal = read_members(folder), newest_proposal(folder)
    given = read_signed(
        path, CertificateRequest, lambda own: public_key_of(own.public, path), _AGAIN
    )
    if given.federation != federation_of(folder):
        raise SilodpError(
            f"{path} is a request to another federation than {folder}: give that one's folder, or "
            "have the site use the invitation of this one."
        )
    if given.site not in proposal.sites and given.site not in members.sites:
        raise SilodpError(
            f"{path} is of site {given.site!r}, which is in no proposal of {folder}: add it first "
            f"(silodp federation add-site {folder} NAME)."
        )
    public = public_key_of(given.public, path)
    key, member = key_id(public), members.sites.get(given.site)
    proven = known = False
    if member is not None:
        present = certificate_of(member.certificate, path).public_key()
        proven = is_proof(given, rsa_key(present, path), public)
        issued = certificate_of(members.newest_certificate(given.site), path).public_key()
        known = key == key_id(rsa_key(issued, path))
    members.check_key(given.site, key, proven, replace)
    return Request(path, given.site, key, key_fingerprint(public), proven, known)


def approve(folder: Path, authority: Authority, request: Request, replace: bool = False) -> Path:
    """Issues the certificate that was asked for; returns the file to send back.

    It is let in from now on, and with it the key before, until the site comes with the new one;
    with `replace`, the key before is shut out at once.
    """
    given = read_signed(
        request.path,
        CertificateRequest,
        lambda own: public_key_of(own.public, request.path),
        _AGAIN,
    )
    public = public_key_of(given.public, request.path)
    with changed_members(folder) as members:
        members.check_key(request.site, request.key, request.proven, replace)
        if key_id(public) != request.key:
            raise SilodpError(f"{request.path} was changed meanwhile: look at it again.")
        certificate = authority.certificate(request.site, public)
        members.take(request.site, request.key, certificate, request.proven and not replace)
        members.issued += 1
        issued = members.issued
    return _send_certificate(folder, authority, members, request.site, certificate, issued)


def remove(folder: Path, site: str) -> None:
    """Shuts a site out for good. The authority's key is not needed: it may have to be quick."""
    with changed_members(folder) as members:
        if site not in members.sites and site not in newest_proposal(folder).sites:
            raise SilodpError(f"{folder} has no site {site!r}: check its name.")
        members.remove(site, f"{datetime.now(UTC):%Y-%m-%d}")
    (folder / TO_SEND / f"{site}.invitation").unlink(missing_ok=True)


def move(
    folder: Path, authority: Authority, host: str, port: int, bind: tuple[str, int]
) -> list[Path]:
    """Notes where the server is from now on; a file for each site that says so."""
    with changed_members(folder) as members:
        at = members.server
        members.server = type(at)(at.project, at.identity, host, port)
        members.bind = bind
        members.issued += 1
    present = [site for site in members.sites if site not in members.removed]
    return [
        _send_certificate(
            *(folder, authority, members, site),
            *(members.newest_certificate(site), members.issued),
        )
        for site in present
    ]


def propose(folder: Path, authority: Authority, proposal: Proposal) -> tuple[list[Path], list[str]]:
    """Makes this the federation's proposal: what sites consent to, and invitations of new sites.

    Jobs of the proposal before can still be gone on with (`submit --proposal`).

    Returns:
      files: to send: the proposal, for all sites, and an invitation for each site without
        a certificate.
      new: the sites that are invited.
    """
    before = newest_proposal(folder)
    if proposal.digest == before.digest:
        raise SilodpError(f"{folder} has this proposal already: change what is to be agreed on.")
    for site in proposal.sites:
        read_members(folder).check_not_removed(site)
    with changed_members(folder) as members:
        members.number += 1
        keep_proposal(folder, members.number, proposal)
    content = ProposalDocument(authority.federation, proposal.text, members.number)
    files = [_send(folder, f"proposal-{members.number}.proposal", authority, content)]
    new = [site for site in proposal.sites if site not in members.sites]
    return files + invite(folder, authority, new), new


def keep_proposal(folder: Path, number: int, proposal: Proposal) -> None:
    """Makes this the newest proposal; earlier ones stay, for jobs that are not over."""
    write_file(folder / PROPOSALS / f"{number}.json", proposal.text, sync="folder")
    write_file(folder / PROPOSAL_FILE, proposal.text, sync="folder")


def newest_proposal(folder: Path) -> Proposal:
    """What the federation in this folder has agreed on."""
    return proposal_in(folder, folder / PROPOSAL_FILE)


def numbered_proposal(folder: Path, number: int) -> Proposal:
    """An earlier proposal, by its number."""
    return proposal_in(folder, folder / PROPOSALS / f"{number}.json")


def proposal_of_job(folder: Path, fits: Callable[[Proposal], bool]) -> Proposal | None:
    """The newest of the federation's proposals that fits; None if none does."""
    earlier = sorted((folder / PROPOSALS).glob("*.json"), key=lambda path: -int(path.stem))
    for path in (folder / PROPOSAL_FILE, *earlier):
        found = proposal_in(folder, path)
        if fits(found):
            return found
    return None


def proposal_in(folder: Path, path: Path) -> Proposal:
    """The proposal in a file of the federation's folder."""
    try:
        return read_proposal(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise SilodpError(
            f"{folder} is no federation, or has no {path.name} ({error.strerror}): give the folder "
            "that `silodp federation init` made."
        ) from None


def _send_certificate(
    folder: Path, authority: Authority, members: Members, site: str, certificate: str, issued: int
) -> Path:
    content = SiteCertificate(authority.federation, site, certificate, members.server, issued)
    return _send(folder, f"{site}.certificate", authority, content)


def _send(folder: Path, name: str, authority: Authority, content: Content) -> Path:
    return write_file(folder / TO_SEND / name, authority.sign(content))
