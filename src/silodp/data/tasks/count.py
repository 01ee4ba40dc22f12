"""Counts: labels are (count, exposure), and a model's output is the logarithm of the rate."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from silodp.base.errors import SilodpError
from silodp.data.problems import Fault
from silodp.data.tasks.task import Graph, GraphOutput, Task

if TYPE_CHECKING:
    from silodp.data.tables.target import Target

# A larger one is no count that a model could be trained on in single precision.
_LARGEST = 1e6
# The logarithm of a rate beyond which predictions do not go, as the loss does not (see `losses`).
_LARGEST_LOG_RATE = 20.0


class Count(Task):
    """How often something happened, in a time or among so many where exposures are given.

    An exposure is in units of the largest one that is declared: rates are then per largest
    exposure, and a model of zeros says one event in that. Counts are learned as they are.
    """

    name = "count"
    model = "poisson"
    lr = 0.1
    metric = "deviance"
    no_skill = "the same rate for all"
    label_shape = (2,)
    takes = ("exposure_column", "exposure_range")
    target_numbers = f"whole numbers from 0 to {_LARGEST:,.0f}"
    label_means = False

    def own_labels(self, where: str, y: np.ndarray) -> np.ndarray:
        """Counts [n] are taken to have the same exposure."""
        if y.ndim == 1:
            y = np.stack([y, np.ones(len(y), y.dtype)], axis=1)
        return super().own_labels(where, y)

    def strange_labels(self, y: np.ndarray, num_classes: int) -> list[float]:
        """Counts below 0 or not whole, and exposures that are not above 0."""
        count, exposure = y[:, 0], y[:, 1]
        odd = np.unique(count[self.odd(count)])
        return [*odd.tolist(), *np.unique(exposure[~(exposure > 0)]).tolist()]

    def odd(self, y: np.ndarray) -> np.ndarray:
        """Below 0, not whole, or too large for single precision."""
        return (y < 0) | (y % 1 != 0) | (y > _LARGEST)

    def allowed_labels(self, num_classes: int) -> str:
        """What counts and exposures may be, in words."""
        return f"{self.target_numbers}, with exposures above 0"

    def numbers(self, y: np.ndarray) -> np.ndarray:
        """The counts."""
        return y[:, 0]

    def check_agreed(self, where: str, target: "Target") -> None:
        """Refuses a schema without the range of counts, or of exposures if there are any."""
        super().check_agreed(where, target)
        beside = target.beside
        if beside.exposure_column is not None and beside.exposure_range is None:
            raise SilodpError(
                f"{where}: the exposure {beside.exposure_column!r} needs its range: declare "
                "exposure_range = [low, high]."
            )

    def check_target(self, where: str, target: "Target") -> None:
        """Refuses a range that no counts have."""
        if target.range is not None and not 0 <= target.range[0] < target.range[1] <= _LARGEST:
            raise SilodpError(
                f"{where}: the range of the target {target.name!r} is {list(target.range)}: counts "
                f"are from 0 to {_LARGEST:.0e} at most; declare range = [0, high]."
            )

    def first_output(self, target: "Target") -> float:
        """In logarithms, the middle of one event and the most that are declared.

        From a rate of 1, clipped steps would take very long to counts in the hundreds.
        """
        return 0.0 if target.range is None else 0.5 * math.log(max(1.0, target.range[1]))

    def is_bounded(self, target: "Target") -> bool:
        """Whether the ranges of counts and of exposures are declared."""
        beside = target.beside
        bounded = beside.exposure_column is None or beside.exposure_range is not None
        return bounded and target.range is not None

    def composed(self, y: np.ndarray, beside: np.ndarray | None, target: "Target") -> np.ndarray:
        """Counts within their range, with exposures within theirs, in units of the largest."""
        if beside is None:
            return np.stack([y, np.ones(len(y))], axis=1)
        if target.beside.exposure_range is not None:
            beside = np.clip(beside, *target.beside.exposure_range)
        return np.stack([y, beside / target.beside.largest_exposure], axis=1)

    def check_labels(self, y: np.ndarray, target: "Target") -> None:
        """Refuses counts of 0 alone."""
        if not y[:, 0].any():
            raise Fault(
                f"The target {target.name!r}",
                "is 0 in every row",
                "choose another target",
                column=target.name,
            )

    def whole(self, y: np.ndarray) -> np.ndarray:
        """Counts of records that cannot be refused: the nearest whole number."""
        return np.rint(y)

    def has_beside(self, beside: np.ndarray) -> np.ndarray:
        """Exposures above 0."""
        return beside > 0

    def predicted(
        self, outputs: np.ndarray, target: "Target", beside: np.ndarray | None = None
    ) -> list[Any]:
        """Expected counts at the exposures; without these, at an exposure of 1."""
        rates = np.exp(np.minimum(outputs.astype(float), _LARGEST_LOG_RATE))
        exposures = np.ones(len(outputs)) if beside is None else beside
        return (rates * exposures / target.beside.largest_exposure).tolist()

    def no_skill_output(self, y: np.ndarray, num_classes: int) -> np.ndarray | None:
        """The logarithm of the rate of all together, half an event added."""
        return np.array(np.log((y[:, 0].sum() + 0.5) / max(1e-9, y[:, 1].sum())))

    def onnx_results(
        self, graph: Graph, outputs: str, target: "Target", has_probabilities: bool
    ) -> list[GraphOutput]:
        """`rate` [records]: the expected count at an exposure of 1, in the table's own units."""
        flat = graph.add("Reshape", graph.cast(outputs, "f8"), graph.constant([-1], "i8"))
        capped = graph.add("Min", flat, graph.constant(_LARGEST_LOG_RATE, "f8"))
        unit = graph.constant(target.beside.largest_exposure, "f8")
        graph.add("Div", graph.add("Exp", capped), unit, name="rate")
        return [("rate", np.float64, ["records"])]

    def targets(self, y: np.ndarray, num_classes: int) -> np.ndarray:
        """Logarithms of rates, half an event where there was none."""
        return np.log(np.maximum(y[:, 0], 0.5) / y[:, 1])

    def extreme_labels(self, num_classes: int) -> tuple[Any, ...]:
        """Very many, and none; the latter at an exposure that is longer than any declared."""
        return (_LARGEST, 1.0), (0.0, 1e3)


TASK = Count()
