"""Two classes: labels are -1 and +1, and a model's output is the log-odds of +1."""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from silodp.base.errors import SilodpError
from silodp.data.tasks.classification import Classification
from silodp.data.tasks.task import Graph

if TYPE_CHECKING:
    from silodp.data.tables.target import Target


class Binary(Classification):
    """Yes or no; of two classes the second is +1."""

    name = "binary"
    model = "logistic"
    as_vectors = "signs"
    metrics = ("recall", "precision", "auc", "log_loss")

    def __init__(self, threshold: float = 0.0):
        self.threshold = threshold

    def deciding_at(self, threshold: float) -> "Binary":
        """Yes from these log-odds on, not from even odds."""
        return Binary(threshold) if threshold else TASK

    def strange_labels(self, y: np.ndarray, num_classes: int) -> list[float]:
        """All but -1 and +1."""
        return sorted(set(np.unique(y).tolist()) - {-1.0, 1.0})

    def allowed_labels(self, num_classes: int) -> str:
        """The two labels, in words."""
        return "-1 and +1"

    def count_classes(self, num_classes: int) -> int:
        """Two, whatever a federation says."""
        return 2

    def fits_classes(self, classes: int) -> bool:
        """Whether there are two classes."""
        return classes == 2

    def class_numbers(self, y: Any) -> Any:
        """0 for -1, 1 for +1."""
        return (np.asarray(y) > 0).astype(int)

    def labels_of(self, places: np.ndarray) -> np.ndarray:
        """-1 for the first class, +1 for the second."""
        return 2.0 * places - 1.0

    def class_names(self, num_classes: int) -> tuple[str, ...]:
        """The two labels as names."""
        return "-1", "1"

    def suits(self, distinct: np.ndarray) -> bool:
        """Two different values, be they words or numbers."""
        return len(distinct) == 2

    def check_agreed(self, where: str, target: "Target") -> None:
        """Refuses a schema without the two classes."""
        super().check_agreed(where, target)
        if len(target.classes) != 2:
            raise SilodpError(
                f"{where}: the target {target.name!r} has {len(target.classes)} classes, but "
                "the task is binary: give two, or choose multiclass."
            )

    def is_second(self, outputs: Any) -> Any:
        """Above the threshold."""
        return outputs > self.threshold

    def right(self, outputs: Any, y: Any) -> Any:
        """An output at the threshold is a draw, and counts as wrong for both classes."""
        return (outputs - self.threshold) * y > 0

    def predicted(
        self, outputs: np.ndarray, target: "Target", beside: np.ndarray | None = None
    ) -> list[Any]:
        """The class's name; None where it is a draw."""
        low, high = target.classes
        beyond = outputs - np.float32(self.threshold)
        return [None if one == 0 else high if one > 0 else low for one in beyond]

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """[n, 2]."""
        return np.stack([expit(-outputs), expit(outputs)], axis=1)

    def log_chances(self, outputs: Any) -> Any:
        """Minus softplus of the log-odds, to both sides."""
        xp = outputs.__array_namespace__()
        return xp.stack([-xp.logaddexp(0.0, outputs), -xp.logaddexp(0.0, -outputs)], axis=-1)

    def one_hot(self, y: Any, classes: int) -> Any:
        """Below 0, and above."""
        xp = y.__array_namespace__()
        return xp.stack([y <= 0, y > 0], axis=-1)

    def no_skill_output(self, y: np.ndarray, num_classes: int) -> np.ndarray | None:
        """The log-odds of the prevalence, half a record added to each side.

        Where both classes are as common it is just below 0: the first class, and no draw.
        """
        yes = float((y > 0).sum())
        odds = np.log((yes + 0.5) / (len(y) - yes + 0.5))
        return np.array(odds if odds != 0 else -1e-9)

    def onnx_probabilities(self, graph: Graph, outputs: str, classes: int) -> None:
        """The two sigmoids side by side."""
        yes, no = graph.add("Sigmoid", outputs), graph.add("Sigmoid", graph.add("Neg", outputs))
        graph.add("Concat", no, yes, axis=1, name="probabilities")

    def extreme_labels(self, num_classes: int) -> tuple[float, ...]:
        """Both labels."""
        return 1.0, -1.0

    def in_unit_ball(self, y: np.ndarray, num_classes: int) -> np.ndarray:
        """Labels have length 1 as they are."""
        return y[:, None]


TASK = Binary()
