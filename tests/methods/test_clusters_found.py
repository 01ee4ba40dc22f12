"""On digits turned by four angles, IFCA's clusters are the four groups of silos."""

import math
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from federations import two_kinds

import silodp
from silodp.methods.parting import alike

ROTATED = {"data": "mnist", "model": "softmax", "rotations": 4, "clusters": 4}
# A fifth of the silos, each with as many records as one of forty has.
FEW = {"silos": 8, "density": 0.2, "rounds": 20, "lr": 0.3, "evaluate_every": 20}


@pytest.fixture
def digits():
    folder = os.environ.get("SILODP_DATA")
    if not folder or not (Path(folder) / "mnist").is_dir():
        pytest.skip("SILODP_DATA has no mnist folder")


def has_found_its_groups(result) -> list[bool]:
    """For each seed, whether silos have one model exactly if they are turned alike."""
    silos = len(result.per_silo)
    group = np.arange(silos) * 4 // silos
    models = np.concatenate(
        [np.reshape(leaf, (*leaf.shape[:2], -1)) for leaf in jax.tree.leaves(result.models)], -1
    )
    same = np.all(models[:, :, None] == models[:, None], axis=-1)
    return [bool(np.all(of_seed == (group[:, None] == group))) for of_seed in same]


@pytest.mark.slow
@pytest.mark.usefixtures("digits")
def test_four_groups_are_found_with_privacy():
    options = ROTATED | FEW | {"mask_ratio": 0, "epsilon": 4.0, "keep_models": True}
    assert has_found_its_groups(silodp.run(method="ifca", **options)) == [True]


@pytest.mark.slow
@pytest.mark.usefixtures("digits")
@pytest.mark.parametrize("epsilon", [4.0, math.inf])
def test_four_groups_are_found_among_forty_silos(epsilon):
    result = silodp.run(
        method="ifca",
        mask_ratio=0,
        epsilon=epsilon,
        rounds=40,
        seeds=5,
        keep_models=True,
        **ROTATED,
    )
    assert all(has_found_its_groups(result))


@pytest.mark.slow
@pytest.mark.usefixtures("digits")
def test_a_warm_start_beats_both_its_parents():
    """Silos of a group differ in their masks; lambda is the best of a few."""
    common = ROTATED | FEW | {"silos": 12, "density": 0.3, "mask_ratio": 0.1, "seeds": 2}

    def best(method, **lam):
        results = silodp.sweep(method=method, epsilon=4.0, **common, **lam)
        return max(result.mean for result in results)

    lam = {"lam": [0.03, 0.1, 0.3]}
    warm = best("ifca+mrmtl", **lam)
    assert warm > best("ifca")
    assert warm > best("mrmtl", **lam)


def updates_of(groups, noise, silos=24, size=2000):
    """Updates in `groups` directions, of several lengths, with noise that differs by silo."""
    rng = np.random.default_rng(0)
    kind = np.arange(silos) % groups
    directions = rng.normal(size=(groups, size)) / math.sqrt(size)
    lengths = rng.uniform(1, 3, (silos, 1))
    clear = lengths * directions[kind]
    noisy = rng.normal(size=clear.shape) * noise * rng.uniform(0.5, 1, (silos, 1))
    return kind, jnp.asarray(clear + lengths * noisy / math.sqrt(size), jnp.float32)


@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_updates_alike_are_put_together(noise):
    kind, updates = updates_of(3, noise)
    weights = jnp.full(len(kind), 1 / len(kind))
    found = np.argmax(alike(updates, weights, 3), axis=1)
    np.testing.assert_array_equal(found[:, None] == found, kind[:, None] == kind)


def test_a_silo_of_weight_zero_has_no_say():
    kind, updates = updates_of(2, 0.5)
    weights = jnp.asarray(np.arange(len(kind)) > 0, jnp.float32) / (len(kind) - 1)
    found = [alike(updates.at[0].set(first), weights, 2)[1:] for first in (0.0, 1e3)]
    np.testing.assert_array_equal(*found)


def test_opposites_are_parted_and_stay_apart():
    """No jump of the error where models are parted, however long the server has listened."""
    result = silodp.run(
        federation=two_kinds(),
        method="ifca",
        epsilon=math.inf,
        rounds=100,
        select_fraction=0.5,
        batch_size=10,
        lr=0.1,
        seeds=2,
        evaluate_every=1,
        keep_models=True,
    )
    before, after = (result.history[number]["mean"] for number in (23, 25))
    assert after < 0.9 * before
    assert result.mean < 0.05
    for models in result.models:
        assert np.all(models[0] == models[2])
        assert np.all(models[1] == models[3])
