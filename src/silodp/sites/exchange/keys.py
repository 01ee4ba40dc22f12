"""Keys that files are signed with (Ed25519), and fingerprints that people compare by phone.

A private key is made where it is used and never leaves that folder. A public key travels as 64
hexadecimal digits.
"""

import hashlib
import re
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from silodp.base.errors import SilodpError
from silodp.base.files import write_file

KEY_FILE = "key.pem"
_PUBLIC = re.compile(r"[0-9a-f]{64}")
_SIGNATURE = re.compile(r"[0-9a-f]{128}")
# Digits of a fingerprint: 128 bits, so that nobody makes another key with the same one.
_FINGERPRINT = 32
_GROUP = 4


def make_key(folder: Path) -> Ed25519PrivateKey:
    """Makes a private key in the folder, for its owner's eyes only (0600)."""
    key = Ed25519PrivateKey.generate()
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_file(folder / KEY_FILE, content, sync="folder")
    return key


def read_key(folder: Path, remedy: str) -> Ed25519PrivateKey:
    """The private key in the folder; refuses what is none, with this remedy."""
    path = folder / KEY_FILE
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise SilodpError(f"{path} cannot be read ({error.strerror}): {remedy}.") from None
    except (ValueError, TypeError):
        raise SilodpError(f"{path} is damaged: {remedy}.") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SilodpError(f"{path} is a key of another kind: {remedy}.")
    return key


def public_key(key: Ed25519PrivateKey) -> str:
    """The public key, as it travels."""
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def is_public_key(text: object) -> bool:
    """Whether it is written as a public key is."""
    return isinstance(text, str) and bool(_PUBLIC.fullmatch(text))


def fingerprint(public: str) -> str:
    """What people read to each other, to know that both have the same public key."""
    digits = hashlib.sha256(bytes.fromhex(public)).hexdigest()[:_FINGERPRINT]
    return " ".join(digits[i : i + _GROUP] for i in range(0, len(digits), _GROUP))


def signature(key: Ed25519PrivateKey, content: bytes) -> str:
    """The signature of the content: always the same for the same content."""
    return key.sign(content).hex()


def is_signed(public: str, signed: str, content: bytes) -> bool:
    """Whether this is the signature of the content by the holder of the key."""
    # No other spelling of the digits: each byte of a file counts.
    if not is_public_key(public) or not _SIGNATURE.fullmatch(signed):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(
            bytes.fromhex(signed), content
        )
    except (InvalidSignature, ValueError):
        return False
    return True
