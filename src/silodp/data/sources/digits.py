"""Rotated and masked digits of scikit-learn: real images that need no download.

1,797 handwritten digits of 8x8 pixels (the test part of a set of the UCI repository), made into
silos as Rotated & Masked MNIST is.
"""

import numpy as np

from silodp.base.errors import SilodpError
from silodp.data import coins
from silodp.data.federation import Federation
from silodp.data.images.rotated_masked import WHITE, Images, Layers, federation_of, layers_of
from silodp.data.scaling import PIXEL_RANGES
from silodp.data.source import DataOptions, DataSource, Defaults
from silodp.data.split import train_test_split

DEFAULT_LAYERS = Layers(silos=12, rotations=4, mask_ratio=0.1)
DEFAULT_TEST_FRACTION = 0.2
SIDE = 8
INK = 16  # a pixel counts the dark ones of 4x4 scanned pixels


def read_digits() -> Images:
    """The images with black as 0 and full ink as 255."""
    try:
        from sklearn.datasets import load_digits  # optional, so not at the top
    except ImportError as error:
        raise SilodpError(
            "Data set 'digits' comes with scikit-learn, which is not installed: install it with "
            "`pip install 'silodp[digits]'`."
        ) from error
    x, y = load_digits(return_X_y=True)
    x = np.round(np.asarray(x).reshape(-1, SIDE, SIDE) * (WHITE / INK))
    return Images(x.astype(np.uint8), np.asarray(y, np.uint8))


def read(seed: int, options: DataOptions) -> Federation:
    """The digits in silos; every draw comes from the seed."""
    layers = layers_of(options, DEFAULT_LAYERS)
    fraction = options.test_fraction or DEFAULT_TEST_FRACTION
    images = read_digits()
    if options.split == "coin":
        tested = coins.toss(coins.of_arrays(images.x, images.y), fraction, "test", "", seed)
        parts = (~tested, tested)
    else:
        parts = train_test_split(len(images.y), fraction, seed)
    train, test = (Images(images.x[rows], images.y[rows]) for rows in parts)
    return federation_of("digits", train, test, layers, seed, options, fraction)


SOURCE = DataSource(
    name="digits",
    summary="1,797 digits in 12 silos, rotated and masked (10 classes, 8x8; with scikit-learn)",
    citation=(
        "E. Alpaydin, C. Kaynak, Optical recognition of handwritten digits, UCI Machine Learning "
        "Repository (1998); as bundled with scikit-learn"
    ),
    licence="CC BY 4.0",
    files=(),
    defaults=Defaults(
        model="softmax",
        rounds=100,
        batch_size=32,
        clip=1.0,
        lr=0.3,
        delta=1e-3,
        preprocess="paper",
    ),
    preprocessings=tuple(PIXEL_RANGES),
    takes=frozenset({"silos", "rotations", "mask_ratio", "test_fraction", "split"}),
    read=read,
)
