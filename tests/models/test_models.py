"""Models learn, fit their task or say why not, and may be brought along."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from federations import small

import silodp
from silodp.models.model import MODELS, get_model

FIT = {"linear": "regression", "svm": "binary", "logistic": "binary", "softmax": "multiclass"}


@pytest.mark.parametrize("name", FIT)
def test_linear_models_learn(name):
    options = {"method": "local", "epsilon": math.inf, "rounds": 20, "batch_size": 16, "lr": 0.3}
    result = silodp.run(federation=small(FIT[name], sizes=(200, 200)), model=name, **options)
    assert result.mean < 0.1 if FIT[name] == "regression" else result.mean > 0.85


def images(n_silos=2, n=40, side=12, seed=0):
    """Bright left or right halves: two classes that any ConvNet can tell apart."""
    rng = np.random.default_rng(seed)

    def records(n):
        y = np.arange(n) % 2
        x = 0.1 * rng.normal(size=(n, side, side, 1))
        x[y == 0, :, : side // 2] += 1
        x[y == 1, :, side // 2 :] += 1
        return silodp.Records(x, y)

    silos = tuple(silodp.Silo(f"s{k}", records(n), records(20)) for k in range(n_silos))
    return silodp.Federation("halves", silos, "multiclass", 2)


@pytest.mark.parametrize("epsilon", [pytest.param(math.inf, marks=pytest.mark.slow), 50.0])
def test_convnets_learn(epsilon):
    result = silodp.run(
        federation=images(), model="convnet", method="fedavg", epsilon=epsilon, rounds=6,
        batch_size=10, lr=0.1, delta=1e-3,
    )  # fmt: skip
    assert result.mean > 0.9


@pytest.mark.slow
def test_a_convnet_takes_the_regulariser_inside_or_outside():
    common = {"federation": images(), "model": "convnet", "rounds": 2, "batch_size": 10}
    for regulariser in ("inside", "outside"):
        result = silodp.run(method="mrmtl", lam=0.1, epsilon=20, regulariser=regulariser, **common)
        assert math.isfinite(result.mean)


def test_convnet_for_regression():
    model = get_model("convnet5", "regression", (32, 32, 1))
    params = model.init(jax.random.key(0))
    assert model.predict(params, jnp.zeros((3, 32, 32, 1))).shape == (3,)


@pytest.mark.parametrize(
    ("name", "task", "shape", "message"),
    [
        ("svm", "regression", (4,), "choose --model linear"),
        ("linear", "binary", (4,), "svm or logistic"),
        ("convnet", "multiclass", (4,), r"images \[height, width, channels\]"),
        ("convnet", "multiclass", (8, 8, 1), "at least 10 by 10"),
        ("forest", "binary", (4,), "unknown"),
    ],
)
def test_a_model_that_does_not_fit_says_why(name, task, shape, message):
    with pytest.raises(silodp.SilodpError, match=message):
        get_model(name, task, shape, 3)


def test_the_smallest_image_that_a_convnet_takes():
    for name, side in (("convnet", 10), ("convnet5", 16)):
        model = get_model(name, "multiclass", (side, side, 1), 2)
        params = model.init(jax.random.key(0))
        assert model.predict(params, jnp.zeros((1, side, side, 1))).shape == (1, 2)


def test_a_custom_model_equals_the_built_in_one():
    """The same linear model by `init` and `apply`: generic gradients, same training."""
    custom = silodp.custom_model(
        init=lambda key: (jnp.zeros(4), jnp.zeros(())),
        apply=lambda params, x: (x @ params[0] + params[1])[:, None],
        task="regression",
    )
    # So few records that light and heavy models draw their batches in the same way.
    federation = small(sizes=(24, 20))
    options = {"federation": federation, "method": "mrmtl", "rounds": 3, "batch_size": 20}
    ours = silodp.run(epsilon=3, keep_models=True, **options)
    theirs = silodp.run(epsilon=3, keep_models=True, custom_model=custom, **options)
    np.testing.assert_allclose(theirs.models[0], ours.models[..., :4], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(theirs.models[1], ours.models[..., 4], rtol=1e-3, atol=1e-5)
    private = silodp.run(epsilon=3, custom_model=custom, **options)
    assert private.options["model"] == "custom"
    assert private.privacy[0]["epsilon"] <= 3


def test_a_custom_model_for_another_task_is_refused():
    custom = silodp.custom_model(lambda key: jnp.zeros(4), lambda p, x: x @ p, task="binary")
    with pytest.raises(silodp.SilodpError, match="regression"):
        silodp.run(federation=small(), custom_model=custom, method="local", epsilon=1)


def test_each_linear_model_is_tried():
    assert set(FIT) < set(MODELS)
