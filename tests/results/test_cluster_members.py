"""Clusters over seeds: labels mean nothing, who is together does."""

import numpy as np
import pytest

import silodp
from silodp.results.cluster_members import cluster_members

SILOS = ["a", "b", "c", "d", "e"]


def one_hot(labels, clusters=3):
    return np.eye(clusters)[labels]


def test_labels_of_seeds_are_matched():
    chosen = np.stack([one_hot([0, 0, 0, 1, 1]), one_hot([2, 2, 2, 0, 0])])
    told = cluster_members(chosen, SILOS)
    assert [one["cluster"] for one in told["clusters"]] == [1, 1, 1, 2, 2]
    assert all(one["agreement"] == 1 for one in told["clusters"])
    assert told["summary"] == [
        "Silos chose 2 of 3 clusters: a, b, c; d, e.",
        "5 of 5 silos are with the same others in every seed.",
    ]


def test_a_silo_that_changes_sides_is_seen():
    labels = [[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]]
    told = cluster_members(np.stack([one_hot(one, 2) for one in labels]), SILOS)
    agreement = {one["silo"]: one["agreement"] for one in told["clusters"]}
    assert agreement["c"] == pytest.approx(2 / 3)
    assert agreement["a"] == 1
    assert "4 of 5 silos" in told["summary"][1]


def test_the_largest_cluster_is_the_first_and_names_are_harmless():
    chosen = one_hot([1, 1, 1, 0, 0], 2)[None]
    told = cluster_members(chosen, ["x\x1b[31m", "b", "c", "d", "e"])
    assert [one["cluster"] for one in told["clusters"]] == [1, 1, 1, 2, 2]
    assert "\x1b" not in told["summary"][0]
    assert len(told["summary"]) == 1  # of one seed there is nothing to agree with


@pytest.mark.parametrize("method", [pytest.param("ifca", marks=pytest.mark.slow), "ifca+mrmtl"])
def test_a_run_says_who_chose_what(method):
    """Without privacy and far apart, the silos of synthetic data still all choose something."""
    result = silodp.run(
        data="synthetic", method=method, silos=6, rounds=6, select_fraction=0.5, seeds=2, epsilon=9
    )
    learned = result.learned
    assert learned is not None
    assert [one["silo"] for one in learned["clusters"]] == [s["silo"] for s in result.per_silo]
    assert learned["summary"][0].startswith("Silos chose ")
