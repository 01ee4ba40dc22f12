"""WISDM: what 36 people do, from the accelerometer of a phone in their pocket (Kwapisz 2010)."""

from dataclasses import replace

import pandas as pd

from silodp.config.data_options import DataOptions
from silodp.data.files import DataFile
from silodp.data.source import DataSource
from silodp.data.sources.declared_table import DeclaredTable, Paths, columns_of, read_text
from silodp.data.tables.table import defaults_of

FILE = DataFile(name="WISDM_ar_v1.1_transformed.csv", origin=None, checksum=None)
SILO, TARGET = "user", "class"
CLASSES = ("Walking", "Jogging", "Upstairs", "Downstairs", "Sitting", "Standing")
AXES = "XYZ"
# Shares of a window's 200 values in ten bins of equal width, 0.1 on average: more than half of them
# in one bin is far from it. The sensor reads up to 2 g (19.6 m/s²) on each axis. Peaks are further
# apart than half of the window of 10 s only if there is one.
BOUNDS = {
    **{f"{axis}{number}": (0.0, 0.5) for axis in AXES for number in range(10)},
    **{f"{axis}AVG": (-20.0, 20.0) for axis in AXES},
    **{f"{axis}PEAK": (0.0, 5000.0) for axis in AXES},
    **{f"{axis}ABSOLDEV": (0.0, 20.0) for axis in AXES},
    **{f"{axis}STANDDEV": (0.0, 20.0) for axis in AXES},
    "RESULTANT": (0.0, 35.0),
}
NO_PEAK = {"value": 5000.0, "indicator": True}


def _frame(paths: Paths, options: DataOptions) -> pd.DataFrame:
    path = paths[FILE.name]
    frame = read_text("wisdm", path, na_values="?")
    return columns_of("wisdm", path, frame, [SILO, *BOUNDS, TARGET])


def _declared(options: DataOptions) -> DataOptions:
    return DataOptions(
        silo_column=SILO,
        target=TARGET,
        task="multiclass",
        classes=CLASSES,
        bounds=BOUNDS,
        missing={f"{axis}PEAK": NO_PEAK for axis in AXES},
    )


SOURCE = DataSource(
    name="wisdm",
    summary="what 36 people do, by the phone in their pocket (6 classes, 46 features)",
    citation=(
        "J. R. Kwapisz, G. M. Weiss, S. A. Moore, Activity recognition using cell phone "
        "accelerometers, SensorKDD 2010"
    ),
    licence="none stated: public, to be cited",
    files=(FILE,),
    by_hand=(
        "get WISDM_ar_v1.1 at https://www.cis.fordham.edu/wisdm/dataset.php, write the names of "
        "the attributes of WISDM_ar_v1.1_transformed.arff in one line above its @data part, keep "
        f"both as {FILE.name}, and put that into wisdm/ in the data folder"
    ),
    defaults=replace(defaults_of("multiclass", "bounds"), delta=1e-4),
    preprocessings=("bounds", "paper", "none"),
    takes=frozenset({"data_dir", "test_fraction", "split"}),
    read=DeclaredTable("wisdm", (FILE,), _frame, _declared),
)
