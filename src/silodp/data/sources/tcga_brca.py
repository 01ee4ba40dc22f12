"""Breast cancer of The Cancer Genome Atlas: survival in six regions, as FLamby has it.

Patients, features and the split are FLamby's; features are 0 and 1 but for the age. Hazards are
those of intervals of about two years, since a third of the patients are seen for that long.
"""

from dataclasses import replace

import pandas as pd

from silodp.config.data_options import DataOptions
from silodp.data.files import DataFile
from silodp.data.source import DataSource
from silodp.data.sources.declared_table import DeclaredTable, Paths, columns_of, read_text
from silodp.data.tables.table import defaults_of

_FLAMBY = "https://raw.githubusercontent.com/owkin/FLamby/main/flamby/datasets/fed_tcga_brca"
TABLE, CENTRES, SPLIT = (
    DataFile(name="brca.csv", origin=f"{_FLAMBY}/brca.csv", checksum=None),
    DataFile(name="centers.csv", origin=f"{_FLAMBY}/centers.csv", checksum=None),
    DataFile(
        name="train_test_split.csv",
        origin=f"{_FLAMBY}/dataset_creation_scripts/train_test_split.csv",
        checksum=None,
    ),
)
FILES = (TABLE, CENTRES, SPLIT)
PATIENT, TIME, EVENT, AGE = "pid", "T", "E", "age_at_index"
YEAR = 365.25
CUT_POINTS = tuple(years * YEAR for years in (1.0, 3.0, 5.0, 8.0, 12.0))
AGES = (20.0, 90.0)  # the atlas counts everybody above as 90
INDICATORS = (
    "ethnicity_not hispanic or latino",
    "ethnicity_not reported",
    "race_asian",
    "race_black or african american",
    "race_not reported",
    "race_white",
    "ajcc_pathologic_m_MX",
    "ajcc_pathologic_n_N0 (i-)",
    "ajcc_pathologic_n_N1",
    "ajcc_pathologic_n_N1a",
    "ajcc_pathologic_n_N2",
    "ajcc_pathologic_n_N2a",
    "ajcc_pathologic_stage_Stage IA",
    "ajcc_pathologic_stage_Stage IIA",
    "ajcc_pathologic_stage_Stage IIB",
    "ajcc_pathologic_stage_Stage IIIA",
    "ajcc_pathologic_stage_Stage IIIC",
    "ajcc_pathologic_t_T1c",
    "ajcc_pathologic_t_T2",
    "ajcc_pathologic_t_T3",
    "ajcc_staging_system_edition_5th",
    "ajcc_staging_system_edition_6th",
    "ajcc_staging_system_edition_7th",
    "icd_10_code_C50.9",
    "morphology_8500/3",
    "morphology_8520/3",
    "primary_diagnosis_Infiltrating duct carcinoma, NOS",
    "primary_diagnosis_Lobular carcinoma, NOS",
    "prior_malignancy_yes",
    "synchronous_malignancy_Not Reported",
    "treatment_or_therapy_not reported",
    "treatment_or_therapy_yes",
    "tumor_stage_stage i",
    "tumor_stage_stage ia",
    "tumor_stage_stage iia",
    "tumor_stage_stage iib",
    "tumor_stage_stage iiia",
    "tumor_stage_stage iiic",
)
BOUNDS = {AGE: AGES, **dict.fromkeys(INDICATORS, (0.0, 1.0))}


def _frame(paths: Paths, options: DataOptions) -> pd.DataFrame:
    frame = read_text("tcga_brca", paths[TABLE.name], dtype={EVENT: float})
    frame = columns_of("tcga_brca", paths[TABLE.name], frame, [*BOUNDS, PATIENT, TIME, EVENT])
    centres = read_text("tcga_brca", paths[CENTRES.name], keep_default_na=False)
    centres = columns_of("tcga_brca", paths[CENTRES.name], centres, ["TSS Code", "Region"])
    split = read_text("tcga_brca", paths[SPLIT.name])
    split = columns_of("tcga_brca", paths[SPLIT.name], split, [PATIENT, "fold"])
    patients = pd.Series(frame[PATIENT])
    site = patients.str.split("-").str[1]  # TCGA-site-patient
    regions = pd.Series(centres["Region"].to_numpy(), index=centres["TSS Code"])
    tested = pd.Series((split["fold"] == "test").astype(int).to_numpy(), index=split[PATIENT])
    frame = frame.assign(region=site.map(regions), tested=patients.map(tested))
    # Eight patients are in no part of the published split.
    return frame.loc[frame["tested"].notna()].drop(columns=PATIENT).astype({"tested": int})


def _declared(options: DataOptions) -> DataOptions:
    return DataOptions(
        silo_column="region",
        target=TIME,
        task="hazard",
        event_column=EVENT,
        cut_points=CUT_POINTS,
        time_column="tested",
        test_from="1",
        bounds=BOUNDS,
    )


SOURCE = DataSource(
    name="tcga_brca",
    summary="survival of 1,088 patients with breast cancer in 6 regions (hazard, 39 features)",
    citation=(
        "The Cancer Genome Atlas, breast invasive carcinoma (GDC open data); features, centres and "
        "split of J. Ogier du Terrail et al., FLamby, NeurIPS 2022"
    ),
    licence="GDC open access: no attempt may be made to find out who the patients are",
    files=FILES,
    defaults=replace(defaults_of("hazard", "bounds"), delta=1e-3),
    preprocessings=("bounds", "paper", "none"),
    takes=frozenset({"data_dir"}),
    read=DeclaredTable("tcga_brca", FILES, _frame, _declared),
)
