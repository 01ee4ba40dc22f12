"""Parkinsons telemonitoring: motor scores of 42 patients from their voice (Tsanas et al. 2010)."""

from dataclasses import replace

import pandas as pd

from silodp.config.data_options import DataOptions
from silodp.data.files import DataFile
from silodp.data.source import DataSource
from silodp.data.sources.declared_table import DeclaredTable, Paths, columns_of, read_text
from silodp.data.tables.table import defaults_of

FILE = DataFile(
    name="parkinsons_updrs.data",
    origin="https://archive.ics.uci.edu/ml/machine-learning-databases/parkinsons/telemonitoring/"
    "parkinsons_updrs.data",
    checksum=None,
)
SILO = "subject#"
# The scales go from 0 to 108 (motor examination) and 0 to 176 (all parts).
TARGET_RANGES = {"motor_UPDRS": (0.0, 108.0), "total_UPDRS": (0.0, 176.0)}
# The trial took six months. Jitter and shimmer of sick voices reach several times the limits of
# healthy ones (1 % and 0.35 dB); the entropies and the exponent lie between 0 and 1 by definition.
BOUNDS = {
    "age": (30.0, 90.0),
    "sex": (0.0, 1.0),
    "test_time": (0.0, 220.0),
    "Jitter(%)": (0.0, 0.03),
    "Jitter(Abs)": (0.0, 0.0003),
    "Jitter:RAP": (0.0, 0.015),
    "Jitter:PPQ5": (0.0, 0.015),
    "Jitter:DDP": (0.0, 0.045),
    "Shimmer": (0.0, 0.15),
    "Shimmer(dB)": (0.0, 1.4),
    "Shimmer:APQ3": (0.0, 0.08),
    "Shimmer:APQ5": (0.0, 0.08),
    "Shimmer:APQ11": (0.0, 0.1),
    "Shimmer:DDA": (0.0, 0.24),
    "NHR": (0.0, 0.2),
    "HNR": (0.0, 40.0),
    "RPDE": (0.0, 1.0),
    "DFA": (0.0, 1.0),
    "PPE": (0.0, 1.0),
}


def _frame(paths: Paths, options: DataOptions) -> pd.DataFrame:
    path = paths[FILE.name]
    # Published with commas; copies with tabs are about.
    frame = read_text("parkinsons", path, sep=None, engine="python")
    assert options.target is not None
    return columns_of("parkinsons", path, frame, [SILO, *BOUNDS, options.target])


def _declared(options: DataOptions) -> DataOptions:
    target = options.target or "motor_UPDRS"
    return DataOptions(
        silo_column=SILO,
        target=target,
        task="regression",
        target_range=TARGET_RANGES.get(target),
        bounds=BOUNDS,
    )


SOURCE = DataSource(
    name="parkinsons",
    summary="motor scores of 42 patients from 5,875 recordings of their voice (regression, 19 "
    "features)",
    citation=(
        "A. Tsanas, M. Little, P. McSharry, L. Ramig, Accurate telemonitoring of Parkinson's "
        "disease progression by non-invasive speech tests, IEEE Transactions on Biomedical "
        "Engineering 57 (2010) 884-893; UCI Machine Learning Repository"
    ),
    licence="CC BY 4.0",
    files=(FILE,),
    defaults=replace(defaults_of("regression", "bounds"), delta=1e-4),
    preprocessings=("bounds", "paper", "none"),
    takes=frozenset({"data_dir", "test_fraction", "split", "target"}),
    read=DeclaredTable("parkinsons", (FILE,), _frame, _declared),
)
