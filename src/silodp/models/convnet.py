"""The paper's ConvNets, with a backward pass by hand that clips each example's gradient.

conv (32 channels), max-pool 2x2, ReLU, conv (64 channels), max-pool 2x2, ReLU, linear: 3x3 kernels
for CIFAR-10 and MNIST, 5x5 for ADNI, no padding. (ReLU and max-pool commute, gradients and ties
included, and this order needs a quarter of the ReLUs.)

Why not `jax.vmap(jax.grad(...))`? On a CPU, XLA's gradients of convolution and pooling are far from
what the cores can do. Here every convolution is a matrix product over the whole batch:

- The second convolution gathers its patches (im2col) once, for the forward product, for the
  product of each example's weight gradient, and, transposed, for the gradient of its input.
- The first convolution has 1 or 3 input channels, too few for that. One tile of 4x4 pixels gives
  all four outputs of a pooling window at once: a product of inner size 16 or 48, and of width 128.
- Output positions that pooling drops (odd sizes) are never computed.
- The linear layer's gradient is an outer product, so its norm needs no gradient.
- Images go through in chunks whose patches stay in cache.

One DP-SGD step (gradients, clip, sum, noise, update) of 100 images, two shared cores, best of 15:

               vmap(grad)    Opacus 1.6 (torch 2.13)    here
    MNIST        99 ms           52 ms                  18 ms
    CIFAR-10    152 ms           75 ms                  30 ms

About two thirds of what is left is matrix products, at some 80 GF/s a core. Not taken: Winograd's
convolution (fewer products, but as measured XLA loses more in the transforms, and compiles twice
as long), and ghost norms (twice the arithmetic of each example's gradient, which is then read again
for next to nothing). Loop over silos with `lax.map` or `lax.scan`, at the same speed; `vmap`
measured 1.4 to 1.7 times slower, because a chunk then no longer fits the cache.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from silodp.base.errors import SilodpError
from silodp.models.gradients import clip_factor

Params = dict[str, dict[str, jax.Array]]
Loss = Callable[[jax.Array, jax.Array], jax.Array]

CHANNELS = (32, 64)
PLACES = ((0, 0), (0, 1), (1, 0), (1, 1))  # of a pooling window, in row-major order
# Of the second convolution's patches: 1 to 5 MB measured alike, and 11 MB twice as slow.
_CHUNK_BYTES = 3_500_000


def init_convnet(
    key: jax.Array, input_shape: tuple[int, int, int], num_outputs: int, kernel: int = 3
) -> Params:
    """Weights from a truncated normal with deviation 1/sqrt(fan-in), as in Haiku; biases zero."""
    height, width, channels = input_shape
    if kernel % 2 == 0:
        raise SilodpError(f"The ConvNet's kernel size is {kernel}: give an odd number, 3 or 5.")
    rows, cols = _pooled_sizes(height, kernel)[1], _pooled_sizes(width, kernel)[1]
    if rows < 1 or cols < 1:
        raise SilodpError(
            f"Images of {height} by {width} pixels are too small for two convolutions of size "
            f"{kernel} with pooling: give larger images, or a smaller kernel."
        )
    shapes = {
        "conv1": (kernel, kernel, channels, CHANNELS[0]),
        "conv2": (kernel, kernel, *CHANNELS),
        "linear": (rows * cols * CHANNELS[1], num_outputs),
    }
    params = {}
    for layer_key, (name, shape) in zip(jax.random.split(key, 3), shapes.items(), strict=True):
        fan_in = 1
        for size in shape[:-1]:
            fan_in *= size
        weights = jax.random.truncated_normal(layer_key, -2, 2, shape, jnp.float32)
        params[name] = {"w": weights / fan_in**0.5, "b": jnp.zeros(shape[-1], jnp.float32)}
    return params


def apply_convnet(params: Params, x: jax.Array) -> jax.Array:
    """Outputs [n, num_outputs] for images [n, height, width, channels]."""
    chunks = _split(x, *_chunks(params, x.shape))
    outputs = lax.map(lambda images: _forward(params, images)[0], chunks)
    return outputs.reshape(-1, outputs.shape[-1])[: len(x)]


def clipped_gradient_sum(
    params: Params,
    x: jax.Array,
    loss: Loss,
    y: jax.Array,
    mask: jax.Array,
    clip: jax.Array | float,
) -> Params:
    """The sum over examples of mask_i * min(1, clip / |g_i|) * g_i, shaped like `params`.

    Args:
      params: parameters such as `init_convnet` gives.
      x: images [n, height, width, channels].
      loss: from outputs [n, num_outputs] and `y` to one loss for each example [n]; the loss of an
        example depends on its own output only.
      y: labels [n].
      mask: float [n]; where it is 0, `x` and `y` have no influence, whatever they hold.
      clip: largest norm (over all parameters together) of one example's gradient g_i; may be
        traced, and infinity means no clipping.
    """

    def add_chunk(total, chunk):
        def added(total):
            return jax.tree.map(jnp.add, total, _chunk_sum(params, loss, clip, *chunk))

        # Poisson batches leave slots at the end empty: nearly half of them, where overflow is rare.
        filled = jnp.any(chunk[-1] != 0)
        return lax.cond(filled, added, lambda total: total, total), None

    # What fills up the last chunk has mask 0.
    chunks = tuple(_split(array, *_chunks(params, x.shape)) for array in (x, y, mask))
    return lax.scan(add_chunk, jax.tree.map(jnp.zeros_like, params), chunks)[0]


def _chunks(params: Params, shape: tuple[int, ...]) -> tuple[int, int]:
    """How many chunks, and how many images in each; the last may be short."""
    n, height, width, _ = shape
    kernel, _, channels, _ = params["conv2"]["w"].shape
    places = 4 * _pooled_sizes(height, kernel)[1] * _pooled_sizes(width, kernel)[1]
    most = max(1, _CHUNK_BYTES // (4 * places * kernel**2 * channels))
    count = max(1, -(-n // most))
    return count, -(-n // count)


def _split(array: jax.Array, count: int, size: int) -> jax.Array:
    """[n, ...] as [count, size, ...], filled up with zeros."""
    filled = jnp.pad(array, [(0, count * size - len(array))] + [(0, 0)] * (array.ndim - 1))
    return filled.reshape(count, size, *array.shape[1:])


def _pooled_sizes(pixels: int, kernel: int) -> tuple[int, int]:
    """Rows (or columns) after each pooling, the first as far as the second makes use of it."""
    second = ((pixels - kernel + 1) // 2 - kernel + 1) // 2
    return 2 * second + kernel - 1, second


def _forward(params: Params, x: jax.Array):
    """Outputs [n, num_outputs], and what the backward pass needs of each layer."""
    conv1, conv2, linear = params["conv1"], params["conv2"], params["linear"]
    kernel = conv1["w"].shape[0]
    (rows1, rows2), (cols1, cols2) = (_pooled_sizes(size, kernel) for size in x.shape[1:3])
    tiles, windows1 = _tile_conv(conv1["w"], x, rows1, cols1)
    pooled1 = _pool(windows1, (3, 4))
    active1 = jax.nn.relu(pooled1 + conv1["b"])
    patches, windows2 = _patch_conv(conv2["w"], active1, rows2, cols2)
    pooled2 = _pool(windows2, (2, 4))
    active2 = jax.nn.relu(pooled2 + conv2["b"])
    outputs = active2.reshape(len(x), -1) @ linear["w"] + linear["b"]
    return outputs, (tiles, windows1, pooled1, active1, patches, windows2, pooled2, active2)


def gradient_of_one(params: Params, image: jax.Array, loss: Loss, y: jax.Array) -> Params:
    """The gradient of one example's loss, by the same backward pass; arguments as above."""
    parts = _backward(params, loss, image[None], y[None], jnp.ones(1, bool))
    of_linear = (parts.features.T @ parts.delta_out, parts.delta_out[0])
    return _laid_out(params, [g[0] for g in parts.grads], of_linear)


