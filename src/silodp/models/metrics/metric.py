"""What a metric knows of itself: how it is worked out, which way is better, and its words.

A metric is a function of all test records of a silo at once, so that it need not be a mean over
them. It is written for arrays of NumPy and of JAX alike: the compiled program works out the one
that a run goes by, and the host all others, with their intervals. One that is a mean whose shares
are bounded (`MeanMetric`) can also be released with noise, and score trials.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array

from silodp.base.text import amount, percent, silo_names
from silodp.config.choices import MetricName, TaskName
from silodp.data.federation import Federation
from silodp.data.tasks import Task

NOTHING = "not a number"
_QUANTILE = 1.959964  # of a normal distribution, at 97.5 %


def namespace(array: Any) -> ModuleType:
    """The library whose array this is: functions of this name are in both."""
    return array.__array_namespace__()


def total(weight: Any, values: Any) -> Any:
    """The weighted sum over records [..., n]; what has no weight may be anything."""
    return namespace(values).where(weight > 0, weight * values, 0).sum(axis=-1)


class Metric(ABC):
    """Something that is measured on the test records of a silo.

    Attributes:
      name: what options, results and cards call it.
      tasks: those that it is for.
      better: whether a lower or a higher value is better.
      noun: what sentences call it after "test": test error, test accuracy.
      words: its name in full.
      short: its name in the label of an axis.
      meaning: what a card says it is.
      needs: what a silo's test records must be, or it has no value there.
      of_probabilities: whether it is about probabilities, which not every model gives.
      of_decisions: whether it is about the class that is predicted, however sure the model is.
      companions: metrics without which it says little, to be shown beside it.
      shows_skill: whether one above that of the best constant shows that something was learned.
      power_of_unit: the power of the target's own unit that it is in; 0 if it has none.
      limits: between which values lie.
      by_ratio: whether values are compared by ratio: gains are parts of what there was, and an axis
        may be logarithmic. Else they are compared by difference.
      digits: decimals in the tables of the command line.
      gained: what a gain is called along an axis.
    """

    name: ClassVar[MetricName]
    tasks: ClassVar[tuple[TaskName, ...]]
    better: ClassVar[Literal["lower", "higher"]]
    noun: ClassVar[str]
    words: ClassVar[str]
    short: ClassVar[str]
    meaning: ClassVar[str]
    needs: ClassVar[str] = "a test record"
    of_probabilities: ClassVar[bool] = False
    of_decisions: ClassVar[bool] = False
    companions: ClassVar[tuple[MetricName, ...]] = ()
    shows_skill: ClassVar[bool] = True
    power_of_unit: ClassVar[int] = 0
    limits: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    by_ratio: ClassVar[bool] = False
    digits: ClassVar[int] = 4
    gained: ClassVar[str]

    @abstractmethod
    def value(self, task: Task, outputs: Any, y: Any, weight: Any) -> Any:
        """The metric of one silo, as a pure function; NaN where it has none.

        Args:
          task: what labels and outputs mean.
          outputs: a model's outputs, [n] or [n, classes].
          y: labels [n].
          weight: [..., n], how often each record counts: 0 where it is padding, and any whole
            number in a resample. With leading axes, there is a value for each of them.
        """

    def has_value(self, y: np.ndarray) -> bool:
        """Whether test records with these labels have one, whatever the model."""
        return len(y) > 0

    def no_skill(self, task: Task, y: np.ndarray, num_classes: int) -> np.ndarray | None:
        """The output for any record that is best without features, from training labels."""
        return task.no_skill_output(y, num_classes)

    def counted(self, task: Task, outputs: np.ndarray, y: np.ndarray) -> np.ndarray | None:
        """[n]: the records that it is a share of; None if it is no share."""
        return None

    def where_known(self, federations: Sequence[Federation]) -> np.ndarray:
        """[federations, silos]: which silos have a value."""
        return np.array(
            [[self.has_value(silo.test.y) for silo in one.silos] for one in federations]
        )

    def loss_like(self, value: float) -> float:
        """A number to sort by, the best first."""
        return value if self.better == "lower" else -value

    # --- in words

    @property
    def heading(self) -> str:
        """The heading of a column on the command line."""
        return f"test {self.short} ({self.better} is better)"

    def missing_in(self, silos: Sequence[str]) -> str:
        """A sentence on silos that have no value."""
        return f"Without a test {self.noun}, which needs {self.needs}: {silo_names(silos)}."

    @property
    def label(self) -> str:
        """The label of an axis of a picture."""
        return f"test {self.short} ({self.better} is better)"

    @property
    def title(self) -> str:
        """The label of an axis that has room for the full name."""
        full = "" if self.words == self.noun else f": {self.words}"
        return f"test {self.noun}{full} ({self.better} is better)"

    @property
    def brief(self) -> str:
        """The title of an axis with less room."""
        named = f"test {self.noun}" if self.words == self.noun else self.words
        return f"{named} ({self.better} is better)"

    def text(self, value: float | None) -> str:
        """A value as people read it."""
        if value is None or not math.isfinite(value):
            return NOTHING
        return self.finite_text(value)

    def finite_text(self, value: float) -> str:
        """A value as people read it, where there is one: three digits that count."""
        return amount(value)

    def plus_minus(self, mean: float | None, spread: float | None) -> str:
        """The mean, with the spread over seeds where there is one."""
        if mean is None or spread is None or not spread > 0:
            return self.text(mean)
        # Both with the decimals that three digits of the mean need.
        decimals = max(0, 2 - math.floor(math.log10(abs(mean)))) if mean else 3
        if decimals > 5:
            return f"{self.text(mean)} ± {spread:.2g}"
        least = 10.0**-decimals
        shown = f"{spread:.{decimals}f}" if spread >= least / 2 else f"<{least:.{decimals}f}"
        return f"{mean:.{decimals}f} ± {shown}"

    def in_own_unit(self, value: float, unit: float) -> float:
        """The value of a target that was scaled, where its 0..1 is `unit` of its own."""
        return value * unit**self.power_of_unit

    def ticks(self, values: Sequence[float]) -> list[str]:
        """The numbers along an axis."""
        return [f"{value:.4g}" for value in values]

    # --- gains of one method over another; above 0 is better

    def gains(self, own: np.ndarray, other: np.ndarray) -> np.ndarray:
        """What was gained, run by run."""
        difference = other - own if self.better == "lower" else own - other
        scale = float(other.mean()) if self.by_ratio else 1.0
        return difference / (scale if scale > 0 else 1.0)  # the other has no error at all

    def size(self, gain: float) -> str:
        """How large a gain or loss is, without its sign."""
        return f"{abs(gain):.3g}"

    def gain_tick(self, gain: float) -> str:
        """A gain along an axis."""
        return f"{gain:g}"

    def way(self, gain: float) -> str:
        """Which way a gain goes, such as "lower (better)"."""
        lower = (gain > 0) == (self.better == "lower")
        return f"{'lower' if lower else 'higher'} ({'better' if gain > 0 else 'worse'})"


class MeanMetric(Metric):
    """A mean over test records, each of which has a share of its own, at least 0 and bounded."""

    @abstractmethod
    def share(self, task: Task, outputs: Any, y: Any) -> Any:
        """What each record adds to the mean, [n]: at least 0, and from the record alone."""

    def largest(self, bound: float) -> float:
        """The most that a record's share counts where --metric-bound bounds it."""
        return bound

    def most(self, num_classes: int) -> float | None:
        """The largest share that there can be with so many classes; None where there is none."""
        return None

    def value(self, task: Task, outputs: Any, y: Any, weight: Any) -> Any:
        """The mean of the shares; NaN of no record."""
        return total(weight, self.share(task, outputs, y)) / weight.sum(axis=-1)

    def bounded_share(self, task: Task, outputs: Array, y: Array, largest: float) -> Array:
        """Shares from 0 to `largest`: what a record can add, whatever it and the model are.

        A share that is not a number is the largest, or one record would make the mean of all of
        them not a number. One that rounding has below 0 would move it by more than is paid for.
        """
        return jnp.maximum(jnp.fmin(self.share(task, outputs, y), largest), 0.0)

    def as_loss(self, means: np.ndarray, largest: float) -> np.ndarray:
        """Means of shares from 0 to `largest` such that lower is better.

        A model that is not finite (NaN here) has the worst.
        """
        lower = means if self.better == "lower" else largest - means
        return np.where(np.isfinite(lower), lower, largest)


