"""Encoders for tests: small networks in files of ONNX, made here, and functions."""

import numpy as np


def onnx_network(path, *, side=8, width=5, seed=0, batch=1, changed=None):
    """Writes a network of one layer, from images [batch, 3, side, side] to features.

    `changed` may do anything to the model before it is written.
    """
    import onnx

    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = np.random.default_rng(seed).normal(size=(3 * side * side, width)).astype(np.float32)
    made = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Flatten", ["image"], ["flat"], axis=1),
                helper.make_node("MatMul", ["flat", "weights"], ["features"]),
            ],
            "network",
            [helper.make_tensor_value_info("image", kind, [batch, 3, side, side])],
            [helper.make_tensor_value_info("features", kind, [batch, width])],
            [onnx.numpy_helper.from_array(weights, "weights")],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    if changed is not None:
        changed(onnx, made)
    path.write_bytes(made.SerializeToString())
    return weights


def letters(text):
    """How many of some letters a text has."""
    return [text.count(letter) for letter in "aeinorst"]
