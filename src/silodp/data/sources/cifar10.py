"""Heterogeneous CIFAR-10: 60,000 photographs in silos that each know 5 of the 10 classes.

The split is that of pFedMe (Dinh et al. 2020) as pFedHN (Shamsian et al. 2021) codes it, which the
paper follows:

    each class is dealt to equally many silos, each silo gets equally many classes
    silo k takes a share u_kc / sum_k u_kc of class c,  u_kc ~ uniform(0.4, 0.6)

of the training and of the test images alike, rounded down. All 50,000 training images take part
(pFedHN keeps 10,000 for validation). Classes and shares are drawn once and for all, so that runs of
several seeds have one shape; the seed says which images a silo gets.
"""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from silodp.base.errors import SilodpError
from silodp.base.text import numbered
from silodp.data import coins
from silodp.data.federation import Federation, Records, Silo
from silodp.data.files import Archive, DataFile, check_not_swapped, find_file
from silodp.data.formats.cifar import CLASSES, Batch, read_batch
from silodp.data.images.decoded import decoded
from silodp.data.scaling import PIXEL_RANGES
from silodp.data.source import DataOptions, DataSource, Defaults, InPaper, whole_number
from silodp.data.split import PAPER_DEAL, Parts, coin_thin, thin_silo, uncovered_by

ARCHIVE = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "md5:c32a1d4ab5d03f1284b67883e8d87530",
)
# The md5 of each batch in binary form.
PUBLISHED = {
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}


def _file(batch: str, md5: str) -> DataFile:
    """A batch in binary form, packed, or in python form; as tar unpacks it, or plainly."""
    plain, *packed = (f"{batch}.bin", f"{batch}.bin.xz", f"{batch}.bin.gz")
    return DataFile(
        name=plain,
        origin=ARCHIVE,
        checksum=f"md5:{md5}",
        also=(*packed, *(f"cifar-10-batches-bin/{form}" for form in (plain, *packed))),
        forms=(batch, f"cifar-10-batches-py/{batch}"),
        content=f"md5:{md5}",
    )


FILES = {batch: _file(batch, md5) for batch, md5 in PUBLISHED.items()}
DEFAULT_SILOS = 30
DEFAULT_CLASSES_PER_SILO = 5
SHARES = (0.4, 0.6)
DEAL = 0  # of the classes and shares; not the run's seed
REMEDY = "fetch it again with `silodp data get cifar10` (which checks its md5)"


def read_batches(paths: dict[str, Path]) -> dict[str, np.ndarray]:
    """Training and test images and labels, of six files of any form."""

    def read_one(name: str) -> Batch:
        batch = read_batch(paths[name], REMEDY)
        check_not_swapped(paths[name], name, _md5(batch), PUBLISHED)
        return batch

    # Unpacking and checksums leave Python's lock to others.
    with ThreadPoolExecutor(max_workers=2) as threads:  # more would take more memory
        batches = dict(zip(paths, threads.map(read_one, paths), strict=True))
    train = [batch for name, batch in batches.items() if name != "test_batch"]
    test = batches["test_batch"]
    return {
        "train_x": np.concatenate([batch.x for batch in train]),
        "train_y": np.concatenate([batch.y for batch in train]),
        "test_x": test.x,
        "test_y": test.y,
    }


def _md5(batch: Batch) -> str:
    """The MD5 checksum of the batch in binary form."""
    pixels = batch.x.transpose(0, 3, 1, 2).reshape(len(batch.x), -1)
    binary = np.concatenate([batch.y[:, None], pixels], axis=1)
    return hashlib.md5(binary.data, usedforsecurity=False).hexdigest()


