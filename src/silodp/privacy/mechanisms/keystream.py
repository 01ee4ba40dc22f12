"""Random bytes for releases: ChaCha20 under a secret of 256 bits, addressed and not streamed.

An address (seed, trial, round, pass, purpose) always gives the same bytes, so that a round that is
done again after an interruption is the same round, and no two addresses share a byte. Whoever does
not know the secret cannot tell the bytes from random ones: noise is then as good as true noise.
"""

import hmac
import struct
from functools import cached_property
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from jaxtyping import UInt8, UInt64

# What bytes are for. Numbers, not names, are part of the address: they never change.
Purpose = Literal["sample", "sample refined", "noise", "noise refined", "selection"]
_NUMBER: dict[Purpose, int] = {
    "sample": 0,
    "sample refined": 1,
    "noise": 2,
    "noise refined": 3,
    "selection": 4,
}


class Keystream:
    """Bytes of one address, in order."""

    def __init__(self, key: bytes, nonce: bytes):
        """A key of 32 bytes and a nonce of 12, which is used once with it."""
        self._key, self._nonce = key, nonce

    @cached_property
    def _cipher(self) -> CipherContext:
        # Many streams are never read from, and setting up the cipher costs more than a few words.
        # The first four bytes count blocks of 64 bytes, from 0.
        return Cipher(algorithms.ChaCha20(self._key, bytes(4) + self._nonce), None).encryptor()

    def read(self, count: int) -> bytes:
        """The next `count` bytes."""
        return self._cipher.update(bytes(count)) if count else b""

    def bytes_of(self, count: int) -> UInt8[np.ndarray, " {count}"]:
        """The next `count` bytes, as an array."""
        return np.frombuffer(self.read(count), np.uint8)

    def words(self, count: int) -> UInt64[np.ndarray, " {count}"]:
        """The next `count` words."""
        return np.frombuffer(self.read(8 * count), np.uint64)


def key_of(secret: bytes, *about: object) -> bytes:
    """A key of 32 bytes for one purpose: HMAC-SHA256 of what it is for, under the secret."""
    return hmac.digest(secret, " ".join(map(str, about)).encode(), "sha256")


def pass_stream(key: bytes, number: int, number_of_pass: int, purpose: Purpose) -> Keystream:
    """The bytes of a training pass, or selection, of the round of that number."""
    return Keystream(key, struct.pack("<QHH", number, number_of_pass, _NUMBER[purpose]))
