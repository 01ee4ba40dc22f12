"""The ConvNets' clipped gradient sums against `vmap(grad)` of XLA's convolutions and pooling.

Compiling is most of the time, so tests share shapes: 6 images, one function for each of two cases.
Between them these have both sizes of kernels, one output and several, one channel and several, and
rows and columns that pooling leaves over and that it does not.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from silodp.base.errors import SilodpError
from silodp.models import convnet
from silodp.models.convnet import apply_convnet, clipped_gradient_sum, init_convnet


def cross_entropy(outputs, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(outputs), y[:, None], 1)[:, 0]


def squared_error(outputs, y):
    return (outputs[:, 0] - y) ** 2


# name: input shape, outputs, kernel, loss
CASES = {
    "adni": ((32, 32, 1), 1, 5, squared_error),
    "oblong": ((17, 22, 2), 3, 3, cross_entropy),
}
# Of data sets, and of the cases above: image, kernel.
SHAPES = [((28, 28, 1), 3), ((32, 32, 3), 3), ((32, 32, 1), 5), ((17, 22, 2), 3)]


def max_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


@jax.jit
def plain_apply(params, x):
    layout = ("NHWC", "HWIO", "NHWC")
    for layer in (params["conv1"], params["conv2"]):
        x = lax.conv_general_dilated(x, layer["w"], (1, 1), "VALID", dimension_numbers=layout)
        x = max_pool(jax.nn.relu(x + layer["b"]))
    return x.reshape(len(x), -1) @ params["linear"]["w"] + params["linear"]["b"]


@jax.jit(static_argnums=2)
def plain_sum_and_norms(params, x, loss, y, mask, clip):
    def one(params, image, label):
        return loss(plain_apply(params, image[None]), label[None])[0]

    gradients = jax.vmap(jax.grad(one), (None, 0, 0))(params, x, y)
    leaves = jax.tree.leaves(gradients)
    norms = jnp.sqrt(sum((leaf.reshape(len(x), -1) ** 2).sum(1) for leaf in leaves))
    scale = mask * jnp.minimum(1, clip / jnp.where(norms > 0, norms, 1))
    return jax.tree.map(lambda leaf: jnp.tensordot(scale, leaf, 1), gradients), norms


def plain_sum(*args):
    return plain_sum_and_norms(*args)[0]


def plain_norms(params, x, loss, y):
    return plain_sum_and_norms(params, x, loss, y, np.ones(len(x), np.float32), 1.0)[1]


fast_apply = jax.jit(apply_convnet)
fast_sum = jax.jit(clipped_gradient_sum, static_argnums=2)


def make(case, seed=0):
    """Parameters as `init_convnet` shapes them (biases not zero), six images and their labels."""
    shape, outputs, kernel, loss = CASES[case]
    rng = np.random.default_rng(seed)

    def normal(shape, deviation):
        return (deviation * rng.normal(size=shape)).astype(np.float32)

    params = jax.eval_shape(
        lambda key: init_convnet(key, shape, outputs, kernel), jax.random.key(0)
    )
    params = jax.tree.map(lambda leaf: normal(leaf.shape, np.prod(leaf.shape[:-1]) ** -0.5), params)
    for layer in params.values():
        layer["b"] *= 0.1
    y = rng.integers(0, outputs, 6) if loss is cross_entropy else normal(6, 1)
    return params, normal((6, *shape), 1), loss, y


def tree_norm(tree):
    return float(
        np.sqrt(sum(np.sum(np.square(np.asarray(a, float))) for a in jax.tree.leaves(tree)))
    )


def assert_close(actual, expected, relative=1e-5):
    """Each array agrees to `relative` of its own norm."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert a.shape == b.shape
        assert np.all(np.isfinite(a))
        assert np.linalg.norm(a - b) <= relative * np.linalg.norm(b)


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_those_of_plain_convolutions(case):
    params, x, _, _ = make(case)
    np.testing.assert_allclose(fast_apply(params, x), plain_apply(params, x), atol=2e-6)


