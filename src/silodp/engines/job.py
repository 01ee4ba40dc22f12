"""What an engine does: a job, and the settings in which its runs differ."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from silodp.config.choices import Optimiser, Regulariser, SelectMechanism, SelectScore
from silodp.methods import MethodEntry
from silodp.methods.base import Method, Start
from silodp.models.metrics import Metric, metric_for
from silodp.models.model import Model, metric_value, with_error_as_loss
from silodp.models.optimisers import OPTIMISERS
from silodp.models.subjects import by_subject
from silodp.privacy.mechanisms.queries import PassNoise, Schedule, SiloNoise, SiloRecords
from silodp.privacy.mechanisms.randomness import init_key
from silodp.privacy.mechanisms.selection import select_privately
from silodp.privacy.mechanisms.training import PassShape, training_pass
from silodp.privacy.mechanisms.update_noise import pass_noise
from silodp.privacy.plan import SiloPlan


class Setting(NamedTuple):
    """One point of a sweep: what may differ between runs of one compiled program."""

    lr: float
    plans: tuple[SiloPlan, ...]  # of each silo: the noise, calibrated to its policy
    options: dict[str, float]  # of the method
    of_silos: Mapping[str, tuple[float, ...]] = MappingProxyType({})  # that differ between silos
    trial: int = 0  # runs of one seed and trial share batches and unit noise

    def options_of(self, place: int) -> dict[str, float]:
        """The method's options at that silo."""
        return self.options | {name: values[place] for name, values in self.of_silos.items()}


@dataclass(frozen=True)
class Job:
    """Everything that the compiled program depends on, besides seeds and settings.

    Attributes:
      model: what is trained, and evaluated record by record.
      method: how silos learn together.
      fixed: the method's options that shape the program.
      rounds: number of communication rounds.
      weights: weights of the silos when merging; they sum to 1.
      subjects: whether a training row is all records of a subject.
      regulariser: where the pull towards another model goes.
      optimiser: the optimiser of local training.
      select_mechanism: the mechanism of private selections.
      select_score: what they go by.
      select_bound: the largest loss that counts in them.
      metric: what is measured on test records; by default the task's own.
      metric_bound: the largest share of a test record that counts in the metric.
      pivot: whether the settings after the first are trials within the silos: they get the
        broadcasts of the first one's server, and send nothing.
      secret: what randomness comes from, with the seed, in a release; empty: an experiment, in
        which it comes from the seed alone.
    """

    model: Model
    method: MethodEntry
    rounds: int
    weights: np.ndarray
    fixed: dict[str, Any] = field(default_factory=dict)
    subjects: bool = False
    regulariser: Regulariser = "outside"
    optimiser: Optimiser = "sgd"
    select_mechanism: SelectMechanism = "exponential"
    select_score: SelectScore = "loss"
    select_bound: float = 1.0
    metric: Metric = None  # type: ignore[assignment]  # filled in below
    metric_bound: float = float("inf")
    pivot: bool = False
    secret: bytes = field(default=b"", repr=False)

    def __post_init__(self):
        if self.metric is None:
            object.__setattr__(self, "metric", metric_for(self.model.task))

    @property
    def release(self) -> bool:
        """Whether what is learned may be released: see `release_draws`."""
        return bool(self.secret)

    def build(self, options: dict[str, Any]) -> Method:
        """The method with these options (which may be traced)."""
        return self.method.build(rounds=self.rounds, **self.fixed, **options)

    def first_states(self, method: Method, key: Array, place: Array | int) -> tuple[Any, Any]:
        """The first states of the server and of a silo, in the run of that key."""
        first = init_key(key)
        params = self.model.init(first)
        return method.init(Start(params, jax.random.key_data(first), place, len(self.weights)))

    @property
    def identity(self) -> tuple:
        """All of it that numbers depend on, but the secret: jobs of one identity are one job.

        Models and methods are known by their names, methods also by where they are written.
        """
        named = ("model", "method", "weights", "metric", "secret")
        others = [repr(getattr(self, f.name)) for f in fields(self) if f.name not in named]
        build = self.method.build
        written = (getattr(build, "__module__", ""), getattr(build, "__qualname__", repr(build)))
        names = (self.model.name, self.parameters, self.method.summary, *written)
        # Only where it is not the task's own: checkpoints of earlier versions know no other.
        usual = self.metric is metric_for(self.model.task)
        measured = () if usual else (self.metric.name,)
        return (*names, *others, *measured, tuple(self.weights.tolist()), self.release)

    @property
    def program(self) -> tuple:
        """All of it that a compiled program hangs on: models of one name may begin elsewhere."""
        model = self.model
        return (self.identity, model.task, model.prevalence, model.first, model.threshold)

    @cached_property
    def schedule(self) -> Schedule:
        """What the method asks of each silo."""
        # It does not depend on numbers that differ between runs: see `methods.check`.
        zero = jnp.float32(0)  # unlike Python's, it may be divided by
        return self.build(dict.fromkeys(self.method.options, zero)).schedule(self.rounds)

    @cached_property
    def unit_model(self) -> Model:
        """The model as training sees it: its rows are what epsilon protects."""
        return by_subject(self.model) if self.subjects else self.model

    @cached_property
    def _scored_model(self) -> Model:
        """The model whose loss selections go by."""
        model = self.model if self.select_score == "loss" else with_error_as_loss(self.model)
        return by_subject(model) if self.subjects else model

    def train(self, shape: PassShape, *args) -> Any:
        """A training pass of this job; see `training_pass` for the arguments."""
        optimiser = OPTIMISERS[self.optimiser]
        return training_pass(self.unit_model, shape, self.regulariser, optimiser, *args)

    def pass_noise(
        self, shape: PassShape, silo: SiloRecords, noise: SiloNoise, lr: Array
    ) -> PassNoise:
        """How uncertain a training pass of this job is."""
        return pass_noise(self.optimiser, shape, silo, noise, lr)

    def select(
        self,
        silo: SiloRecords,
        sharpness: Array,
        words_of: Callable[[int], Array],
        candidates: Any,
    ) -> Array:
        """A private selection of this job; `words_of` gives random words for so many candidates."""
        return select_privately(
            self._scored_model,
            self.select_mechanism,
            self.select_bound if self.select_score == "loss" else 1.0,
            silo,
            sharpness,
            words_of(jax.tree.leaves(candidates)[0].shape[0]),
            candidates,
            self.release,
        )

    def measure(self, params: Any, test: SiloRecords) -> Array:
        """The metric of a model, on test records that are prepared for it.

        Infinite where they have none: NaN is for models that diverged.
        """
        value = metric_value(
            *(self.model, self.metric, params, test.features, test.y, test.true_count),
            bound=self.metric_bound,
        )
        return jnp.where(jnp.isnan(value), jnp.inf, value)

    @cached_property
    def parameters(self) -> int:
        """Numbers in the model."""
        shapes = jax.eval_shape(self.model.init, jax.random.key(0))
        return sum(leaf.size for leaf in jax.tree.leaves(shapes))
