"""Scattering: wavelets and absolute values, twice, averaged over places. It has learned nothing.

Bruna and Mallat, "Invariant Scattering Convolution Networks" (2013), with two scales and eight
directions; second-order numbers are taken relative to those of the first order that they come
from, and logarithms of all. No data had a part in it, public ones neither.
"""

import hashlib
from functools import cache

import numpy as np

from silodp.base.errors import SilodpError
from silodp.data.encoders.encoder import EncoderInfo, PublicEncoder

NAME = "scattering"
SCALES, DIRECTIONS, PLACES = 2, 8, 2
WIDTH = 3 * PLACES**2 * (1 + SCALES * DIRECTIONS + DIRECTIONS**2)
DEFAULT_SIZE, LEAST_SIZE, MOST_SIZE = 32, 16, 128
_VERSION = f"{NAME} 1"  # changes whenever features do
_MARGIN = 4  # pixels, mirrored, so that edges of the picture are no edges of objects
# What numbers of the first and second order are where the spectrum is 1/f, as in most pictures;
# and how much of that is taken for nothing.
_USUAL, _FLOOR = (0.027, 0.0025), (0.1, 0.05)


def scattering(size: int) -> PublicEncoder:
    """The encoder for images of `size` pixels to a side."""
    if not LEAST_SIZE <= size <= MOST_SIZE or size % PLACES:
        raise SilodpError(
            f"Features {NAME!r}: image_size is {size}: give an even number from {LEAST_SIZE} to "
            f"{MOST_SIZE}."
        )
    info = EncoderInfo(
        name=NAME,
        takes="image",
        sha256=hashlib.sha256(f"{_VERSION} {size}".encode()).hexdigest(),
        licence="Apache-2.0 (part of silodp)",
        trained_on="nothing: its wavelets are fixed",
        width=WIDTH,
        size=size,
    )
    return PublicEncoder(info, _scattered)


def _scattered(image: np.ndarray) -> np.ndarray:
    """Features of an image [size, size, 3] of dtype uint8."""
    colours = np.moveaxis(image.astype(np.float32) / 255, -1, 0)
    x = np.pad(colours, [(0, 0), *[(_MARGIN, _MARGIN)] * 2], "symmetric")
    waves = _wavelets(x.shape[-1])
    # [colours, scales, directions, ...], and of the finer scale again [.., directions, ...].
    first = np.abs(np.fft.ifft2(np.fft.fft2(x)[:, None, None] * waves))
    second = np.abs(np.fft.ifft2(np.fft.fft2(first[:, 0])[:, :, None] * waves[1]))
    once, twice = (_at_places(u) / usual for u, usual in zip((first, second), _USUAL, strict=True))
    within_once = once[:, 0][:, :, None] + _FLOOR[0]
    parts = (
        4 * (_at_places(x) - 0.5),
        np.log(once + _FLOOR[0]),
        np.log((twice + _FLOOR[1]) / within_once),
    )
    return np.concatenate([part.ravel() for part in parts])


def _at_places(u: np.ndarray) -> np.ndarray:
    """The means [..., places, places] of parts of the picture, without its margin."""
    inner = u[..., _MARGIN:-_MARGIN, _MARGIN:-_MARGIN]
    step = inner.shape[-1] // PLACES
    return inner.reshape(*u.shape[:-2], PLACES, step, PLACES, step).mean(axis=(-3, -1))


@cache
def _wavelets(side: int) -> np.ndarray:
    """Morlet wavelets in the Fourier domain [scales, directions, side, side]."""
    made = []
    for scale in range(SCALES):
        deviation, frequency = 0.8 * 2**scale, 0.75 * np.pi / 2**scale
        for number in range(DIRECTIONS):
            angle = number * np.pi / DIRECTIONS
            wave = _wave(side, deviation, angle, frequency)
            bump = _wave(side, deviation, angle, 0.0)
            made.append(wave - wave.sum() / bump.sum() * bump)  # of mean zero
    filters = np.fft.fft2(np.array(made)).real.astype(np.float32)
    return filters.reshape(SCALES, DIRECTIONS, side, side)


def _wave(side: int, deviation: float, angle: float, frequency: float) -> np.ndarray:
    """A plane wave under a Gaussian that is longer across it, repeated with the picture."""
    across = 4 / DIRECTIONS
    cosine, sine = np.cos(angle), np.sin(angle)
    y, x = np.mgrid[-2 * side : 3 * side, -2 * side : 3 * side]
    along, aside = x * cosine + y * sine, y * cosine - x * sine
    wave = np.exp(-(along**2 + (across * aside) ** 2) / (2 * deviation**2) + 1j * frequency * along)
    folded = wave.reshape(5, side, 5, side).sum(axis=(0, 2))
    return folded * across / (2 * np.pi * deviation**2)
