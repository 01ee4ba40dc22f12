"""Heart disease: patients of four hospitals, and whether they have it (Detrano et al. 1989).

As in FLamby, the first ten columns are taken, and patients who lack one of them are left out: each
by itself, so that no other record hangs on it.
"""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from silodp.config.data_options import DataOptions
from silodp.data.files import DataFile
from silodp.data.source import DataSource
from silodp.data.sources.declared_table import DeclaredTable, Paths, read_text
from silodp.data.tables.table import defaults_of

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
FILES = tuple(
    DataFile(
        name=f"processed.{hospital}.data",
        origin="https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/"
        f"processed.{hospital}.data",
        checksum=None,
    )
    for hospital in HOSPITALS
)
COLUMNS = (
    *("age", "male", "chest pain", "blood pressure", "cholesterol", "fasting sugar"),
    *("resting ecg", "heart rate", "exercise angina", "st depression"),
)
TARGET = "disease"
UNUSED = 3  # columns that two hospitals hardly have: slope, vessels, thal

# What a physician would call possible, in mmHg, mg/dl, beats a minute, mm.
BOUNDS = {
    "age": (20.0, 90.0),
    "male": (0.0, 1.0),
    "blood pressure": (60.0, 220.0),
    "cholesterol": (0.0, 600.0),
    "fasting sugar": (0.0, 1.0),
    "heart rate": (50.0, 220.0),
    "exercise angina": (0.0, 1.0),
    "st depression": (-3.0, 7.0),
}
LEVELS = {"chest pain": ("1", "2", "3", "4"), "resting ecg": ("0", "1", "2")}


def _frame(paths: Paths, options: DataOptions) -> pd.DataFrame:
    return pd.concat(
        [
            _of_hospital(paths[file.name]).assign(hospital=hospital)
            for file, hospital in zip(FILES, HOSPITALS, strict=True)
        ],
        ignore_index=True,
    )


def _of_hospital(path: Path) -> pd.DataFrame:
    unused = [f"unused {number}" for number in range(UNUSED)]
    names = [*COLUMNS, *unused, TARGET]
    frame = read_text("heart", path, header=None, names=names, na_values="?", index_col=False)
    grade = pd.Series(pd.to_numeric(frame[TARGET], errors="coerce"), index=frame.index)
    frame[TARGET] = grade.gt(0).map({True: "yes", False: "no"}).where(grade.notna())
    return frame.drop(columns=unused)


def _declared(options: DataOptions) -> DataOptions:
    return DataOptions(
        silo_column="hospital",
        target=TARGET,
        classes=("no", "yes"),
        bounds=BOUNDS,
        levels=LEVELS,
        drop_missing=True,
        test_fraction=1 / 3,  # about FLamby's
    )


SOURCE = DataSource(
    name="heart",
    summary="heart disease of 740 patients in 4 hospitals (binary, 15 features)",
    citation=(
        "A. Janosi, W. Steinbrunn, M. Pfisterer, R. Detrano, Heart Disease, UCI Machine Learning "
        "Repository (1989); columns and rows as in J. Ogier du Terrail et al., FLamby, NeurIPS 2022"
    ),
    licence="CC BY 4.0",
    files=FILES,
    defaults=replace(defaults_of("binary", "bounds"), delta=1e-3),
    preprocessings=("bounds", "paper", "none"),
    takes=frozenset({"data_dir", "test_fraction", "split"}),
    read=DeclaredTable("heart", FILES, _frame, _declared),
)
