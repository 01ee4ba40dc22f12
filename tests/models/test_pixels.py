"""Images in one byte a value: a quarter of the memory, and the same numbers in the end."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from federations import images

import silodp
from silodp.base.errors import SilodpError
from silodp.base.progress import Reporter
from silodp.models.model import get_model, on_pixels
from silodp.models.subjects import blocks_of, by_subject


def test_bytes_stay_bytes():
    federation = images()
    assert federation.silos[0].train.x.dtype == np.uint8
    assert federation.feature_bound == 1.0
    assert federation.declared == ("feature bounds",)
    assert images(pixels=(-3.0, 1.0)).feature_bound == 3.0


@pytest.mark.parametrize("pixels", [(0.0, 1.0), (-1.0, 1.0)])
def test_decoded(pixels):
    federation = images(pixels=pixels)
    numbers = federation.decoded()
    low, high = pixels
    for silo, other in zip(federation.silos, numbers.silos, strict=True):
        expected = low + (high - low) * (silo.train.x.astype(float) / 255)
        np.testing.assert_allclose(other.train.x, expected, atol=1e-6)
    assert numbers.pixels is None
    assert numbers.feature_bound == federation.feature_bound
    assert numbers.decoded() is numbers


def test_whole_numbers_without_pixels_stay_what_they_are():
    federation = replace(images(), pixels=None, feature_bound=None)
    assert federation.silos[0].train.x.dtype == np.float32
    assert federation.silos[0].train.x.max() == 255


def test_numbers_are_no_pixels():
    with pytest.raises(SilodpError, match=r"Silo 'silo 0': train x has dtype float32.*uint8"):
        replace(images().decoded(), pixels=(0.0, 1.0))


@pytest.mark.parametrize("pixels", [(1.0, 0.0), (0.0, np.inf), (np.nan, 1.0)])
def test_a_range_that_is_none(pixels):
    with pytest.raises(SilodpError, match="pixels are"):
        images(pixels=pixels)


@pytest.mark.parametrize(
    ("name", "subjects"),
    [
        ("softmax", True),
        ("convnet", False),
        pytest.param("softmax", False, marks=pytest.mark.slow),
        pytest.param("convnet", True, marks=pytest.mark.slow),
    ],
)
def test_a_model_sees_numbers(name, subjects):
    federation = images((12,), subjects=subjects, pixels=(-1.0, 1.0))
    model = get_model(name, "multiclass", federation.input_shape, 3)
    params = model.init(jax.random.key(0))
    found = []
    for own, records in (
        (model, federation.decoded().silos[0].train),
        (on_pixels(model, -1.0, 1.0), federation.silos[0].train),
    ):
        outputs = own.predict(params, jnp.asarray(records.x))
        x, y = blocks_of(records) if subjects else (records.x, records.y)
        unit = by_subject(own) if subjects else own
        features = unit.prepare(jax.tree.map(jnp.asarray, x))
        mask = jnp.ones(len(y))
        found.append((outputs, unit.clipped_sum(params, features, jnp.asarray(y), mask, 0.5)))
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("subjects", [False, True])
def test_a_run_on_bytes_is_the_run_on_numbers(subjects):
    federation = images((9, 12), subjects=subjects, pixels=(-1.0, 1.0))
    asked = {
        **{"method": "mrmtl", "model": "softmax", "rounds": 1, "batch_size": 4, "lr": 0.1},
        **{"epsilon": 4, "delta": 1e-3, "keep_models": True},
    }
    ours = silodp.run(federation=federation, **asked)
    theirs = silodp.run(federation=federation.decoded(), **asked)
    for one, other in zip(*map(jax.tree.leaves, (ours.models, theirs.models)), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)
    assert ours.mean == pytest.approx(theirs.mean)


class Interrupted(Reporter):
    """As by Ctrl-C, after the first evaluation."""

    def trained(self, done, total, metric):
        if done < total:
            raise KeyboardInterrupt


def test_an_interrupted_run_goes_on_with_the_same_pixels(tmp_path):
    asked = {
        **{"method": "local", "model": "softmax", "rounds": 4, "evaluate_every": 1, "lr": 0.1},
        **{"batch_size": 8, "epsilon": 4, "delta": 1e-3, "out": tmp_path},
    }
    with pytest.raises(KeyboardInterrupt):
        silodp.run(federation=images(), reporter=Interrupted(), **asked)
    with pytest.raises(SilodpError, match="other options, budgets or records"):
        silodp.run(federation=images(pixels=(-1.0, 1.0)), resume=True, **asked)
    assert silodp.run(federation=images(), resume=True, **asked).mean > 0


def test_noisy_statistics_are_of_numbers():
    asked = {
        **{"method": "local", "model": "softmax", "rounds": 1, "batch_size": 8, "lr": 0.1},
        **{"epsilon": 4, "delta": 1e-3, "statistics_share": 0.3, "keep_models": True},
    }
    ours = silodp.run(federation=images(), **asked)
    theirs = silodp.run(federation=images().decoded(), **asked)
    np.testing.assert_allclose(ours.models, theirs.models, atol=2e-5)
