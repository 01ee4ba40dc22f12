"""Images for tests: drawn ones, and a PNG that claims any size."""

import struct
import zlib

import numpy as np
from PIL import Image


def draw(path, seed=0, side=20, colour=False):
    """Writes an image of random pixels, and gives them; folders are made as needed."""
    shape = (side, side, 3) if colour else (side, side)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return pixels


def png_that_claims(width, height):
    """A PNG of some hundred bytes, sound but for its missing pixels."""

    def chunk(kind, content):
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(100))
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"IDAT", pixels),
            chunk(b"IEND", b""),
        ]
    )
