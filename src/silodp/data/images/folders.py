"""A user's own images: a folder with one folder a silo, in it one folder a class.

    hospital/            the path that is given
        north/           a silo
            benign/      a class, with its images
            malign/
        south/
            benign/

What a pixel may hold is public, and whether images are taken as grey or in colour is asked for
(`channels`), not found. So nothing need be learned from the records but the list of the classes, if
it is not declared (`classes`, or a schema's [target] classes).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from silodp.base.errors import SilodpError, one_of
from silodp.config.choices import TaskName
from silodp.data import coins
from silodp.data.encoders.encoding import features_of, file_digest
from silodp.data.encoders.named import IMAGE, encoder_info, encoder_of
from silodp.data.federation import Federation, Records, Silo
from silodp.data.images.images import (
    DEFAULT_PREPROCESS,
    ENDINGS,
    checked_name,
    checked_size,
    is_image_name,
    list_folder,
    read_images,
)
from silodp.data.preparation import Preparation, Scaling
from silodp.data.scaling import PIXEL_RANGES
from silodp.data.source import DataOptions, DataSource, Defaults
from silodp.data.split import PAPER_SPLIT, coin_split, split_silo
from silodp.data.tables.columns import Column, Encoder
from silodp.data.tables.files import in_order
from silodp.data.tables.schema import Schema, level_text, schema_of
from silodp.data.tables.target import Target
from silodp.data.tasks import get_task, task_of_classes

DEFAULT_TEST_FRACTION = 0.2
LEAST_FOR_CONVNET = 10  # pixels to a side
CHANNELS = ("colour", "grey")


@dataclass(frozen=True)
class Labelled:
    """The images of all silos, and what their folders say of them.

    Attributes:
      root: the folder that the user gave.
      files: the files of all silos, silo by silo.
      labels: [files] the class number of each.
      silos: name and number of files of each silo, in order.
      classes: names, in the order of their numbers.
      declared: whether the class list was.
    """

    root: Path
    files: tuple[Path, ...]
    labels: np.ndarray
    silos: tuple[tuple[str, int], ...]
    classes: tuple[str, ...]
    declared: bool

    @property
    def task(self) -> TaskName:
        """The task that fits the number of classes."""
        return task_of_classes(len(self.classes)).name


def defaults_of(task: TaskName, options: DataOptions) -> Defaults:
    """Training settings to begin with for images of which nothing is known but the task."""
    large = checked_size(options.image_size) >= LEAST_FOR_CONVNET
    encoded = bool(schema_of(options).features)
    return Defaults(
        model="convnet" if large and not encoded else get_task(task).model,
        rounds=100,
        batch_size=32,
        clip=1.0,
        lr=get_task(task).lr if encoded else 0.1,
        delta=1e-5,
        preprocess=DEFAULT_PREPROCESS,
        small_silos="full-batch",
    )


def source(path: Path, options: DataOptions) -> DataSource:
    """The source bound to a folder. Its names are read now, the images once for all seeds."""
    found = find_images(path, options)

    @cache
    def features(wanted: Any, size: int | None, no_cache: bool) -> tuple[Column, np.ndarray]:
        info = encoder_info(wanted, size=size, takes="image", no_cache=no_cache)
        return Column(IMAGE, declared=True, encoder=info), features_of(
            encoder_of(info), found.files
        )

    @cache
    def identities() -> list[bytes]:
        """Of each file: its content. A picture keeps its coin, whatever encodes it."""
        return [file_digest(file) for file in found.files]

    @cache
    def images(size: int, grey: bool, no_cache: bool) -> np.ndarray:
        return read_images("images", path, found.files, size, grey=grey, no_cache=no_cache)

    def read(seed: int, given: DataOptions) -> Federation:
        declared = (given.classes, given.schema)
        labelled = found
        if declared != (options.classes, options.schema):
            labelled = find_images(path, given)
        if (wanted := _encoder_wanted(path, given)) is not None:
            if given.channels is not None or given.preprocess not in (None, DEFAULT_PREPROCESS):
                raise SilodpError(
                    f"{path}: --features take images in colour and as they are: leave out "
                    "--channels and --preprocess."
                )
            column, x = features(wanted, given.image_size, bool(given.no_cache))
            return split_images(labelled, x, seed, given, column, identities())
        grey = _checked_channels(given.channels) == "grey"
        pictures = images(checked_size(given.image_size), grey, bool(given.no_cache))
        return split_images(labelled, pictures, seed, given)

    bound = DataSource(
        name=str(path),
        summary=f"your own images: {len(found.silos)} silos, {len(found.classes)} classes",
        citation="your own",
        licence="your own",
        files=(),
        defaults=defaults_of(found.task, options),
        preprocessings=tuple(PIXEL_RANGES),
        takes=frozenset(
            {
                *("schema", "classes", "test_fraction", "split", "image_size", "channels"),
                *("no_cache", "features", "encoders"),
            }
        ),
        read=read,
        encodes=True,
    )
    bound.check_options(options)
    return bound


def find_images(path: Path, options: DataOptions) -> Labelled:
    """The files, and their silos and classes by the folders' names."""
    schema = schema_of(options)
    _check_schema(path, schema)
    silo_folders = _only_folders(path, path, "the folders of the silos")
    folders = {
        checked_name(silo, "silo"): _only_folders(silo, path, "its silo's folders, one a class")
        for silo in silo_folders
    }
    names = {
        level_text(checked_name(folder, "class")) for own in folders.values() for folder in own
    }
    classes = schema.classes or tuple(in_order(names))
    if len(classes) < 2:
        raise SilodpError(
            f"{path} has {len(classes)} folders of classes in its silos' folders, and a classifier "
            "needs two: lay images out as silo/class/image."
        )
    files: list[Path] = []
    labels: list[int] = []
    silos = []
    for silo in in_order(set(folders)):
        before = len(files)
        for folder in folders[silo]:
            own = _images_in(folder, path)
            files += own
            labels += [_class_number(silo, folder, classes)] * len(own)
        if len(files) == before:
            raise SilodpError(
                f"Silo {silo!r} has no images: put some into the folders of its classes, or remove "
                "its folder."
            )
        silos.append((silo, len(files) - before))
    return Labelled(
        path, tuple(files), np.array(labels), tuple(silos), classes, schema.classes is not None
    )


