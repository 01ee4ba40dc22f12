"""One silo by itself: what a method may ask of it in a round, and its part in a run.

The debug engine goes through silos one by one; a site has one, and compiles its part once.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from silodp.data.federation import Federation, Silo
from silodp.engines.job import Job, Setting
from silodp.engines.layout import group_data, group_silos, pad_rows, silo_lattice
from silodp.engines.programs import Programs
from silodp.methods.base import Method
from silodp.privacy.mechanisms.queries import PassNoise, Queries, SiloNoise, SiloRecords, guarded
from silodp.privacy.mechanisms.randomness import (
    PassRandomness,
    draw_pass,
    pass_keys,
    run_key,
    selection_keys,
    selection_words,
)
from silodp.privacy.mechanisms.release_draws import ReleaseDraws, RoundDraws, SiloGroup, host_words
from silodp.privacy.mechanisms.training import PassShape
from silodp.privacy.plan import SiloPlan
from silodp.privacy.session import PaidRounds

# What a silo says if it does not disclose the scale of its noise.
UNDISCLOSED = PassNoise(float("inf"), 0.0, 0.0, 0.0)


class SiloData(NamedTuple):
    """A silo's records and noise, as a training pass takes them."""

    records: SiloRecords
    noise: SiloNoise


def laid_out(job: Job, alone: Federation, plan: SiloPlan) -> tuple[PassShape, SiloData]:
    """The only silo of a federation, as a group of its own."""
    (group,) = group_silos((plan,), job.release)
    setting = Setting(0.0, (plan,), {})
    data = jax.tree.map(lambda a: jnp.asarray(a)[0, 0], group_data(job, group, [alone], [setting]))
    records = data.train._replace(features=job.unit_model.prepare(data.train.features))
    return group.shape, SiloData(records, data.noise)


class Drawn(NamedTuple):
    """What is random for a silo in a round.

    Attributes:
      of_pass: number of the pass within the round -> its randomness.
      words_of: number of candidates -> words for a selection among them.
    """

    of_pass: Callable[[int], PassRandomness]
    words_of: Callable[[int], Array]


def drawn_from_key(
    job: Job, shape: PassShape, key: Array, place: Array | int, number: Array, trial: int = 0
) -> Drawn:
    """The randomness of an experiment: `key` is the run's; other arguments as for `pass_keys`."""
    here = jnp.asarray(place)[None]
    keys = pass_keys(key, here, number, job.schedule.train, trial)[0]
    select_key = selection_keys(key, here, number, trial)[0]
    return Drawn(
        lambda number_of_pass: draw_pass(keys[number_of_pass], shape.size(job.parameters)),
        lambda candidates: selection_words(select_key, candidates),
    )


def drawn_by_host(draws: RoundDraws) -> Drawn:
    """The randomness of a release: the silo's part of what the host has drawn for the round."""
    return Drawn(
        lambda number_of_pass: jax.tree.map(lambda a: a[number_of_pass], draws.passes),
        lambda candidates: host_words(draws.select, candidates),
    )


def release_draws_of(
    job: Job,
    seeds: Sequence[int],
    federations: Sequence[Federation],
    setting: Setting,
    groups: Sequence[SiloGroup],
) -> ReleaseDraws:
    """The draws of releases, one a seed, for silos in groups as an engine holds them."""
    return ReleaseDraws(
        job.secret,
        seeds,
        setting.trial,
        setting.plans,
        [federation.unit_counts.tolist() for federation in federations],
        [silo_lattice(plan) for plan in setting.plans],
        job.parameters,
        groups,
    )


def queries_of(
    job: Job,
    shape: PassShape,
    data: SiloData,
    lr: Array,
    drawn: Drawn,
    number: Array,
    discloses_noise: bool = True,
) -> Queries:
    """What the method may ask of the silo in a round.

    Args:
      job: what is run.
      shape: shape of a training pass.
      data: the silo's records and noise.
      lr: learning rate.
      drawn: what is random in the round.
      number: number of the round.
      discloses_noise: whether the method may know the scale of the noise.
    """

    def train(number_of_pass, params, towards, strength):
        randomness = drawn.of_pass(number_of_pass)
        return job.train(shape, data.records, data.noise, lr, randomness, params, towards, strength)

    def select(candidates):
        return job.select(data.records, data.noise.select, drawn.words_of, candidates)

    noise = job.pass_noise(shape, data.records, data.noise, lr)
    if not discloses_noise:
        noise = PassNoise(*(jnp.full_like(a, b) for a, b in zip(noise, UNDISCLOSED, strict=True)))
    return guarded(job.schedule, number, train, select, noise)


