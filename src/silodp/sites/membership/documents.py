"""What coordinator and sites hand each other to become a federation, each signed as a whole.

    silodp federation 1        the form, and its number
    9f86d081...                the signature of all that follows (and of the line above)
    {"what": "invitation", ...}

    invitation    coordinator to site, signed by the authority: its certificate, the server's
                  address, the proposal
    request       site to coordinator, signed by the site's own key: the public half of that key
    certificate   coordinator to site, signed by the authority: the site's certificate, the address
    proposal      coordinator to sites, signed by the authority: a proposal and its number

None holds a private key or a password: whoever reads one on its way learns what is agreed on, and
can alter nothing. That the authority's key is the right one, two people compare by phone.
"""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)

from silodp.base.documents import declared, decode, json_of
from silodp.base.errors import SilodpError
from silodp.sites.exchange.keys import fingerprint

FORMAT = 1
_FIRST = b"silodp federation %d\n" % FORMAT
_ANY_FIRST = re.compile(rb"silodp federation ([1-9][0-9]{0,5})\n")
_LARGEST = 1 << 24  # bytes: a proposal has a line for every column
_RENEWAL = b"silodp renewal 1\n"

_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
)
_PROJECT = re.compile(r"[A-Za-z0-9_-]{1,63}")


def is_host(name: object) -> bool:
    """Whether it can be the name or the address (of version 4) of a machine."""
    return isinstance(name, str) and len(name) <= 63 and bool(_HOST.fullmatch(name))


def _is_pem(text: str) -> bool:
    return text.startswith("-----BEGIN ") and len(text) < 1 << 16


@dataclass(frozen=True)
class Address:
    """Where sites find the coordinator's server.

    Attributes:
      project: FLARE's name for the federation.
      identity: the name in the server's certificate, which stays when the server moves.
      host: its public name or address.
      port: its public port.
    """

    project: str = declared("have it sent again", fits=_PROJECT.fullmatch)
    identity: str = declared("have it sent again", fits=is_host)
    host: str = declared("have it sent again", fits=is_host)
    port: int = declared("have it sent again", fits=lambda port: 0 < port < 65536)


@dataclass(frozen=True)
class Invitation:
    """What a coordinator invites a site to."""

    federation: str = declared("have it sent again")
    site: str = declared("have it sent again", fits=bool)
    root: str = declared("have it sent again", fits=_is_pem)
    server: Address = declared("have it sent again")
    proposal: str = declared("have it sent again")
    number: int = declared("have it sent again", fits=lambda number: number > 0)


@dataclass(frozen=True)
class CertificateRequest:
    """A site's request for a certificate; `proof` is of its present key, if it has one."""

    federation: str = declared("have it sent again")
    site: str = declared("have it sent again", fits=bool)
    public: str = declared("have it sent again", fits=_is_pem)
    proof: str = declared("have it sent again", "")


@dataclass(frozen=True)
class SiteCertificate:
    """A site's certificate; `issued` counts what the authority issued."""

    federation: str = declared("have it sent again")
    site: str = declared("have it sent again", fits=bool)
    certificate: str = declared("have it sent again", fits=_is_pem)
    server: Address = declared("have it sent again")
    issued: int = declared("have it sent again", fits=lambda issued: issued > 0)


@dataclass(frozen=True)
class ProposalDocument:
    """A proposal, and the place that it has among those of the federation."""

    federation: str = declared("have it sent again")
    proposal: str = declared("have it sent again")
    number: int = declared("have it sent again", fits=lambda number: number > 0)


