"""A site's membership: its private key, which never leaves it, and what the coordinator issued.

SITE/
  membership.json       which authority it pins, and how far what came from it has got
  kit/startup/          FLARE's workspace: the key, the certificate, the server's address
  next/client.key       a renewed key, until its certificate comes
  to-send/NAME.request  what asks the coordinator for a certificate
"""

import json
import shutil
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

from silodp.base.documents import declared, decode, read_json
from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.sites.membership.authority import key_bytes, new_key
from silodp.sites.membership.documents import (
    Address,
    CertificateRequest,
    Invitation,
    ProposalDocument,
    SiteCertificate,
    certificate_of,
    key_fingerprint,
    key_id,
    proof_of,
    public_pem,
    read_signed,
    rsa_key,
    signed,
)
from silodp.sites.proposal import Proposal, read_proposal

MEMBERSHIP_FILE, PROPOSAL_FILE = "membership.json", "proposal.json"
STARTUP = Path("kit", "startup")
KEY_FILE, CERTIFICATE_FILE, ROOT_FILE = "client.key", "client.crt", "rootCA.pem"
_OLD = "fed_client.json"  # says what membership.json does, where version 0.1.0 made the folder
TO_SEND, _NEXT = "to-send", "next"
_FORMAT = 1
_PUT_BACK = "put back an intact copy"
_AGAIN = "ask the coordinator to send it again"


@dataclass(frozen=True)
class Membership:
    """How a site knows its federation.

    Attributes:
      federation: the name of the authority's key, which the site pinned when it was set up.
      site: its own name.
      server: where the coordinator's server is.
      offered: the number of the proposal in the site's folder.
      number: of the newest proposal that the site consented to; 0 if it has to none.
      issued: of the newest certificate that it took.
    """

    federation: str = declared("put back an intact copy")
    site: str = declared("put back an intact copy")
    server: Address = declared("put back an intact copy")
    offered: int = declared("put back an intact copy", 1)
    number: int = declared("put back an intact copy", 0)
    issued: int = declared("put back an intact copy", 0)


def read_invitation(path: Path) -> tuple[Invitation, Proposal]:
    """Reads an invitation, which is as its authority signed it. People compare whose that is."""
    invited = read_signed(path, Invitation, lambda own: _root_key(own.root, path), _AGAIN)
    if invited.federation != key_id(_root_key(invited.root, path)):
        raise SilodpError(f"{path} names another authority than its own: {_AGAIN}.")
    proposal = read_proposal(invited.proposal, str(path))
    if invited.site not in proposal.sites:
        raise SilodpError(
            f"{path} is for {invited.site!r}, which is not in its proposal: {_AGAIN}."
        )
    return invited, proposal


def authority_fingerprint(invited: Invitation) -> str:
    """What people read to each other to know that the invitation is the coordinator's."""
    return key_fingerprint(_root_key(invited.root, Path("the invitation")))


def pinned_fingerprint(folder: Path) -> str:
    """The fingerprint of the authority that the site in this folder has pinned."""
    path = folder / STARTUP / ROOT_FILE
    return key_fingerprint(_root_key(path.read_text(encoding="utf-8"), path))


def join_with(invited: Invitation, folder: Path) -> None:
    """Writes a new member's key, and whom it trusts, into the folder of a site."""
    startup = folder / STARTUP
    startup.mkdir(mode=0o700, parents=True)
    write_file(startup / KEY_FILE, key_bytes(new_key()))
    write_file(startup / ROOT_FILE, invited.root)
    own = Membership(invited.federation, invited.site, invited.server, invited.number)
    _write(folder, own)
    write_request(folder)


def is_member(folder: Path) -> bool:
    """Whether the folder is that of a site that answers over a network."""
    return (folder / MEMBERSHIP_FILE).exists() or (folder / STARTUP / _OLD).exists()


def read_membership(folder: Path) -> Membership:
    """How the site in this folder knows its federation."""
    path = folder / MEMBERSHIP_FILE
    if not path.exists() and is_member(folder):
        return _of_old_kit(folder)
    content = read_json(path, missing="set the site up (silodp site init)", remedy=_PUT_BACK)
    if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
        raise SilodpError(f"{path} is of another version of silodp, or damaged: {_PUT_BACK}.")
    return decode(Membership, content, str(path))