def metric_of(job: Job, silo: Silo, params: Any) -> Array:
    """The metric of a model on the silo's test records; see `Job.measure`."""
    return metric_on(job, *test_records(silo), params)


def test_records(silo: Silo) -> tuple[np.ndarray, np.ndarray, np.int32]:
    """Features, labels and the number of a silo's test records, for `metric_on`."""
    rows = max(1, len(silo.test))  # a program has no place for none
    x, y = (pad_rows(array, rows) for array in (silo.test.x, silo.test.y))
    return x, y, np.int32(len(silo.test))


def metric_on(job: Job, x: Any, y: Any, count: Any, params: Any) -> Array:
    """The metric of a model on the first `count` of these records; see `Job.measure`."""
    features, zero = job.model.prepare(jnp.asarray(x)), jnp.int32(0)  # a metric draws no sample
    return job.measure(params, SiloRecords(features, jnp.asarray(y), count, *(zero,) * 4))


def message_like(job: Job, method: Method, state: Any, broadcast: Any) -> Any:
    """What shape a silo's message has; `state` and `broadcast` may be shapes only."""

    def local(state: Any, broadcast: Any) -> Any:
        noise = PassNoise(*(jnp.float32(value) for value in UNDISCLOSED))
        # Shapes only: the answer to a training query has the model's shape, a choice is a number.
        queries = guarded(
            job.schedule,
            jnp.int32(0),
            lambda number, params, towards, strength: params,
            lambda candidates: jnp.int32(0),
            noise,
        )
        return method.local(state, broadcast, queries)[1]

    return jax.eval_shape(local, state, broadcast)


def _digest(tree: Any) -> bytes:
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        array = np.asarray(leaf)
        digest.update(f"{array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()


class OneSilo:
    """A silo's part in a run, round by round.

    Attributes:
      method: the method, with the silo's own options.
    """

    def __init__(
        self,
        job: Job,
        alone: Federation,
        setting: Setting,
        place: int,
        seed: int,
        discloses_noise: bool = True,
        programs: Programs | None = None,
    ):
        """The part of the silo at that place in the federation, with the randomness of that seed.

        If the job has a secret it is the silo's own: its draws are those of a run of its own.
        Programs are taken from `programs`, if they were made before.
        """
        self._job, self._silo, self._place = job, alone.silos[0], place
        self.method = job.build(setting.options)
        shape, self._data = laid_out(job, alone, setting.plans[0])
        lr = jnp.float32(setting.lr)

        # Where the silo is in the list is an argument: silos of one shape share a program.
        def local(data: SiloData, random: Any, place, state, broadcast, number):
            if job.release:
                drawn = drawn_by_host(random)
            else:
                drawn = drawn_from_key(job, shape, random, place, number)
            queries = queries_of(job, shape, data, lr, drawn, number, discloses_noise)
            return self.method.local(state, broadcast, queries)

        def compiled() -> tuple[Callable, Callable, Callable]:
            return jax.jit(local), jax.jit(self.method.personal), jax.jit(partial(metric_on, job))

        key = (job.identity, shape, setting.lr, repr(setting.options), discloses_noise)
        programs = programs or Programs()
        self._local, self._personal, self._metric = programs.get(key, compiled)
        if job.release:
            group = SiloGroup(np.zeros(1, int), shape)
            draws = release_draws_of(job, [seed], [alone], setting, [group])

            def random(number: int, state: Any, broadcast: Any) -> Any:
                (own,) = draws.of_round(number, _digest((state, broadcast)))
                return jax.tree.map(lambda a: a[0, 0], own)

            self._random = random
        else:
            key = jnp.asarray(run_key(seed, b""))
            self._random = lambda number, state, broadcast: key

    def first_state(self, first: Array) -> Any:
        """The first state, from the key that all silos have in common."""
        return self._job.first_states(self.method, first, self._place)[1]

    def local(self, state: Any, broadcast: Any, paid: PaidRounds) -> tuple[Any, Any]:
        """A round that is paid for: the next state, and the message.

        In a release, the same question gets the same answer, and another one other noise.
        """
        number = paid.first
        place, random = jnp.int32(self._place), self._random(number, state, broadcast)
        return self._local(self._data, random, place, state, broadcast, jnp.int32(number))

    def personal(self, state: Any, broadcast: Any) -> Any:
        """The model that the silo uses."""
        return self._personal(state, broadcast)

    def metric(self, params: Any) -> float:
        """The metric of a model on the silo's test records; infinite if they have none."""
        if not len(self._silo.test):
            return float("inf")
        return float(self._metric(*test_records(self._silo), params))
