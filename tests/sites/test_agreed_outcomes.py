"""Sites that agree on counts, ordered classes and times; no row of theirs is refused."""

import numpy as np
import pandas as pd
import pytest
from site_folders import make_coordinator, run_in_one_process, site_text
from site_models import same_models, simulated

from silodp.base.errors import SilodpError
from silodp.sites.agreed_job import coordinators_job
from silodp.sites.agreed_schema import agreed_schema, example
from silodp.sites.consents import consent
from silodp.sites.findings import look_at
from silodp.sites.proposal import proposal_of, read_proposal
from silodp.sites.site_data import DataAtSite, load_records

COLUMNS = {"target": "y", "bounds": {"age": [0, 100]}}
SCHEMAS = {
    "count": {"range": [0, 9], "exposure_column": "days", "exposure_range": [1, 50]},
    "ordinal": {"classes": ["none", "some", "much"]},
    "hazard": {"event_column": "status", "event_value": "2", "cut_points": [5, 10, 20]},
}


def agreed(task, **change):
    return agreed_schema("here", {**COLUMNS, "task": task, **SCHEMAS[task], **change})


@pytest.mark.parametrize("task", SCHEMAS)
def test_a_schema_is_what_it_says(task):
    schema = agreed(task)
    assert agreed_schema("there", schema.to_plain()) == schema
    federation = example(schema)
    assert federation.task == task
    assert federation.uncovered == ()
    table = {"sites": ["a", "b"], "name": "f", "training": {"method": "fedavg", "rounds": 2}}
    proposal = proposal_of("here", {**table, "schema": schema.to_plain()})
    assert read_proposal(proposal.text) == proposal
    job, _ = coordinators_job(proposal)
    assert job.model.task == task


@pytest.mark.parametrize(
    ("task", "change", "words"),
    [
        ("count", {"range": None}, "of a count needs its range"),
        ("count", {"exposure_range": None}, "needs its range: declare exposure_range"),
        ("hazard", {"cut_points": None}, "cut_points is missing, which a hazard task needs"),
        ("hazard", {"event_column": "y"}, "column 'y' belongs to the target 'y', and so is no"),
        ("ordinal", {"classes": None}, "of a ordinal task needs its classes"),
        ("ordinal", {"cut_points": [1, 2]}, "cut_points is declared, which is not for a ordinal"),
    ],
)
def test_what_leaves_something_open_is_refused(task, change, words):
    plain = {**COLUMNS, "task": task, **SCHEMAS[task], **change}
    with pytest.raises(SilodpError, match=words):
        agreed_schema("here", {key: value for key, value in plain.items() if value is not None})


STRANGE = ["", "x", "-1e300", "1e300", "-2", "0", "1.5", "nan", "inf", "2", "2.0", "much", "12"]


@pytest.mark.parametrize("task", SCHEMAS)
def test_no_row_is_refused_and_none_moves_another(tmp_path, task):
    """Each row by itself is encoded or left out, whatever stands in any column of it."""
    rng = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame(
        {name: rng.choice(STRANGE, n) for name in ("y", "age", "days", "status")}
    ).assign(id=[f"row {place}" for place in range(n)])

    def loaded(rows):
        rows.to_csv(tmp_path / "records.csv", index=False)
        source = DataAtSite(folder=tmp_path, path=tmp_path / "records.csv")
        federation = load_records(
            *("north", source, agreed(task)), seed=0, test_fraction=0.3, id_column="id"
        )
        (silo,) = federation.silos
        parts = (silo.train, silo.test)
        x, y = (np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y"))
        return sorted(zip(x[:, 0].tolist(), map(tuple, y.reshape(len(y), -1)), strict=True))

    everything = loaded(frame)
    assert 10 < len(everything) < n
    without = loaded(frame.drop(index=range(0, n, 7)))
    left = list(everything)
    for row in without:  # raises if a row came out another
        left.remove(row)
    assert len(left) <= -(-n // 7)


@pytest.mark.parametrize("task", ["count", "hazard"])
def test_findings_name_the_columns_beside(tmp_path, task):
    frame = pd.DataFrame({"y": [1, 2, 3], "age": 50, "days": 0, "status": ["", "2", "1"]})
    frame.to_csv(tmp_path / "records.csv", index=False)
    source = DataAtSite(folder=tmp_path, path=tmp_path / "records.csv")
    schema = agreed(task)
    if task == "count":
        with pytest.raises(SilodpError, match="and what belongs to them in 'days'"):
            look_at("north", source, schema)
        return
    looked = look_at("north", source, schema)
    assert (looked.rows, looked.usable) == (3, 2)
    (found,) = looked.findings
    assert "'status'" in found.what


@pytest.mark.parametrize("task", ["count", "hazard"])
def test_sites_train_on_them(tmp_path, task):
    """The sites' models are those of a simulation with the same keys."""
    training = {"method": "fedavg", "rounds": 2, "batch_size": 16, "weights": "uniform"}
    proposal = proposal_of(
        "fed.toml",
        {
            "name": "outcomes",
            "sites": ["north", "south"],
            "training": training,
            "schema": agreed(task).to_plain(),
        },
    )
    folders = {}
    for place, site in enumerate(proposal.sites):
        rng = np.random.default_rng(place)
        own = folders[site] = tmp_path / site
        own.mkdir()
        pd.DataFrame(
            {
                "y": rng.integers(1, 9, 60),
                "age": rng.integers(20, 90, 60),
                "days": rng.integers(1, 50, 60),
                "status": rng.integers(1, 3, 60),
            }
        ).to_csv(own / "records.csv", index=False)
        (own / "site.toml").write_text(site_text(site, "test"))
        consent(own, proposal)
    run_in_one_process(make_coordinator(tmp_path / "fed", proposal), folders, proposal)
    result = simulated(folders, proposal)
    same_models(folders, proposal, result, tmp_path)
