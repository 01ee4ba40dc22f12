"""Clipped gradient sums against the definition, record by record.

Compiling is most of the time: problems are of one size, and each model's sum is compiled once.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from silodp.models.gradients import clip_factor, generic_clipped_sum
from silodp.models.model import get_model

TASKS = {
    "linear": ("regression", 0),
    "svm": ("binary", 0),
    "logistic": ("binary", 0),
    "softmax": ("multiclass", 4),
}


@cache
def compiled(name, d=5):
    """A model of d features, and its functions compiled as wholes."""
    model = get_model(name, TASKS[name][0], (d,), TASKS[name][1])
    functions = {field: jax.jit(getattr(model, field)) for field in ("prepare", "clipped_sum")}
    return model._replace(**functions)


@cache
def generic(name, microbatch=32):
    model = compiled(name)
    return jax.jit(generic_clipped_sum(model.apply, model.loss, microbatch))


def problem(name, n=17, d=5):
    rng = np.random.default_rng(0)
    task, classes = TASKS[name]
    model = compiled(name, d)
    x = rng.normal(size=(n, d)).astype(np.float32)
    y = {
        "regression": rng.normal(size=n).astype(np.float32),
        "binary": rng.choice([-1.0, 1.0], n).astype(np.float32),
        "multiclass": rng.integers(0, max(classes, 1), n).astype(np.int32),
    }[task]
    params = jax.tree.map(
        lambda a: jnp.asarray(rng.normal(size=a.shape), jnp.float32), model.init(jax.random.key(0))
    )
    mask = (rng.random(n) < 0.6).astype(np.float32)
    return model, params, model.prepare(jnp.asarray(x)), jnp.asarray(y), jnp.asarray(mask), rng


@cache
def gradients_of(name):
    """Each record's gradient [n, ...], by JAX from the loss of that record alone."""
    model = compiled(name)

    def loss_of_one(params, features, y):
        alone = jax.tree.map(lambda a: a[None], features)
        return model.loss(model.apply(params, alone), y[None])[0]

    return jax.jit(jax.vmap(jax.grad(loss_of_one), (None, 0, 0)))


def by_definition(name, params, features, y, mask, clip, offset=None):
    total = np.zeros(params.shape)
    gradients = np.asarray(gradients_of(name)(params, features, y), np.float64)
    for gradient in gradients[np.asarray(mask) > 0]:
        pulled = gradient if offset is None else gradient + np.asarray(offset)
        total += pulled * min(1.0, clip / max(np.linalg.norm(pulled), 1e-300))
    return total


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("clip", [0.5, 2.0, np.inf])
@pytest.mark.parametrize("inside", [False, True])
def test_linear_models_equal_the_definition(name, clip, inside):
    model, params, features, y, mask, rng = problem(name)
    offset = jnp.asarray(rng.normal(size=params.shape), jnp.float32) if inside else None
    got = model.clipped_sum(params, features, y, mask, clip, offset)
    np.testing.assert_allclose(
        got, by_definition(name, params, features, y, mask, clip, offset), rtol=2e-4, atol=2e-5
    )


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("microbatch", [4, 32])
def test_generic_equals_linear(name, microbatch):
    model, params, features, y, mask, _ = problem(name)
    np.testing.assert_allclose(
        generic(name, microbatch)(params, features, y, mask, 0.7),
        model.clipped_sum(params, features, y, mask, 0.7),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("name", TASKS)
def test_one_record_never_counts_for_more_than_the_clip(name):
    model, params, features, y, _, _ = problem(name)
    for i in range(len(y)):
        alone = jnp.zeros(len(y)).at[i].set(1.0)
        norm = np.linalg.norm(model.clipped_sum(100 * params, features, y, alone, 0.3))
        assert norm <= 0.3 * (1 + 1e-5)


def test_empty_slots_may_hold_anything():
    _, params, features, y, mask, _ = problem("linear")
    spoilt = dict(features, x=jnp.where(mask[:, None] > 0, features["x"], 1e30))
    one_by_one = generic("linear")
    got = one_by_one(params, spoilt, y, mask, 1.0)
    np.testing.assert_allclose(got, one_by_one(params, features, y, mask, 1.0), rtol=1e-5)


def test_zero_gradients_and_infinite_clips_give_no_nan():
    assert clip_factor(jnp.float32(0.0), 1.0) == 1.0
    assert clip_factor(jnp.float32(3.0), jnp.inf) == 1.0
    assert clip_factor(jnp.float32(jnp.inf), jnp.inf) == 1.0
    model, params, features, _, mask, _ = problem("linear")
    exact = model.apply(params, features)  # no residual: every gradient is zero
    assert np.all(np.asarray(model.clipped_sum(params, features, exact, mask, 1.0)) == 0)


@pytest.mark.as_shipped
def test_a_pull_of_zero_inside_the_clip_changes_nothing_at_all():
    model, params, features, y, mask, _ = problem("linear")
    plain = model.clipped_sum(params, features, y, mask, 0.7)
    pulled = model.clipped_sum(params, features, y, mask, 0.7, jnp.zeros_like(params))
    np.testing.assert_array_equal(plain, pulled)


@pytest.mark.as_shipped
@pytest.mark.parametrize("seed", range(5))
def test_a_gradient_that_nearly_cancels_the_pull_is_still_clipped(seed):
    """The norm of the difference of two large vectors: one record adds no more than the clip."""
    rng = np.random.default_rng(seed)
    model = compiled("linear", 30)
    x = jnp.asarray(rng.normal(size=(1, 30)), jnp.float32)
    features, y = model.prepare(x), jnp.asarray([-1e4], jnp.float32)
    params = jnp.zeros(31)
    gradient = model.clipped_sum(params, features, y, jnp.ones(1), jnp.inf)
    off = jnp.asarray(rng.normal(size=31), jnp.float32)
    total = model.clipped_sum(params, features, y, jnp.ones(1), 1.0, -gradient + 3.0 * off)
    assert np.linalg.norm(np.asarray(total, float)) <= 1.0 + 1e-5


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("drawn", [0.0, 1.0])
def test_a_record_beyond_floating_point_adds_no_more_than_the_clip(name, drawn):
    """Its gradient is not a number: it is left out, drawn or not, and the others stay."""
    model, params, features, y, _, _ = problem(name)
    x = features["x"].at[3].set(3e38)
    extreme = {"x": x, "norm": jnp.linalg.norm(x, axis=1)}
    mask = jnp.ones(len(y)).at[3].set(drawn)
    total = np.asarray(model.clipped_sum(params, extreme, y, mask, 0.7))
    without = np.asarray(model.clipped_sum(params, features, y, mask.at[3].set(0.0), 0.7))
    assert np.linalg.norm(total - without) <= 0.7 * (1 + 1e-5)
    offset = jnp.full_like(params, 0.1)
    pulled = np.asarray(model.clipped_sum(params, extreme, y, mask, 0.7, offset))
    assert np.isfinite(pulled).all()
    assert np.isfinite(np.asarray(generic(name)(params, extreme, y, mask, 0.7))).all()
