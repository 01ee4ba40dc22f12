"""ADNI: slices of brain PET scans, from which the SUVR value of the scan is to be predicted.

Nobody may pass the data on, so a user brings their own copy, in the layout of the authors' code:

    adni/
        labels_2.txt                          lines of patient,image,value: 0702,I193766,1.23
        adni_data2/SIEMENS/*_I193766.png      one folder a maker of scanners: the silos

A file's name carries the patient as the fourth of its parts between underscores, and the image as
the last: ADNI_016_S_0702_..._S92690_I193766.png.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from silodp.base.errors import DataMissingError, SilodpError
from silodp.data.federation import Federation, Records, Silo
from silodp.data.files import data_folders
from silodp.data.formats.bounded import read_bounded
from silodp.data.images.images import (
    DEFAULT_PREPROCESS,
    checked_name,
    checked_size,
    is_image_name,
    list_folder,
    read_images,
)
from silodp.data.scaling import PIXEL_RANGES
from silodp.data.source import DataOptions, DataSource, Defaults, InPaper
from silodp.data.split import MAX_SEED, authors_seed, paper_split, uncovered_by

IMAGE_FOLDER = "adni_data2"
LABEL_FILES = ("labels_2.txt", "labels.txt", "labels.csv")
LARGEST_LABELS = 1 << 26  # bytes: a million images have half as many
LABEL_HEADER = ["patient", "image", "value"]  # which a label file may have
SUBJECT = "patient"
HIGHEST_SUVR = 10.0  # far above any that is measured: what is beyond was mistaken for an SUVR
DEFAULT_TEST_FRACTION = 0.25
FILE_NAME = re.compile(r"[^_]*_[^_]*_[^_]*_(?P<patient>[^_]+)_(.*_)?(?P<image>I[0-9]+)\.png", re.I)
BY_HAND = (
    "apply for access at https://adni.loni.usc.edu (Data Use Agreement: https://adni.loni.usc.edu/"
    "wp-content/uploads/how_to_apply/ADNI_Data_Use_Agreement.pdf), export axial slices of the PET "
    f"scans as PNG, and put them at adni/{IMAGE_FOLDER}/MAKER/ in the data folder, with the SUVR "
    f"values as lines of patient,image,value in adni/{LABEL_FILES[0]}"
)

Labels = Mapping[tuple[str, str], float]  # by patient and image


class Scan(NamedTuple):
    """An image of a scan, and whom it is of."""

    file: Path
    patient: str
    image: str


def read_labels(path: Path) -> Labels:
    """The SUVR value by patient and image."""
    content = read_bounded(path, LARGEST_LABELS, "give a file of lines such as 0702,I193766,1.23")
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise SilodpError(f"{path} cannot be read ({error}): save it as UTF-8 text.") from error
    labels: dict[tuple[str, str], float] = {}
    for number, line in enumerate(lines, start=1):
        parts = [part.strip() for part in line.split(",")]
        if parts == [""] or (number == 1 and [part.lower() for part in parts] == LABEL_HEADER):
            continue
        where = f"{path}, line {number}"
        if len(parts) != 3 or not all(parts):
            raise SilodpError(
                f"{where} is {line!r}: write patient,image,value such as 0702,I193766,1.23."
            )
        patient, image, text = parts
        value = _suvr(where, text)
        if labels.setdefault((patient, image), value) != value:
            raise SilodpError(
                f"{where}: patient {patient!r}, image {image!r} has the value {value:g}, but "
                f"{labels[patient, image]:g} before: keep the right one."
            )
    if not labels:
        raise SilodpError(f"{path} holds no labels: write lines such as 0702,I193766,1.23.")
    return labels


def find_scans(root: Path) -> dict[str, list[Scan]]:
    """The images of each silo: of every folder with images, in the order of the names."""
    scans = {}
    for folder in list_folder(root, root).folders:
        content = list_folder(folder, root)
        for below in content.folders:
            if any(map(is_image_name, list_folder(below, root).files)):
                raise SilodpError(
                    f"{folder}: the images in the folder {below.name!r} would be left out: put all "
                    "images into the folder of the maker itself."
                )
        images = [_scan(file) for file in content.files if is_image_name(file)]
        if images:
            scans[checked_name(folder, "silo")] = images
    return scans


def read(seed: int, options: DataOptions) -> Federation:
    """The makers' folders, each split with its own seed, as in the authors' code."""
    if options.subject_column not in (None, SUBJECT):
        raise SilodpError(
            f"Data set 'adni': subject_column is {options.subject_column!r}, but subjects are the "
            f"patients: give {SUBJECT!r}, or leave it out."
        )
    size = checked_size(options.image_size)
    root, label_file = _find(options.data_dir)
    labels = read_labels(label_file)
    scans = _labelled(find_scans(root), labels, label_file, bool(options.drop_missing))
    files = [scan.file for own in scans.values() for scan in own]
    images = read_images("adni", root, files, size, grey=True, no_cache=bool(options.no_cache))
    test_fraction = options.test_fraction or DEFAULT_TEST_FRACTION
    silos, start = [], 0
    for index, (name, own) in enumerate(scans.items()):
        y = np.array([labels[scan.patient, scan.image] for scan in own])
        subject, patients = None, None
        if options.subject_column is not None:
            patients = [scan.patient for scan in own]
            subject = np.unique(patients, return_inverse=True)[1]
        records = Records(images[start : start + len(own)], y, subject)
        own_seed = (authors_seed(seed) + index) % (MAX_SEED + 1)
        parts = paper_split(name, records, test_fraction, seed, own_seed, options, patients)
        silos.append(Silo(name, parts.train, parts.test, expected=parts.expected))
        start += len(own)
    return Federation(
        name="adni",
        silos=tuple(silos),
        task="regression",
        uncovered=uncovered_by(options),
        declared=("feature bounds",),
        pixels=PIXEL_RANGES[options.preprocess or DEFAULT_PREPROCESS],
    )


def _suvr(where: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= HIGHEST_SUVR:  # NaN as well
        raise SilodpError(
            f"{where}: the value {text!r} is no SUVR: give a number above 0 and up to "
            f"{HIGHEST_SUVR:g}."
        )
    return value


def _scan(file: Path) -> Scan:
    match = FILE_NAME.fullmatch(file.name)
    if match is None:
        raise SilodpError(
            f"Silo {file.parent.name!r}: the image {file.name!r} is not named as ADNI's are "
            "(ADNI_016_S_0702_..._I193766.png): rename or remove it."
        )
    return Scan(file, match["patient"], match["image"])


def _find(data_dir: Path | None) -> tuple[Path, Path]:
    """The folder that holds the silos' folders, and the label file.

    A folder that was given may be that of ADNI itself.
    """
    homes = [folder / "adni" for folder in data_folders(data_dir)]
    if data_dir is not None and _label_file(data_dir.expanduser()):
        homes.insert(0, data_dir.expanduser())
    home = next((home for home in homes if home.is_dir()), None)
    if home is None:
        raise DataMissingError(
            f"Data set 'adni' was not found at {', '.join(map(str, homes))}: {BY_HAND}."
        )
    label_file = _label_file(home)
    if label_file is None:
        raise SilodpError(
            f"Data set 'adni': none of {', '.join(LABEL_FILES)} is in {home}: put the SUVR values "
            f"there, as lines of patient,image,value ({BY_HAND})."
        )
    return (home / IMAGE_FOLDER if (home / IMAGE_FOLDER).is_dir() else home), label_file


def _label_file(home: Path) -> Path | None:
    return next((home / name for name in LABEL_FILES if (home / name).is_file()), None)


def _labelled(
    scans: dict[str, list[Scan]], labels: Labels, label_file: Path, drop: bool
) -> dict[str, list[Scan]]:
    """The images that have a label; the authors leave out the others, here it must be asked for."""
    if not scans:
        raise SilodpError(
            f"Data set 'adni': no folder beside {label_file} holds images: {BY_HAND}."
        )
    without = [
        (silo, scan)
        for silo, own in scans.items()
        for scan in own
        if (scan.patient, scan.image) not in labels
    ]
    if without and not drop:
        silo, scan = without[0]
        raise SilodpError(
            f"{label_file} has no value for {len(without)} images (the first is of silo {silo!r}, "
            f"patient {scan.patient!r}, image {scan.image!r}): add them, or leave such images out "
            "(drop_missing, --drop-missing)."
        )
    kept = {
        silo: [scan for scan in own if (scan.patient, scan.image) in labels]
        for silo, own in scans.items()
    }
    for silo, own in kept.items():
        if not own:
            raise SilodpError(
                f"Silo {silo!r} has no image with a value in {label_file}: add some, or remove its "
                "folder."
            )
    return kept


SOURCE = DataSource(
    name="adni",
    summary="SUVR from slices of brain PET scans, a silo a maker of scanners (bring your own copy)",
    citation=(
        "Alzheimer's Disease Neuroimaging Initiative (ADNI) database, https://adni.loni.usc.edu"
    ),
    licence=(
        "access must be approved by ADNI, under its Data Use Agreement; publications must carry "
        "ADNI's acknowledgement: data were obtained from the ADNI database, whose investigators "
        "provided data but took no part in analysis or writing"
    ),
    files=(),
    by_hand=BY_HAND,
    defaults=Defaults(
        model="convnet5",
        rounds=500,
        batch_size=64,
        clip=0.5,
        lr=0.01,
        delta=1e-4,
        preprocess=DEFAULT_PREPROCESS,
        # The smallest silo has 45 training records.
        small_silos="full-batch",
    ),
    preprocessings=tuple(PIXEL_RANGES),
    takes=frozenset(
        {
            *("data_dir", "test_fraction", "split", "image_size", "subject_column"),
            *("drop_missing", "no_cache"),
        }
    ),
    read=read,
    in_paper=InPaper(silos=9, features=(32, 32, 1), least=45, most=2685),
)
