"""Diabetes in 130 hospitals: who is back within 30 days of going home (Strack et al. 2014).

Hospitals have no name in the data. Silos are who pays, or (by --silo-column medical_specialty) who
admitted; stays without that are left out. A patient has several stays, all of which are protected
together. As in the paper, stays that end with death or in a hospice are left out.
"""

from dataclasses import replace

import pandas as pd

from silodp.config.data_options import DataOptions
from silodp.data.files import Archive, DataFile
from silodp.data.source import DataSource
from silodp.data.sources.declared_table import DeclaredTable, Paths, columns_of, read_text
from silodp.data.tables.table import defaults_of

FILE = DataFile(
    name="diabetic_data.csv",
    origin=Archive(
        "https://archive.ics.uci.edu/ml/machine-learning-databases/00296/dataset_diabetes.zip", None
    ),
    checksum=None,
    also=("diabetic_data.csv.gz",),
    forms=("dataset_diabetes.zip",),
)
PAYER, PATIENT, TARGET = "payer_code", "patient_nbr", "readmitted"
UNKNOWN = "?"
NOT_HOME = frozenset({"11", "13", "14", "19", "20", "21"})  # died, or went to a hospice
CHANGES = ("No", "Down", "Steady", "Up")
LEVELS = {
    "race": ("AfricanAmerican", "Asian", "Caucasian", "Hispanic", "Other"),
    "gender": ("Female", "Male"),
    "max_glu_serum": ("None", "Norm", ">200", ">300"),
    "A1Cresult": ("None", "Norm", ">7", ">8"),
    "insulin": CHANGES,
    "metformin": CHANGES,
    "diagnosis": (
        *("circulatory", "respiratory", "digestive", "diabetes", "injury", "musculoskeletal"),
        *("genitourinary", "neoplasms", "other"),
    ),
}
OTHER = {"race": "Other", "gender": "Female"}  # three stays have no gender
# Stays of more than 14 days were left out by who published the data; the other ends are far from
# what is usual.
COUNTS = {
    "time_in_hospital": (1.0, 14.0),
    "num_lab_procedures": (0.0, 100.0),
    "num_procedures": (0.0, 6.0),
    "num_medications": (0.0, 50.0),
    "number_outpatient": (0.0, 5.0),
    "number_emergency": (0.0, 5.0),
    "number_inpatient": (0.0, 5.0),
    "number_diagnoses": (1.0, 9.0),
}
BOUNDS = {
    "age": (0.0, 100.0),
    **COUNTS,
    **dict.fromkeys(("went home", "emergency", "change", "diabetesMed"), (0.0, 1.0)),
}
# Of the ninth revision of the classification of diseases, as the paper groups them: [from, to).
GROUPS = (
    *(("circulatory", 390, 460), ("circulatory", 785, 786), ("respiratory", 460, 520)),
    *(("respiratory", 786, 787), ("digestive", 520, 580), ("digestive", 787, 788)),
    *(("diabetes", 250, 251), ("injury", 800, 1000), ("musculoskeletal", 710, 740)),
    *(("genitourinary", 580, 630), ("genitourinary", 788, 789), ("neoplasms", 140, 240)),
)


def _frame(paths: Paths, options: DataOptions) -> pd.DataFrame:
    path, silo = paths[FILE.name], options.silo_column
    assert silo is not None
    # All of it as text: "None" and "?" are values here.
    frame = read_text(
        "diabetes130", path, member=FILE.name, dtype=str, keep_default_na=False, na_filter=False
    )
    own = ("race", "gender", "max_glu_serum", "A1Cresult", "insulin", "metformin")
    coded = ("age", "discharge_disposition_id", "admission_source_id", "diag_1", "change")
    names = [silo, PATIENT, *own, *COUNTS, *coded, "diabetesMed", TARGET]
    frame = columns_of("diabetes130", path, frame, names)
    frame = frame.loc[
        (frame[silo] != UNKNOWN) & ~frame["discharge_disposition_id"].isin(list(NOT_HOME))
    ]
    decade = frame["age"].str.extract(r"\[(\d+)-", expand=False)
    made = {
        **{name: pd.to_numeric(frame[name]) for name in COUNTS},
        "age": decade.astype(float) + 5.0,
        "went home": (frame["discharge_disposition_id"] == "1").astype(float),
        "emergency": (frame["admission_source_id"] == "7").astype(float),
        "change": (frame["change"] == "Ch").astype(float),
        "diabetesMed": (frame["diabetesMed"] == "Yes").astype(float),
        "diagnosis": _groups(frame["diag_1"]),
        TARGET: (frame[TARGET] == "<30").map({True: "within 30 days", False: "no"}),
    }
    return frame[[silo, PATIENT, *own]].assign(**made)


def _groups(codes: pd.Series) -> pd.Series:
    """The group of each diagnosis; codes that are no numbers are of other groups."""
    numbers = pd.Series(pd.to_numeric(codes, errors="coerce"), index=codes.index)
    groups = pd.Series("other", index=codes.index)
    for name, low, high in GROUPS:
        groups = groups.mask((numbers >= low) & (numbers < high), name)
    return groups


def _declared(options: DataOptions) -> DataOptions:
    return DataOptions(
        silo_column=options.silo_column or PAYER,
        subject_column=PATIENT,
        target=TARGET,
        classes=("no", "within 30 days"),
        bounds=BOUNDS,
        levels=LEVELS,
        other=OTHER,
    )


SOURCE = DataSource(
    name="diabetes130",
    summary="who is back in hospital within 30 days: 101,766 stays by 17 payers, or 72 by "
    "--silo-column medical_specialty (binary, 44 features; protects patients)",
    citation=(
        "B. Strack et al., Impact of HbA1c measurement on hospital readmission rates, BioMed "
        "Research International (2014); UCI Machine Learning Repository"
    ),
    licence="CC BY 4.0",
    files=(FILE,),
    defaults=replace(defaults_of("binary", "bounds"), delta=1e-5),
    preprocessings=("bounds", "paper", "none"),
    takes=frozenset({"data_dir", "test_fraction", "split", "silo_column"}),
    read=DeclaredTable("diabetes130", (FILE,), _frame, _declared),
)
