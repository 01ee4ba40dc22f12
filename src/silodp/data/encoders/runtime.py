"""Networks as ONNX graphs, run by onnxruntime: one record at a time, one thread for each."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from silodp.base.errors import SilodpError

OPSET, IR_VERSION = 17, 8


def need_onnx(name: str) -> ModuleType:
    """The package onnx; refuses where it, or onnxruntime, is missing."""
    try:
        import onnx
        import onnxruntime  # noqa: F401  (used by `session_of`)
    except ImportError:
        raise SilodpError(
            f"Features {name!r} need the packages onnx and onnxruntime: install them with "
            "`pip install 'silodp[features]'`."
        ) from None
    return onnx


def session_of(content: bytes) -> Any:
    """A session for this model, which runs in the thread that calls it.

    With one thread there is one order of sums: features are the same to the last bit, whatever
    else the machine does. The cores are used by encoding several records side by side.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what is wrong is raised
    onnxruntime.set_default_logger_severity(4)
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


class Graph:
    """A graph under construction: nodes and constants, each with a name of its own."""

    def __init__(self, onnx: Any):
        self._onnx, self._nodes, self._constants = onnx, [], []

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Adds a node; returns the name of its first output."""
        name = f"{kind.lower()}_{len(self._nodes)}"
        names = [name, *(f"{name}_{number}" for number in range(1, outputs))]
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), names, **attributes))
        return name

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        """Adds a constant array; returns its name."""
        name = f"constant_{len(self._constants)}"
        array = np.ascontiguousarray(values, dtype)
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def content(self, name: str, dtype: Any, shape: Sequence[Any], output: str) -> bytes:
        """The model, from its one input to this output."""
        helper = self._onnx.helper
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        made = helper.make_model(
            helper.make_graph(
                self._nodes,
                "encoder",
                [helper.make_tensor_value_info(name, kind, shape)],
                [helper.make_tensor_value_info(output, self._onnx.TensorProto.FLOAT, None)],
                self._constants,
            ),
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
        )
        return made.SerializeToString()
