"""Several classes: labels are numbers from 0, and a model has an output for each class."""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax

from silodp.base.errors import SilodpError
from silodp.data.tasks.classification import Classification
from silodp.data.tasks.task import Graph

if TYPE_CHECKING:
    from silodp.data.tables.target import Target

# A target of whole numbers with no more values than this is taken for a class number.
FEW_VALUES = 10


class Multiclass(Classification):
    """One of several classes, in no order."""

    name = "multiclass"
    as_vectors = "places"
    model = "softmax"
    label_dtype = np.int32

    def own_labels(self, where: str, y: np.ndarray) -> np.ndarray:
        """Labels as class numbers; refuses what is not whole."""
        if y.dtype.kind == "f" and not np.array_equal(y, np.round(y)):
            raise SilodpError(
                f"{where} y holds numbers that are not whole (or NaN), but the task is "
                "multiclass: give class numbers from 0."
            )
        return super().own_labels(where, y)

    def strange_labels(self, y: np.ndarray, num_classes: int) -> list[float]:
        """Below 0, or beyond the last class."""
        labels = np.unique(y)
        return labels[(labels < 0) | (labels >= num_classes)].tolist()

    def allowed_labels(self, num_classes: int) -> str:
        """The range of class numbers, in words."""
        return f"0 to {num_classes - 1}"

    def check_num_classes(self, federation: str, num_classes: int) -> None:
        """Refuses fewer than two classes."""
        if num_classes < 2:
            raise SilodpError(
                f"Federation {federation!r}: num_classes is {num_classes}, but a multiclass task "
                "needs at least 2: declare the class list."
            )

    def num_classes_of(self, classes: int) -> int:
        """The number of classes itself."""
        return classes

    def fits_classes(self, classes: int) -> bool:
        """Any number of classes."""
        return True

    def class_numbers(self, y: Any) -> Any:
        """The labels, which are the classes' numbers."""
        return np.asarray(y).astype(int)

    def labels_of(self, places: np.ndarray) -> np.ndarray:
        """The places, which are the labels."""
        return places

    def suits(self, distinct: np.ndarray) -> bool:
        """Words, or a few whole numbers; but not two values."""
        if len(distinct) == 2:
            return False
        words = distinct.dtype.kind not in "fiub"
        return words or (len(distinct) <= FEW_VALUES and bool((distinct % 1 == 0).all()))

    def output_shape(self, num_classes: int) -> tuple[int, ...]:
        """An output for each class."""
        return (num_classes,)

    def right(self, outputs: Any, y: Any) -> Any:
        """Whether the largest output is the label's; of equal ones, the first counts."""
        return outputs.argmax(axis=-1) == y

    def predicted(
        self, outputs: np.ndarray, target: "Target", beside: np.ndarray | None = None
    ) -> list[Any]:
        """The class's name."""
        return [target.classes[number] for number in outputs.argmax(axis=-1)]

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """[n, classes]."""
        return softmax(outputs, axis=1)

    def log_chances(self, outputs: Any) -> Any:
        """Outputs less the logarithm of the sum of their exponentials."""
        xp = outputs.__array_namespace__()
        less = outputs - outputs.max(axis=-1, keepdims=True)
        return less - xp.log(xp.exp(less).sum(axis=-1, keepdims=True))

    def one_hot(self, y: Any, classes: int) -> Any:
        """At the place of the class number."""
        return y[:, None] == np.arange(classes)

    def no_skill_output(self, y: np.ndarray, num_classes: int) -> np.ndarray | None:
        """The logarithm of each class's share, half a record added to each."""
        return np.log((np.bincount(y, minlength=num_classes) + 0.5) / (len(y) + num_classes / 2))

    def onnx_probabilities(self, graph: Graph, outputs: str, classes: int) -> None:
        """Softmax over classes."""
        graph.add("Softmax", outputs, axis=1, name="probabilities")

    def targets(self, y: np.ndarray, num_classes: int) -> np.ndarray:
        """A column for each class, 1 where it is the label's."""
        return np.eye(num_classes)[y]

    def extreme_labels(self, num_classes: int) -> tuple[float, ...]:
        """The first and the last."""
        return 0, num_classes - 1

    def in_unit_ball(self, y: np.ndarray, num_classes: int) -> np.ndarray:
        """A coordinate for each class."""
        return np.eye(num_classes)[y]


TASK = Multiclass()
