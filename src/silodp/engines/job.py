"""What an engine is asked to do: a job, and the settings in which its runs differ."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from silodp.methods import MethodEntry
from silodp.models import Model
from silodp.optimisers import OPTIMISERS, Optimiser
from silodp.privacy.plan import SiloPlan
from silodp.privacy.queries import PassShape, Regulariser, training_pass


class Setting(NamedTuple):
    """One point of a sweep: what may differ between runs of one compiled program."""

    lr: float
    plans: tuple[SiloPlan, ...]  # of each silo: the noise, calibrated to its policy
    options: dict[str, float]  # of the method


@dataclass(frozen=True)
class Job:
    """Everything that the compiled program depends on, besides seeds and settings."""

    model: Model
    method: MethodEntry
    rounds: int
    clip: float
    weights: np.ndarray
    regulariser: Regulariser = "outside"
    optimiser: Optimiser = "sgd"

    def train(self, shape: PassShape, *args) -> Any:
        """A training pass of this job; see `queries.training_pass` for the arguments."""
        optimiser = OPTIMISERS[self.optimiser]
        return training_pass(self.model, shape, self.regulariser, optimiser, *args)

    @property
    def passes_a_round(self) -> int:
        """Training passes that the method's schedule pays for in each round."""
        anything = dict.fromkeys(self.method.options, 0.0)
        schedule = self.method.build(rounds=self.rounds, **anything).schedule(self.rounds)
        return schedule.training_passes // self.rounds

    @property
    def parameters(self) -> int:
        """Numbers in the model."""
        shapes = jax.eval_shape(self.model.init, jax.random.key(0))
        return sum(leaf.size for leaf in jax.tree.leaves(shapes))
