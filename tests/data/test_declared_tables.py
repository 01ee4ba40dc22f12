"""Published tables with public declarations: small files in the layout of each."""

import gzip
import zipfile

import numpy as np
import pytest

from silodp.base.errors import DataMissingError, SilodpError
from silodp.config.data_options import DataOptions
from silodp.data.registry import SOURCES
from silodp.data.sources import beijing_air, diabetes130, heart, parkinsons, tcga_brca, wisdm


def load(name, folder, seed=0, **options):
    return SOURCES[name].load(seed, DataOptions(data_dir=folder, **options))


def write_heart(folder):
    for number, hospital in enumerate(heart.HOSPITALS):
        rows = [
            f"{40 + row},1,{row % 4 + 1},130,{200 + row},0,{row % 3},150,0,1.5,?,?,?,{row % 3}"
            for row in range(12 + number)
        ]
        lacking = "50,1,4,?,200,0,1,150,0,1.5,?,?,?,2"
        text = "\n".join([*rows, lacking]) + "\n"
        (folder / f"processed.{hospital}.data").write_text(text)


def test_heart_leaves_out_patients_who_lack_a_value_each_by_itself(tmp_path):
    write_heart(tmp_path)
    federation = load("heart", tmp_path)
    assert federation.names == heart.HOSPITALS
    assert federation.train_counts.sum() + federation.test_counts.sum() == 12 + 13 + 14 + 15
    assert federation.class_names == ("no", "yes")
    assert federation.feature_bound == 1.0
    assert federation.input_shape == (15,)
    assert not federation.uncovered  # all was declared, and coins part records
    assert {"feature bounds", "class list"} == {*federation.declared}


def test_values_beyond_public_bounds_are_moved_to_them(tmp_path):
    write_heart(tmp_path)
    path = tmp_path / "processed.va.data"
    path.write_text(path.read_text().replace("150", "900"))
    federation = load("heart", tmp_path)
    records = federation.silos[-1].train.x
    assert np.abs(records).max() == 1.0


def test_a_table_is_read_once_for_all_seeds_and_again_if_it_changes(tmp_path, monkeypatch):
    write_heart(tmp_path)
    reads = []
    own = heart._of_hospital
    monkeypatch.setattr(heart, "_of_hospital", lambda path: reads.append(path) or own(path))
    first, second = load("heart", tmp_path, 0), load("heart", tmp_path, 1)
    assert len(reads) == len(heart.HOSPITALS)
    assert not np.array_equal(first.silos[0].train.x, second.silos[0].train.x)
    path = tmp_path / "processed.va.data"
    path.write_text("\n".join(path.read_text().splitlines()[:9]))
    assert load("heart", tmp_path).silos[-1].public_count < first.silos[-1].public_count


