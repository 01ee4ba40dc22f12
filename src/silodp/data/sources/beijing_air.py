"""Beijing air: fine dust at 12 stations by the hour, from weather and other gases (Zhang 2017).

The last year is for testing: a date that was set beforehand parts the records, each by itself.
PM10 is left out, because the dust to be predicted is part of it.
"""

from dataclasses import replace

import pandas as pd

from silodp.config.data_options import DataOptions
from silodp.data.files import Archive, DataFile
from silodp.data.source import DataSource
from silodp.data.sources.declared_table import DeclaredTable, Paths, columns_of, read_text
from silodp.data.tables.table import defaults_of

STATIONS = (
    *("Aotizhongxin", "Changping", "Dingling", "Dongsi", "Guanyuan", "Gucheng", "Huairou"),
    *("Nongzhanguan", "Shunyi", "Tiantan", "Wanliu", "Wanshouxigong"),
)
ARCHIVE = Archive(
    "https://archive.ics.uci.edu/ml/machine-learning-databases/00501/"
    "PRSA2017_Data_20130301-20170228.zip",
    None,
)
FILES = tuple(
    DataFile(
        name=(name := f"PRSA_Data_{station}_20130301-20170228.csv"),
        origin=ARCHIVE,
        checksum=None,
        also=(f"{name}.gz",),
    )
    for station in STATIONS
)
TARGET = "PM2.5"
TARGET_RANGE = (0.0, 500.0)  # micrograms a cubic metre: where the air quality index ends
TEST_FROM = "2016-03-01"
WINDS = (
    *("N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE"),
    *("S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW"),
)
LEVELS = {
    "month": tuple(map(str, range(1, 13))),
    "wd": WINDS,
}
# Gases in micrograms a cubic metre, up to a severe episode; weather as it may be in Beijing.
BOUNDS = {
    "hour": (0.0, 23.0),
    "SO2": (0.0, 300.0),
    "NO2": (0.0, 300.0),
    "CO": (0.0, 10000.0),
    "O3": (0.0, 500.0),
    "TEMP": (-30.0, 45.0),
    "PRES": (980.0, 1050.0),
    "DEWP": (-45.0, 35.0),
    "RAIN": (0.0, 50.0),
    "WSPM": (0.0, 15.0),
}


def _frame(paths: Paths, options: DataOptions) -> pd.DataFrame:
    parts = []
    for file, station in zip(FILES, STATIONS, strict=True):
        path = paths[file.name]
        frame = read_text("beijing_air", path, dtype={"month": str})
        names = ["year", "month", "day", *BOUNDS, "wd", TARGET]
        frame = columns_of("beijing_air", path, frame, names)
        two_digits = {part: frame[part].astype(str).str.zfill(2) for part in ("month", "day")}
        date = frame["year"].astype(str) + "-" + two_digits["month"] + "-" + two_digits["day"]
        parts.append(frame.drop(columns=["year", "day"]).assign(date=date, station=station))
    return pd.concat(parts, ignore_index=True)


def _declared(options: DataOptions) -> DataOptions:
    return DataOptions(
        silo_column="station",
        target=TARGET,
        task="regression",
        target_range=TARGET_RANGE,
        bounds=BOUNDS,
        levels=LEVELS,
        time_column="date",
        test_from=TEST_FROM,
        test_fraction=0.25,
        drop_missing=True,
    )


SOURCE = DataSource(
    name="beijing_air",
    summary="fine dust at 12 stations, by the hour for four years (regression, 38 features)",
    citation=(
        "S. Zhang, B. Guo, A. Dong, J. He, Z. Xu, S. X. Chen, Cautionary tales on air-quality "
        "improvement in Beijing, Proceedings of the Royal Society A 473 (2017); UCI Machine "
        "Learning Repository"
    ),
    licence="CC BY 4.0",
    files=FILES,
    defaults=replace(defaults_of("regression", "bounds"), delta=1e-5, rounds=50, batch_size=256),
    preprocessings=("bounds", "paper", "none"),
    takes=frozenset({"data_dir"}),
    read=DeclaredTable("beijing_air", FILES, _frame, _declared),
)