class _Backward(NamedTuple):
    """Gradients of a chunk's examples, one a row; that of the linear layer is left implicit."""

    grads: tuple[jax.Array, ...]  # of conv1's weights and biases, then conv2's
    features: jax.Array  # that the linear layer takes
    delta_out: jax.Array  # of the loss by the outputs


def _chunk_sum(params: Params, loss: Loss, clip, x, y, mask) -> Params:
    """`clipped_gradient_sum` of one chunk."""
    used = mask != 0
    grads, features, delta_out = _backward(params, loss, x, y, used)
    squared = sum(_row_squares(g) for g in grads)
    # The linear layer's gradient is an outer product: its norm needs no gradient.
    squared += (1 + _row_squares(features)) * _row_squares(delta_out)
    scale = mask * clip_factor(jnp.sqrt(squared), clip)

    def rows(values: jax.Array) -> jax.Array:
        # where and not only times: what is left out may be anything, even NaN.
        return jnp.where(scale[:, None] > 0, values, 0)

    scaled_out = scale[:, None] * rows(delta_out)
    of_linear = (rows(features).T @ scaled_out, scaled_out.sum(0))
    return _laid_out(params, [scale @ rows(g) for g in grads], of_linear)


def _laid_out(
    params: Params, grads: Sequence[jax.Array], of_linear: tuple[jax.Array, jax.Array]
) -> Params:
    """Gradients (of the convolutions as in `_Backward`) in the shape of the parameters."""
    w1, b1, w2, b2 = grads
    shape1, (*shape2, channels2) = params["conv1"]["w"].shape, params["conv2"]["w"].shape
    return {
        "conv1": {"w": w1.reshape(shape1), "b": b1},
        "conv2": {"w": w2.reshape(channels2, -1).T.reshape(*shape2, channels2), "b": b2},
        "linear": {"w": of_linear[0], "b": of_linear[1]},
    }