def deal_classes(silos: int, per_silo: int, random: np.random.Generator) -> list[list[int]]:
    """The classes of each silo, distinct, such that each class is dealt equally often."""
    left = np.full(len(CLASSES), silos * per_silo // len(CLASSES))
    hands = []
    for _ in range(silos):
        hand: list[int] = []
        for _ in range(per_silo):
            free = np.where(np.isin(np.arange(len(CLASSES)), hand), -1, left)
            hand.append(int(random.choice(np.flatnonzero(free == free.max()))))
            left[hand[-1]] -= 1
        hands.append(hand)
    return hands


def shares_of(silos: int, per_silo: int) -> np.ndarray:
    """The part of each class that each silo gets [silos, classes]; a class's parts sum to 1."""
    random = np.random.default_rng(DEAL)
    drawn = random.uniform(*SHARES, (silos, len(CLASSES)))
    dealt = np.zeros_like(drawn)
    for silo, hand in enumerate(deal_classes(silos, per_silo, random)):
        dealt[silo, hand] = drawn[silo, hand]
    return dealt / dealt.sum(axis=0)


def rows_of(
    labels: np.ndarray, shares: np.ndarray, random: np.random.Generator
) -> list[np.ndarray]:
    """Which images each silo gets."""
    hands: list[list[np.ndarray]] = [[] for _ in shares]
    for number in range(len(CLASSES)):
        rows = random.permutation(np.flatnonzero(labels == number))
        counts = (shares[:, number] * len(rows)).astype(int)
        for hand, part in zip(hands, np.split(rows, np.cumsum(counts))[:-1], strict=True):
            hand.append(part)
    return [random.permutation(np.concatenate(hand)) for hand in hands]


def coin_rows_of(images: np.ndarray, labels: np.ndarray, shares: np.ndarray) -> list[np.ndarray]:
    """The rows of each silo, each image dealt by itself, and always to the same silo."""
    hand = coins.deal(coins.contents(images, labels), shares.T[labels], "deal cifar10")
    return [np.flatnonzero(hand == silo) for silo in range(len(shares))]


def read(seed: int, options: DataOptions) -> Federation:
    """The photographs in silos; which silo gets which comes from the seed (but not by coins)."""
    silos = whole_number("silos", options.silos, DEFAULT_SILOS)
    per_silo = whole_number("classes_per_silo", options.classes_per_silo, DEFAULT_CLASSES_PER_SILO)
    check_deal(silos, per_silo)
    paths = {
        name: find_file("cifar10", file.names, options.data_dir) for name, file in FILES.items()
    }
    arrays = decoded(
        "cifar10",
        list(paths.values()),
        "cifar10 1",
        lambda: read_batches(paths),
        bool(options.no_cache),
    )
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
        if not len(train_rows) or not len(test_rows):
            raise SilodpError(
                f"Data set 'cifar10' has too few images for {silos} silos: give fewer silos."
            )
        train = Records(arrays["train_x"][train_rows], arrays["train_y"][train_rows])
        test = Records(arrays["test_x"][test_rows], arrays["test_y"][test_rows])
        name = numbered("silo", number, silos)
        parts = Parts(train, test)
        if not by_coin:
            parts = Parts(thin_silo(name, train, options.density, seed), test)
        elif options.density is not None:
            identities = coins.of_arrays(train.x, train.y)
            parts = coin_thin(name, train, test, identities, options.density, seed)
        made.append(Silo(name, parts.train, parts.test, expected=parts.expected))
    return Federation(
        name="cifar10",
        silos=tuple(made),
        task="multiclass",
        num_classes=len(CLASSES),
        uncovered=uncovered_by(options, PAPER_DEAL),
        declared=("feature bounds", "class list"),
        pixels=PIXEL_RANGES[options.preprocess or DEFAULTS.preprocess],
        class_names=CLASSES,
    )


def check_deal(silos: int, per_silo: int) -> None:
    """Refuses numbers of silos and of classes in each by which classes cannot be dealt evenly."""
    if not 2 <= per_silo <= len(CLASSES):
        raise SilodpError(
            f"The option 'classes_per_silo' is {per_silo}: give a number from 2 to {len(CLASSES)}."
        )
    if silos * per_silo % len(CLASSES):
        raise SilodpError(
            f"{silos} silos with {per_silo} classes each cannot share the {len(CLASSES)} classes "
            "evenly: choose silos and classes_per_silo whose product is a multiple of 10."
        )


DEFAULTS = Defaults(
    model="convnet",
    rounds=200,
    batch_size=100,
    clip=8.0,
    lr=0.1,
    delta=1e-4,
    preprocess="bounds",
)
SOURCE = DataSource(
    name="cifar10",
    summary="Heterogeneous CIFAR-10: 60,000 photographs in 30 silos of 5 classes each (32x32x3)",
    citation=(
        "A. Krizhevsky, Learning multiple layers of features from tiny images (2009); split as in "
        "C. T. Dinh, N. Tran, J. Nguyen, Personalized federated learning with Moreau envelopes, "
        "NeurIPS 2020, and A. Shamsian et al., Personalized federated learning using "
        "hypernetworks, ICML 2021"
    ),
    licence="MIT, as the paper has it",
    files=tuple(FILES.values()),
    defaults=DEFAULTS,
    preprocessings=tuple(PIXEL_RANGES),
    takes=frozenset({"data_dir", "no_cache", "silos", "classes_per_silo", "split"}),
    read=read,
    in_paper=InPaper(silos=30, features=(32, 32, 3), least=1515, most=1839),
)
