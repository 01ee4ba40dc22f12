"""What sites measure is agreed on; a proposal that says nothing of it is what it always was."""

import json

import pytest
from site_folders import SITES, make_coordinator, make_sites, proposal, run_in_one_process, table

from silodp import SilodpError
from silodp.base.progress_file import PROGRESS_FILE
from silodp.results.result import read_result
from silodp.sites.coordinator import STATE
from silodp.sites.job_at_site import RESULTS
from silodp.sites.proposal import first_difference, read_proposal
from silodp.sites.site_setup import site_models


def test_what_was_agreed_on_before_there_was_a_choice_keeps_its_digest():
    agreed = proposal(method="mrmtl", small_silos="refuse")  # which was the default
    assert "metric" not in agreed.training
    assert agreed.digest == "631b7270822b13b78338549b6700f69f0beca73dbac7143aec04f9ffd345874b"


def test_a_metric_is_agreed_on():
    usual, agreed = proposal(method="mrmtl"), proposal(method="mrmtl", metric="r2")
    assert agreed.training["metric"] == agreed.options.metric == "r2"
    assert read_proposal(agreed.text) == agreed
    assert agreed.digest != usual.digest
    assert first_difference(usual, agreed) == "training.metric is 'r2', not None"
    assert first_difference(agreed, usual) == "training.metric is None, not 'r2'"


def test_what_does_not_fit_is_refused_in_its_place():
    with pytest.raises(SilodpError, match=r"fed.toml: \[training\] --metric accuracy: .*regress"):
        proposal(metric="accuracy")
    with pytest.raises(SilodpError, match=r"fed.toml: \[training\] metric_share takes a mean"):
        proposal(metric="r2", metric_share=0.2)
    assert proposal(metric="mae", metric_share=0.2).training["metric"] == "mae"


@pytest.mark.parametrize(("metric", "share"), [("r2", 0.0), ("mae", 0.2)])
def test_sites_measure_it(tmp_path, metric, share):
    agreed = proposal(method="fedavg", metric=metric, metric_share=share, rounds=2)
    folders = make_sites(tmp_path / "sites", agreed)
    fed = make_coordinator(tmp_path / "fed", agreed)
    run_in_one_process(fed, folders, agreed)
    progress = json.loads((fed / STATE / agreed.job() / PROGRESS_FILE).read_text("utf-8"))
    told = progress["metrics"]
    assert sorted(told) == (sorted(SITES) if share else [])
    for folder in folders.values():
        (model,) = site_models(folder)
        assert model["metric"] == metric
        assert model["test"] is not None


def test_a_site_whose_targets_do_not_differ_has_no_r2_and_tells_nobody(tmp_path):
    agreed = proposal(method="fedavg", metric="r2", rounds=2)
    folders = make_sites(tmp_path / "sites", agreed)
    flat = table(0).assign(y=7.0)
    flat.to_csv(folders["north"] / "records.csv", index=False)
    run_in_one_process(make_coordinator(tmp_path / "fed", agreed), folders, agreed)
    result = read_result(folders["north"] / RESULTS / agreed.job())
    assert result.unmeasured == ["north"]
    assert site_models(folders["north"])[0]["test"] is None
