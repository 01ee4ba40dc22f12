"""One method, two engines: what sites and a coordinator do gives the models of a simulation."""

import numpy as np
import pytest
from site_folders import SITES, make_coordinator, make_sites, proposal, run_in_one_process
from site_models import models_of, same_models, simulated

from silodp.methods import METHODS
from silodp.results.result import read_result
from silodp.sites.job_at_site import RESULTS

pytestmark = pytest.mark.usefixtures("kept_programs")

# Each takes some seconds to compile.
AT_ONCE = ("ebmtl", "fewround", "ifca+mrmtl")
LATER = [name for name in (*METHODS, "ifca+ditto") if name not in AT_ONCE]


@pytest.mark.parametrize(
    "method", [*AT_ONCE, *(pytest.param(name, marks=pytest.mark.slow) for name in LATER)]
)
def test_both_engines_give_the_same_models_with_the_same_keys(tmp_path, method):
    agreed = proposal(method=method, small_silos="full-batch")
    folders = make_sites(tmp_path, agreed, keys="test")
    run_in_one_process(make_coordinator(tmp_path / "fed", agreed), folders, agreed)
    result = simulated(folders, agreed)
    same_models(folders, agreed, result, tmp_path)
    for place, (site, folder) in enumerate(folders.items()):
        own = read_result(folder / RESULTS / agreed.job())
        assert own.per_silo[0]["silo"] == site
        assert own.mean == pytest.approx(result.per_silo[place]["mean"], rel=1e-4)
        assert own.privacy[0]["noise_multiplier"] == result.privacy[place]["noise_multiplier"]


def test_a_classifier_weighted_by_records(tmp_path):
    agreed = proposal(task="binary", method="mrmtl", weights="records")
    folders = make_sites(tmp_path, agreed, keys="test")
    run_in_one_process(make_coordinator(tmp_path / "fed", agreed), folders, agreed)
    same_models(folders, agreed, simulated(folders, agreed), tmp_path)


def test_without_the_switch_two_runs_differ(tmp_path):
    agreed = proposal(method="mrmtl")
    models = []
    for name in ("one", "other"):
        folders = make_sites(tmp_path / name, agreed)
        run_in_one_process(make_coordinator(tmp_path / name / "fed", agreed), folders, agreed)
        models.append(models_of(folders, agreed))
    for site in SITES:
        for name, array in models[0][site].items():
            assert np.abs(array - models[1][site][name]).max() > 1e-3
