"""The lattice on which sums are released."""

import math
from dataclasses import replace

import numpy as np
import pytest
from federations import small
from hypothesis import given, settings
from hypothesis import strategies as st

import silodp
from silodp.base.errors import SilodpError
from silodp.engines.layout import silo_lattice, silo_noise
from silodp.models.whole_sums import CLIP_SLACK
from silodp.privacy.mechanisms.lattice import lattice_of

pytestmark = pytest.mark.as_shipped


@settings(max_examples=200, deadline=None)
@given(clip=st.floats(1e-6, 1e6), noise=st.floats(0.02, 1e5), batch=st.integers(1, 10**7))
def test_noise_is_what_is_paid_for_and_sums_fit(clip, noise, batch):
    lattice = lattice_of(clip, noise, batch)
    assert math.log2(lattice.grain) == int(math.log2(lattice.grain))
    # What one record adds, in grains, and the noise in units of it.
    moved = clip * (1 + CLIP_SLACK) / lattice.grain
    assert lattice.deviation >= noise * moved
    assert lattice.deviation == pytest.approx(noise * moved, rel=1e-12)
    assert batch * moved + 12 * lattice.deviation < 2**31
    # Noise is fine compared with the grain, or else the grain is a small part of the clip.
    assert moved > 2**30 / (8 * batch + 12 * noise + 200) / 4


def test_a_clip_that_would_be_lost_is_refused():
    with pytest.raises(SilodpError, match="clip is 1e-12"):
        lattice_of(1e-12, 1.0, 10)


def test_the_engine_uses_the_plans_lattice():
    federation = small(sizes=(40, 40))
    prepared = silodp.plan(federation=federation, epsilon=3, delta=1e-4, rounds=2, batch_size=16)
    noise = silo_noise([[plan] for plan in prepared.plans[0]])
    for place, plan in enumerate(prepared.plans[0]):
        lattice = silo_lattice(plan)
        assert noise.grain[place, 0] == lattice.grain
        assert noise.scale[place, 0] == pytest.approx(plan.noise_multiplier * plan.clip, rel=1e-5)
        assert lattice.scale >= plan.noise_multiplier * plan.clip
    without = silo_lattice(replace(prepared.plans[0][0], epsilon=math.inf))
    assert (without.grain, without.deviation) == (0, 0)


def released_sum(**options):
    """One step of full batch with lr 1: the model is minus the released sum over the batch."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(32, 3)), rng.normal(size=32)
    silo = silodp.Silo("s", silodp.Records(x, y), silodp.Records(x, y))
    given = {"method": "local", "rounds": 1, "batch_size": 32, "clip": 1.0, "lr": 1.0}
    result = silodp.run(
        federation=silodp.Federation("one", (silo,), "regression"),
        epsilon=3,
        delta=1e-4,
        keep_models=True,
        **(given | options),
    )
    grain = lattice_of(1.0, result.privacy[0]["noise_multiplier"], 32).grain
    return np.asarray(result.models[0, 0], np.float64) * 32 / grain, result


def test_what_a_silo_releases_is_a_whole_number_of_grains():
    sums, result = released_sum(entropy="os")
    # Single precision holds 24 bits of what is released, which no longer tells anything.
    coarse = 2.0 ** np.maximum(0, np.ceil(np.log2(np.abs(sums))) - 24)
    np.testing.assert_array_equal(sums / coarse, np.round(sums / coarse))
    assert np.abs(sums).max() > 1e6
    assert result.proven
    assert not result.experiment


def test_an_experiment_says_so_and_never_that_it_is_proven():
    _, result = released_sum()
    assert result.experiment
    assert not result.proven
    assert result.unproven == []
    assert all(silo["experiment"] and not silo["proven"] for silo in result.privacy)
