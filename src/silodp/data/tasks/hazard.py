"""Time to an event, which need not be seen: hazards in the intervals between declared cut points.

A subject is a record. Its label is (intervals that it lived through, whether it had the event in
the next one, its time); a model's outputs are the log-odds of the event in each interval, for who
comes to it. A subject that was last seen in the middle of an interval (censored) says nothing of
that one; and what happens after the last cut point is not looked at.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import log_expit

from silodp.base.errors import SilodpError
from silodp.data.problems import Fault
from silodp.data.tasks.task import Graph, GraphOutput, Task

if TYPE_CHECKING:
    from silodp.data.tables.target import Target

# What times beyond are counted as: they only have to come after the last cut point.
_LATEST = 1e12
# Log-odds of the event that a model begins with, in each interval.
_FIRST = -2.0


def labels_of_times(times: np.ndarray, events: np.ndarray, cut_points: Any) -> np.ndarray:
    """Labels [n, 4] of times and of whether they are those of an event (1) or censored (0).

    Intervals end at their cut point: an event at a cut point is in the interval before it, and who
    was last seen there lived through that.

    Examples:
      >>> labels_of_times(np.array([5.0, 10.0, 10.0, 12.0]), np.array([1, 1, 0, 1]), [10, 20])
      array([[ 0.,  1.,  5.,  1.],
             [ 0.,  1., 10.,  1.],
             [ 1.,  0., 10.,  0.],
             [ 1.,  1., 12.,  1.]])
    """
    events = np.asarray(events, float)
    times = np.asarray(times, float)
    cuts = np.asarray(cut_points, float)
    before = np.searchsorted(cuts, times, side="left")  # of an event at a cut point: not yet it
    until = np.searchsorted(cuts, times, side="right")
    lived = np.where(events > 0, before, until)
    seen = (events > 0) & (lived < len(cuts))
    return np.stack([lived, seen, times, events], axis=1).astype(float)


class Hazard(Task):
    """When something happens, with some seen only for a while.

    `num_classes` is how many intervals there are.
    """

    name = "hazard"
    model = "hazards"
    lr = 0.1
    metric = "c_index"
    metrics = ("deviance",)
    no_skill = "the same hazards for all"
    schema_key = "cut_points"
    label_shape = (4,)
    takes = ("event_column", "event_value", "cut_points")
    needs = ("event_column", "cut_points")
    target_numbers = "times from 0"
    has_probabilities = True
    label_means = False

    def strange_labels(self, y: np.ndarray, num_classes: int) -> list[float]:
        """Labels that no time and event make."""
        lived, seen, time, event = y.T
        odd = (lived < 0) | (lived > num_classes) | (lived % 1 != 0) | self.odd(time)
        odd |= ~np.isin(event, (0, 1)) | ~np.isin(seen, (0, 1)) | (seen > event)
        return np.unique(time[odd | ((seen > 0) & (lived == num_classes))]).tolist()

    def odd(self, y: np.ndarray) -> np.ndarray:
        """Before the beginning."""
        return y < 0

    def allowed_labels(self, num_classes: int) -> str:
        """How labels are made."""
        return "times from 0 with events of 0 or 1, as labels_of_times puts them into intervals"

    def numbers(self, y: np.ndarray) -> np.ndarray:
        """The times."""
        return y[:, 2]

    def check_num_classes(self, federation: str, num_classes: int) -> None:
        """Refuses a federation without an interval."""
        if num_classes < 1:
            raise SilodpError(
                f"Federation {federation!r}: num_classes is {num_classes}, but a hazard task needs "
                "at least one interval: declare the cut points."
            )

    def count_classes(self, num_classes: int) -> int:
        """None: intervals are no classes."""
        return 0

    def class_names(self, num_classes: int) -> tuple[str, ...]:
        """None."""
        return ()

    def check_target(self, where: str, target: "Target") -> None:
        """Refuses a range, which the cut points take the place of."""
        if target.range is not None:
            raise SilodpError(
                f"{where}: the target {target.name!r} is a time, whose range is that of its cut "
                "points: leave the range out."
            )

    def check_agreed(self, where: str, target: "Target") -> None:
        """Cut points and the event column are all that is needed (see `needs`)."""
        return

    def is_bounded(self, target: "Target") -> bool:
        """Cut points say all that a time can be to a model."""
        return True

    def whole(self, y: np.ndarray) -> np.ndarray:
        """Times of records that cannot be refused: not before 0, and no later than can be held."""
        return np.clip(y, 0, _LATEST)

    def composed(self, y: np.ndarray, beside: np.ndarray | None, target: "Target") -> np.ndarray:
        """See `labels_of_times`."""
        assert beside is not None  # the event column is needed
        return labels_of_times(y, beside, target.beside.cut_points)

    def check_labels(self, y: np.ndarray, target: "Target") -> None:
        """Refuses times without any event up to the last cut point."""
        if not y[:, 1].any():
            raise Fault(
                f"The target {target.name!r}",
                f"has no event up to the last cut point, {target.beside.cut_points[-1]:g}, in any "
                "silo",
                "declare what stands for the event (in a schema: event_value under [target]), or "
                "later cut points",
                column=target.beside.event_column or "",
            )

    def output_shape(self, num_classes: int) -> tuple[int, ...]:
        """An output for each interval."""
        return (num_classes,)

    def first_outputs(self, num_classes: int) -> np.ndarray:
        """Events are rare."""
        return np.full(num_classes, _FIRST)

    def survival(self, outputs: np.ndarray) -> np.ndarray:
        """[n, intervals]: the chance of no event up to each cut point."""
        return np.exp(np.cumsum(log_expit(-outputs.astype(float)), axis=1))

    def predicted(
        self, outputs: np.ndarray, target: "Target", beside: np.ndarray | None = None
    ) -> list[Any]:
        """The chance of no event up to the last cut point."""
        return self.survival(outputs)[:, -1].tolist()

    def probability_names(self, target: "Target") -> tuple[str, ...]:
        """Survival up to each cut point."""
        return tuple(f"no event up to {point:g}" for point in target.beside.cut_points)

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """The survival."""
        return self.survival(outputs)

    def onnx_results(
        self, graph: Graph, outputs: str, target: "Target", has_probabilities: bool
    ) -> list[GraphOutput]:
        """`scores`, the log-odds in each interval, and `survival` at each cut point."""
        intervals = len(target.beside.cut_points)
        graph.add("Identity", outputs, name="scores")
        summed = graph.add("CumSum", graph.add("Softplus", outputs), graph.constant(1, "i8"))
        graph.add("Exp", graph.add("Neg", summed), name="survival")
        shape: list[str | int] = ["records", intervals]
        return [("scores", np.float32, shape), ("survival", np.float32, shape)]

    def no_skill_output(self, y: np.ndarray, num_classes: int) -> np.ndarray | None:
        """The log-odds of the event in each interval, half a record added to each side."""
        place = np.arange(num_classes)
        lived = (place < y[:, :1]).sum(axis=0)
        died = ((place == y[:, :1]) & (y[:, 1:2] > 0)).sum(axis=0)
        return np.log((died + 0.5) / (lived + 0.5))

    def targets(self, y: np.ndarray, num_classes: int) -> np.ndarray:
        """How many intervals were lived through."""
        return y[:, 0]

    def extreme_labels(self, num_classes: int) -> tuple[Any, ...]:
        """An event at once, and none to the end."""
        return (0.0, 1.0, 0.0, 1.0), (float(num_classes), 0.0, _LATEST, 0.0)


TASK = Hazard()
