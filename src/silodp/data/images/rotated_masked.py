"""Rotated and masked images: silos with two layers of heterogeneity, as in the paper.

    shuffle the images, deal them evenly to K silos
    silos in G groups; the images of group g are turned by g * 360/G degrees      (clusters)
    silo k: each 2x2 patch of a grid is white with chance `mask_ratio`            (within clusters)

All images of a silo, of training and of testing, carry the same mask. What chance decides comes
from the seed: the deal and the masks. How many images a silo gets does not, so that runs of several
seeds have one shape; nor does the group, which names the silo. By coins (`--split coin`) each image
is dealt by itself, and always to the same silo.
"""

from typing import NamedTuple

import numpy as np

from silodp.base.errors import SilodpError
from silodp.base.text import numbered
from silodp.data import coins
from silodp.data.federation import Federation, Records, Silo
from silodp.data.scaling import PIXEL_RANGES
from silodp.data.source import DataOptions, whole_number
from silodp.data.split import PAPER_DEAL, Parts, coin_thin, expected_counts, thin_silo, uncovered_by

PATCH = 2
WHITE = 255
# What may be turned without a pixel between pixels.
ROTATIONS = (1, 2, 4)


class Images(NamedTuple):
    """Grey images [n, height, width] in one byte a pixel, and the number of each one's class."""

    x: np.ndarray
    y: np.ndarray


class Layers(NamedTuple):
    """What the silos are made to differ in."""

    silos: int
    rotations: int
    mask_ratio: float


def layers_of(options: DataOptions, default: Layers) -> Layers:
    """The options, checked."""
    silos = whole_number("silos", options.silos, default.silos)
    rotations = default.rotations if options.rotations is None else options.rotations
    ratio = default.mask_ratio if options.mask_ratio is None else options.mask_ratio
    if rotations not in ROTATIONS:
        raise SilodpError(
            f"The option 'rotations' is {rotations!r}: choose 1 (none), 2 or 4 groups."
        )
    if silos % rotations:
        raise SilodpError(
            f"The option 'silos' is {silos}, which cannot be parted into {rotations} equal groups: "
            f"give a multiple of {rotations}, or other rotations."
        )
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
        raise SilodpError(f"The option 'mask_ratio' is {ratio!r}: give a number from 0 to 1.")
    return Layers(silos, rotations, float(ratio))


def mask(random: np.random.Generator, shape: tuple[int, int], ratio: float) -> np.ndarray:
    """Where a silo's images are white [height, width].

    Of one draw, the mask of a higher ratio holds that of a lower one.
    """
    rows, columns = (-(-side // PATCH) for side in shape)
    patches = random.random((rows, columns)) < ratio
    return np.kron(patches, np.ones((PATCH, PATCH), bool))[: shape[0], : shape[1]]


def federation_of(
    name: str,
    train: Images,
    test: Images,
    layers: Layers,
    seed: int,
    options: DataOptions,
    test_fraction: float | None = None,
) -> Federation:
    """The images, dealt to silos, turned and masked.

    `test_fraction` is by what coins parted training and test images, if they did.
    """
    silos, rotations, ratio = layers
    if len(test.y) < silos or len(train.y) < silos:
        raise SilodpError(
            f"Data set {name!r} has {len(train.y)} training and {len(test.y)} test images, too few "
            f"for {silos} silos: give fewer silos."
        )
    deal, *of_silos = np.random.default_rng(seed).spawn(silos + 1)
    hands = [_dealt(name, images, silos, deal, options) for images in (train, test)]
    made = []
    for number, ((train_rows, test_rows), random) in enumerate(
        zip(zip(*hands, strict=True), of_silos, strict=True)
    ):
        quarters = number * rotations // silos * (4 // rotations)
        white = mask(random, train.x.shape[1:], ratio)

        def records(images: Images, rows: np.ndarray, quarters=quarters, white=white) -> Records:
            turned = np.rot90(images.x[rows], quarters, axes=(1, 2))
            return Records(
                np.where(white, WHITE, turned).astype(np.uint8)[..., None], images.y[rows]
            )

        own_name = _name(number, silos, quarters, rotations)
        parts = Parts(records(train, train_rows), records(test, test_rows))
        if options.split != "coin":
            own = thin_silo(own_name, parts.train, options.density, seed)
            made.append(Silo(own_name, own, parts.test))
            continue
        if options.density is not None:
            identities = coins.of_arrays(parts.train.x, parts.train.y)
            parts = coin_thin(own_name, *parts[:2], identities, options.density, seed)
        expected = parts.expected
        if test_fraction is not None:
            dealt = len(train_rows) + len(test_rows)
            expected = expected_counts(dealt, dealt, test_fraction, options.density)
        made.append(Silo(own_name, parts.train, parts.test, expected=expected))
    return Federation(
        name=name,
        silos=tuple(made),
        task="multiclass",
        num_classes=10,
        uncovered=uncovered_by(options, PAPER_DEAL),
        declared=("feature bounds", "class list"),
        pixels=PIXEL_RANGES[options.preprocess or "paper"],
    )


def _dealt(
    name: str, images: Images, silos: int, random: np.random.Generator, options: DataOptions
) -> list[np.ndarray]:
    """The rows of the images that each silo gets."""
    if options.split != "coin":
        return np.array_split(random.permutation(len(images.y)), silos)
    hand = coins.deal(coins.contents(images.x, images.y), np.full(silos, 1 / silos), f"deal {name}")
    hands = [np.flatnonzero(hand == number) for number in range(silos)]
    if not all(map(len, hands)):
        raise SilodpError(
            f"Data set {name!r} has {len(images.y)} images to deal, which leave one of {silos} "
            "silos without any: give fewer silos."
        )
    return hands


def _name(number: int, silos: int, quarters: int, rotations: int) -> str:
    kind = "silo" if rotations == 1 else f"rotated-{90 * quarters:03d}"
    return numbered(kind, number, silos)
