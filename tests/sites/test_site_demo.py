"""The demonstration compares each site with local training, whatever method was agreed on."""

import math

import pytest
from site_folders import make_sites, proposal

from silodp.sites.demo import _local_errors


@pytest.mark.parametrize("method", ["mrmtl", "ifca"])
def test_local_training_is_told_nothing_of_the_agreed_method(tmp_path, method):
    agreed = proposal(method=method, rounds=2)
    folders = make_sites(tmp_path, agreed)
    errors = _local_errors(folders, agreed)
    assert errors.keys() == folders.keys()
    assert all(math.isfinite(error) for error in errors.values())
