"""One silo by itself: what a method may ask of it in a round, and its part in a run.

The debug engine asks silo after silo so; a site has one silo, and compiles its part once.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from silodp.engines.job import Job, Setting
from silodp.engines.layout import group_data, group_silos
from silodp.federation import Federation, Silo
from silodp.methods.base import Method
from silodp.models import bounded_score
from silodp.privacy.plan import SiloPlan
from silodp.privacy.queries import PassNoise, Queries, SiloNoise, SiloRecords, guarded
from silodp.privacy.randomness import draw_pass, pass_keys, selection_keys
from silodp.privacy.training import PassShape

# What a silo says that keeps the scale of its noise to itself.
UNTOLD = PassNoise(float("inf"), 0.0, 0.0, 0.0)


class SiloData(NamedTuple):
    """A silo's records and noise, as a training pass takes them."""

    records: SiloRecords
    noise: SiloNoise


def laid_out(job: Job, alone: Federation, plan: SiloPlan) -> tuple[PassShape, SiloData]:
    """The only silo of a federation, as a group of its own."""
    (group,) = group_silos((plan,))
    setting = Setting(0.0, (plan,), {})
    data = jax.tree.map(lambda a: jnp.asarray(a)[0, 0], group_data(job, group, [alone], [setting]))
    records = data.train._replace(features=job.unit_model.prepare(data.train.features))
    return group.shape, SiloData(records, data.noise)


def queries_of(
    job: Job,
    shape: PassShape,
    data: SiloData,
    lr: Array,
    key: Array,
    place: Array | int,
    number: Array,
    trial: int = 0,
    tell_noise: bool = True,
) -> Queries:
    """What the method may ask of the silo in a round.

    Args:
      job: what is run.
      shape: of a training pass.
      data: of the silo.
      lr: learning rate.
      key: of the run, as the silo has it.
      place: of the silo in the federation.
      number: of the round.
      trial: see `pass_keys`.
      tell_noise: whether the method may know the scale of the noise.
    """
    here = jnp.asarray(place)[None]
    keys = pass_keys(key, here, number, job.schedule.train, trial)[0]
    select_key = selection_keys(key, here, number, trial)[0]

    def train(asked, params, towards, strength):
        randomness = draw_pass(keys[asked], shape.size(job.parameters))
        return job.train(shape, data.records, data.noise, lr, randomness, params, towards, strength)

    def select(candidates):
        return job.select(data.records, data.noise.select, select_key, candidates)

    noise = job.pass_noise(shape, data.records, data.noise, lr)
    if not tell_noise:
        noise = PassNoise(*(jnp.full_like(a, b) for a, b in zip(noise, UNTOLD, strict=True)))
    return guarded(job.schedule, number, train, select, noise)


def metric_of(job: Job, silo: Silo, params: Any) -> Array:
    """The metric of a model on the silo's test records."""
    outputs = job.model.predict(params, jnp.asarray(silo.test.x))
    y = jnp.asarray(silo.test.y)
    return jnp.mean(bounded_score(job.model.task, outputs, y, job.metric_bound))


def message_like(job: Job, method: Method, state: Any, told: Any) -> Any:
    """What shape a silo's message has; `state` and `told` may be shapes only."""

    def local(state: Any, told: Any) -> Any:
        noise = PassNoise(*(jnp.float32(value) for value in UNTOLD))
        # Neither question is answered: a model is of the model's shape, a choice is a number.
        asked = guarded(
            job.schedule,
            jnp.int32(0),
            lambda number, params, towards, strength: params,
            lambda candidates: jnp.int32(0),
            noise,
        )
        return method.local(state, told, asked)[1]

    return jax.eval_shape(local, state, told)


class OneSilo:
    """A silo's part in a run, round by round.

    Attributes:
      method: as it is run here.
    """

    def __init__(
        self, job: Job, alone: Federation, setting: Setting, place: int, tell_noise: bool = True
    ):
        self._job, self._silo, self._place = job, alone.silos[0], place
        self.method = job.build(setting.options)
        shape, self._data = laid_out(job, alone, setting.plans[0])
        lr = jnp.float32(setting.lr)

        # Where the silo is in the list is an argument: silos of one shape share a program.
        def local(data: SiloData, key, place, state, told, number):
            asked = queries_of(job, shape, data, lr, key, place, number, tell_noise=tell_noise)
            return self.method.local(state, told, asked)

        self._local = jax.jit(local)
        self._personal = jax.jit(self.method.personal)

    def begin(self, first: Array) -> Any:
        """The first state, from the key that all silos have in common."""
        return self._job.begin(self.method, first, self._place)[1]

    def local(self, key: Array, state: Any, told: Any, number: int) -> tuple[Any, Any]:
        """A round: the next state, and the message."""
        return self._local(self._data, key, jnp.int32(self._place), state, told, jnp.int32(number))

    def personal(self, state: Any, told: Any) -> Any:
        """The model that the silo uses."""
        return self._personal(state, told)

    def metric(self, params: Any) -> float:
        """Of a model, on the silo's test records; NaN if there is none."""
        if not len(self._silo.test):
            return float("nan")
        return float(metric_of(self._job, self._silo, params))
