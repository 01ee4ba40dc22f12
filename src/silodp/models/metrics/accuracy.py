"""Accuracy: the share of records whose class is right."""

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array

from silodp.data.tasks import Task
from silodp.models.metrics.metric import MeanMetric


class Accuracy(MeanMetric):
    """The share of records that are classified rightly, in percent; gains are in points."""

    name = "accuracy"
    tasks = ("binary", "multiclass", "ordinal")
    better = "higher"
    noun = words = short = "accuracy"
    meaning = "Share of right ones"
    limits = (0.0, 1.0)
    gained = "points of accuracy gained"

    def share(self, task: Task, outputs: Array, y: Array) -> Array:
        """1 where the class is right."""
        return task.right(outputs, y).astype(jnp.float32)

    def largest(self, bound: float) -> float:
        """1, whatever the bound that was given."""
        return 1.0

    def finite_text(self, value: float) -> str:
        """The accuracy in percent."""
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


METRIC = Accuracy()
