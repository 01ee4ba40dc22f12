"""From a table as it was exported to a report in three commands, as README says."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from page_reader import Reader

ROLES = ("--silo-column", "Klinik", "--target", "Entlassen")


def exported(path):
    """As a spreadsheet saves it: words among numbers, dates, a clinic where nobody went home."""
    rng = np.random.default_rng(7)
    n = 93
    frame = pd.DataFrame(
        {
            "Klinik": ["Nord"] * 40 + ["Süd"] * 40 + ["West"] * 12 + ["Ost"],
            "Nr": np.arange(1000, 1000 + n),
            "Größe": [f"{value:.1f}".replace(".", ",") for value in rng.normal(172, 9, n)],
            "Besuche": rng.choice(["0", "1", "2", "3+", "unbekannt"], n),
            "Aufnahme": [f"{1 + d % 28:02}.{1 + d % 12:02}.2023" for d in rng.integers(0, 99, n)],
            "Raucher": rng.choice(["ja", "nein"], n),
            "Entlassen": rng.choice(["ja", "nein"], n),
        }
    )
    frame.loc[frame.Klinik == "West", "Entlassen"] = "nein"
    frame.loc[[3, 50], "Größe"] = None
    frame.loc[[7], "Entlassen"] = None
    frame.to_csv(path, sep=";", encoding="cp1252", index=False)
    return path


@pytest.fixture(scope="module")
def report(cli, tmp_path_factory):
    """The report, the result, and what the commands said."""
    folder = tmp_path_factory.mktemp("clinics")
    table, schema = exported(folder / "stays.csv"), folder / "schema.toml"
    checked = cli("data", "check", table, *ROLES, "--write-schema", schema)
    assert checked.exit_code == 0, checked.output
    # The edit: a person has read it, and says that nothing in it is the records'.
    edited = re.sub("from_records = .*", "from_records = []", schema.read_text("utf8"))
    schema.write_text(edited, "utf8")
    ledgers, page = ("--ledger", folder / "ledgers"), folder / "r.html"
    policies = folder / "policies.toml"
    policies.write_text("[default]\nepsilon = 3\ndelta = 1e-4\nlifetime_epsilon = 6\n")
    ran = cli(
        *("run", "--data", table, *ROLES, "--schema", schema, "--policies", policies),
        *(*ledgers, "--method", "fedavg", "--rounds", 3, "--out", folder / "run"),
    )
    assert ran.exit_code == 0, ran.output
    reported = cli("report", folder / "run", *ledgers, "--out", page)
    assert reported.exit_code == 0, reported.output
    result = json.loads((folder / "run" / "result.json").read_text())
    return Reader(page.read_text(encoding="utf-8")).text, result, checked.output + ran.output


def test_every_clinic_is_trained_and_paid_for(report):
    _, result, _ = report
    assert [silo["silo"] for silo in result["per_silo"]] == ["Nord", "Ost", "Süd", "West"]
    assert all(silo["proven"] for silo in result["privacy"])
    assert all(silo["epsilon"] <= 3 for silo in result["privacy"])
    assert result["problem"]["columns"] == ["Größe", "Besuche", "Aufnahme", "Raucher"]


def test_the_page_says_what_there_is_to_say(report):
    page, result, said = report
    assert "cp1252" in said
    assert "a decimal comma" in said
    assert "Traceback" not in said
    for words in ("Entlassen", "Proven", "always answering the most common class", "lifetime"):
        assert words in page
    without = [silo["silo"] for silo in result["per_silo"] if silo["mean"] is None]
    assert without == ["Ost"]
    assert "Without a test accuracy, which needs a test record: Ost." in page
