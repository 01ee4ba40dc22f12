"""Rotated & Masked MNIST: 70,000 handwritten digits in silos that differ in turn and mask.

The files are those of LeCun, Cortes and Burges, in the idx format, gzipped or not.
"""

import hashlib
from pathlib import Path

import numpy as np

from silodp.base.errors import SilodpError
from silodp.data.federation import Federation
from silodp.data.files import DataFile, check_not_swapped, find_file
from silodp.data.formats.idx import read_idx
from silodp.data.images.rotated_masked import Images, Layers, federation_of, layers_of
from silodp.data.scaling import PIXEL_RANGES
from silodp.data.source import DataOptions, DataSource, Defaults, InPaper

MIRROR = "https://storage.googleapis.com/cvdf-datasets/mnist/"
# The published md5 of each file as it is packed, and of what is in it.
PUBLISHED = {
    "train-images-idx3-ubyte": (
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "6bbc9ace898e44ae57da46a324031adb",
    ),
    "train-labels-idx1-ubyte": (
        "d53e105ee54ea40749a09fcbcd1e9432",
        "a25bea736e30d166cdddb491f175f624",
    ),
    "t10k-images-idx3-ubyte": (
        "9fb629c4189551a2d022fa330f9573f3",
        "2646ac647ad5339dbf082846283269ea",
    ),
    "t10k-labels-idx1-ubyte": (
        "ec29112dd5afa0611ce80d1b7f02629c",
        "27ae3e4e09519cfbb04c329615203637",
    ),
}
FILES = tuple(
    DataFile(f"{name}.gz", f"{MIRROR}{name}.gz", f"md5:{packed}", (name,), content=f"md5:{content}")
    for name, (packed, content) in PUBLISHED.items()
)
DEFAULT_LAYERS = Layers(silos=40, rotations=4, mask_ratio=0.1)
REMEDY = "fetch it again with `silodp data get mnist` (which checks its md5)"


def read_digits(paths: dict[str, Path]) -> dict[str, np.ndarray]:
    """The four arrays by the names of their files, with labels that fit the images."""
    arrays = {
        name: read_idx(path, 3 if "images" in name else 1, REMEDY) for name, path in paths.items()
    }
    for part in ("train", "t10k"):
        images, labels = arrays[f"{part}-images-idx3-ubyte"], arrays[f"{part}-labels-idx1-ubyte"]
        path = paths[f"{part}-labels-idx1-ubyte"]
        if len(images) != len(labels):
            raise SilodpError(
                f"{path} has {len(labels)} labels for {len(images)} images: {REMEDY}."
            )
        if labels.max(initial=0) > 9:
            raise SilodpError(
                f"{path} holds the label {labels.max()}, but digits go to 9: {REMEDY}."
            )
        as_in_file = np.array([0x801, len(labels)], ">u4").tobytes() + labels.tobytes()
        md5 = hashlib.md5(as_in_file, usedforsecurity=False).hexdigest()
        check_not_swapped(
            path, f"{part}-labels-idx1-ubyte", md5, {n: c for n, (_, c) in PUBLISHED.items()}
        )
        rows, columns = images.shape[1:]
        if rows != columns or images.shape[1:] != arrays["train-images-idx3-ubyte"].shape[1:]:
            raise SilodpError(
                f"{paths[f'{part}-images-idx3-ubyte']} has images of {rows} x {columns} pixels, "
                f"but squares, as large for testing as for training, are expected: {REMEDY}."
            )
    return arrays


def read(seed: int, options: DataOptions) -> Federation:
    """The digits in silos; every draw comes from the seed."""
    layers = layers_of(options, DEFAULT_LAYERS)
    paths = {
        name: find_file("mnist", file.names, options.data_dir)
        for name, file in zip(PUBLISHED, FILES, strict=True)
    }
    arrays = read_digits(paths)  # as quick as from a cache
    train, test = (
        Images(arrays[f"{part}-images-idx3-ubyte"], arrays[f"{part}-labels-idx1-ubyte"])
        for part in ("train", "t10k")
    )
    return federation_of("mnist", train, test, layers, seed, options)


SOURCE = DataSource(
    name="mnist",
    summary="Rotated & Masked MNIST: 70,000 digits in 40 silos, 4 rotations (10 classes, 28x28)",
    citation=(
        "Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, Gradient-based learning applied to document "
        "recognition, Proceedings of the IEEE 86 (1998) 2278-2324"
    ),
    licence="CC BY-SA 3.0",
    files=FILES,
    defaults=Defaults(
        model="convnet",
        rounds=200,
        batch_size=100,
        clip=1.0,
        lr=0.1,
        delta=1e-7,
        preprocess="paper",
    ),
    preprocessings=tuple(PIXEL_RANGES),
    takes=frozenset({"data_dir", "silos", "rotations", "mask_ratio", "split"}),
    read=read,
    in_paper=InPaper(silos=40, features=(28, 28, 1), least=1500, most=1500),
)