def _backward(params: Params, loss: Loss, x, y, used) -> _Backward:
    """What gradients are made of, for examples in use; the others' is that of a black image."""
    n = len(x)
    x = jnp.where(used[:, None, None, None], x, 0)
    outputs, kept = _forward(params, x)
    tiles, windows1, pooled1, active1, patches, windows2, pooled2, active2 = kept

    delta_out = jax.grad(lambda out: loss(out, y).sum())(outputs)
    delta_out = jnp.where(used[:, None], delta_out, 0)
    features = active2.reshape(n, -1)
    delta = (delta_out @ params["linear"]["w"].T).reshape(active2.shape)
    delta2 = jnp.where(active2 > 0, delta, 0)
    delta, grad2 = _patch_conv_backward(
        params["conv2"]["w"], patches, _unpool(windows2, (2, 4), pooled2, delta2)
    )
    delta1 = jnp.where(active1 > 0, delta, 0)
    grad1 = _tile_conv_backward(
        params["conv1"]["w"], tiles, _unpool(windows1, (3, 4), pooled1, delta1)
    )

    return _Backward((grad1, delta1.sum((1, 2)), grad2, delta2.sum((1, 2))), features, delta_out)


def _row_squares(rows: jax.Array) -> jax.Array:
    """|row|^2 of each row."""
    return (rows * rows).sum(1)


def _pool(windows: jax.Array, axes: tuple[int, int]) -> jax.Array:
    """The largest of each pooling window; its rows and columns are the two `axes`."""
    return windows.max(axes)


def _unpool(
    windows: jax.Array, axes: tuple[int, int], pooled: jax.Array, delta: jax.Array
) -> list[jax.Array]:
    """The gradient of each of the four places: `delta` at the first of the largest, else 0."""
    deltas, taken = [], jnp.zeros(delta.shape, bool)
    for i, j in PLACES:
        place = lax.index_in_dim(windows, i, axes[0], keepdims=False)
        place = lax.index_in_dim(place, j, axes[1] - 1, keepdims=False)
        wins = (place == pooled) & ~taken  # one winner, the first, as in XLA's own pooling
        deltas.append(jnp.where(wins, delta, 0))
        taken |= wins
    return deltas


