"""The models that sites keep, and those of the same run in a simulation."""

from dataclasses import replace

import numpy as np

import silodp
from silodp.results.result import MODELS_FILE
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