@pytest.mark.parametrize("case", CASES)
def test_clipped_sum_is_that_of_vmap_grad(case):
    params, x, loss, y = make(case)
    norms = plain_norms(params, x, loss, y)
    mask = np.ones(len(x), np.float32)
    # The median clips some examples and leaves others as they are.
    for clip in (0.01, float(jnp.median(norms)), jnp.inf):
        expected = plain_sum(params, x, loss, y, mask, clip)
        assert_close(fast_sum(params, x, loss, y, mask, clip), expected)


def test_chunks_and_their_filling_change_nothing(monkeypatch):
    params, x, loss, y = make("oblong")
    mask = np.array([1.0, 1, 0, 1, 1, 1], np.float32)
    expected = plain_sum(params, x, loss, y, mask, 0.5)
    monkeypatch.setattr(convnet, "_chunks", lambda *_: (2, 4))  # 6 images, 2 places to fill
    # A new function, so that no compiled one is reused.
    chunked_sum = jax.jit(lambda params, x, *args: clipped_gradient_sum(params, x, loss, *args))
    assert_close(chunked_sum(params, x, y, mask, 0.5), expected)
    outputs = jax.jit(lambda *args: apply_convnet(*args))(params, x)
    np.testing.assert_allclose(outputs, plain_apply(params, x), atol=2e-6)


@pytest.mark.parametrize("n", [1, 64, 100, 150])
@pytest.mark.parametrize(("shape", "kernel"), SHAPES)
def test_chunks_hold_every_image(shape, kernel, n):
    params = jax.eval_shape(lambda key: init_convnet(key, shape, 10, kernel), jax.random.key(0))
    count, size = convnet._chunks(params, (n, *shape))
    assert 0 <= count * size - n < count


def test_masked_examples_have_no_influence():
    params, x, loss, y = make("oblong")
    mask = np.array([1.0, 0, 1, 0, 0, 1], np.float32)
    clean = fast_sum(params, x, loss, y, mask, 0.7)
    assert_close(clean, plain_sum(params, x, loss, y, mask, 0.7))
    # 1e30 overflows in the forward pass: nothing of it may come through as 0 * inf.
    x[1], x[3:5] = 1e30, -7
    dirty = fast_sum(params, x, loss, y, mask, 0.7)
    jax.tree.map(np.testing.assert_array_equal, clean, dirty)
    assert tree_norm(fast_sum(params, x, loss, y, np.zeros(6, np.float32), 0.7)) == 0


def test_labels_of_masked_examples_have_no_influence():
    params, x, loss, y = make("adni")
    mask = np.array([1.0, 0, 1, 1, 1, 1], np.float32)
    clean = fast_sum(params, x, loss, y, mask, 0.7)
    y[1] = 3e38
    dirty = fast_sum(params, x, loss, y, mask, 0.7)
    jax.tree.map(np.testing.assert_array_equal, clean, dirty)


def test_fractional_mask_weighs_the_clipped_gradient():
    params, x, loss, y = make("oblong")
    mask = np.array([0.25, 1, 2, 0, 0.5, 1], np.float32)
    expected = plain_sum(params, x, loss, y, mask, 0.3)
    assert_close(fast_sum(params, x, loss, y, mask, 0.3), expected)


@pytest.mark.parametrize("clip", [1.0, jnp.inf, 0.0])
def test_zero_gradients_give_zero(clip):
    params, x, loss, _ = make("adni")
    params = jax.tree.map(np.zeros_like, params)  # and labels 0: the loss is at its least
    y = np.zeros(6, np.float32)
    assert tree_norm(fast_sum(params, x, loss, y, np.ones(6, np.float32), clip)) == 0


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("clip", [1e-3, 0.1, 1.0])
def test_no_example_contributes_more_than_the_clip(case, clip):
    params, x, loss, y = make(case, seed=3)
    norms = plain_norms(params, 3 * x, loss, y)
    for i in range(6):
        one = fast_sum(params, 3 * x, loss, y, np.eye(6, dtype=np.float32)[i], clip)
        assert tree_norm(one) <= clip * (1 + 1e-6)
        assert tree_norm(one) == pytest.approx(min(clip, float(norms[i])), rel=1e-5)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shade", [0.0, 1.0, -0.42])
