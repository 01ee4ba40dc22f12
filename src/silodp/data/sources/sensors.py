"""What Vehicle and GLEAM have in common: sensor features with labels -1 and +1, split 75/25.

Every silo is split with the same seed and thinned before its scaler is fitted, as in the authors'
code.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from silodp.base.errors import SilodpError
from silodp.data.federation import Federation, Records
from silodp.data.files import Archive
from silodp.data.preparation import (
    Preparation,
    Scaling,
    default_names,
    fitted_to,
    prepared_silo,
)
from silodp.data.scaling import STANDARDISED, check_features
from silodp.data.source import DataOptions
from silodp.data.split import Parts, authors_seed, paper_split, uncovered_by
from silodp.data.tables.columns import Column, Encoder
from silodp.data.tables.target import Target
from silodp.data.tasks import get_task

AUTHORS_ARCHIVE = Archive(
    "https://www.dropbox.com/s/gxgnu3imufuoddj/private_silos_data.zip?dl=1", checksum=None
)
PREPROCESSINGS = ("paper", "norm", "none")
DEFAULT_PREPROCESS = "paper"
DEFAULT_TEST_FRACTION = 0.25
TARGET = Target("label", "binary", get_task("binary").class_names(2), declared=True)

STANDARDISED_BEFORE = (
    "The features in the file were standardised beforehand with statistics of the records; epsilon "
    "does not cover these statistics."
)


def sensor_federation(
    dataset: str,
    path: Path,
    silos: dict[str, Records],
    seed: int,
    options: DataOptions,
    standardised_before: bool = False,
) -> Federation:
    """The silos, split and scaled as the options say.

    With `standardised_before`, the preprocessing "paper" leaves the features as they are.
    """
    preprocess = options.preprocess or DEFAULT_PREPROCESS
    fit_scaler = preprocess == "paper" and not standardised_before
    uncovered = STANDARDISED_BEFORE if standardised_before else STANDARDISED
    parts = []
    for name, records in silos.items():
        check_features(f"{path}, silo {name!r}: X", records.x)
        _check_labels(path, name, records.y)
        train, test, expected = _split(name, records, seed, options)
        scaling = fitted_to(train.x) if fit_scaler else Scaling()
        if preprocess == "norm":
            scaling = Scaling("unit norm")
        encoder = Encoder(tuple(map(Column, default_names(train.x.shape[1]))))
        silo = prepared_silo(name, train, test, Preparation(encoder, scaling, TARGET))
        parts.append(replace(silo, expected=expected))
    return Federation(
        name=dataset,
        silos=tuple(parts),
        task="binary",
        uncovered=(
            *((uncovered,) if standardised_before or fit_scaler else ()),
            *uncovered_by(options),
        ),
        declared=("class list",),
        feature_bound=1.0 if preprocess == "norm" else None,
    )


def _check_labels(path: Path, name: str, y: np.ndarray) -> None:
    strange = y[~np.isin(y, (-1.0, 1.0))]
    if len(strange):
        raise SilodpError(
            f"{path}, silo {name!r}: Y holds the label {strange[0]:g}, but -1 and +1 are expected: "
            "encode the two classes so."
        )


def _split(name: str, records: Records, seed: int, options: DataOptions) -> Parts:
    test_fraction = options.test_fraction or DEFAULT_TEST_FRACTION
    return paper_split(name, records, test_fraction, seed, authors_seed(seed), options)
