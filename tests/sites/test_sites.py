"""One method, two engines: what sites and a coordinator do gives the models of a simulation."""

from dataclasses import replace

import numpy as np
import pytest
from site_folders import SITES, make_coordinator, make_sites, proposal, run_in_one_process

import silodp
from silodp.methods import METHODS
from silodp.results.result import MODELS_FILE, read_result
from silodp.runs.requests import without_effect
from silodp.sites.job_at_site import RESULTS
from silodp.sites.site_data import load_records
from silodp.sites.site_files import read_site


def simulated(folders, agreed, **options):
    """The same in a simulation: the sites' records in one place."""
    alone = []
    for folder in folders.values():
        site = read_site(folder)
        alone.append(
            load_records(
                site.site,
                site.data,
                agreed.schema,
                seed=site.seed,
                test_fraction=site.test_fraction,
            )
        )
    together = replace(alone[0], silos=tuple(one.silos[0] for one in alone))
    useless = without_effect(agreed.training, agreed.training)
    training = {
        name: value
        for name, value in agreed.training.items()
        if value is not None and name not in useless
    }
    return silodp.run(
        federation=together,
        epsilon=4,
        delta=1e-3,
        keep_models=True,
        entropy="seed",
        **training | options,
    )


def models_of(folders, agreed, job=None):
    """The sites' own, as they kept them: arrays by name, for each site."""
    found = {}
    for site, folder in folders.items():
        with np.load(folder / RESULTS / (job or agreed.job()) / MODELS_FILE) as file:
            found[site] = {name: file[name][0, 0] for name in file.files if name != "silos"}
    return found


def same_models(folders, agreed, result, tmp_path):
    result.write(tmp_path / "simulated")
    with np.load(tmp_path / "simulated" / MODELS_FILE) as file:
        for place, (site, own) in enumerate(models_of(folders, agreed).items()):
            for name, array in own.items():
                np.testing.assert_allclose(
                    array, file[name][0, place], rtol=1e-5, atol=1e-5, err_msg=f"{site} {name}"
                )


# Each takes some seconds to compile.
AT_ONCE = ("ebmtl", "ifca+mrmtl")
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
    agreed = proposal(task="binary", method="ebmtl", weights="records")
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
