"""CIFAR-10 as features of a public encoder: 512 numbers of CLIP for each of 60,000 photographs.

The encoder was trained on other pictures, so that what it makes of a picture rests on that picture
alone. Pictures are dealt to silos as those of `cifar10` are; there a linear model does what a
ConvNet has to be trained for.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from silodp.base.arrays import read_all_arrays
from silodp.base.errors import SilodpError
from silodp.base.text import numbered
from silodp.config.data_options import DataOptions
from silodp.data import coins
from silodp.data.federation import Federation, Records
from silodp.data.files import DataFile, find_file
from silodp.data.formats.cifar import CLASSES
from silodp.data.preparation import Preparation, Scaling, default_names, prepared_silo
from silodp.data.source import DataSource, Defaults, whole_number
from silodp.data.sources.cifar10 import (
    DEFAULT_CLASSES_PER_SILO,
    DEFAULT_SILOS,
    check_deal,
    coin_rows_of,
    rows_of,
    shares_of,
)
from silodp.data.split import PAPER_DEAL, Parts, coin_thin, thin_silo, uncovered_by
from silodp.data.tables.columns import Column, Encoder
from silodp.data.tables.target import Target

FILE = DataFile(name="cifar10_clip_int8.npz", origin=None, checksum=None)
FEATURES = 512
# Each picture's features over their norm, which rests on that picture alone.
PREPARATION = Preparation(
    Encoder(tuple(map(Column, default_names(FEATURES)))),
    Scaling("unit norm"),
    Target("picture", "multiclass", CLASSES, declared=True),
)
REMEDY = "make it again (silodp data show cifar10_clip)"


def read_features(path: Path) -> dict[str, np.ndarray]:
    """Features [n, 512] and labels of training and test pictures."""
    arrays = read_all_arrays(path, REMEDY).arrays
    made = {}
    for part in ("train", "test"):
        try:
            x, y, scale = arrays[f"{part}_x"], arrays[f"{part}_y"], arrays["scale"]
        except KeyError as error:
            raise SilodpError(f"{path} has no {error}: {REMEDY}.") from None
        if x.shape != (len(y), FEATURES) or scale.shape != (FEATURES,):
            raise SilodpError(f"{path}: {part}_x has shape {x.shape}: {REMEDY}.")
        made[f"{part}_x"] = x.astype(np.float32) * scale
        made[f"{part}_y"] = y
    return made


def read(seed: int, options: DataOptions) -> Federation:
    """The pictures in silos; which silo gets which comes from the seed."""
    silos = whole_number("silos", options.silos, DEFAULT_SILOS)
    per_silo = whole_number("classes_per_silo", options.classes_per_silo, DEFAULT_CLASSES_PER_SILO)
    check_deal(silos, per_silo)
    arrays = read_features(find_file("cifar10_clip", FILE.names, options.data_dir))
    shares = shares_of(silos, per_silo)
    random = np.random.default_rng(seed)
    by_coin = options.split == "coin"
    hands = [
        coin_rows_of(arrays[f"{part}_x"], arrays[f"{part}_y"], shares)
        if by_coin
        else rows_of(arrays[f"{part}_y"], shares, random)
        for part in ("train", "test")
    ]
    made = []
    for number, (train_rows, test_rows) in enumerate(zip(*hands, strict=True)):
        name = numbered("silo", number, silos)
        if not len(train_rows) or not len(test_rows):
            raise SilodpError(
                f"Data set 'cifar10_clip' has too few pictures for {silos} silos: give fewer silos."
            )
        train = Records(arrays["train_x"][train_rows], arrays["train_y"][train_rows])
        test = Records(arrays["test_x"][test_rows], arrays["test_y"][test_rows])
        parts = Parts(train, test)
        if not by_coin:
            parts = Parts(thin_silo(name, train, options.density, seed), test)
        elif options.density is not None:
            identities = coins.of_arrays(train.x, train.y)
            parts = coin_thin(name, train, test, identities, options.density, seed)
        silo = prepared_silo(name, parts.train, parts.test, PREPARATION)
        made.append(replace(silo, expected=parts.expected))
    return Federation(
        name="cifar10_clip",
        silos=tuple(made),
        task="multiclass",
        num_classes=len(CLASSES),
        uncovered=uncovered_by(options, PAPER_DEAL),
        declared=("feature bounds", "class list"),
        feature_bound=1.0,
        class_names=CLASSES,
    )


SOURCE = DataSource(
    name="cifar10_clip",
    summary="CIFAR-10 as 512 features of a public encoder, in 30 silos of 5 classes each",
    citation=(
        "A. Krizhevsky, Learning multiple layers of features from tiny images (2009); A. Radford "
        "et al., Learning transferable visual models from natural language supervision (CLIP), "
        "ICML 2021"
    ),
    licence="MIT for the pictures, as the paper has it; features for research",
    files=(FILE,),
    by_hand=(
        "encode the pictures of cifar10 with CLIP (ViT-B/32), divide each by its norm, and put "
        f"train_x, train_y, test_x, test_y (int8) and scale into cifar10_clip/{FILE.name} in the "
        "data folder"
    ),
    defaults=Defaults(
        model="softmax",
        rounds=100,
        batch_size=100,
        clip=1.0,
        lr=1.0,
        delta=1e-4,
        preprocess="norm",
    ),
    preprocessings=("norm",),
    takes=frozenset({"data_dir", "silos", "classes_per_silo", "split"}),
    read=read,
)
