"""A silo's model as ONNX, for programs without silodp.

The graph takes encoded rows before scaling (numbers as they are, a 0 or 1 for each level of a
category), or images; it scales, applies the model, and puts numbers into the target's own units.
Its metadata says what it takes and gives.
"""

import json
from typing import Any

import numpy as np

from silodp.base.errors import SilodpError
from silodp.data.preparation import Scaling
from silodp.data.tasks import get_task
from silodp.results.model_export.personal_model import PersonalModel

# Old enough for runtimes of the last years, and new enough for all operators in use.
OPSET, IR_VERSION = 17, 8


def onnx_content(model: PersonalModel) -> bytes:
    """The content of the model's ONNX file."""
    try:
        import onnx  # optional, so not at the top
    except ImportError:
        raise SilodpError(
            "Writing ONNX needs the package onnx: install it with `pip install 'silodp[onnx]'`."
        ) from None
    if not model.about.built_in:
        raise SilodpError(
            f"Silo {model.about.silo!r}: its model {model.about.name!r} is a custom one, whose "
            "operations are not known here: write it with the tools that it was made with."
        )
    graph = _Graph(onnx)
    shape = model.about.input_shape
    bytes_ = model.about.pixels is not None
    kind = onnx.TensorProto.UINT8 if bytes_ else onnx.TensorProto.DOUBLE
    features = onnx.helper.make_tensor_value_info("features", kind, ["records", *shape])
    outputs = _applied(graph, model, _prepared(graph, model, "features"))
    made = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes, "silodp", [features], _results(graph, model, outputs), graph.constants
        ),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="silodp",
    )
    onnx.helper.set_model_props(made, _about(model))
    onnx.checker.check_model(made)
    return made.SerializeToString()


class _Graph:
    """Nodes and constants, each with a name of its own."""

    def __init__(self, onnx: Any):
        self.onnx, self.nodes, self.constants = onnx, [], []

    def add(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """Adds a node; returns the name of its output."""
        name = name or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, values: Any, dtype: Any) -> str:
        """Adds a constant array; returns its name."""
        name = f"constant_{len(self.constants)}"
        array = np.asarray(values, dtype)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def cast(self, value: str, dtype: Any) -> str:
        """Adds a cast to another type; returns the name of its output."""
        to = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.add("Cast", value, to=to)


def _prepared(graph: _Graph, model: PersonalModel, x: str) -> str:
    """Features as of `Preparation.features`, or pixels as numbers."""
    preparation, pixels = model.about.preparation, model.about.pixels
    if pixels is not None:
        low, high = pixels
        x = graph.add("Mul", graph.cast(x, np.float32), graph.constant((high - low) / 255, "f4"))
        x = graph.add("Add", x, graph.constant(low, "f4"))
    elif preparation.scaling.kind != "none":
        x = _scaled(graph, _of_all(preparation.scaling, preparation.encoder.is_number), x)
    if preparation.noisy is not None:
        # Single precision in between, as in training.
        x = graph.cast(graph.cast(x, np.float32), np.float64)
        shape = model.about.input_shape
        x = _standardised(graph, preparation.noisy, x, shape)
    return graph.cast(x, np.float32)


def _of_all(scaling: Scaling, is_number: np.ndarray) -> Scaling:
    """The scaling of all features, with one that leaves those of categories as they are."""
    if scaling.kind == "unit norm":
        return scaling
    # -1 and 1 are what bounds are scaled to; 0 and 1 lie between them.
    unchanged = (0.0, 1.0) if scaling.kind == "standardised" else (-1.0, 1.0)
    numbers = iter(zip(scaling.first, scaling.second, strict=True))
    pairs = [next(numbers) if number else unchanged for number in is_number]
    return Scaling(scaling.kind, tuple(a for a, _ in pairs), tuple(b for _, b in pairs))


def _scaled(graph: _Graph, scaling: Scaling, x: str) -> str:
    if scaling.kind == "unit norm":
        largest = graph.add("ReduceMax", graph.add("Abs", x), axes=[1], keepdims=1)
        x = graph.add("Div", x, _not_zero(graph, largest))
        return graph.add("Div", x, _not_zero(graph, graph.add("ReduceL2", x, axes=[1], keepdims=1)))
    if scaling.kind == "standardised":
        return _standardised(graph, scaling, x, (len(scaling.first),))
    low, high = np.array(scaling.first), np.array(scaling.second)
    x = graph.add("Min", graph.add("Max", x, graph.constant(low, "f8")), graph.constant(high, "f8"))
    x = graph.add("Div", graph.add("Sub", x, graph.constant(low, "f8")),
                  graph.constant(high - low, "f8"))  # fmt: skip
    doubled = graph.add("Mul", x, graph.constant(2.0, "f8"))
    return graph.add("Sub", doubled, graph.constant(1.0, "f8"))


def _standardised(graph: _Graph, scaling: Scaling, x: str, shape: tuple[int, ...]) -> str:
    mean, deviation = (np.reshape(own, shape) for own in (scaling.first, scaling.second))
    centred = graph.add("Sub", x, graph.constant(mean, "f8"))
    return graph.add("Div", centred, graph.constant(deviation, "f8"))


def _not_zero(graph: _Graph, value: str) -> str:
    zero = graph.add("Equal", value, graph.constant(0.0, "f8"))
    return graph.add("Where", zero, graph.constant(1.0, "f8"), value)


def _applied(graph: _Graph, model: PersonalModel, x: str) -> str:
    """Outputs [records, 1] or [records, classes] of a linear model or a ConvNet."""
    params = model.params
    if model.model.weights is not None:
        return _linear(graph, graph.add("Flatten", x, axis=1), *model.model.weights(params))
    x = graph.add("Transpose", x, perm=[0, 3, 1, 2])  # to channels first
    for layer in ("conv1", "conv2"):
        weights = np.transpose(params[layer]["w"], (3, 2, 0, 1))
        x = graph.add(
            "Conv", x, graph.constant(weights, "f4"), graph.constant(params[layer]["b"], "f4")
        )
        x = graph.add("Relu", graph.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
    x = graph.add("Flatten", graph.add("Transpose", x, perm=[0, 2, 3, 1]), axis=1)
    return _linear(graph, x, params["linear"]["w"], params["linear"]["b"])


def _linear(graph: _Graph, x: str, weights: Any, bias: Any) -> str:
    product = graph.add("MatMul", x, graph.constant(weights, "f4"))
    return graph.add("Add", product, graph.constant(bias, "f4"))


def _results(graph: _Graph, model: PersonalModel, outputs: str) -> list[Any]:
    """The graph's outputs: a number in its own units, or scores and probabilities."""
    helper, target = graph.onnx.helper, model.about.preparation.target
    results = get_task(target.task).onnx_results(
        graph, outputs, target, model.model.has_probabilities
    )
    return [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)
        for name, kind, shape in results
    ]


def _about(model: PersonalModel) -> dict[str, str]:
    """Metadata for people: inputs and outputs, and the card."""
    preparation = model.about.preparation
    return {
        "features": json.dumps(preparation.encoder.feature_names),
        "target": json.dumps(preparation.target.name),
        "classes": json.dumps(preparation.target.classes),
        "threshold": json.dumps(model.about.threshold),
        "card": json.dumps(model.card),
    }