def test_constant_images(case, shade):
    """All places of a pooling window tie.

    Where patches are equal, rounding may choose another winner than XLA does, and the gradient is
    the same, because the winner's patch is.
    """
    params, x, loss, y = make(case)
    x, mask = (
        np.full_like(x, shade),
        np.arange(1, 7, dtype=np.float32),
    )  # unequal, so that no two cancel
    assert_close(fast_sum(params, x, loss, y, mask, 0.5), plain_sum(params, x, loss, y, mask, 0.5))


def test_pooling_gradient_goes_to_the_first_of_the_largest():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (2, 6, 8, 5)).astype(np.float32)
    delta = rng.normal(size=(2, 3, 4, 5)).astype(np.float32)

    @jax.jit
    def expected(x):
        return max_pool(x), jax.grad(lambda x: (max_pool(x) * delta).sum())(x)

    @jax.jit
    def actual(windows):
        pooled = convnet._pool(windows, (2, 4))
        return pooled, convnet._unpool(windows, (2, 4), pooled, jnp.asarray(delta))

    (pooled, gradient), (same, deltas) = expected(x), actual(x.reshape(2, 3, 2, 4, 2, 5))
    np.testing.assert_array_equal(same, pooled)
    for (i, j), place in zip(convnet.PLACES, deltas, strict=True):
        np.testing.assert_array_equal(place, gradient[:, i::2, j::2])


@pytest.mark.parametrize("loop", ["map", "vmap"])
def test_works_inside_loops_over_silos(loop):
    params, x, loss, y = make("oblong")
    silos = (np.stack([x, 2 * x]), np.stack([y, y]), np.array([0.5, np.inf], np.float32))
    mask = np.ones(6, np.float32)

    def of_silo(params, silo):
        return clipped_gradient_sum(params, silo[0], loss, silo[1], jnp.asarray(mask), silo[2])

    loops = {
        "map": lambda params, silos: lax.map(partial(of_silo, params), silos),
        "vmap": jax.vmap(of_silo, (None, 0)),
    }
    each = [plain_sum(params, silos[0][k], loss, y, mask, silos[2][k]) for k in range(2)]
    expected = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    assert_close(jax.jit(loops[loop])(params, silos), expected)


def test_initial_weights_are_haikus():
    params = jax.jit(lambda key: init_convnet(key, (32, 32, 3), 10))(jax.random.key(0))
    assert jax.tree.map(jnp.shape, params) == {
        "conv1": {"w": (3, 3, 3, 32), "b": (32,)},
        "conv2": {"w": (3, 3, 32, 64), "b": (64,)},
        "linear": {"w": (6 * 6 * 64, 10), "b": (10,)},
    }
    for name, fan_in in (("conv1", 27), ("conv2", 288), ("linear", 2304)):
        assert params[name]["w"].dtype == jnp.float32
        weights = np.asarray(params[name]["w"]) * np.sqrt(fan_in)
        assert float(np.abs(weights).max()) <= 2.0001
        # A normal cut at two deviations has deviation 0.88.
        assert float(weights.std()) == pytest.approx(0.88, abs=0.05)
        assert not np.asarray(params[name]["b"]).any()


def test_refuses_even_kernels_and_small_images():
    with pytest.raises(SilodpError, match="odd"):
        init_convnet(jax.random.key(0), (28, 28, 1), 10, kernel=4)
    with pytest.raises(SilodpError, match="too small"):
        init_convnet(jax.random.key(0), (9, 28, 1), 10)
    least = jax.eval_shape(lambda key: init_convnet(key, (10, 10, 1), 10), jax.random.key(0))
    assert least["linear"]["w"].shape == (64, 10)