def test_missing_files_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("SILODP_DATA", raising=False)
    monkeypatch.setenv("SILODP_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataMissingError, match=r"processed\.cleveland\.data was not found"):
        load("heart", tmp_path)


def test_a_table_of_something_else_is_refused_in_a_sentence(tmp_path):
    (tmp_path / parkinsons.FILE.name).write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(SilodpError, match=r"no column 'subject#'.*silodp data get parkinsons"):
        load("parkinsons", tmp_path)


@pytest.mark.parametrize("separator", [",", "\t"])
def test_parkinsons_has_a_silo_for_each_patient(tmp_path, separator):
    names = [parkinsons.SILO, *parkinsons.BOUNDS, *parkinsons.TARGET_RANGES]
    rows = [[patient, *[0.01] * 19, 20 + patient, 30] for patient in (1, 2) for _ in range(20)]
    lines = [separator.join(map(str, line)) for line in (names, *rows)]
    (tmp_path / parkinsons.FILE.name).write_text("\n".join(lines))
    federation = load("parkinsons", tmp_path)
    assert federation.names == ("1", "2")
    assert federation.input_shape == (19,)
    assert federation.silos[0].train.y[0] == pytest.approx(21 / 108)
    total = load("parkinsons", tmp_path, target="total_UPDRS")
    assert total.silos[0].train.y[0] == pytest.approx(30 / 176)


def test_wisdm_knows_where_there_was_no_peak(tmp_path):
    names = ["UNIQUE_ID", wisdm.SILO, *wisdm.BOUNDS, wisdm.TARGET]
    rows = []
    for row in range(60):
        values = dict.fromkeys(wisdm.BOUNDS, "0.1") | {"XPEAK": "?" if row % 2 else "500"}
        rows.append(
            [str(row), str(row % 2), *values.values(), wisdm.CLASSES[row % len(wisdm.CLASSES)]]
        )
    lines = [",".join(line) for line in (names, *rows)]
    (tmp_path / wisdm.FILE.name).write_text("\n".join(lines))
    federation = load("wisdm", tmp_path)
    place = federation.feature_names.index("XPEAK is missing")
    flags = [np.unique(silo.train.x[:, place]).tolist() for silo in federation.silos]
    assert flags == [[0.0], [1.0]]
    assert federation.num_classes == 6


def test_beijing_is_parted_at_a_date_that_was_set(tmp_path):
    names = ["No", "year", "month", "day", *beijing_air.BOUNDS, "wd", "PM2.5"]
    for file in beijing_air.FILES:
        lines = [",".join(names)]
        for number in range(30):
            year, month = (2016, 3) if number >= 20 else (2016, 2)
            values = ["1"] * len(beijing_air.BOUNDS)
            dust = "NA" if number == 0 else str(10 * number)
            lines.append(",".join([str(number), str(year), str(month), "1", *values, "N", dust]))
        (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    federation = load("beijing_air", tmp_path)
    assert federation.names == tuple(sorted(beijing_air.STATIONS))
    assert set(federation.train_counts) == {19}
    assert set(federation.test_counts) == {10}
    assert federation.silos[0].test.y.min() == pytest.approx(200 / 500)
    assert not federation.uncovered


def test_tcga_keeps_the_published_split_and_leaves_out_who_is_not_in_it(tmp_path):
    sites = {"AA": "South", "BB": "Europe"}
    (tmp_path / "centers.csv").write_text(
        "TSS Code,Source Site,Country,State,Region\nAA,x,USA,TX,South\nBB,y,Germany,NA,Europe\n"
    )
    patients = [f"TCGA-{site}-{number:04d}" for site in sites for number in range(10)]
    split = [f"{one},{'test' if n % 5 == 0 else 'train'},x" for n, one in enumerate(patients[:-1])]
    (tmp_path / "train_test_split.csv").write_text("\n".join(["pid,fold,fold2", *split]))
    names = ["pid", *tcga_brca.BOUNDS, "E", "T"]
    rows = [
        [one, "60", *["1"] * len(tcga_brca.INDICATORS), str(n % 2), str(100 * (n + 1))]
        for n, one in enumerate(patients)
    ]
    quoted = [",".join(f'"{cell}"' for cell in line) for line in (names, *rows)]
    (tmp_path / "brca.csv").write_text("\n".join(quoted))
    federation = load("tcga_brca", tmp_path)
    assert federation.names == ("Europe", "South")
    assert federation.task == "hazard"
    assert federation.train_counts.tolist() == [7, 8]
    assert federation.test_counts.tolist() == [2, 2]


def test_diabetes_protects_patients_and_is_read_from_the_archive(tmp_path):
    coded = ("age", "discharge_disposition_id", "admission_source_id", "diag_1", "change")
    own = ("race", "gender", "max_glu_serum", "A1Cresult", "insulin", "metformin")
    names = ["payer_code", "patient_nbr", *own, *diabetes130.COUNTS, *coded, "diabetesMed"]
    lines = [",".join([*names, "readmitted"])]
    for row in range(80):
        payer, patient = ("MC", "SP", "?")[row % 3], str(row // 3)
        left = "11" if row == 4 else "1"  # one of them died
        values = [payer, patient, "?", "Female", "None", ">7", "No", "Up", *["2"] * 8]
        values += ["[70-80)", left, "7", "428" if row % 2 else "V57", "Ch", "Yes"]
        lines.append(",".join([*values, "<30" if row % 5 == 0 else "NO"]))
    with zipfile.ZipFile(tmp_path / "dataset_diabetes.zip", "w") as archive:
        archive.writestr("dataset_diabetes/diabetic_data.csv", "\n".join(lines))
    federation = load("diabetes130", tmp_path)
    assert federation.names == ("MC", "SP")
    assert federation.by_subject
    assert federation.class_names == ("no", "within 30 days")
    names = federation.feature_names
    of_heart = names.index("diagnosis=circulatory")
    ages = {float(one) for silo in federation.silos for one in silo.train.x[:, names.index("age")]}
    assert ages == {0.5}
    assert 0 < federation.silos[0].train.x[:, of_heart].mean() < 1


@pytest.mark.parametrize(
    ("name", "silos", "records"),
    [("heart", 4, 740), ("parkinsons", 42, 5875), ("wisdm", 36, 5418), ("landmine", 29, 14820)],
)
def test_the_real_files_are_as_published(name, silos, records):
    try:
        federation = SOURCES[name].load(0)
    except DataMissingError as error:
        pytest.skip(str(error))
    assert len(federation.silos) == silos
    counted = int(federation.train_counts.sum() + federation.test_counts.sum())
    # Coins of identical records with subjects aside, every row is on one side or the other.
    assert counted == pytest.approx(records, abs=90)
    assert not federation.uncovered
    assert federation.feature_bound == 1.0