def fingerprint_at(folder: Path) -> str:
    """The fingerprint of the key that the site's request, or else its certificate, is for."""
    waiting = folder / _NEXT / KEY_FILE
    return key_fingerprint(
        _read_key(waiting if waiting.exists() else _key_file(folder)).public_key()
    )


def write_request(folder: Path) -> Path:
    """Writes the request for a certificate of the site's key; the same key each time.

    If a renewed key waits for its certificate, the request is for that one; the present key stands
    behind it, unless that is lost.
    """
    own, present = read_membership(folder), _key_file(folder)
    waiting = folder / _NEXT / KEY_FILE
    key, proof = _read_key(waiting if waiting.exists() else present), ""
    if waiting.exists() and present.exists():
        proof = proof_of(_read_key(present), own.federation, own.site, key.public_key())
    request = CertificateRequest(own.federation, own.site, public_pem(key.public_key()), proof)
    return write_file(folder / TO_SEND / f"{own.site}.request", signed(key, request))


def renew(folder: Path) -> Path:
    """Makes the site's next key, unless one is waiting, and a request for its certificate.

    Until that comes, the site goes on with what it has. Ledger, policy and consent stay.
    """
    read_membership(folder)
    waiting = folder / _NEXT / KEY_FILE
    if not waiting.exists():
        (folder / _NEXT).mkdir(mode=0o700, exist_ok=True)
        write_file(waiting, key_bytes(new_key()), sync="folder")
    return write_request(folder)


def take_certificate(folder: Path, path: Path) -> datetime:
    """Puts a certificate from the coordinator in its place; returns until when it is valid.

    Refuses one of another authority than the site pinned, of another key, for another site, or
    older than what the site has.
    """
    own = read_membership(folder)
    root = certificate_of((folder / STARTUP / ROOT_FILE).read_bytes(), folder / STARTUP / ROOT_FILE)
    root_key = rsa_key(root.public_key(), path)
    if key_id(root_key) != own.federation:
        raise SilodpError(
            f"{folder / STARTUP / ROOT_FILE} is not that of the authority that was pinned: put "
            "back an intact copy."
        )
    given = read_signed(path, SiteCertificate, lambda _: root_key, _AGAIN)
    _check_for(given.federation, own, path)
    if given.site != own.site:
        raise SilodpError(f"{path} is for site {given.site!r}, and this is {own.site!r}: {_AGAIN}.")
    if given.issued < own.issued:
        raise SilodpError(f"{path} is older than what this site has: {_AGAIN}.")
    certificate = certificate_of(given.certificate, path)
    _check_certificate(certificate, root, own.site, path)
    wanted = key_id(rsa_key(certificate.public_key(), path))
    waiting, present = folder / _NEXT / KEY_FILE, _key_file(folder)
    if waiting.exists() and key_id(_read_key(waiting).public_key()) == wanted:
        # Key, certificate, and only then what they came from: done again, it is the same.
        write_file(present, waiting.read_bytes(), sync="folder")
    elif key_id(_read_key(present).public_key()) != wanted:
        raise SilodpError(f"{path} is for another key than this site has: {_AGAIN}.")
    write_file(folder / STARTUP / CERTIFICATE_FILE, given.certificate, sync="folder")
    _write(folder, replace(own, server=given.server, issued=given.issued))
    if waiting.exists() and key_id(_read_key(waiting).public_key()) == wanted:
        shutil.rmtree(folder / _NEXT)
    return certificate.not_valid_after_utc


def read_new_proposal(folder: Path, path: Path) -> tuple[Proposal, int]:
    """A proposal that the pinned authority signed, and its number.

    Refuses one that is older than what the site consented to.
    """
    own = read_membership(folder)
    root_path = folder / STARTUP / ROOT_FILE
    root_key = rsa_key(certificate_of(root_path.read_bytes(), root_path).public_key(), root_path)
    given = read_signed(path, ProposalDocument, lambda _: root_key, _AGAIN)
    _check_for(given.federation, own, path)
    if given.number < own.number:
        raise SilodpError(
            f"{path} is proposal {given.number}, and this site has consented to proposal "
            f"{own.number} since: consent to a newer one."
        )
    proposal = read_proposal(given.proposal, str(path))
    if own.site not in proposal.sites:
        raise SilodpError(
            f"{path} is a proposal without this site ({own.site!r}): there is nothing to consent "
            "to."
        )
    return proposal, given.number


