"""The lattice on which noisy sums are released."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from federations import small
from hypothesis import given, settings
from hypothesis import strategies as st

import silodp
from silodp.engines.layout import silo_noise
from silodp.models import get_model
from silodp.privacy.lattice import grain_of, on_lattice, widening
from silodp.runs import job_of


@settings(max_examples=200, deadline=None)
@given(
    clip=st.floats(1e-3, 1e3),
    noise=st.floats(0.05, 1e4),
    batch=st.integers(1, 10_000),
    data=st.data(),
)
def test_sum_and_noise_are_exact_on_the_lattice(clip, noise, batch, data):
    """Within what they can reach, both and their total are whole multiples of the grain."""
    grain = grain_of(clip, noise, batch)
    assert math.log2(grain) == int(math.log2(grain))
    reach = clip * (batch + 8 * math.sqrt(batch))
    total = data.draw(st.floats(-reach, reach))
    drawn = data.draw(st.floats(-9 * noise * clip, 9 * noise * clip))
    a, b = (np.asarray(on_lattice(jnp.float32(v), jnp.float32(grain))) for v in (total, drawn))
    exact = np.float64(a) + np.float64(b)
    assert np.float64(a + b) == exact
    assert exact / grain == round(exact / grain)
    assert abs(np.float64(a) - total) <= grain / 2 + abs(total) * 2**-23


def test_without_privacy_nothing_is_rounded():
    values = jnp.array([0.1, 1e-20, 3.0])
    np.testing.assert_array_equal(on_lattice(values, jnp.float32(0.0)), values)


@pytest.mark.parametrize(
    ("clip", "noise", "batch", "parameters", "most"),
    [
        (1.0, 4.4, 32, 29, 0.001),  # School
        (6.0, 1.5, 64, 30_000, 0.02),  # the paper's ConvNets
    ],
)
def test_the_cost_is_small(clip, noise, batch, parameters, most):
    assert 0 < widening(clip, grain_of(clip, noise, batch), parameters) - 1 < most


@pytest.mark.parametrize("same_sign", [True, False])
@pytest.mark.parametrize("batch", [16, 128, 1024])
def test_the_error_of_summing_is_within_half_a_grain(same_sign, batch):
    """Against double precision, on gradients at the clip: the worst that a batch can hold."""
    rng = np.random.default_rng(0)
    d, clip = 40, 1.0
    x = rng.normal(size=(batch, d)) * 100
    x = np.abs(x) if same_sign else x
    y = np.full(batch, -1e3)
    model = get_model("linear", "regression", (d,))
    features = model.prepare(jnp.asarray(x, jnp.float32))
    params = model.init(jax.random.key(0))
    total = model.clipped_sum(params, features, jnp.asarray(y), jnp.ones(batch), clip)
    rows = np.concatenate([np.float64(np.float32(x)), np.ones((batch, 1))], axis=1)
    exact = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).sum(0)
    assert np.abs(np.asarray(total) - exact).max() <= grain_of(clip, 0.5, batch) / 2


def test_the_engine_adds_what_rounding_costs():
    """The noise in use is the plan's, widened for the lattice in use: at 40,000 parameters 1 %."""
    federation = small(sizes=(40, 40))
    prepared = silodp.plan(federation=federation, epsilon=3, delta=1e-4, rounds=2, batch_size=16)
    job = replace(job_of(prepared), model=get_model("linear", "regression", (40_000,)))
    noise = silo_noise(job, [[plan] for plan in prepared.plans[0]])
    for place, plan in enumerate(prepared.plans[0]):
        grain = grain_of(job.clip, plan.noise_multiplier, plan.batch)
        assert noise.grain[place, 0] == grain
        moved = job.clip + 2 * grain * math.sqrt(40_001)
        assert noise.scale[place, 0] == pytest.approx(plan.noise_multiplier * moved, rel=1e-6)
        assert noise.scale[place, 0] > 1.003 * plan.noise_multiplier * job.clip


def test_what_a_silo_sends_lies_on_the_lattice():
    """One step, so that the update is lr/batch times a noisy sum: a whole number of grains."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(32, 3)), rng.normal(size=32)
    silo = silodp.Silo("s", silodp.Records(x, y), silodp.Records(x, y))
    result = silodp.run(
        federation=silodp.Federation("one", (silo,), "regression"),
        method="local",
        rounds=1,
        batch_size=32,
        clip=1.0,
        lr=1.0,
        epsilon=3,
        delta=1e-4,
        keep_models=True,
    )
    grain = grain_of(1.0, result.privacy[0]["noise_multiplier"], 32)
    sums = np.asarray(result.models[0, 0], np.float64) * 32  # lr 1, batch 32: exact in floats
    np.testing.assert_array_equal(sums / grain, np.round(sums / grain))
    assert np.abs(sums / grain).max() > 1000
