"""Do the low bits of released sums show anything? On arrays of sums, with nothing of the engine.

A release is a whole number of grains: the records' sum, plus noise that is a Gaussian rounded to
whole grains. Its low bits are then as good as fair coins, whatever the sum (the chances of the
residues modulo 2^j differ by less than exp(-2 pi^2 (sigma / (2^j grain))^2): nothing, where sigma
is more than a few times 2^j grains).

Noise that was made in single precision is not so. Only so many numbers of single precision lie in a
cell of the lattice, 13 or 14 and never 13.4, so that the chances of cells are off by per cents in a
pattern that anyone can work out, and that a record shifts (I. Mironov, On significance of the least
significant bits for differential privacy, 2012). `cell_log_odds` is that pattern, and
`low_bit_checks` looks for it: by the likelihood ratio of both kinds of noise, the strongest test
that there is between the two.
"""

import numpy as np
from scipy import special, stats

from silodp.auditing.checks import Check, exactly, strangest

# Residues are looked at modulo 2^1 to this power of two.
_MOST_BITS = 8
# Of cells: wider sigmas than that are nothing but Gaussian to every residue looked at.
_NARROWEST = 8.0
# Deviations of the noise up to which the pattern is looked for.
_REACH = 5.0
_WHOLE = 1e-6  # grains by which reading may be off
_EXACT = 2.0**24  # whole numbers up to which single precision is exact

_HALF_ROOT = np.float32(np.sqrt(0.5))
# Numbers of single precision by which the edge of a cell is first guessed wrong.
_ASIDE = 4


def low_bit_checks(sums: np.ndarray, grain: float, sigma: float) -> list[Check]:
    """Checks of noise alone, as it was released.

    Args:
      sums: released, of records that add nothing; in any shape.
      grain: the number of which they are whole multiples.
      sigma: the noise's deviation.
    """
    cells = np.asarray(sums, float).ravel() / grain
    whole = np.round(cells)
    off = float(np.max(np.abs(cells - whole)))
    checks = [
        exactly(
            "released sums are whole numbers of grains",
            off <= _WHOLE,
            f"up to {off:.2g} grains off",
            "0",
        )
    ]
    # Beyond that, what is released is rounded once more, and its lowest bits are nil.
    whole = whole[np.abs(whole) < _EXACT]
    checks.append(evenness_check(whole, sigma / grain))
    checks.append(_pattern(whole, grain, sigma))
    return checks


def evenness_check(whole: np.ndarray, width: float) -> Check:
    """Whether the numbers are spread evenly over the residues modulo small powers of two."""
    bits = int(np.clip(np.log2(max(width / _NARROWEST, 2.0)), 1, _MOST_BITS))
    # No fewer than five in a residue, or chances are not those of chi-square.
    bits = max(1, min(bits, int(np.log2(max(2.0, len(whole) / 5)))))
    found = [_evenness(whole, 2**bit) for bit in range(1, bits + 1)]
    worst, p = strangest(np.array([p for _, p in found]))
    return Check(
        "low bits are even",
        f"chi-square {found[worst][0]:.4g} modulo {2 ** (worst + 1)}",
        f"{2 ** (worst + 1) - 1}",
        p,
    )


def _evenness(whole: np.ndarray, modulus: int) -> tuple[float, float]:
    counts = np.bincount(np.mod(whole, modulus).astype(int), minlength=modulus)
    found = stats.chisquare(counts)
    return float(found.statistic), float(found.pvalue)


def _pattern(whole: np.ndarray, grain: float, sigma: float) -> Check:
    """Whether cells are hit by the pattern of single precision: by the likelihood ratio."""
    reach = min(int(_REACH * sigma / grain), int(_EXACT) - 1)
    in_reach = whole[np.abs(whole) <= reach]
    odds = cell_log_odds(in_reach, grain, sigma)
    # What true Gaussian noise would show: cells around, each with its own chance.
    sample = np.round(np.linspace(-reach, reach, 200_001))
    chance = np.exp(-0.5 * (sample * grain / sigma) ** 2)
    expected = cell_log_odds(sample, grain, sigma)
    mean = np.sum(chance * expected) / np.sum(chance)
    variance = np.sum(chance * (expected - mean) ** 2) / np.sum(chance)
    spread = np.sqrt(variance / max(1, len(in_reach)))
    score = 0.0 if spread == 0 else (np.mean(odds) - mean) / spread
    return Check(
        "cells have no pattern of single precision",
        f"likelihood ratio {score:.3g} deviations off",
        "0 within 1",
        float(2 * special.ndtr(-abs(score))),
    )


def cell_log_odds(cells: np.ndarray, grain: float, sigma: float) -> np.ndarray:
    """Log of how much likelier noise of single precision is in these cells than the true one.

    That noise is sigma times (sqrt(1/2) times the sum of two standard normal numbers), each product
    rounded to single precision. The chance of a cell goes by how many such sums end in it.

    Args:
      cells: whole numbers of grains.
      grain: grain of the lattice.
      sigma: the noise's deviation.
    """
    # Both signs are alike: cells are counted away from 0, whose own odds are even.
    sizes = np.maximum(np.abs(np.asarray(cells, float)), 1.0)
    first, last = (_first_sum(sizes + more, grain, sigma) for more in (0.0, 1.0))
    spacing = np.spacing(_number(first)).astype(float)
    width = grain / (float(np.float32(sigma)) * float(_HALF_ROOT))
    return np.where(cells == 0, 0.0, np.log(np.maximum(last - first, 0.5) * spacing / width))


def _first_sum(cells: np.ndarray, grain: float, sigma: float) -> np.ndarray:
    """The place, among the numbers of single precision, of the first sum that ends in each cell."""
    edge = (cells - 0.5) * grain / (float(np.float32(sigma)) * float(_HALF_ROOT))
    guess = edge.astype(np.float32).view(np.int32).astype(np.int64) - _ASIDE
    place = guess.copy()
    for _ in range(2 * _ASIDE + 1):
        product = np.float32(sigma) * (_HALF_ROOT * _number(place))
        place += np.round(product.astype(float) / grain) < cells
    return place


def _number(place: np.ndarray) -> np.ndarray:
    return place.astype(np.int32).view(np.float32)
