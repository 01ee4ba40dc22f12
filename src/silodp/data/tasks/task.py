"""What a task knows of itself: its labels, what a model's outputs mean for them, and the words.

A task is about labels and outputs. Losses belong to models (`models.losses`), and what is measured
on test records to metrics (`models.metrics`); a task names those that it is usually given.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np

from silodp.base.errors import SilodpError
from silodp.config.choices import MetricName, SelectScore, TaskName

if TYPE_CHECKING:
    from silodp.data.tables.target import Target

PublicKnowledge = Literal["feature bounds", "label range", "class list"]


class Graph(Protocol):
    """An ONNX graph that is being written; values are known by their names."""

    def add(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """A node; returns what it puts out."""
        ...

    def constant(self, values: Any, dtype: Any) -> str:
        """An array that does not change."""
        ...

    def cast(self, value: str, dtype: Any) -> str:
        """The value in another type."""
        ...


GraphOutput = tuple[str, type[np.generic], list[str | int]]
"""Name, type and shape of what an ONNX graph puts out."""


class Task(ABC):
    """One kind of thing to learn. Where a method says nothing else, labels are numbers.

    Arrays may be NumPy's or JAX's where a method says so; all others are NumPy's.

    Attributes:
      name: what options, results and cards call it.
      model: the usual model.
      lr: the learning rate to begin with, where nothing is known of the data.
      metric: what is measured unless options name another metric.
      metrics: what is measured besides, likewise.
      no_skill: what the best prediction without features is called.
      public: the kind of public knowledge that bounds its labels.
      schema_key: what a schema's [target] calls that knowledge.
      select_score: what selections go by unless options say otherwise.
      of_classes: whether labels stand for the classes of a list.
      in_order: whether the classes have an order, which somebody has to declare.
      is_scaled: whether a target's range is scaled to 0..1 before it is learned.
      label_dtype: dtype of labels, as models take them.
      label_shape: shape of one record's label.
      has_probabilities: whether outputs are log-odds, in the task's usual model.
      target_numbers: what numbers a table's target holds, in words.
      label_means: whether means of labels say how far silos differ (`advise --estimate-epsilon`).
      takes: what may be declared beside the target (see `data.tables.beside`).
      needs: what of it must be declared.
      as_vectors: what labels are where models are learned from moments: "numbers", "signs" (-1 and
        1) or "places" (a 1 in the place of the class); None where they cannot be.
      ball_radius: what the radius of the unit ball of `in_unit_ball` is, in units of the label.
    """

    name: ClassVar[TaskName]
    model: ClassVar[str]
    lr: ClassVar[float]
    metric: ClassVar[MetricName]
    metrics: ClassVar[tuple[MetricName, ...]] = ()
    no_skill: ClassVar[str] = "the constant prediction"
    public: ClassVar[PublicKnowledge] = "label range"
    schema_key: ClassVar[str] = "range"
    select_score: ClassVar[SelectScore] = "loss"
    of_classes: ClassVar[bool] = False
    in_order: ClassVar[bool] = False
    is_scaled: ClassVar[bool] = False
    label_dtype: ClassVar[type[np.generic]] = np.float32
    label_shape: ClassVar[tuple[int, ...]] = ()
    ball_radius: ClassVar[float] = 0.5
    has_probabilities: ClassVar[bool] = False
    target_numbers: ClassVar[str] = "numbers"
    as_vectors: ClassVar[Literal["numbers", "signs", "places"] | None] = None
    label_means: ClassVar[bool] = True
    takes: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[tuple[str, ...]] = ()

    # --- labels

    def own_labels(self, where: str, y: np.ndarray) -> np.ndarray:
        """Labels in the task's own type; `where` names the records in errors."""
        return y.astype(self.label_dtype)

    def strange_labels(self, y: np.ndarray, num_classes: int) -> list[float]:
        """The labels that a federation with this `num_classes` cannot hold."""
        return []

    def odd(self, y: np.ndarray) -> np.ndarray:
        """[n]: which numbers of a table's target no label is made of."""
        return np.zeros(len(y), bool)

    def numbers(self, y: np.ndarray) -> np.ndarray:
        """[n]: the number that people take each label for."""
        return y

    def allowed_labels(self, num_classes: int) -> str:
        """The labels that there may be, in words."""
        return "numbers"

    def is_one_sided(self, y: np.ndarray) -> bool:
        """Whether these labels are all of one class, so that there is nothing to learn."""
        return False

    # --- classes; a task of numbers has none

    def check_num_classes(self, federation: str, num_classes: int) -> None:
        """Refuses a federation's `num_classes` that does not fit."""
        return

    def count_classes(self, num_classes: int) -> int:
        """How many classes there are, where this is a federation's `num_classes`."""
        return num_classes

    def num_classes_of(self, classes: int) -> int:
        """A federation's `num_classes`, where there are so many classes."""
        return 0

    def fits_classes(self, classes: int) -> bool:
        """Whether a list of so many classes can be the task's."""
        return False

    def class_numbers(self, y: Any) -> Any:
        """The place in the list of classes that each label stands for."""
        raise NotImplementedError(f"A {self.name} task has no classes.")

    def labels_of(self, places: np.ndarray) -> np.ndarray:
        """The labels of classes at these places in the list."""
        raise NotImplementedError(f"A {self.name} task has no classes.")

    def class_names(self, num_classes: int) -> tuple[str, ...]:
        """The names of classes that have none: their labels."""
        return tuple(str(number) for number in range(num_classes))

    def suits(self, distinct: np.ndarray) -> bool:
        """Whether a target with these different values (numbers or words) is meant for the task.

        Of several tasks that say so, the last in `TASKS` is taken.
        """
        return False

    # --- targets of tables

    def check_target(self, where: str, target: "Target") -> None:
        """Refuses declarations that do not fit the task; `where` names the place in errors."""
        return

    def is_bounded(self, target: "Target") -> bool:
        """Whether what labels may be is declared."""
        return target.range is not None

    def whole(self, y: np.ndarray) -> np.ndarray:
        """Numbers of records that cannot be refused, as nearly such as the task takes."""
        return y

    def has_beside(self, beside: np.ndarray) -> np.ndarray:
        """[n]: whether the numbers of the column beside the target's can be part of labels."""
        return ~np.isnan(beside)

    def composed(self, y: np.ndarray, beside: np.ndarray | None, target: "Target") -> np.ndarray:
        """Labels of the target's numbers, and of those of the column beside it."""
        return y

    def check_labels(self, y: np.ndarray, target: "Target") -> None:
        """Refuses labels of all silos together that there is nothing to learn from.

        For `silodp data check` alone: a run that was refused for it would tell of records.
        """
        return

    def check_agreed(self, where: str, target: "Target") -> None:
        """Refuses a schema that leaves open what labels may be; `where` names it in errors."""
        if target.range is None:
            raise SilodpError(
                f"{where}: the target {target.name!r} of a {self.name} needs its range: declare "
                "range = [low, high], and no classes."
            )

    # --- a model's outputs

    def output_shape(self, num_classes: int) -> tuple[int, ...]:
        """The shape of a model's output for one record: () is a single number."""
        return ()

    def first_outputs(self, num_classes: int) -> np.ndarray:
        """Where the outputs of a model with several of them begin."""
        return np.zeros(self.output_shape(num_classes))

    def first_output(self, target: "Target") -> float:
        """Where the output of a model with one begins, by what is declared of the target."""
        return 0.0

    def ranks(self, outputs: Any) -> Any:
        """[n]: the rank of the class that outputs name. Arrays of NumPy or of JAX."""
        raise NotImplementedError(f"A {self.name} task has no order of classes.")

    def is_second(self, outputs: Any) -> Any:
        """[n]: whether outputs name the second of two classes. Arrays of NumPy or of JAX."""
        raise NotImplementedError(f"A {self.name} task has no two classes.")

    def right(self, outputs: Any, y: Any) -> Any:
        """[n]: whether outputs name the label's class. Arrays of NumPy or of JAX."""
        raise NotImplementedError(f"A {self.name} task has no classes.")

    @abstractmethod
    def predicted(
        self, outputs: np.ndarray, target: "Target", beside: np.ndarray | None = None
    ) -> list[Any]:
        """What a model says of each record, in the target's own units or words.

        Args:
          outputs: a model's outputs.
          target: what is predicted.
          beside: the numbers of the column beside the target's that a prediction takes, if any.
        """

    def deciding_at(self, threshold: float) -> "Task":
        """The task where the second of two classes is predicted above these log-odds."""
        if threshold:
            raise SilodpError(
                f"--cost-ratio is about two classes, but the task is {self.name}: leave it out."
            )
        return self

    def probability_names(self, target: "Target") -> tuple[str, ...]:
        """What each column of `probabilities` is the probability of."""
        return target.classes

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """Probabilities [n, ...], such as of each class; of outputs that are log-odds."""
        raise NotImplementedError(f"A {self.name} task has no probabilities.")

    def log_chances(self, outputs: Any) -> Any:
        """Logarithms of each class's probability [n, classes]. Arrays of NumPy or of JAX."""
        raise NotImplementedError(f"A {self.name} task has no classes.")

    def one_hot(self, y: Any, classes: int) -> Any:
        """[n, classes]: whether each class is the label's. Arrays of NumPy or of JAX."""
        raise NotImplementedError(f"A {self.name} task has no classes.")

    def no_skill_output(self, y: np.ndarray, num_classes: int) -> np.ndarray | None:
        """The output that predicts best where nothing is known but training labels.

        None for a task that has no such thing.
        """
        return None

    def typical_error(self, outputs: np.ndarray, y: np.ndarray) -> float | None:
        """How far off outputs are, in units of the label; None where that means nothing."""
        return None

    @abstractmethod
    def onnx_results(
        self, graph: Graph, outputs: str, target: "Target", has_probabilities: bool
    ) -> list[GraphOutput]:
        """Adds to the graph what becomes of outputs [n, 1] or [n, classes]; says what it gives."""

    # --- labels as instruments see them

    def targets(self, y: np.ndarray, num_classes: int) -> np.ndarray:
        """Labels as a linear fit by least squares takes them: [n] or [n, classes]."""
        return y.astype(float)

    @abstractmethod
    def extreme_labels(self, num_classes: int) -> tuple[Any, ...]:
        """Labels with which a record may add as much as it can, the first against the last."""

    def in_unit_ball(self, y: np.ndarray, num_classes: int) -> np.ndarray:
        """Labels [n, outputs] as vectors of length up to 1; of tasks with `label_means`."""
        raise NotImplementedError(f"Means of a {self.name} task's labels mean nothing.")
