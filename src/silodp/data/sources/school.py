"""School: exam scores of 15,362 students in 139 London secondary schools (Goldstein 1991).

The file is that of MALSAR: cell arrays X and Y with one matrix of students a school, as whole
numbers in one byte each. The silos are the schools.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from silodp.base.errors import SilodpError
from silodp.data.federation import Federation, Records
from silodp.data.files import DataFile, find_file
from silodp.data.preparation import (
    Preparation,
    Scaling,
    by_bounds,
    default_names,
    fitted_to,
    prepared_silo,
)
from silodp.data.scaling import STANDARDISED, check_features
from silodp.data.source import DataOptions, DataSource, Defaults, InPaper
from silodp.data.sources.cell_silos import read_cell_silos
from silodp.data.split import authors_seed, paper_split, uncovered_by
from silodp.data.tables.columns import Column, Encoder
from silodp.data.tables.target import Target

FILE = DataFile(
    name="school.mat",
    origin="https://github.com/jiayuzhou/MALSAR/raw/master/data/school.mat",
    checksum="sha256:57fb3238fdd03a9aa17276e2ce18d9bbb5d128c3261e794fe6233b58b6909068",
)
DEFAULT_PREPROCESS = "bounds"
DEFAULT_TEST_FRACTION = 0.2
SCORE_RANGE = (1.0, 70.0)
TARGET = Target("score", "regression", range=SCORE_RANGE, declared=True)

# What each column may hold according to the code book: public knowledge, not learned from the
# records. An indicator is 0 or 1; a percentage may be anything from 0 to 100, although the schools
# at hand hold less.
INDICATOR = (0.0, 1.0)
PERCENTAGE = (0.0, 100.0)
COLUMN_BOUNDS: tuple[tuple[float, float], ...] = (
    *[INDICATOR] * 3,  # year of the exam: 1985, 1986, 1987
    PERCENTAGE,  # students of the school who may have free school meals
    PERCENTAGE,  # students of the school in verbal reasoning band 1
    *[INDICATOR] * 2,  # gender: male, female
    *[INDICATOR] * 3,  # verbal reasoning band of the student
    *[INDICATOR] * 11,  # ethnic group of the student
    *[INDICATOR] * 3,  # gender of the school: mixed, male, female
    *[INDICATOR] * 3,  # denomination of the school: maintained, Church of England, Roman Catholic
    INDICATOR,  # the constant 1
)
FEATURE_NAMES: tuple[str, ...] = (
    *("year 1985", "year 1986", "year 1987"),
    *("school: free meals", "school: verbal band 1"),
    *("male", "female"),
    *(f"verbal band ({number} of 3)" for number in (1, 2, 3)),
    *(f"ethnic group ({number} of 11)" for number in range(1, 12)),
    *("school: mixed", "school: male", "school: female"),
    *("school: maintained", "school: Church of England", "school: Roman Catholic"),
    "constant 1",
)


def _scaling(train: np.ndarray, preprocess: str) -> Scaling:
    if preprocess == "paper":
        return fitted_to(train)
    return by_bounds(list(COLUMN_BOUNDS)) if preprocess == "bounds" else Scaling()


def _check_scores(path: Path, name: str, y: np.ndarray) -> None:
    low, high = SCORE_RANGE
    # The negated form, so that NaN is refused as well.
    if not ((y >= low) & (y <= high)).all():
        raise SilodpError(
            f"{path}, silo {name!r}: Y holds scores outside {low:g} to {high:g}: this is not the "
            "School data; fetch it with `silodp data get school`, or give other data as a table."
        )


def read(seed: int, options: DataOptions) -> Federation:
    """The schools, each split with the same seed, as in the authors' code (or by coins)."""
    preprocess = options.preprocess or DEFAULT_PREPROCESS
    test_fraction = options.test_fraction or DEFAULT_TEST_FRACTION
    path = find_file("school", FILE.name, options.data_dir)
    schools = read_cell_silos("school", "school", path)
    num_features = next(iter(schools.values())).x.shape[1]
    if preprocess == "bounds" and num_features != len(COLUMN_BOUNDS):
        raise SilodpError(
            f"{path} has {num_features} columns, but the bounds of the School code book are for "
            f"{len(COLUMN_BOUNDS)}: choose the preprocessing 'paper' or 'none'."
        )
    # Another file in the place of School's has columns of which nothing is known.
    known = num_features == len(FEATURE_NAMES)
    columns = FEATURE_NAMES if known else default_names(num_features)
    encoder = Encoder(tuple(map(Column, columns)))
    silos = []
    for name, school in schools.items():
        check_features(f"{path}, silo {name!r}: X", school.x)
        _check_scores(path, name, school.y)
        records = Records(school.x, TARGET.scaled(school.y))
        train, test, expected = paper_split(
            name, records, test_fraction, seed, authors_seed(seed), options
        )
        preparation = Preparation(encoder, _scaling(train.x, preprocess), TARGET)
        silos.append(replace(prepared_silo(name, train, test, preparation), expected=expected))
    return Federation(
        name="school",
        silos=tuple(silos),
        task="regression",
        uncovered=(*((STANDARDISED,) if preprocess == "paper" else ()), *uncovered_by(options)),
        # Scores are scaled by their range in every preprocessing.
        declared=("feature bounds", "label range") if preprocess == "bounds" else ("label range",),
        feature_bound=1.0 if preprocess == "bounds" else None,
        feature_names=FEATURE_NAMES if known else (),
    )


SOURCE = DataSource(
    name="school",
    summary="exam scores of 15,362 students in 139 London schools (regression, 28 features)",
    citation=(
        "H. Goldstein, Multilevel modelling of survey data, The Statistician 40 (1991) 235-244; "
        "as published with MALSAR (J. Zhou, J. Chen, J. Ye, 2011)"
    ),
    licence="unknown: the Inner London Education Authority, which collected the data, is defunct",
    files=(FILE,),
    defaults=Defaults(
        model="linear",
        rounds=200,
        batch_size=32,
        clip=1.0,
        lr=0.01,
        delta=1e-3,
        preprocess=DEFAULT_PREPROCESS,
        # Some schools have fewer than 32 students: the authors train them on full batches.
        small_silos="full-batch",
    ),
    preprocessings=("paper", "bounds", "none"),
    takes=frozenset({"data_dir", "test_fraction", "split"}),
    read=read,
    in_paper=InPaper(silos=139, features=(28,), least=15, most=175),
)
