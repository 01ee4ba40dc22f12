"""Ordered classes: labels are ranks from 0, and a model has an output for each boundary between."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, logit

from silodp.base.errors import SilodpError
from silodp.data.tasks.classification import Classification
from silodp.data.tasks.task import Graph

if TYPE_CHECKING:
    from silodp.data.tables.target import Target


class Ordinal(Classification):
    """One of several classes in the order in which they are declared, the lowest first.

    Outputs [n, classes - 1] are the log-odds of a class above each boundary.
    """

    name = "ordinal"
    in_order = True
    model = "ordered"
    metric = "rank_error"
    metrics = ("kappa", "deviance")
    no_skill = "the same chances for all"
    label_dtype = np.int32
    select_score = "loss"

    def own_labels(self, where: str, y: np.ndarray) -> np.ndarray:
        """Labels as ranks; refuses what is not whole."""
        if y.dtype.kind == "f" and not np.array_equal(y, np.round(y)):
            raise SilodpError(
                f"{where} y holds numbers that are not whole (or NaN), but the task is ordinal: "
                "give ranks from 0."
            )
        return super().own_labels(where, y)

    def strange_labels(self, y: np.ndarray, num_classes: int) -> list[float]:
        """Below 0, or beyond the last class."""
        labels = np.unique(y)
        return labels[(labels < 0) | (labels >= num_classes)].tolist()

    def allowed_labels(self, num_classes: int) -> str:
        """The range of ranks, in words."""
        return f"0 to {num_classes - 1}"

    def check_num_classes(self, federation: str, num_classes: int) -> None:
        """Refuses fewer than two classes."""
        if num_classes < 2:
            raise SilodpError(
                f"Federation {federation!r}: num_classes is {num_classes}, but an ordinal task "
                "needs at least 2: declare the class list, the lowest first."
            )

    def check_target(self, where: str, target: "Target") -> None:
        """Refuses classes whose order nobody declared."""
        if not target.declared:
            raise SilodpError(
                f"{where}: the classes of the target {target.name!r} have an order, which has to "
                'be declared (in a schema: [target] classes = ["low", "middle", "high"], the '
                "lowest first)."
            )

    def num_classes_of(self, classes: int) -> int:
        """The number of classes itself."""
        return classes

    def fits_classes(self, classes: int) -> bool:
        """Any number of classes."""
        return True

    def class_numbers(self, y: Any) -> Any:
        """The labels, which are the classes' ranks."""
        return np.asarray(y).astype(int)

    def labels_of(self, places: np.ndarray) -> np.ndarray:
        """The places, which are the labels."""
        return places

    def output_shape(self, num_classes: int) -> tuple[int, ...]:
        """An output for each boundary."""
        return (num_classes - 1,)

    def first_outputs(self, num_classes: int) -> np.ndarray:
        """All classes as likely."""
        return logit(np.arange(num_classes - 1, 0, -1) / num_classes)

    def right(self, outputs: Any, y: Any) -> Any:
        """Whether the rank is the label's."""
        return self.ranks(outputs) == y

    def ranks(self, outputs: Any) -> Any:
        """The middle of what is likely: a higher class has a chance below one half."""
        return (outputs > 0).sum(-1)

    def predicted(
        self, outputs: np.ndarray, target: "Target", beside: np.ndarray | None = None
    ) -> list[Any]:
        """The class's name."""
        return [target.classes[rank] for rank in self.ranks(outputs)]

    def no_skill_output(self, y: np.ndarray, num_classes: int) -> np.ndarray | None:
        """The log-odds of a class above each boundary, half a record added to each class."""
        counts = np.bincount(y, minlength=num_classes) + 0.5
        return logit(1 - np.cumsum(counts)[:-1] / counts.sum())

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """[n, classes]; where noise has boundaries in the wrong order, what lies between has 0."""
        above = np.minimum.accumulate(expit(outputs), axis=1)
        ends = np.pad(above, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0)))
        return ends[:, :-1] - ends[:, 1:]

    def onnx_probabilities(self, graph: Graph, outputs: str, classes: int) -> None:
        """Differences of the chances of a class above each boundary, as in `probabilities`."""
        above, ends = graph.add("Sigmoid", outputs), [graph.constant(1.0, "f4")]
        for place in range(classes - 1):
            own = graph.add("Gather", above, graph.constant([place], "i8"), axis=1)
            ends.append(graph.add("Min", ends[-1], own))
        parts = [graph.add("Sub", upper, lower) for upper, lower in pairwise(ends)]
        graph.add("Concat", *parts, ends[-1], axis=1, name="probabilities")

    def extreme_labels(self, num_classes: int) -> tuple[Any, ...]:
        """The lowest and the highest."""
        return 0, num_classes - 1

    def in_unit_ball(self, y: np.ndarray, num_classes: int) -> np.ndarray:
        """The ranks, from the lowest at -1 to the highest at 1."""
        return 2 * y[:, None] / (num_classes - 1) - 1


TASK = Ordinal()
