"""Motor insurance: policies of the French pricing game of 2015, and whether there was a claim."""

from dataclasses import replace

import pandas as pd

from silodp.config.data_options import DataOptions
from silodp.data.files import DataFile
from silodp.data.source import DataSource
from silodp.data.sources.declared_table import DeclaredTable, Paths, columns_of, read_text
from silodp.data.tables.table import defaults_of

FILE = DataFile(name="pg15training.csv", origin=None, checksum=None, also=("pg15training.csv.gz",))
REGION, SUB_REGION, TARGET = "Group2", "SubGroup2", "claim"
CLAIMS = ("Numtppd", "Numtpbi")  # damage to things, and to people
# As an insurer's form has it; the bonus goes from -50 to 150 by law.
LEVELS = {
    "CalYear": ("2009", "2010"),
    "Gender": ("Female", "Male"),
    "Type": ("A", "B", "C", "D", "E", "F"),
    "Category": ("Small", "Medium", "Large"),
    "Occupation": ("Employed", "Housewife", "Retired", "Self-employed", "Unemployed"),
}
BOUNDS = {
    "Age": (18.0, 90.0),
    "Group1": (1.0, 20.0),
    "Bonus": (-50.0, 150.0),
    "Poldur": (0.0, 15.0),
    "Value": (0.0, 50000.0),
    "Adind": (0.0, 1.0),
    "Density": (0.0, 300.0),
    "Exppdays": (0.0, 366.0),
}


def _frame(paths: Paths, options: DataOptions) -> pd.DataFrame:
    path, silo = paths[FILE.name], options.silo_column
    assert silo is not None
    frame = read_text("pg15", path, dtype={"CalYear": str})
    frame = columns_of("pg15", path, frame, [silo, *LEVELS, *BOUNDS, *CLAIMS])
    claim = frame[list(CLAIMS)].sum(axis=1).gt(0).map({True: "yes", False: "no"})
    return frame.drop(columns=list(CLAIMS)).assign(**{TARGET: claim})


def _declared(options: DataOptions) -> DataOptions:
    return DataOptions(
        silo_column=options.silo_column or REGION,
        target=TARGET,
        classes=("no", "yes"),
        bounds=BOUNDS,
        levels=LEVELS,
    )


SOURCE = DataSource(
    name="pg15",
    summary="claims on 100,021 motor policies in 10 regions, or 471 by --silo-column SubGroup2 "
    "(binary, 26 features)",
    citation=(
        "C. Dutang, A. Charpentier, CASdatasets: insurance datasets (R package); the pricing game "
        "of the Institut des actuaires, 2015"
    ),
    licence="GPL, version 2 or later",
    files=(FILE,),
    by_hand=(
        'in R, library(CASdatasets); data(pg15training); write.csv(pg15training, "'
        f'{FILE.name}", row.names = FALSE), and put the file into pg15/ in the data folder'
    ),
    defaults=replace(defaults_of("binary", "bounds"), delta=1e-5),
    preprocessings=("bounds", "paper", "none"),
    takes=frozenset({"data_dir", "test_fraction", "split", "silo_column"}),
    read=DeclaredTable("pg15", (FILE,), _frame, _declared),
)
