"""What tasks with a list of classes have in common."""

import math
from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from silodp.base.errors import SilodpError
from silodp.data.tasks.task import Graph, GraphOutput, Task

if TYPE_CHECKING:
    from silodp.data.tables.target import Target


class Classification(Task):
    """A class of a list to predict. The list is public, or taken from the records (see results)."""

    lr = 0.1
    metric = "accuracy"
    metrics = ("log_loss",)
    no_skill = "always answering the most common class"
    public = "class list"
    schema_key = "classes"
    select_score = "error"
    of_classes = True
    has_probabilities = True
    ball_radius = 1.0

    def is_one_sided(self, y: np.ndarray) -> bool:
        """Whether all labels are of one class."""
        return len(np.unique(y)) < 2

    def check_agreed(self, where: str, target: "Target") -> None:
        """Refuses a schema without the list of classes."""
        if not target.classes:
            raise SilodpError(
                f"{where}: the target {target.name!r} of a {self.name} task needs its classes: "
                'declare classes = ["no", "yes"] (all of them), and no range.'
            )

    def onnx_results(
        self, graph: Graph, outputs: str, target: "Target", has_probabilities: bool
    ) -> list[GraphOutput]:
        """`scores` as the model gives them, and `probabilities` [records, classes] if it can."""
        classes = len(target.classes)
        columns = math.prod(self.output_shape(self.num_classes_of(classes)))
        graph.add("Identity", outputs, name="scores")
        results: list[GraphOutput] = [("scores", np.float32, ["records", columns])]
        if has_probabilities:
            self.onnx_probabilities(graph, outputs, classes)
            results.append(("probabilities", np.float32, ["records", classes]))
        return results

    @abstractmethod
    def onnx_probabilities(self, graph: Graph, outputs: str, classes: int) -> None:
        """Adds the node `probabilities` [records, classes]."""
