"""Regression: labels are real numbers, and a model's output is one of them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from silodp.data.tasks.task import Graph, GraphOutput, Task

if TYPE_CHECKING:
    from silodp.data.tables.target import Target

# Farther from other labels than any of them is from another, in an audit.
_FAR_LABEL = 1e4


class Regression(Task):
    """A number to predict; declared ranges are scaled to 0..1."""

    name = "regression"
    model = "linear"
    lr = 0.05
    metric = "mse"
    metrics = ("mae", "rmse", "r2")
    is_scaled = True
    as_vectors = "numbers"

    def suits(self, distinct: np.ndarray) -> bool:
        """Any numbers, unless another task says that it is meant."""
        return distinct.dtype.kind in "fiub"

    def predicted(
        self, outputs: np.ndarray, target: "Target", beside: np.ndarray | None = None
    ) -> list[Any]:
        """Numbers in the target's own units."""
        return target.in_own_units(outputs).tolist()

    def no_skill_output(self, y: np.ndarray, num_classes: int) -> np.ndarray | None:
        """The mean."""
        return np.array(y.mean(dtype=np.float64) if len(y) else 0.0)

    def typical_error(self, outputs: np.ndarray, y: np.ndarray) -> float | None:
        """Root mean squared error."""
        return float(np.sqrt(np.mean((outputs.astype(float) - y.astype(float)) ** 2)))

    def onnx_results(
        self, graph: Graph, outputs: str, target: "Target", has_probabilities: bool
    ) -> list[GraphOutput]:
        """`prediction` [records], in the target's own units."""
        flat = graph.add("Reshape", graph.cast(outputs, "f8"), graph.constant([-1], "i8"))
        own = graph.add("Mul", flat, graph.constant(target.unit, "f8"))
        graph.add("Add", own, graph.constant(target.lowest, "f8"), name="prediction")
        return [("prediction", np.float64, ["records"])]

    def extreme_labels(self, num_classes: int) -> tuple[float, ...]:
        """Far off on both sides."""
        return _FAR_LABEL, -_FAR_LABEL

    def in_unit_ball(self, y: np.ndarray, num_classes: int) -> np.ndarray:
        """The range 0..1 as -1..1."""
        return 2 * np.clip(y.astype(np.float64), 0, 1)[:, None] - 1


TASK = Regression()