Content = Invitation | CertificateRequest | SiteCertificate | ProposalDocument
_KINDS: dict[str, type[Any]] = {
    "invitation": Invitation,
    "request": CertificateRequest,
    "certificate": SiteCertificate,
    "proposal": ProposalDocument,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_Kind = TypeVar("_Kind", Invitation, CertificateRequest, SiteCertificate, ProposalDocument)


def key_id(public: RSAPublicKey) -> str:
    """The name of a public key: a hash of it, in hexadecimal digits."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(_der(public))
    return digest.finalize().hex()


def key_fingerprint(public: RSAPublicKey) -> str:
    """What people read to each other to know that both have the same key."""
    return fingerprint(_der(public).hex())


def public_pem(public: RSAPublicKey) -> str:
    """The public key as it travels."""
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def certificate_of(pem: str | bytes, path: Path) -> x509.Certificate:
    """Reads a certificate that came in the file."""
    try:
        certificate = x509.load_pem_x509_certificate(pem.encode() if isinstance(pem, str) else pem)
        public = certificate.public_key()
    except (ValueError, TypeError):
        raise SilodpError(f"{path} holds no certificate: have it sent again.") from None
    rsa_key(public, path)
    return certificate


def rsa_key(key: object, path: Path) -> RSAPublicKey:
    """The key, if it is of the one kind that is in use here, and long enough."""
    if not isinstance(key, RSAPublicKey) or not 2048 <= key.key_size <= 8192:
        raise SilodpError(f"{path} holds a key of another kind: have it sent again.")
    return key


def public_key_of(pem: str, path: Path) -> RSAPublicKey:
    """Reads a public key that came in the file."""
    try:
        public = load_pem_public_key(pem.encode())
    except (ValueError, TypeError):
        raise SilodpError(f"{path} holds no key: have it sent again.") from None
    return rsa_key(public, path)


def sign(key: RSAPrivateKey, content: bytes) -> str:
    """The signature of the content, in hexadecimal digits."""
    whole = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
    return key.sign(content, whole, hashes.SHA256()).hex()


def is_signed(public: RSAPublicKey, signature: str, content: bytes) -> bool:
    """Whether the holder of the key signed the content."""
    whole = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
    try:
        public.verify(bytes.fromhex(signature), content, whole, hashes.SHA256())
    except (InvalidSignature, ValueError):
        return False
    return True


def proof_of(key: RSAPrivateKey, federation: str, site: str, public: RSAPublicKey) -> str:
    """A site's word, by its present key, that its next key is this one."""
    return sign(key, _renewal(federation, site, public))


def is_proof(request: CertificateRequest, present: RSAPublicKey, public: RSAPublicKey) -> bool:
    """Whether the site's present key stands behind a request for a certificate of the next."""
    content = _renewal(request.federation, request.site, public)
    return bool(request.proof) and is_signed(present, request.proof, content)


def signed(key: RSAPrivateKey, content: Content) -> bytes:
    """The document that holds the content, signed with the key."""
    body = {"what": _NAMES[type(content)], **asdict(content)}
    line = json.dumps(body, sort_keys=True, allow_nan=False).encode() + b"\n"
    return _FIRST + sign(key, _FIRST + line).encode() + b"\n" + line


def read_signed(
    path: Path, kind: type[_Kind], signer: Callable[[_Kind], RSAPublicKey], remedy: str
) -> _Kind:
    """Reads a document of this kind that `signer` has signed; refuses any other.

    Args:
      path: the file.
      kind: of document that is meant.
      signer: the public key that must have signed it, from its content where that says so.
      remedy: how to get it again.
    """
    altered = SilodpError(
        f"{path} is not as it was sent (altered, cut short, or by somebody else): {remedy}."
    )
    content = _bytes_of(path)
    found = _ANY_FIRST.match(content)
    if found is None:
        what = "a kit of an older silodp" if content[:2] == b"PK" else "no file of a federation"
        raise SilodpError(f"{path} is {what}: {remedy}.")
    if found[0] != _FIRST:
        raise SilodpError(
            f"{path} has format {int(found[1])}, but this silodp knows only {FORMAT}: have the "
            "same version of silodp at all sites."
        )
    signature, _, line = content[len(_FIRST) :].partition(b"\n")
    try:
        body = json_of(line, str(path), remedy)
        what = body.pop("what")
        if what not in _KINDS:
            raise altered
        if _KINDS[what] is not kind:
            raise SilodpError(f"{path} is a {what}, not a {_NAMES[kind]}: give the other file.")
        document = decode(kind, body, str(path))
    except (KeyError, TypeError, AttributeError):
        raise altered from None
    if not is_signed(signer(document), signature.decode("latin-1"), _FIRST + line):
        raise altered
    return document


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise SilodpError(f"{path} cannot be read ({error.strerror}): check the path.") from None
    if len(content) > _LARGEST:
        raise SilodpError(f"{path} is larger than any such file: give the one that was sent.")
    return content


def _renewal(federation: str, site: str, public: RSAPublicKey) -> bytes:
    return _RENEWAL + f"{federation} {site} ".encode() + _der(public)


def _der(public: RSAPublicKey) -> bytes:
    return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