def _tile_conv(w: jax.Array, x: jax.Array, rows: int, cols: int):
    """Tiles [n, rows, cols, pixels], and the convolution at the four places of each window.

    A tile is all that one pooling window sees: (kernel + 1)^2 pixels. A product with the kernel
    laid at each of the four places gives all four outputs.
    """
    kernel, _, c_in, c_out = w.shape
    n, half = len(x), (kernel + 1) // 2
    x = x[:, : 2 * (rows + half - 1), : 2 * (cols + half - 1)]
    # Blocks of 2x2 pixels first, so that what is copied next lies together in memory.
    x = x.reshape(n, rows + half - 1, 2, cols + half - 1, 2, c_in).transpose(0, 1, 3, 2, 4, 5)
    x = x.reshape(n, rows + half - 1, cols + half - 1, 4 * c_in)
    tiles = _shifted(x, half, rows, cols)

    laid = [jnp.pad(w, ((i, 1 - i), (j, 1 - j), (0, 0), (0, 0))) for i, j in PLACES]
    w = jnp.stack(laid, 3).reshape(half, 2, half, 2, c_in, 4 * c_out).transpose(0, 2, 1, 3, 4, 5)
    places = tiles @ w.reshape(-1, 4 * c_out)
    return tiles, places.reshape(n, rows, cols, 2, 2, c_out)


def _tile_conv_backward(w: jax.Array, tiles: jax.Array, deltas: list[jax.Array]) -> jax.Array:
    """Each example's weight gradient [n, weights], in the order of `w`."""
    kernel, _, c_in, c_out = w.shape
    n, half = len(tiles), (kernel + 1) // 2
    delta = jnp.concatenate(deltas, -1).reshape(n, -1, 4 * c_out)
    grad = jnp.einsum("npk,npc->nkc", tiles.reshape(n, delta.shape[1], -1), delta)
    grad = grad.reshape(n, half, half, 2, 2, c_in, 4, c_out).transpose(0, 1, 3, 2, 4, 5, 6, 7)
    grad = grad.reshape(n, 2 * half, 2 * half, c_in, 4, c_out)
    laid = [grad[:, i : i + kernel, j : j + kernel, :, 2 * i + j] for i, j in PLACES]
    return sum(laid[1:], laid[0]).reshape(n, -1)


def _patch_conv(w: jax.Array, x: jax.Array, rows: int, cols: int):
    """Patches [n, 2 rows, 2 cols, k^2 c_in], and the convolution at each window's four places."""
    n, c_out = len(x), w.shape[-1]
    patches = _shifted(x, w.shape[0], 2 * rows, 2 * cols)
    z = (patches @ w.reshape(-1, c_out)).reshape(n, rows, 2, cols, 2, c_out)
    return patches, z


def _patch_conv_backward(w: jax.Array, patches: jax.Array, deltas: list[jax.Array]):
    """Gradient of the input, and each example's weight gradient [n, c_out * k^2 c_in].

    With c_out first: XLA's product runs a quarter faster that way round.
    """
    kernel, _, c_in, c_out = w.shape
    n, rows, cols, _ = patches.shape
    pairs = [jnp.stack(deltas[:2], 3), jnp.stack(deltas[2:], 3)]
    delta = jnp.stack(pairs, 2).reshape(n, rows * cols, c_out)
    grad = jnp.einsum("npc,npk->nck", delta, patches.reshape(n, rows * cols, -1))
    back = (delta @ w.reshape(-1, c_out).T).reshape(n, rows, cols, kernel, kernel, c_in)
    shifts = [(i, j) for i in range(kernel) for j in range(kernel)]
    laid = [_pad(back[:, :, :, i, j], i, j, kernel - 1) for i, j in shifts]
    return sum(laid[1:], laid[0]), grad.reshape(n, -1)


def _shifted(x: jax.Array, size: int, rows: int, cols: int) -> jax.Array:
    """The size x size neighbours of each place, side by side in the last axis."""
    shifts = [(i, j) for i in range(size) for j in range(size)]
    return jnp.concatenate([x[:, i : i + rows, j : j + cols] for i, j in shifts], -1)


def _pad(x: jax.Array, i: int, j: int, most: int) -> jax.Array:
    """`x` moved by i rows and j columns, on a field that is larger by `most` both ways."""
    return jnp.pad(x, ((0, 0), (i, most - i), (j, most - j), (0, 0)))