def note_consent(folder: Path, proposal: Proposal, number: int) -> None:
    """Notes that the site has consented to this proposal: to no older one any more."""
    own = read_membership(folder)
    write_file(folder / PROPOSAL_FILE, proposal.text, sync="folder")
    _write(folder, replace(own, offered=number, number=max(number, own.number)))


def certificate_at(folder: Path) -> x509.Certificate | None:
    """The site's certificate; None before it came."""
    path = folder / STARTUP / CERTIFICATE_FILE
    return certificate_of(path.read_bytes(), path) if path.exists() else None


def check_certificate_at(folder: Path) -> None:
    """Refuses to go on without a certificate that is valid now, and says what to do."""
    certificate, path = certificate_at(folder), folder / STARTUP / CERTIFICATE_FILE
    if certificate is None:
        raise SilodpError(
            f"{folder} has no certificate yet: send the coordinator {folder / TO_SEND} (the "
            f"request), then take what comes back (silodp site join {folder} FILE)."
        )
    key = key_id(_read_key(_key_file(folder)).public_key())
    if key_id(rsa_key(certificate.public_key(), path)) != key:
        raise SilodpError(
            f"{path} is not that of the key beside it: take it again (silodp site join {folder} "
            "FILE)."
        )
    why = why_not_valid(certificate)
    if why is not None:
        raise SilodpError(
            f"The certificate of this site {why}: correct the clock, or renew it (silodp site "
            f"renew {folder})."
        )


def why_not_valid(certificate: x509.Certificate) -> str | None:
    """Why a certificate is not valid by this machine's clock; None if it is."""
    now = datetime.now(UTC)
    clock = f"this machine's clock says {now:%Y-%m-%d %H:%M} UTC"
    if now < certificate.not_valid_before_utc:
        return f"is valid from {certificate.not_valid_before_utc:%Y-%m-%d} only, and {clock}"
    if now >= certificate.not_valid_after_utc:
        return f"was valid until {certificate.not_valid_after_utc:%Y-%m-%d}, and {clock}"
    return None


def _of_old_kit(folder: Path) -> Membership:
    """The membership of a site that version 0.1.0 set up, with a key from the coordinator.

    All stays as it is: certificate, ledger, consent. `renew` gives the site a key of its own.
    """
    path = folder / STARTUP / _OLD
    root = folder / STARTUP / ROOT_FILE
    content = read_json(path, remedy=_PUT_BACK)
    try:
        server, site = content["servers"][0], str(content["client"]["fqsn"])
        host, port = server["service"]["target"].rsplit(":", 1)
        at = {"project": server["name"], "identity": server["identity"]}
        address = decode(Address, {**at, "host": host, "port": int(port)}, str(path))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise SilodpError(f"{path} is damaged: {_PUT_BACK}.") from None
    return Membership(key_id(_root_key(root.read_text(), root)), site, address)


def _check_for(federation: str, own: Membership, path: Path) -> None:
    if federation != own.federation:
        raise SilodpError(f"{path} is of another federation: give the file of this one.")


def _check_certificate(
    certificate: x509.Certificate, root: x509.Certificate, site: str, path: Path
) -> None:
    try:
        certificate.verify_directly_issued_by(root)
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if [str(name.value) for name in names] != [site]:
            raise ValueError
    except (ValueError, TypeError, InvalidSignature):
        raise SilodpError(
            f"{path} holds a certificate of another authority or name: {_AGAIN}."
        ) from None
    why = why_not_valid(certificate)
    if why is not None:
        raise SilodpError(f"{path}: the certificate in it {why}: correct the clock, or {_AGAIN}.")


def _root_key(root: str, path: Path) -> RSAPublicKey:
    return rsa_key(certificate_of(root, path).public_key(), path)


def _key_file(folder: Path) -> Path:
    return folder / STARTUP / KEY_FILE


def _read_key(path: Path) -> RSAPrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise SilodpError(f"{path} cannot be read ({error.strerror}): put back a copy.") from None
    except (ValueError, TypeError):
        raise SilodpError(f"{path} is damaged: {_PUT_BACK}.") from None
    if not isinstance(key, RSAPrivateKey):
        raise SilodpError(f"{path} is a key of another kind: {_PUT_BACK}.")
    return key


def _write(folder: Path, own: Membership) -> None:
    content: dict[str, Any] = {"format": _FORMAT, **asdict(own)}
    write_file(folder / MEMBERSHIP_FILE, json.dumps(content, indent=1) + "\n", sync="folder")