class Error(Metric):
    """An error: from 0, lower is better, compared by ratio."""

    better = "lower"
    noun = "error"
    limits = (0.0, math.inf)
    by_ratio = True
    digits = 5
    gained = "reduction of error"

    def size(self, gain: float) -> str:
        """The gain in percent of the error that there was."""
        return percent(abs(gain))

    def gain_tick(self, gain: float) -> str:
        """The gain in percent."""
        return percent(gain)


class ErrorMetric(Error, MeanMetric):
    """A mean of errors."""


class ShareMetric(Metric):
    """A share of some of the records, in percent; gains are in points."""

    better = "higher"
    limits = (0.0, 1.0)

    def finite_text(self, value: float) -> str:
        """The share in percent."""
        return f"{100 * value:.1f} %"

    def plus_minus(self, mean: float | None, spread: float | None) -> str:
        """Mean and spread in percent."""
        if mean is None or spread is None or not spread > 0:
            return self.text(mean)
        return f"{100 * mean:.1f} ± {100 * spread:.1f} %"

    def ticks(self, values: Sequence[float]) -> list[str]:
        """Ticks in percent, with a decimal where they are close."""
        step = values[1] - values[0] if len(values) > 1 else 1.0
        return [f"{100 * value:.{0 if step >= 0.01 else 1}f} %" for value in values]

    def size(self, gain: float) -> str:
        """The gain in points."""
        return f"{100 * abs(gain):.1f} points"

    def gain_tick(self, gain: float) -> str:
        """The gain in points."""
        return f"{100 * gain:.0f}"


def wilson(share: float, count: float) -> tuple[float, float]:
    """The interval (95 %) of a share of so many records, by E. B. Wilson."""
    square = _QUANTILE**2 / count
    middle = (share + square / 2) / (1 + square)
    half = _QUANTILE * math.sqrt(share * (1 - share) / count + square / (4 * count))
    return max(0.0, middle - half / (1 + square)), min(1.0, middle + half / (1 + square))