def split_images(
    labelled: Labelled,
    x: np.ndarray,
    seed: int,
    options: DataOptions,
    encoded: Column | None = None,
    contents: Sequence[bytes] = (),
) -> Federation:
    """Splits each silo; pixels become numbers where a model uses them.

    Args:
      labelled: the files.
      x: their pixels, or features.
      seed: of the split.
      options: of the data.
      encoded: what made features of the images, if anything.
      contents: identifies each image, where there are no pixels.
    """
    test_fraction = options.test_fraction or DEFAULT_TEST_FRACTION
    task = get_task(labelled.task)
    y = task.labels_of(labelled.labels)
    silos, start = [], 0
    for name, count in labelled.silos:
        own = slice(start, start + count)
        records = Records(x[own], y[own])
        if options.split == "paper":
            parts = split_silo(name, records, test_fraction, seed, options.density)
        else:
            # By the class's name: its number may follow from what classes others have.
            names = coins.of_texts(labelled.classes[number] for number in labelled.labels[own])
            if encoded is None:
                identities = coins.of_arrays(records.x, names)
            else:
                identities = coins.numbered(
                    content + name for content, name in zip(contents[own], names, strict=True)
                )
            parts = coin_split(name, records, identities, test_fraction, seed, options.density)
        silos.append(Silo(name, parts.train, parts.test, expected=parts.expected))
        start += count
    if encoded is not None:
        target = Target("class", labelled.task, tuple(labelled.classes), declared=labelled.declared)
        preparation = Preparation(Encoder((encoded,)), Scaling(), target)
        silos = [replace(silo, preparation=preparation) for silo in silos]
    notes = [PAPER_SPLIT] if options.split == "paper" else []
    if not labelled.declared:
        notes.append(
            "The classes were taken from the names of all silos' folders, not declared; epsilon "
            "does not cover them."
        )
    return Federation(
        name=labelled.root.resolve().name,
        silos=tuple(silos),
        task=labelled.task,
        num_classes=task.num_classes_of(len(labelled.classes)),
        uncovered=tuple(notes),
        declared=("feature bounds", "class list") if labelled.declared else ("feature bounds",),
        feature_bound=None if encoded is None else 1.0,
        pixels=PIXEL_RANGES[options.preprocess or DEFAULT_PREPROCESS] if encoded is None else None,
        class_names=labelled.classes,
        feature_names=() if encoded is None else encoded.feature_names,
    )


def _checked_channels(channels: str | None) -> str:
    channels = CHANNELS[0] if channels is None else channels
    if channels not in CHANNELS:
        raise SilodpError(f"channels is {channels!r}: choose {one_of(channels, CHANNELS)}.")
    return channels


def _check_schema(path: Path, schema: Schema) -> None:
    for what in ("ignore", "levels", "bounds", "missing", "dates", "words", "target_range"):
        if getattr(schema, what):
            raise SilodpError(
                f"{path} is a folder of images, for which {what} means nothing: declare classes "
                "only, and an encoder (in a schema: under [features])."
            )


def _encoder_wanted(path: Path, options: DataOptions) -> Any:
    """What is to make features of the images; None if they stay images."""
    features = schema_of(options).features
    for column in features:
        if column != IMAGE:
            raise SilodpError(
                f"{path} is a folder of images, which has no column {column!r}: give the name of "
                f'an encoder alone (in a schema: under [features], {IMAGE} = "...").'
            )
    return features.get(IMAGE)


def _only_folders(folder: Path, root: Path, what: str) -> list[Path]:
    """The folders in it. An image beside them would be left out, so it is refused."""
    content = list_folder(folder, root)
    astray = [file.name for file in content.files if is_image_name(file)]
    if astray:
        raise SilodpError(
            f"{folder}: the image {astray[0]!r} lies beside {what}: lay images out as "
            "silo/class/image."
        )
    return content.folders


def _images_in(folder: Path, root: Path) -> Sequence[Path]:
    content = list_folder(folder, root)
    if content.folders:
        raise SilodpError(
            f"{folder} holds the folder {content.folders[0].name!r}, but only images are expected "
            "in a class's folder: lay images out as silo/class/image."
        )
    for file in content.files:
        if not is_image_name(file):
            raise SilodpError(
                f"{folder}: {file.name!r} does not end in {', '.join(ENDINGS)}: save it as such an "
                "image, or remove it."
            )
    return content.files


def _class_number(silo: str, folder: Path, classes: tuple[str, ...]) -> int:
    name = level_text(folder.name)
    if name not in classes:
        raise SilodpError(
            f"Silo {silo!r}: the folder {folder.name!r} is not among the declared classes: name it "
            f"{one_of(name, classes)}, or declare it."
        )
    return classes.index(name)
