"""The authority of a federation: its key, which a passphrase protects, and what it certifies.

    FEDERATION/authority/root.pem   its certificate, which every site keeps
    FEDERATION/authority/key.json   its key, encrypted

The key is needed to invite, to propose, and to issue certificates; the server runs without it. So
whoever steals the coordinator's folder can let in no site, and have no proposal taken for its own.
"""

import ipaddress
import json
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from silodp.base.documents import read_json
from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.sites.membership.documents import Content, certificate_of, key_id, rsa_key, signed

FOLDER, ROOT_FILE, KEY_FILE = "authority", "root.pem", "key.json"
ORG = "silodp"
SHORTEST = 12  # characters of a passphrase
ROOT_DAYS, DAYS = 3650, 365
_FORMAT = 1
_COST = 2**16  # of scrypt: a fifth of a second and 64 MB for each guess at the passphrase
_PUT_BACK = "put back an intact copy; without it no site can be added, and no certificate renewed"
# A machine whose clock is some minutes late takes a certificate all the same.
_SLACK = timedelta(minutes=10)


def new_key(bits: int = 2048) -> RSAPrivateKey:
    """A private key."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def key_bytes(key: RSAPrivateKey) -> bytes:
    """The private key as FLARE reads it, for a file of its owner alone."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())


def check_passphrase(passphrase: str) -> None:
    """Refuses one that is guessed too soon."""
    if len(passphrase) < SHORTEST or len(set(passphrase)) < 5:
        raise SilodpError(
            f"The passphrase is too short: give at least {SHORTEST} characters, such as four words "
            "drawn by lot."
        )


class Authority:
    """The authority with its key at hand.

    Attributes:
      root: its certificate.
    """

    def __init__(self, root: x509.Certificate, key: RSAPrivateKey):
        self.root, self._key = root, key

    @property
    def root_pem(self) -> str:
        """Its certificate, as it travels."""
        return self.root.public_bytes(Encoding.PEM).decode()

    @property
    def federation(self) -> str:
        """The name of the federation in documents: that of the authority's key."""
        return key_id(self._key.public_key())

    def sign(self, content: Content) -> bytes:
        """A document with this content."""
        return signed(self._key, content)

    def certificate(
        self,
        name: str,
        public: RSAPublicKey,
        *,
        hosts: tuple[str, ...] = (),
        role: str | None = None,
        days: int = DAYS,
    ) -> str:
        """A certificate for a public key, for a year; with `hosts`, that of the server.

        Args:
          name: whose key it is.
          public: the key.
          hosts: names and addresses at which a server has it.
          role: the administrator's.
          days: that it is valid for.
        """
        now = datetime.now(UTC)
        until = min(now + timedelta(days=days), self.root.not_valid_after_utc)
        if until <= now:
            raise SilodpError(
                f"The authority's certificate was valid until {until:%Y-%m-%d}: begin a new "
                "federation (silodp federation init); sites keep their ledgers."
            )
        # A site's certificate can be that of no server.
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        uses += [ExtendedKeyUsageOID.SERVER_AUTH] if hosts else []
        names = [_alternative(host) for host in dict.fromkeys(hosts)] or [x509.DNSName("site")]
        builder = (
            _builder(_name(name, ORG, role), self.root.subject, public, now - _SLACK, until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        made = builder.sign(self._key, hashes.SHA256())
        return made.public_bytes(Encoding.PEM).decode()


def make_authority(folder: Path, name: str, passphrase: str) -> Authority:
    """Makes an authority in the federation's folder."""
    key, now = new_key(3072), datetime.now(UTC)
    subject = _name(name)
    builder = (
        _builder(subject, subject, key.public_key(), now - _SLACK, now + timedelta(days=ROOT_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
    )
    made = Authority(builder.sign(key, hashes.SHA256()), key)
    keep_authority(folder, made.root_pem, key, passphrase)
    return made


def keep_authority(folder: Path, root: str, key: RSAPrivateKey, passphrase: str) -> None:
    """Writes an authority's certificate, and its key encrypted with the passphrase."""
    check_passphrase(passphrase)
    salt = secrets.token_bytes(16)
    lock = BestAvailableEncryption(_derived(passphrase, salt, _COST))
    content = {
        "format": _FORMAT,
        "scrypt": {"n": _COST, "salt": salt.hex()},
        "key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock).decode(),
    }
    write_file(folder / FOLDER / ROOT_FILE, root)
    write_file(folder / FOLDER / KEY_FILE, json.dumps(content, indent=1) + "\n", sync="folder")
    (folder / FOLDER).chmod(0o700)


def open_authority(folder: Path, passphrase: str) -> Authority:
    """The authority of the federation in this folder; refuses a wrong passphrase."""
    path = folder / FOLDER / KEY_FILE
    content = read_json(path, remedy=_PUT_BACK, missing=_PUT_BACK)
    try:
        if content["format"] != _FORMAT:
            raise SilodpError(
                f"{path} has format {content['format']!r}, but this silodp knows only {_FORMAT}: "
                "use the version that wrote it."
            )
        salt, cost = bytes.fromhex(content["scrypt"]["salt"]), content["scrypt"]["n"]
        sealed = content["key"].encode()
        password = _derived(passphrase, salt, cost)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SilodpError(f"{path} is damaged: {_PUT_BACK}.") from None
    try:
        key = load_pem_private_key(sealed, password)
    except (ValueError, TypeError):
        raise SilodpError(
            f"The passphrase does not open {path}: give the one of this federation."
        ) from None
    root = root_of(folder)
    rsa_key(key.public_key(), path)
    if not isinstance(key, RSAPrivateKey) or key_id(key.public_key()) != federation_of(folder):
        raise SilodpError(f"{path} is not the key of {ROOT_FILE} beside it: {_PUT_BACK}.")
    return Authority(root, key)


def root_of(folder: Path) -> x509.Certificate:
    """The authority's certificate; its key is not needed for it."""
    path = folder / FOLDER / ROOT_FILE
    try:
        return certificate_of(path.read_bytes(), path)
    except OSError as error:
        raise SilodpError(f"{path} cannot be read ({error.strerror}): {_PUT_BACK}.") from None


def federation_of(folder: Path) -> str:
    """The name of the federation in documents."""
    path = folder / FOLDER / ROOT_FILE
    return key_id(rsa_key(root_of(folder).public_key(), path))


def _derived(passphrase: str, salt: bytes, cost: int) -> bytes:
    return Scrypt(salt, 32, cost, 8, 1).derive(passphrase.encode()).hex().encode()


def _name(name: str, org: str | None = None, role: str | None = None) -> x509.Name:
    """A name as FLARE reads it: the role of an administrator is in its unstructured name."""
    given = {
        NameOID.COMMON_NAME: name,
        NameOID.ORGANIZATION_NAME: org,
        NameOID.UNSTRUCTURED_NAME: role,
    }
    return x509.Name([x509.NameAttribute(oid, text) for oid, text in given.items() if text])


def _builder(
    subject: x509.Name, issuer: x509.Name, public: RSAPublicKey, since: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _key_usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not authority,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
